"""A batch as bytes: nested containers of tensors and arrays of any dtype, to flat memory and back without a copy.

They lie one after the other. What they are is described beside them in JSON, which starts no code of the sender's: a
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
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data._utils.collate import collate, default_collate_fn_map

ALIGNMENT = 64  # bytes, of each tensor from the first
# What a tensor of a layout consists of; nothing else than itself where it is dense.
COMPRESSED = {"csr": "crow col", "bsr": "crow col", "csc": "ccol row", "bsc": "ccol row"}
PARTS: dict[torch.layout, tuple[str, ...]] = {torch.strided: (), torch.sparse_coo: ("_indices", "_values")} | {
    getattr(torch, f"sparse_{name}"): (*(f"{one}_indices" for one in axes.split()), "values")
    for name, axes in COMPRESSED.items()
}
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

    Containers are mappings, lists, tuples, named tuples, dataclasses, and types that are registered with torch's pytree.
    Raises ``TypeError`` where the batch holds anything else, with its place.
    """

    def __init__(self, batch: Any) -> None:
        self.bytes = 0
        self._writes: list[tuple[Stack | Tensor | np.ndarray, torch.dtype, tuple[int, ...], int]] = []
        self.description = json.dumps(self._describe(batch, ""))

    @torch.no_grad()
    def write(self, memory: Tensor) -> None:
        """Put every tensor at its offset in ``memory``, uint8 of at least ``bytes``."""
        for source, dtype, shape, offset in self._writes:
            place = _tensor(memory, dtype, shape, offset)
            if isinstance(source, Tensor):
                place.copy_(source)
            elif isinstance(source, np.ndarray):
                place.numpy().view(source.dtype).reshape(source.shape)[...] = source
            else:
                torch.stack(list(source.tensors), out=place)

    def _describe(self, node: Any, path: str) -> Any:
        if isinstance(node, Stack):
            return self._place(node, node.tensors[0].dtype, (len(node.tensors), *node.tensors[0].shape))
        if isinstance(node, Tensor):
            if node.is_quantized or node.is_nested or node.layout not in PARTS:
                what = f"{node.layout}, {node.dtype} at batch{path}"
                raise TypeError(f"a batch's tensors must be dense or sparse, got {what}")
            if PARTS[node.layout]:
                parts = [self._describe(getattr(node, name)(), path) for name in PARTS[node.layout]]
                coalesced = node.layout == torch.sparse_coo and node.is_coalesced()
                about = [str(node.layout).removeprefix("torch."), list(node.shape), coalesced]
                return {"sparse": about, "parts": parts}
            return self._place(node, node.dtype, tuple(node.shape))
        if isinstance(node, np.ndarray | np.generic) and not node.dtype.hasobject and not node.dtype.names:
            array = np.asarray(node)
            described = self._place(array, torch.uint8, (array.nbytes,))
            return {"array": [array.dtype.str, list(array.shape), isinstance(node, np.generic)], "bytes of": described}
        if isinstance(node, bytes):
            return {"bytes": node.hex()}
        if isinstance(node, str | int | float | None):
            return node
        made, beside, keys, values = _flattened(node, path)
        children = [self._describe(one, f"{path}[{key!r}]") for key, one in zip(keys, values, strict=True)]
        return [[made.__module__, made.__qualname__], beside, children]

    def _place(self, source: Stack | Tensor | np.ndarray, dtype: torch.dtype, shape: tuple[int, ...]) -> Any:
        offset = -(-self.bytes // ALIGNMENT) * ALIGNMENT
        size = prod(shape) * dtype.itemsize
        self.bytes = offset + size
        if size:
            self._writes.append((source, dtype, shape, offset))
        return {"tensor": [str(dtype).removeprefix("torch."), list(shape), offset]}


def _flattened(node: Any, path: str) -> tuple[type, Any, Iterable[Any], Sequence[Any]]:
    """The class of which a container is made again, what that needs beside its children, their keys, and those."""
    kind = type(node)
    if _registered(kind):
        values, context = pytree.SUPPORTED_NODES[kind].flatten_fn(node)
        try:
            return kind, json.loads(json.dumps(context)), range(len(values)), values
        except TypeError as error:
            what = f"the context of a registered type must be JSON, got {context!r} at batch{path}"
            raise TypeError(what) from error
    if dataclasses.is_dataclass(node):
        names = [field.name for field in dataclasses.fields(node)]
        return kind, names, names, [getattr(node, name) for name in names]
    if isinstance(node, Mapping):
        for key in node:
            if not isinstance(key, str | int | float | None):
                raise TypeError(f"a batch's keys must be text or numbers like 'image', got {key!r} at batch{path}")
        # What a mapping has beside its items, like the encodings of a BatchEncoding, travels where it is text or a number.
        beside = getattr(node, "__dict__", {})
        more = {name: value for name, value in beside.items() if isinstance(value, str | int | float)}
        return dict if kind.__module__ == "builtins" else kind, [list(node), more], node, list(node.values())
    if isinstance(node, list | tuple):
        made = kind if hasattr(node, "_fields") else tuple if isinstance(node, tuple) else list
        return made, None, range(len(node)), node
    raise TypeError(
        "a batch must be made of tensors, text and numbers in dicts, tuples, lists, dataclasses and types registered "
        f"with torch's pytree, like {{'image': tensor}}, got {kind.__module__}.{kind.__qualname__} at batch{path}"
    )


def _registered(kind: type) -> bool:
    """Whether it is a type that was registered with torch's pytree, beside Python's own."""
    return kind in pytree.SUPPORTED_NODES and kind.__module__ not in ("builtins", "collections")


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
        if "sparse" in described:
            (layout, size, coalesced), parts = described["sparse"], [_read(one, memory) for one in described["parts"]]
            if layout == "sparse_coo":
                return torch.sparse_coo_tensor(*parts, size, is_coalesced=coalesced or None, check_invariants=True)
            return torch.sparse_compressed_tensor(*parts, size, layout=getattr(torch, layout), check_invariants=True)
        if "array" in described:
            name, shape, scalar = described["array"]
            array = _read(described["bytes of"], memory).numpy().view(name).reshape(shape)
            return array[()] if scalar else array
        dtype, shape, offset = described["tensor"]
        return _tensor(memory, getattr(torch, dtype), tuple(shape), offset)
    if not isinstance(described, list):
        return described
    name, beside, children = described
    kind, values = _class(*name), [_read(one, memory) for one in children]
    if kind is list:
        return values
    if _registered(kind):  # which may keep what is beside its children
        return pytree.SUPPORTED_NODES[kind].unflatten_fn(values, copy.deepcopy(beside))
    if issubclass(kind, tuple):
        return kind(*values) if hasattr(kind, "_fields") else kind(values)
    if issubclass(kind, Mapping) and not dataclasses.is_dataclass(kind):
        keys, more = beside
        items: Any = dict(zip(keys, values, strict=True))
        if kind is not dict:
            found = kind.__new__(kind) if issubclass(kind, dict) else kind(items)  # type: ignore[call-arg]
            if issubclass(kind, dict):  # which may be made of other things than items
                MutableMapping.update(found, items)
            for name, value in more.items():
                setattr(found, name, value)
            items = found
        return items
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
