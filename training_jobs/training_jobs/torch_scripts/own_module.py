"""A module of the user's own, as ``fits.py --module FILE.py:FUNCTION`` predicts it: under FSDP2, as ``parallelize.py`` has it.

``FUNCTION(batch_size)`` returns the module and the arguments of its forward for so many samples of one rank, such as
``(Model(), (torch.zeros(batch_size, 128, dtype=torch.long),))``. Its output is the loss, has it as ``.loss``, or is summed. The
module list with the most parameters holds the layers that are gathered one by one, unless ``--layers`` names it.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from common.optimization import sync_gradients
from degrees import Degrees, add_degrees
from parallelize import Plan, parallelize
from torch import nn
from torch.distributed.device_mesh import DeviceMesh


def config(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--module", required=True, metavar="FILE.py:FUNCTION")
    parser.add_argument("--layers", help="name of the module list of its layers")
    parser.add_argument("--batch-size", type=int, default=1, help="samples of a step over all ranks")
    add_degrees(parser)
    return parser.parse_args(arguments)


def built(
    options: argparse.Namespace, degrees: Degrees, mesh: DeviceMesh
) -> tuple[list[nn.Module], list[torch.optim.Optimizer], Callable[[], object]]:
    """The module, its optimizer (AdamW), and a step. Raises ValueError for what cannot be predicted."""
    if degrees.tensor > 1 or degrees.pipeline > 1:
        raise ValueError("--module is predicted under data_shard and data_replicate only, got --tensor or --pipeline")
    degrees.check_model(1, {}, options.batch_size)
    module, inputs = function_of(options.module)(options.batch_size // degrees.data // degrees.microbatches)
    parallelize(module, Plan(layers_of(module, options.layers), (), ()), degrees, mesh)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)

    def step() -> None:
        for number in range(1, degrees.microbatches + 1):
            sync_gradients(module, number == degrees.microbatches)
            output = module(*inputs)
            loss = getattr(output, "loss", output)
            loss.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return [module], [optimizer], step


def loaded(file: Path) -> ModuleType:
    """The module in a file, beside which it finds others."""
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def function_of(given: str) -> Callable[[int], tuple[nn.Module, tuple[Any, ...]]]:
    file, _, name = given.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"module must be a file and a function in it, like model.py:build, got {given!r}")
    content = loaded(path)
    if not callable(getattr(content, name, None)):
        raise ValueError(f"module must name a function of {file}, like {file}:build, got {given!r}")
    function: Callable[[int], tuple[nn.Module, tuple[Any, ...]]] = getattr(content, name)
    return function


def layers_of(module: nn.Module, given: str | None) -> str:
    lists = {
        name: sum(parameter.numel() for parameter in one.parameters())
        for name, one in module.named_modules()
        if isinstance(one, nn.ModuleList | nn.ModuleDict | nn.Sequential) and name
    }
    if given is None and lists:
        return max(lists, key=lambda name: lists[name])
    if given not in lists:
        raise ValueError(f"layers must name a module list, like {next(iter(lists), 'layers')}, got {given!r}")
    return given
