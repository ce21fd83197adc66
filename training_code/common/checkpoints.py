"""Checkpoints of sharded models that can be loaded with any layout.

The names in a checkpoint are those of the whole model, and each host writes its ranks' shards. A checkpoint is complete when its
`.metadata`, which is written last, and all files that it names exist: on SageMaker the hosts' folders are merged in S3, file by
file, and a machine may fail in between. Besides model and optimizer it has each rank's random state. The learning rate is a
function of the step (optimization.py), and the step is in the folder's name.
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
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

KEPT = 2  # complete checkpoints: the last one may not be uploaded yet
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # the optimizer's state under the parameters' names too


class Checkpointer:
    """Writes a model's checkpoints in the background; to be constructed on every rank at once, and used on all alike.

    Args:
        folder: /opt/ml/checkpoints on SageMaker, whose files are uploaded during the training.
        stage_modules: this rank's modules, with ``optimizers`` one for each.
        first: whether this is its host's first rank, which removes old checkpoints.
    """

    def __init__(
        self, folder: Path, stage_modules: Iterable[nn.Module], optimizers: Iterable[Optimizer], first: bool
    ) -> None:
        self._folder, self._first = folder, first
        self._stage_modules, self._optimizers = list(stage_modules), list(optimizers)
        self._group = dist.new_group(backend="gloo")  # of the writing thread: the training's collectives are others
        self._writing: Future[Any] | None = None

    def save(self, step: int, wait: bool = False) -> None:
        """Begin to write the checkpoint after ``step`` steps, from a copy in the host's memory, once the last one is complete.

        With ``wait`` return when it is complete.
        """
        self.wait()
        written = dcp.async_save(
            states(self._stage_modules, self._optimizers),
            checkpoint_id=self._folder / f"step-{step:08d}",
            process_group=self._group,
        )
        assert isinstance(written, Future)
        self._writing = written
        if wait:
            self.wait()

    def wait(self) -> None:
        """Return when what was saved is complete on all ranks; only then older ones are removed, but for ``KEPT``."""
        if self._writing is None:
            return
        self._writing.result()
        self._writing = None
        if self._first:
            for old in sorted(self._folder.glob("step-*"))[:-KEPT]:
                shutil.rmtree(old)

    def restore(self) -> int:
        """Load the newest checkpoint that is complete on every host; returns the number of steps before it, 0 without one."""
        step = newest(self._folder)
        if step == 0:
            return 0
        source, loaded = self._folder / f"step-{step:08d}", states(self._stage_modules, self._optimizers)
        random = f"random.{next(iter(loaded['random']))}"
        if random not in FileSystemReader(source).read_metadata().state_dict_metadata:  # it was written by fewer ranks
            del loaded["random"]
        dcp.load(loaded, checkpoint_id=source)
        for state in loaded.get("random", {}).values():
            set_random_state(state)
        for module, optimizer in zip(self._stage_modules, self._optimizers, strict=True):
            set_model_state_dict(module, {name: loaded["model"][name] for name in get_model_state_dict(module)})
            own = get_optimizer_state_dict(module, optimizer, options=BY_NAME)
            mine = {name: loaded["optimizer"][name] for name in own}
            set_optimizer_state_dict(module, optimizer, mine, options=BY_NAME)
        return step

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.wait()


def states(stage_modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> dict[str, dict[str, Any]]:
    random = {f"rank-{dist.get_rank()}": random_state()}
    found: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}, "random": random}
    for module, optimizer in zip(stage_modules, optimizers, strict=True):
        found["model"] |= get_model_state_dict(module)
        found["optimizer"] |= get_optimizer_state_dict(module, optimizer, options=BY_NAME)
    return found


def random_state() -> Tensor:
    """The state of PyTorch's generator on the CPU and, where it is one, that on this rank's GPU behind it: uint8."""
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if torch.cuda.is_available() else [])
    return torch.cat(states)


def set_random_state(state: Tensor) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(state[:size])
    if torch.cuda.is_available() and len(state) > size:
        torch.cuda.set_rng_state(state[size:])


def newest(folder: Path) -> int:
    """The number of steps of the newest checkpoint that is complete on every host; 0 without one."""
    mine = {int(path.name.removeprefix("step-")) for path in folder.glob("step-*") if is_whole(path)}
    everyones: list[set[int]] = [set()] * dist.get_world_size()
    dist.all_gather_object(everyones, mine)
    return max(set.intersection(*everyones), default=0)


def is_whole(checkpoint: Path) -> bool:
    """Whether all files that the checkpoint's metadata names are in its folder with their full size."""
    if not (checkpoint / ".metadata").is_file():
        return False
    pieces = FileSystemReader(checkpoint).read_metadata().storage_data.values()
    files = [(checkpoint / piece.relative_path, piece.offset + piece.length) for piece in pieces]
    return all(file.is_file() and file.stat().st_size >= end for file, end in files)
