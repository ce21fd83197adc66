"""Checks that all patches fit the installed moto: `make moto` installs the newest version and runs this.

It prints each patched part of moto that does not fit, and exits with 1 where there is one.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core import patches


def main() -> int:
    """Starts an account and prints the patches that do not fit; returns the exit code."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patches.collected() as misfits,
        LocalAccount(state=Path(folder) / "state"),
    ):
        pass
    for misfit in misfits:
        print(misfit)
    print(f"moto {version('moto')}: {len(misfits)} of the account's patches do not fit")
    return 1 if misfits else 0


if __name__ == "__main__":
    sys.exit(main())
