"""Checkpoints that load under any layout, and the plain file of the whole model at the end.

The names in a checkpoint are the whole model's, whatever the layout, and each host writes its own ranks' pieces. A checkpoint
counts once its `.metadata`, which is written last, and every file that this names are there: on SageMaker the hosts' folders
meet in S3, one file at a time, and a machine may be lost in between.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from model import Config, Transformer
from parallelize import plain_name
from torch import Tensor, nn
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

# It warns where a tensor is gathered over two axes in turn, as it must be here, once and at the end.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)

KEPT = 2  # checkpoints; the last but one is there while the last is written
BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)  # the optimizer's state under the parameters' names too


def save(folder: Path, step: int, parts: Iterable[nn.Module], optimizers: Iterable[Optimizer], first: bool) -> None:
    """Write the checkpoint after ``step`` steps. Every rank calls it; ``first`` is the first rank of its host."""
    dcp.save(states(parts, optimizers), checkpoint_id=folder / f"step-{step:08d}")
    if first:
        for old in sorted(folder.glob("step-*"))[:-KEPT]:
            shutil.rmtree(old)


def restore(folder: Path, parts: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> int:
    """Go on from the newest checkpoint that every host has whole; returns the steps before it, 0 where there is none."""
    parts, optimizers = list(parts), list(optimizers)
    step = newest(folder)
    if step == 0:
        return 0
    loaded = states(parts, optimizers)
    dcp.load(loaded, checkpoint_id=folder / f"step-{step:08d}")
    for part, optimizer in zip(parts, optimizers, strict=True):
        set_model_state_dict(part, {name: loaded["model"][name] for name in get_model_state_dict(part)})
        own = get_optimizer_state_dict(part, optimizer, options=BY_NAME)
        set_optimizer_state_dict(part, optimizer, {name: loaded["optimizer"][name] for name in own}, options=BY_NAME)
    return step


def states(parts: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {"model": {}, "optimizer": {}}
    for part, optimizer in zip(parts, optimizers, strict=True):
        found["model"] |= get_model_state_dict(part)
        found["optimizer"] |= get_optimizer_state_dict(part, optimizer, options=BY_NAME)
    return found


def newest(folder: Path) -> int:
    """The steps of the newest checkpoint that is whole on every host; 0 where there is none."""
    mine = {int(path.name.removeprefix("step-")) for path in folder.glob("step-*") if is_whole(path)}
    everyones: list[set[int]] = [set()] * dist.get_world_size()
    dist.all_gather_object(everyones, mine)
    return max(set.intersection(*everyones), default=0)


def is_whole(checkpoint: Path) -> bool:
    """Whether all that the checkpoint's metadata names is in its folder, to the last byte."""
    if not (checkpoint / ".metadata").is_file():
        return False
    pieces = FileSystemReader(checkpoint).read_metadata().storage_data.values()
    files = [(checkpoint / piece.relative_path, piece.offset + piece.length) for piece in pieces]
    return all(file.is_file() and file.stat().st_size >= end for file, end in files)


def export(
    file: Path,
    config: Config,
    parts: Mapping[int, nn.Module],
    layers: list[range],
    mesh: DeviceMesh,
    device: torch.device,
) -> None:
    """Write the whole model as one plain file on rank 0, gathered tensor by tensor. Every rank calls it."""
    mine = {plain_name(name): value for part in parts.values() for name, value in part.named_parameters()}
    with torch.device("meta"):
        whole = Transformer(config).state_dict()
    gathered = {}
    for name, shape in [(name, value.shape) for name, value in whole.items()]:
        value = _full(mine[name], device) if name in mine else None
        owner = _owner(name, layers, mesh)
        if dist.get_rank() == owner != 0:
            dist.send(value, dst=0)
        if dist.get_rank() == 0:
            if owner != 0:
                value = torch.empty(shape, device=device)
                dist.recv(value, src=owner)
            gathered[name] = value.cpu()
    if dist.get_rank() == 0:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"config": vars(config), "model": gathered}, file)


def _full(value: Tensor, device: torch.device) -> Tensor:
    if isinstance(value, DTensor):
        value = value.detach().to(device).full_tensor()
    return value.detach().to(device).contiguous()


def _owner(name: str, layers: list[range], mesh: DeviceMesh) -> int:
    """The first rank that holds a part of the parameter of this name."""
    kind, number = (*name.split("."), "")[:2]
    layer = {"embed": 0, "layers": int(number) if number.isdigit() else 0}.get(kind, layers[-1].stop - 1)
    [stage] = [stage for stage, its in enumerate(layers) if layer in its]
    pipeline = mesh.mesh.flatten(1)  # [pipeline, ranks]
    return int(pipeline[stage % len(pipeline), 0])
