"""Watches a compiled training's steps by PyTorch's own means: none is compiled again, and none reads a value from the device.

    guard = Guard(fail=True)
    for number, tokens in enumerate(batches, start=1):
        with guard.step(number):
            loss = step(tokens)

A recompilation takes a minute instead of a millisecond, and a read makes the host wait for the device, both without a message.
What is compiled or read between the steps, as by an evaluation or a log, does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics
from torch.overrides import TorchFunctionMode

CURE = "Pad every batch to one length, the last short one too, and keep numbers that change in tensors"
READS: frozenset[Callable[..., Any]] = frozenset(
    {Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.cpu, Tensor.__bool__, Tensor.__int__, Tensor.__float__}
    | {Tensor.__index__, Tensor.__repr__, Tensor.__format__, Tensor.__array__}
)


class NoReads(TorchFunctionMode):
    """Within it, RuntimeError is raised where Python reads a tensor's value: by item(), print, float, or a condition."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in READS:
            raise RuntimeError(f"the step reads a tensor's value by Tensor.{function.__name__}: log after the step")
        return function(*arguments, **(named or {}))


class Guard:
    """To be held around each step. The first may compile; of a later one, ``fail`` decides whether it ends the training.

    It then ends by PyTorch's RuntimeError, before the weights are updated. Else each recompilation is a warning, and that after
    PyTorch's limit of them (``torch._dynamo.config.recompile_limit``) the error of a step compiled with ``fullgraph=True``.
    """

    def __init__(self, *, fail: bool) -> None:
        self._fail, self._compiled = fail, False

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        clear_compilation_metrics()
        try:
            with (
                torch.compiler.set_stance("fail_on_recompile" if self._fail and self._compiled else "default"),
                NoReads(),
            ):
                yield
        except RuntimeError as error:
            if "recompile" in str(error):
                error.add_note(f"in step {number}, which has not updated the weights. {CURE}.")
            raise
        self._compiled = True
        for reason in (metrics.recompile_reason for metrics in get_compilation_metrics()):
            if reason:
                warnings.warn(f"step {number} compiled again: {reason}. {CURE}.", stacklevel=3)


def compilations() -> str:
    """How many graphs this process has compiled, and how many, forward and backward, were in the compiler's cache."""
    return f"{counters['stats']['unique_graphs']}, {counters['inductor']['fxgraph_cache_hit']} graphs from the cache"
