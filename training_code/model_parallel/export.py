"""The export of the whole model to one file that is independent of the layout."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from model import Config, Transformer
from parallelize import plain_name
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

# It warns where a tensor is gathered over two axes in turn, as it must be here, once and at the end.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)


def export(
    file: Path,
    config: Config,
    stage_modules: Mapping[int, nn.Module],
    layers: list[range],
    mesh: DeviceMesh,
    device: torch.device,
) -> None:
    """Write the whole model to one file on rank 0, gathered tensor by tensor; to be called by every rank."""
    mine = {plain_name(name): value for module in stage_modules.values() for name, value in module.named_parameters()}
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
    """The first rank with a shard of a parameter."""
    kind, number = (*name.split("."), "")[:2]
    layer = {"embed": 0, "layers": int(number) if number.isdigit() else 0}.get(kind, layers[-1].stop - 1)
    [stage] = [stage for stage, its in enumerate(layers) if layer in its]
    pipeline = mesh.mesh.flatten(1)  # [pipeline, ranks]
    return int(pipeline[stage % len(pipeline), 0])
