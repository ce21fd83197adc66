"""Counts the memory of tensors: the bytes that are allocated, and those that autograd saves for the backward.

Both work on real tensors and on those of PyTorch's FakeTensorMode, which have sizes and no memory.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

COLLECTIVES = {
    "allgather": ("allgather", "all_gather"),
    "reduce_scatter": ("reduce_scatter",),
    "allreduce": ("allreduce", "all_reduce"),
    "alltoall": ("alltoall", "all_to_all"),
}


class Allocations(TorchDispatchMode):
    """Counts the bytes of the storages that operations allocate; ``peak`` is the most at one time.

    ``communicated``: the bytes of the largest tensor of each collective, by its kind. What exists before is not counted. FSDP
    frees and allocates gathered parameters by resizing their storage, which is counted too. PyTorch's own FSDPMemTracker also
    counts all of a DTensor, of which a rank has a shard: 127 GiB of optimizer state for 8e9 parameters on 8 ranks, not 7.5.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = 0
        self.communicated: Counter[str] = Counter()
        self._sizes: dict[int, int] = {}

    def reset(self) -> None:
        """Count the peak, and what is communicated, from here on."""
        self.peak = self.alive
        self.communicated.clear()

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # until it is an operation on this rank's shards
        result = operation(*arguments, **(named or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        if operation.namespace in ("c10d", "_c10d_functional"):
            self._count_collective(str(operation), tree_leaves((arguments, result)))
        return result

    def _count_collective(self, operation: str, leaves: list[Any]) -> None:
        for kind, names in COLLECTIVES.items():
            if any(name in operation for name in names):
                self.communicated[kind] += max(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = 0
            weakref.finalize(storage, self._free, key)
            self._set(key, storage.nbytes())

    def _set(self, key: int, size: int) -> None:
        self.alive += size - self._sizes[key]
        self._sizes[key] = size
        self.peak = max(self.peak, self.alive)

    def _free(self, key: int) -> None:
        self.alive -= self._sizes.pop(key)

    def __enter__(self) -> Allocations:
        resize = self._resize = torch.UntypedStorage.resize_

        def counted(storage: torch.UntypedStorage, size: int) -> None:
            resize(storage, size)
            if storage._cdata in self._sizes:
                self._set(storage._cdata, size)

        torch.UntypedStorage.resize_ = counted  # type: ignore[method-assign]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)


class Saved:
    """Counts the bytes that autograd saves for the backward; ``most`` is the peak. Storages are counted once, parameters never.

    ``pack`` and ``unpack`` are for ``torch.autograd.graph.saved_tensors_hooks``.
    """

    def __init__(self) -> None:
        self._holders: Counter[int] = Counter()
        self._bytes = self.most = 0

    def pack(self, tensor: Tensor) -> Any:
        base = tensor._base if tensor._base is not None else tensor
        if base.is_leaf and base.requires_grad:  # a parameter, gathered or not
            return (tensor,)
        local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, this rank's shard
        # An AsyncCollectiveTensor wraps the tensor that has the memory.
        storage = getattr(local, "elem", local).untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        holder = Holder(tensor)
        if not self._holders[key]:
            self._bytes += size
            self.most = max(self.most, self._bytes)
        self._holders[key] += 1
        weakref.finalize(holder, self._free, key, size)
        return holder

    def unpack(self, saved: Any) -> Tensor:
        tensor: Tensor = saved.tensor if isinstance(saved, Holder) else saved[0]
        return tensor

    def _free(self, key: int, size: int) -> None:
        self._holders[key] -= 1
        if not self._holders[key]:
            self._bytes -= size


class Holder:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
