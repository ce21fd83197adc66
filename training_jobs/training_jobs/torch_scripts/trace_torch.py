"""The steps of ``torch.optim`` for ``trace_steps.py``."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from batch_tensors import tensors_in
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader
from trace_steps import Steps, digest

SAMPLES = 4096  # elements of a tensor whose digest is taken: a step of an optimizer changes nearly all
SHARDING = {"FullyShardedDataParallel", "ZeroRedundancyOptimizer", "DeepSpeedEngine"}
SHARDING_PACKAGES = ("deepspeed", "megatron", "smdistributed", "colossalai")
ROUNDED = {"": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class Optimizers:
    """What is known when an optimizer of this process makes a step."""

    steps: Steps
    is_own: bool = True  # whether the step that is made is the script's
    batch: str = ""
    rows: list[str] = field(default_factory=list)
    sharded: bool = False

    def before(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """What a step begins with."""
        self.is_own = not of_checkpoint()
        if not self.is_own:
            return
        if (number := self.steps.number(optimizer)) is None:
            self.sharded = shards()
            number = self.steps.add(optimizer, optimizer, names_of(optimizer), lambda: digests(optimizer))
        self.steps.begins({"optimizer": number, "batch": self.batch, "rows": self.rows, **self.described(optimizer)})

    def after(self, *_: object) -> None:
        """What follows a step."""
        if self.is_own:
            self.steps.ends()

    def described(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """An optimizer's parameters, state and numbers."""
        parameters = list(parameters_of(optimizer))
        state = {
            id(one): {name: value for name, value in values.items() if value is not None}
            for one, values in optimizer.state.items()
            if isinstance(one, torch.Tensor)
        }
        groups = [
            {name: value for name in sorted(group) if (value := number_of(group[name])) is not None}
            for group in optimizer.param_groups
        ]
        return {
            "parameters": {name: digests(optimizer, kind) for name, kind in ROUNDED.items()},
            "state": [digest(bytes_in(state[id(one)])) if state.get(id(one)) else "" for one in parameters],
            "gradient": digest(bytes_in([one.grad for one in parameters])),
            "groups": groups,
            "sharded": self.sharded or any(map(is_shard, parameters)),
        }


def watch(steps: Steps) -> None:
    """Have each optimizer tell of its steps, and each DataLoader of its batches."""
    optimizers = Optimizers(steps)
    register_optimizer_step_pre_hook(optimizers.before)
    register_optimizer_step_post_hook(optimizers.after)
    original = dataloader._BaseDataLoaderIter.__next__

    def following(self: Any) -> Any:
        batch = original(self)
        optimizers.batch, optimizers.rows = digest(bytes_in(batch)), rows_of(batch)
        return batch

    dataloader._BaseDataLoaderIter.__next__ = following


def of_checkpoint() -> bool:
    """Whether torch.distributed.checkpoint makes the step, of rate 0, so that the optimizer has a state to load into."""
    frame = sys._getframe(1)
    while (outer := frame.f_back) is not None:
        frame = outer
        if frame.f_code.co_name == "_init_optim_state":
            return True
    return False


def shards() -> bool:
    """Whether something has given each process parameters, or their state, of its own."""
    kinds = {type(one).__name__ for one in gc.get_objects() if isinstance(one, nn.Module | torch.optim.Optimizer)}
    return bool(kinds & SHARDING) or any(name.partition(".")[0] in SHARDING_PACKAGES for name in sys.modules)


def is_shard(parameter: torch.Tensor) -> bool:
    """Whether a parameter is a DTensor that is sharded."""
    return any(one.is_shard() for one in getattr(parameter, "placements", ()))


def rows_of(batch: Any) -> list[str]:
    """Digests of the samples of a batch, by the first dimension of its tensors."""
    tensors = [one for one in tensors_in(batch) if one.ndim]
    size = len(tensors[0]) if tensors else 0
    samples = zip(*(one for one in tensors if len(one) == size), strict=True)
    return [digest(bytes_in(sample)) for sample in samples]


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The parameters of all groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


def digests(optimizer: torch.optim.Optimizer, rounded: torch.dtype | None = None) -> list[str]:
    """A digest of each of its parameters."""
    return [digest(bytes_in(one, rounded)) for one in parameters_of(optimizer)]


def names_of(optimizer: torch.optim.Optimizer) -> list[str]:
    """The names of its parameters in the largest module that has them; a number where none has."""
    modules = [one for one in gc.get_objects() if isinstance(one, nn.Module)]
    named = max(
        (dict(module.named_parameters()) for module in modules),
        key=lambda found: (len(found), str(found.keys())),
        default={},
    )
    names = {id(one): name for name, one in named.items()}
    return [names.get(id(one), str(at)) for at, one in enumerate(parameters_of(optimizer))]


def number_of(value: Any) -> Any:
    """A number, or several; None for all else."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else None
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list) and value and all(isinstance(one, int | float) for one in value):
        return list(value)
    return None


def bytes_in(value: Any, rounded: torch.dtype | None = None) -> Iterator[bytes]:
    """The bytes of tensors, numbers and texts in a value, at whatever depth."""
    if isinstance(value, torch.Tensor):
        local = value.to_local() if hasattr(value, "to_local") else value
        flat = local.detach().flatten()
        flat = flat[:: max(flat.numel() // SAMPLES, 1)]
        if flat.is_floating_point():
            flat = (flat if rounded is None else flat.to(rounded)).to(torch.float64)
        yield str(tuple(local.shape)).encode() + flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for name in sorted(value, key=str):
            yield str(name).encode()
            yield from bytes_in(value[name], rounded)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from bytes_in(one, rounded)
    elif isinstance(value, str | int | float | bool):
        yield repr(value).encode()
