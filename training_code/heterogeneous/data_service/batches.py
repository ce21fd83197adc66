"""A batch's bytes: nested dicts, tuples and lists of tensors of any dtype, to flat memory and back without a copy.

The tensors lie one after the other, and what they are is said beside them, in JSON that starts no code of the sender's.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data._utils.collate import collate, default_collate_fn_map

ALIGNMENT = 64  # bytes, of each tensor from the first

Source = Callable[[Tensor], object]  # writes a tensor's values into the place that it is given


@dataclass(frozen=True)
class Stack:
    """Samples' tensors of one shape and dtype, still to be stacked: into the batch's own memory, in one copy."""

    tensors: Sequence[Tensor]

    @staticmethod
    def of(tensors: Sequence[Tensor], *, collate_fn_map: object = None) -> Stack | Tensor:
        first = tensors[0]
        alike = all(tensor.shape == first.shape and tensor.dtype == first.dtype for tensor in tensors)
        # What differs is torch's own to convert, or to refuse.
        return Stack(tensors) if alike and first.layout == torch.strided else torch.stack(list(tensors))

    def write(self, place: Tensor) -> None:
        torch.stack(list(self.tensors), out=place)


def collated(samples: Sequence[Any]) -> Any:
    """What torch's default_collate makes of samples, with ``Stack`` where it would have stacked."""
    return collate(list(samples), collate_fn_map={**default_collate_fn_map, Tensor: Stack.of})


class Writing:
    """A batch on its way into memory: ``description`` for ``read``, how many ``bytes`` it takes, and ``write``.

    Raises ``TypeError`` where the batch holds what does not travel.
    """

    def __init__(self, batch: Any) -> None:
        self.bytes = 0
        self._places: list[tuple[torch.dtype, tuple[int, ...], int, Source]] = []
        self.description = self._describe(batch, "")

    @torch.no_grad()
    def write(self, memory: Tensor) -> None:
        """Put every tensor at its place in ``memory``, uint8 of at least ``bytes``."""
        for dtype, shape, offset, source in self._places:
            source(_tensor(memory, dtype, shape, offset))

    def _describe(self, node: Any, path: str) -> Any:
        if isinstance(node, Stack):
            return self._place(node.tensors[0].dtype, (len(node.tensors), *node.tensors[0].shape), node.write)
        if isinstance(node, Tensor):
            if node.layout != torch.strided or node.is_quantized:
                raise TypeError(f"a batch's tensors must be dense, got {node.layout} at batch{path}")
            values = node.detach()
            return self._place(node.dtype, tuple(node.shape), lambda place: place.copy_(values))
        if isinstance(node, Mapping):
            for key in node:
                if not isinstance(key, str | int | float | None):
                    raise TypeError(f"a batch's keys must be text or numbers like 'image', got {key!r} at batch{path}")
            return {"dict": [[key, self._describe(value, f"{path}[{key!r}]")] for key, value in node.items()]}
        if isinstance(node, list | tuple):
            items = [self._describe(value, f"{path}[{number}]") for number, value in enumerate(node)]
            if isinstance(node, tuple) and hasattr(node, "_fields"):
                return {"named": [type(node).__module__, type(node).__qualname__, node._fields], "items": items}
            return {"tuple" if isinstance(node, tuple) else "list": items}
        if isinstance(node, bytes):
            return {"bytes": node.hex()}
        if isinstance(node, str | int | float | None):
            return {"value": node}
        raise TypeError(
            "a batch must be made of tensors, text and numbers in dicts, tuples and lists, like {'image': tensor}, "
            f"got {type(node).__module__}.{type(node).__qualname__} at batch{path}"
        )

    def _place(self, dtype: torch.dtype, shape: tuple[int, ...], source: Source) -> Any:
        offset = -(-self.bytes // ALIGNMENT) * ALIGNMENT
        size = prod(shape) * dtype.itemsize
        self.bytes = offset + size
        if size:
            self._places.append((dtype, shape, offset, source))
        return {"tensor": [str(dtype).removeprefix("torch."), list(shape), offset]}


def read(description: Mapping[str, Any], memory: Tensor) -> Any:
    """The batch that lies in ``memory``, uint8: its tensors are views of it."""
    [kind, *_] = description
    inside = description[kind]
    match kind:
        case "tensor":
            dtype, shape, offset = inside
            return _tensor(memory, getattr(torch, dtype), tuple(shape), offset)
        case "dict":
            return {key: read(value, memory) for key, value in inside}
        case "list":
            return [read(value, memory) for value in inside]
        case "tuple":
            return tuple(read(value, memory) for value in inside)
        case "named":
            return _named(*inside)(*(read(value, memory) for value in description["items"]))
        case "bytes":
            return bytes.fromhex(inside)
        case _:
            return inside


def lent(memory: memoryview, owner: object) -> Tensor:
    """Memory that may be written to, as uint8 [its size]; ``owner`` lives as long as the tensor does."""
    if not memory:
        return torch.empty(0, dtype=torch.uint8)
    return torch.from_numpy(np.asarray(_Lent(np.frombuffer(memory, dtype=np.uint8).ctypes.data, len(memory), owner)))


class _Lent:
    """What numpy's array interface asks of the owner of memory."""

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}
        self._owner = owner


def _tensor(memory: Tensor, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> Tensor:
    size = prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    return memory[offset : offset + size].view(dtype).view(shape)


def _named(module: str, name: str, fields: Sequence[str]) -> Any:
    """The named tuple's own class where the reader has it, else one just like it."""
    found: Any = sys.modules.get("__main__" if module == "__mp_main__" else module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, tuple) and getattr(found, "_fields", None) == tuple(fields):
        return found
    return collections.namedtuple(name.rpartition(".")[2], fields)
