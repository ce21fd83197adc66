"""A guard for compiled steps: it counts compilations by the compiler's own counters, and stops a job that compiles again.

    guard = CompilationGuard(DynamoCompilations(), fail=True)
    for number, tokens in enumerate(batches, start=1):
        loss = step(tokens)
        guard.check(number, {"tokens": tokens})

A step that compiles anew takes a minute and not a millisecond, and says nothing: the bill does. The usual cause is a batch of
another shape, or a Python number that changes.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class CompiledAgain(Exception):
    """A step compiled again; the text says which, and what shape or value caused it."""


class Compilations(Protocol):
    """What a compiler tells of its work in this process."""

    def count(self) -> int:
        """Graphs compiled so far."""
        ...

    def causes(self) -> list[str]:
        """Why graphs were compiled again, in the compiler's words; empty where it does not say."""
        ...

    def cached(self) -> int:
        """Graphs, forward and backward ones, whose code an earlier process had compiled."""
        ...


class NoCompilations:
    """Those of a model that is not compiled."""

    def count(self) -> int:
        return 0

    def causes(self) -> list[str]:
        return []

    def cached(self) -> int:
        return 0


class DynamoCompilations:
    """Those of torch.compile: its counter of graphs, and the guards that failed, as its compilation metrics record them."""

    def count(self) -> int:
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])

    def causes(self) -> list[str]:
        from torch._dynamo.utils import get_compilation_metrics

        return [metrics.recompile_reason for metrics in get_compilation_metrics() if metrics.recompile_reason]

    def cached(self) -> int:
        from torch._dynamo.utils import counters

        return int(counters["inductor"]["fxgraph_cache_hit"])


class XlaCompilations:
    """Those of PyTorch/XLA: how often its metric CompileTime was taken. It does not say why."""

    def count(self) -> int:
        from torch_xla.debug import metrics

        measured = metrics.metric_data("CompileTime")  # number, sum, samples; None before the first
        return int(measured[0]) if measured else 0

    def causes(self) -> list[str]:
        return []

    def cached(self) -> int:
        return 0


class CompilationGuard:
    """Stops a job, or with ``fail`` off warns, when a step after the first ``warm_up`` ones has compiled."""

    def __init__(self, compilations: Compilations, *, fail: bool = True, warm_up: int = 1) -> None:
        self._compilations, self._fail, self._warm_up = compilations, fail, warm_up
        self._steps = 0
        self._count = compilations.count()
        self._inputs: dict[str, str] = {}

    def check(self, number: int, inputs: Mapping[str, object]) -> None:
        """Call it after step ``number``, with what the step was called with. Raises ``CompiledAgain``."""
        self._steps += 1
        before, self._count = self._count, self._compilations.count()
        known, self._inputs = self._inputs, {name: described(value) for name, value in inputs.items()}
        if self._count == before or self._steps <= self._warm_up:
            return
        changed = [f"{name} was {known[name]} and is {now}" for name, now in self._inputs.items() if known[name] != now]
        causes = "; ".join([*changed, *self._compilations.causes()[-1:]]) or "no input of the step has changed"
        message = (
            f"step {number} compiled again, {self._count} graphs after {before}: {causes}. Pad every batch to one length, "
            "drop the last short one, and keep numbers that change in tensors."
        )
        if self._fail:
            raise CompiledAgain(message)
        warnings.warn(message, stacklevel=2)


def described(value: object) -> str:
    """A tensor by its shape and type, anything else by its value."""
    return f"{list(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)
