"""torch.compile's arguments, and its cache as one file beside the checkpoints: a job that goes on compiles no graph again.

It has graphs, generated code and a GPU's kernels; a CPU's are built again by the host's C++ compiler
(https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html). Inductor's own folder has a file for each, and
is left where it is not uploaded, by default in /tmp.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

import torch
from common.job import Job
from common.schedule import true

FOLDER_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def add_compiler(parser: argparse.ArgumentParser) -> None:
    """Add the compiler's arguments; their defaults are those of the variables that the constructs' compilers set."""
    add, given = parser.add_argument, os.environ.get
    add("--compiler", type=_compiler, default=given("TRAINING_COMPILER") or "none", help="none or inductor")
    add("--compiler-mode", default=given("TRAINING_COMPILER_MODE") or "default", help="torch.compile's")
    add("--compiler-dynamic", type=true, default=given("TRAINING_COMPILER_DYNAMIC") or None, help="torch.compile's")


def _compiler(text: str) -> str:
    if text not in ("none", "inductor"):
        raise argparse.ArgumentTypeError(f"must be none or inductor, or xla/train.py be started, got {text!r}")
    return text


def load(job: Job) -> None:
    """Load what this local rank's processes compiled before, if anything; to be called before the first compilation."""
    if Path(os.environ.get(FOLDER_VARIABLE, "/")).is_relative_to(job.checkpoints):
        del os.environ[FOLDER_VARIABLE]
    file = _file(job)
    if not file.is_file():
        return
    try:
        found = torch.compiler.load_cache_artifacts(file.read_bytes())
    except Exception as error:  # of pickle, and of the caches: any
        found = None
        warnings.warn(f"{file} cannot be loaded ({type(error).__name__}: {error})", stacklevel=2)
    if found is None:
        warnings.warn(f"{file} has no compiled code that can be read: the model is compiled again", stacklevel=2)


def save(job: Job) -> None:
    """Save what this process has compiled or loaded; to be called after the step that compiles, on every rank.

    Only the first host writes: the others' processes compile the same code, and SageMaker merges the hosts' folders in S3.
    """
    if job.rank != job.local_rank or (artifacts := torch.compiler.save_cache_artifacts()) is None:
        return
    file = _file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_bytes(artifacts[0])
    os.replace(partial, file)


def _file(job: Job) -> Path:
    """Of each local rank, since a kernel's code names its GPU."""
    return job.checkpoints / "compiler-cache" / f"{job.local_rank}.bin"
