"""Checkpoints of sharded models that can be loaded with any layout.

The names in a checkpoint are those of the whole model, and each host writes its ranks' shards. A checkpoint is complete when its
`.metadata`, which is written last, and all files that it names exist: on SageMaker the hosts' folders are merged in S3, file by
file, and a machine may fail in between. Besides model and optimizer it has each rank's random state. The learning rate is a
function of the step (optimization.py), and the step is in the folder's name.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
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

KEPT = 2  # checkpoints; the previous one is kept while the last is written
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # the optimizer's state under the parameters' names too


def save(
    folder: Path, step: int, stage_modules: Iterable[nn.Module], optimizers: Iterable[Optimizer], first: bool
) -> None:
    """Write the checkpoint after ``step`` steps; to be called by every rank. ``first``: whether it is its host's first rank."""
    dcp.save(states(stage_modules, optimizers), checkpoint_id=folder / f"step-{step:08d}")
    if first:
        for old in sorted(folder.glob("step-*"))[:-KEPT]:
            shutil.rmtree(old)


def restore(folder: Path, stage_modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> int:
    """Load the newest checkpoint that is complete on every host; returns the number of steps before it, 0 without one."""
    stage_modules, optimizers = list(stage_modules), list(optimizers)
    step = newest(folder)
    if step == 0:
        return 0
    source, loaded = folder / f"step-{step:08d}", states(stage_modules, optimizers)
    has_random = (
        f"random.{next(iter(loaded['random']))}" in FileSystemReader(source).read_metadata().state_dict_metadata
    )
    if not has_random:  # it was written by fewer ranks
        del loaded["random"]
    dcp.load(loaded, checkpoint_id=source)
    for state in loaded.get("random", {}).values():
        set_random_state(state)
    for module, optimizer in zip(stage_modules, optimizers, strict=True):
        set_model_state_dict(module, {name: loaded["model"][name] for name in get_model_state_dict(module)})
        own = get_optimizer_state_dict(module, optimizer, options=BY_NAME)
        set_optimizer_state_dict(module, optimizer, {name: loaded["optimizer"][name] for name in own}, options=BY_NAME)
    return step


def states(stage_modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}}
    found["random"] = {f"rank-{dist.get_rank()}": random_state()}
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
    files = [
        (checkpoint / stage_module.relative_path, stage_module.offset + stage_module.length) for stage_module in pieces
    ]
    return all(file.is_file() and file.stat().st_size >= end for file, end in files)
