"""Runs a script whose data host listens on one address of this machine, so that several share a port number.

    python on_address.py 127.0.0.2 SCRIPT ARGUMENTS

On SageMaker each data host is a machine of its own, and listens on all its addresses.
"""

import functools
import runpy
import sys

import data_service

_, address, *sys.argv = sys.argv
data_service.BatchServer = functools.partial(data_service.BatchServer, host=address)
runpy.run_path(sys.argv[0], run_name="__main__")
