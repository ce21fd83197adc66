"""A batch as bytes: nested containers of tensors of any dtype, to flat memory and back without a copy.

The tensors lie one after the other. What they are is described beside them in JSON, which starts no code of the sender's: a
class is looked up among those that the reader has imported.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import mmap
import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data._utils.collate import collate, default_collate_fn_map

ALIGNMENT = 64  # bytes, of each tensor from the first
LARGE = 2**20  # bytes from which memory is used again for later batches; smaller blocks malloc keeps
HUGE_PAGE = 2**21
MOST_CACHED = 4096  # bytes of a description that is parsed once for all batches that have it
MOST_KEPT = 64  # received batches whose memory is kept once their last tensor is gone


@dataclasses.dataclass(frozen=True)
class Stack:
    """Samples' tensors of one shape and dtype, still to be stacked: into the batch's own memory, in one copy."""

    tensors: Sequence[Tensor]

    @staticmethod
    def of(tensors: Sequence[Tensor], *, collate_fn_map: object = None) -> Stack | Tensor:
        first = tensors[0]
        alike = all(tensor.shape == first.shape and tensor.dtype == first.dtype for tensor in tensors)
        # What differs is torch's own to convert, or to refuse.
        return Stack(tensors) if alike and first.layout == torch.strided else torch.stack(list(tensors))


_COLLATE_FN_MAP = {**default_collate_fn_map, Tensor: Stack.of}


def collated(samples: Sequence[Any]) -> Any:
    """What torch's default_collate makes of samples, with ``Stack`` where it would have stacked."""
    return collate(list(samples), collate_fn_map=_COLLATE_FN_MAP)


class Encoder:
    """A batch on its way into memory: how many ``bytes`` it takes, ``write``, and its ``description`` for ``decode``.

    Containers are dicts, lists, tuples, named tuples, dataclasses, and types that are registered with torch's pytree.
    Raises ``TypeError`` where the batch holds anything else, with its place.
    """

    def __init__(self, batch: Any) -> None:
        self.bytes = 0
        self._writes: list[tuple[Stack | Tensor, torch.dtype, tuple[int, ...], int]] = []
        self.description = json.dumps(self._describe(batch, ""))

    @torch.no_grad()
    def write(self, memory: Tensor) -> None:
        """Put every tensor at its offset in ``memory``, uint8 of at least ``bytes``."""
        for source, dtype, shape, offset in self._writes:
            place = _tensor(memory, dtype, shape, offset)
            if isinstance(source, Tensor):
                place.copy_(source)
            else:
                torch.stack(list(source.tensors), out=place)

    def _describe(self, node: Any, path: str) -> Any:
        if isinstance(node, Stack):
            return self._place(node, node.tensors[0].dtype, (len(node.tensors), *node.tensors[0].shape))
        if isinstance(node, Tensor):
            if node.layout != torch.strided or node.is_quantized:
                raise TypeError(f"a batch's tensors must be dense, got {node.layout} at batch{path}")
            return self._place(node, node.dtype, tuple(node.shape))
        if isinstance(node, bytes):
            return {"bytes": node.hex()}
        if isinstance(node, str | int | float | None):
            return node
        made, beside, values = _flattened(node, path)
        keys = beside if made is dict or dataclasses.is_dataclass(made) else range(len(values))
        children = [self._describe(one, f"{path}[{key!r}]") for key, one in zip(keys, values, strict=True)]
        return [[made.__module__, made.__qualname__], beside, children]

    def _place(self, source: Stack | Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
        offset = -(-self.bytes // ALIGNMENT) * ALIGNMENT
        size = prod(shape) * dtype.itemsize
        self.bytes = offset + size
        if size:
            self._writes.append((source, dtype, shape, offset))
        return {"tensor": [str(dtype).removeprefix("torch."), list(shape), offset]}


def _flattened(node: Any, path: str) -> tuple[type, Any, Sequence[Any]]:
    """The class of which a container is made again, what that needs beside its children, and those."""
    kind = type(node)
    if kind in pytree.SUPPORTED_NODES and kind.__module__ not in ("builtins", "collections"):
        values, context = pytree.SUPPORTED_NODES[kind].flatten_fn(node)
        try:
            return kind, json.loads(json.dumps(context)), values
        except TypeError as error:
            what = f"the context of a registered type must be JSON, got {context!r} at batch{path}"
            raise TypeError(what) from error
    if dataclasses.is_dataclass(node):
        names = [field.name for field in dataclasses.fields(node)]
        return kind, names, [getattr(node, name) for name in names]
    if isinstance(node, Mapping):
        for key in node:
            if not isinstance(key, str | int | float | None):
                raise TypeError(f"a batch's keys must be text or numbers like 'image', got {key!r} at batch{path}")
        return dict, list(node), list(node.values())
    if isinstance(node, list | tuple):
        return kind if hasattr(node, "_fields") else tuple if isinstance(node, tuple) else list, None, node
    raise TypeError(
        "a batch must be made of tensors, text and numbers in dicts, tuples, lists, dataclasses and types registered "
        f"with torch's pytree, like {{'image': tensor}}, got {kind.__module__}.{kind.__qualname__} at batch{path}"
    )


def decode(description: str | bytes, memory: Tensor) -> Any:
    """The batch that lies in ``memory``, uint8: its tensors are views of it.

    Raises ``ValueError`` where the description is invalid, or names a class that this process has not imported.
    """
    return _read((_parsed if len(description) < MOST_CACHED else json.loads)(description), memory)


_parsed = lru_cache(maxsize=16)(json.loads)  # batches of the same shapes have the same description


def _read(described: Any, memory: Tensor) -> Any:
    if isinstance(described, dict):
        if "bytes" in described:
            return bytes.fromhex(described["bytes"])
        dtype, shape, offset = described["tensor"]
        return _tensor(memory, getattr(torch, dtype), tuple(shape), offset)
    if not isinstance(described, list):
        return described
    name, beside, children = described
    kind, values = _class(*name), [_read(one, memory) for one in children]
    if kind in pytree.SUPPORTED_NODES:  # a registered type may keep what is beside its children
        return pytree.SUPPORTED_NODES[kind].unflatten_fn(values, beside if kind is dict else copy.deepcopy(beside))
    if issubclass(kind, tuple):
        return kind(*values)
    made = object.__new__(kind)
    for key, value in zip(beside, values, strict=True):
        object.__setattr__(made, key, value)
    return made


def _tensor(memory: Tensor, dtype: torch.dtype, shape: tuple[int, ...], offset: int) -> Tensor:
    size = prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    if not 0 <= offset <= offset + size <= memory.numel():
        raise ValueError(f"a tensor of {size} bytes at {offset} is not in a batch of {memory.numel()} bytes")
    return memory[offset : offset + size].view(dtype).view(shape)


def _class(module: str, qualified: str) -> type:
    """A class that this process has imported, by its names."""
    found: Any = sys.modules.get("__main__" if module == "__mp_main__" else module)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise ValueError(f"a batch holds a {module}.{qualified}, which the training process has not imported")
    return found


def tensor_from_buffer(buffer: memoryview, owner: Any, release: Callable[[Any], object] = id) -> Tensor:
    """Writable memory as uint8 [its size]; ``release`` is called with its ``owner`` once the last tensor in it is gone."""
    if not buffer:
        return torch.empty(0, dtype=torch.uint8)
    weakref.finalize(buffer, release, owner).atexit = False  # which refers to the owner until then
    return torch.frombuffer(buffer, dtype=torch.uint8)


class ReceiveMemory:
    """Memory that batches are received into: pinned where there is a GPU, else that of batches that are gone.

    The kernel hands out new memory page by page, at half the cost of receiving a batch into it.
    """

    def __init__(self) -> None:
        self._pin, self._device = torch.cuda.is_available(), 0
        self._free: deque[mmap.mmap] = deque(maxlen=MOST_KEPT)

    def use_current_device(self) -> None:
        """Pin from now on for the GPU that is the calling thread's."""
        if self._pin:
            self._device = torch.cuda.current_device()

    def empty(self, size: int) -> Tensor:
        """uint8 [size]."""
        if self._pin:
            with torch.cuda.device(self._device):  # or this thread would begin to use the first one
                return torch.empty(size, dtype=torch.uint8, pin_memory=True)
        if size < LARGE:
            return torch.empty(size, dtype=torch.uint8)
        block = self._free.pop() if self._free else None  # only this thread takes blocks out
        if block is None or len(block) < size:
            block = mmap.mmap(-1, -(-size // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(OSError):  # a kernel without them
                block.madvise(mmap.MADV_HUGEPAGE)
        return tensor_from_buffer(memoryview(block)[:size], block, self._free.append)

    def pinned(self, memory: Tensor) -> Tensor:
        """The same bytes where a GPU can copy them from; the same memory where there is none."""
        return self.empty(len(memory)).copy_(memory) if self._pin else memory
