"""Trains until it is released by SIGUSR1, and leaves a model and a checkpoint; 120 seconds after a SIGTERM it would be killed."""

import os
import pathlib
import signal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("waiting", flush=True)
signal.sigwait({signal.SIGUSR1})
pathlib.Path("/opt/ml/model/model.txt").write_text(os.environ["EDITION"])
pathlib.Path("/opt/ml/checkpoints/checkpoint.txt").write_text("a checkpoint")
