"""Checkpoints of sharded models that can be loaded with any layout.

The names in a checkpoint are those of the whole model, and each host writes its ranks' shards. A checkpoint is complete when its
`.metadata`, which is written last, and all files that it names exist: on SageMaker the hosts' folders are merged in S3, file by
file, and a machine may fail in between. Besides model and optimizer it has each rank's random state and, in the folder's name,
the step, of which the learning rate is a function (optimization.py).
"""

# ran: sharded checkpoints in the background; resuming in another layout | test_model_parallel | test_model_parallel | no | no

from __future__ import annotations

import shutil
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common.job import Job
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.optim import Optimizer

MARKER = ".sagemaker-upload"  # with -ing or -ed at its end, of the file beside each that SageMaker uploads
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # the optimizer's state under the parameters' names too


class Checkpointer:
    """Writes a model's checkpoints, in the background unless ``write`` is dcp.save; to be made and used on all ranks alike.

    ``stage_modules`` are this rank's, with one of the ``optimizers`` for each. ``others``: groups of tensors, equal on all
    ranks, that are restored in place where a checkpoint has them. A host's first rank removes old checkpoints.
    """

    def __init__(
        self, job: Job, stage_modules: Iterable[nn.Module], optimizers: Iterable[Optimizer], *, write: Any = dcp.async_save,
        **others: dict[str, Tensor],
    ) -> None:  # fmt: skip
        self._folder, self._first, self._restored, self._others = job.checkpoints, job.local_rank == 0, "", others
        self._parts, self._write = list(zip(stage_modules, optimizers, strict=True)), write
        self._group = dist.new_group(backend="gloo")  # of the writing thread: the training's collectives are others
        self._writing: Any = None

    def save(self, step: int) -> None:
        """Begin to write the checkpoint after ``step`` steps, from a copy in the host's memory, once the last one is complete."""
        self.wait()
        folder = self._folder / f"step-{step:08d}"
        self._writing = self._write(self._states(), checkpoint_id=folder, process_group=self._group)

    def wait(self) -> None:
        """Return when what was saved is complete on all ranks. Older ones are removed, but for the newest that S3 has."""
        if self._writing is None:
            return
        if isinstance(self._writing, Future):
            self._writing.result()
        self._writing = None
        older = sorted(self._folder.glob("step-*"))[:-1] if self._first else []
        in_s3 = [old for old in older if old.name <= self._restored or is_uploaded(old)]
        for old in in_s3[:-1]:
            shutil.rmtree(old, ignore_errors=True)  # SageMaker may leave a marker meanwhile

    def restore(self) -> int:
        """Load the newest checkpoint that is complete on every host; returns the number of steps before it, 0 without one."""
        if (step := newest(self._folder)) == 0:
            return 0
        source, loaded = self._folder / f"step-{step:08d}", self._states()
        self._restored = source.name
        written = dcp.FileSystemReader(source).read_metadata().state_dict_metadata
        for kind in loaded.keys() - {"model", "optimizer"}:  # which fewer ranks, or those of another precision, lack
            if not {f"{kind}.{name}" for name in loaded[kind]} <= written.keys():
                del loaded[kind]
        dcp.load(loaded, checkpoint_id=source)
        for state in loaded.get("random", {}).values():
            set_random_state(state)
        for module, optimizer in self._parts:
            model, state = get_state_dict(module, optimizer, options=BY_NAME)
            model = {name: loaded["model"][name] for name in model}
            state = {name: loaded["optimizer"][name] for name in state}
            set_state_dict(module, optimizer, model_state_dict=model, optim_state_dict=state, options=BY_NAME)
        return step

    def _states(self) -> dict[str, dict[str, Any]]:
        random = {f"rank-{dist.get_rank()}": random_state()}
        found: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}, "random": random, **self._others}
        for module, optimizer in self._parts:
            model, state = get_state_dict(module, optimizer, options=BY_NAME)
            found["model"] |= model
            found["optimizer"] |= state
        return found


def random_state() -> Tensor:
    """The state of PyTorch's generator on the CPU and, where it is one, that on this rank's GPU behind it: uint8."""
    return torch.cat([torch.get_rng_state(), *([torch.cuda.get_rng_state()] if torch.cuda.is_available() else [])])


def set_random_state(state: Tensor) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(state[:size])
    if torch.cuda.is_available() and len(state) > size:
        torch.cuda.set_rng_state(state[size:])


def newest(folder: Path) -> int:
    """The number of steps of the newest checkpoint that is complete on every host; 0 without one."""
    steps: list[set[int]] = [set()] * dist.get_world_size()
    dist.all_gather_object(steps, {int(at.name.removeprefix("step-")) for at in folder.glob("step-*") if is_whole(at)})
    return max(set.intersection(*steps), default=0)


def is_whole(checkpoint: Path) -> bool:
    """Whether all files that the checkpoint's metadata names are in its folder with their full size."""
    if not (checkpoint / ".metadata").is_file():
        return False
    pieces = dcp.FileSystemReader(checkpoint).read_metadata().storage_data.values()
    files = [(checkpoint / piece.relative_path, piece.offset + piece.length) for piece in pieces]
    return all(file.is_file() and file.stat().st_size >= end for file, end in files)


def is_uploaded(checkpoint: Path) -> bool:
    """Whether S3 has this host's files, by SageMaker's marker of each; True where there is none, as nothing is uploaded.

    aws/sagemaker-xgboost-container waits for the same markers before it removes a file (checkpointing.py).
    """
    names = {file.name for file in checkpoint.iterdir()}
    uploads = any(checkpoint.parent.glob(f"step-*/*{MARKER}*"))
    return not uploads or all(f"{name}{MARKER}ed" in names for name in names if MARKER not in name)
