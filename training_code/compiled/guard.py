"""Detects recompilations of a step by the compiler's own counters, and stops the job.

    guard = CompilationGuard(DynamoCompilations(), fail=True)
    for number, tokens in enumerate(batches, start=1):
        with guard.step(number, {"tokens": tokens}):
            loss = step(tokens)

A recompilation takes a minute instead of a millisecond, without a message. The usual cause is a batch of another shape, or a
Python number that changes. What is compiled between the steps, such as an evaluation, does not count.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor


class CompiledAgain(Exception):
    """A step was compiled again; the message names the step, and the shape or value that caused it."""


class Compilations(Protocol):
    """A compiler's counters in this process."""

    def count(self) -> int:
        """Graphs compiled so far."""
        ...

    def causes(self) -> list[str]:
        """The compiler's reasons for recompilations; empty where it has none."""
        ...

    def cached(self) -> int:
        """Graphs, forward and backward, that were loaded from the compiler's cache."""
        ...


class NoCompilations:
    """The counters of a model that is not compiled."""

    def count(self) -> int:
        return 0

    def causes(self) -> list[str]:
        return []

    def cached(self) -> int:
        return 0


class DynamoCompilations:
    """The counters of torch.compile: graphs, and the failed guards of its compilation metrics."""

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
    """The counter of PyTorch/XLA: the samples of its metric CompileTime, without reasons."""

    def count(self) -> int:
        from torch_xla.debug import metrics

        measured = metrics.metric_data("CompileTime")  # number, sum, samples; None before the first
        return int(measured[0]) if measured else 0

    def causes(self) -> list[str]:
        return []

    def cached(self) -> int:
        return 0


class CompilationGuard:
    """Raises, or with ``fail`` off warns, when a step after the first ``warm_up`` ones was compiled."""

    def __init__(self, compilations: Compilations, *, fail: bool = True, warm_up: int = 1) -> None:
        self._compilations, self._fail, self._warm_up = compilations, fail, warm_up
        self._steps = 0
        self._inputs: dict[str, str] = {}

    @contextmanager
    def step(self, number: int, inputs: Mapping[str, object]) -> Iterator[None]:
        """To be held around step ``number`` alone, with the step's inputs. Raises ``CompiledAgain`` after it."""
        before = self._compilations.count()
        yield
        self._steps += 1
        count = self._compilations.count()
        known, self._inputs = self._inputs, {name: described(value) for name, value in inputs.items()}
        if count == before or self._steps <= self._warm_up:
            return
        changed = [f"{name} was {known[name]} and is {now}" for name, now in self._inputs.items() if known[name] != now]
        causes = "; ".join([*changed, *self._compilations.causes()[-1:]]) or "no input of the step has changed"
        message = (
            f"step {number} compiled again, {count} graphs after {before}: {causes}. Pad every batch to one length, "
            "drop the last short one, and keep numbers that change in tensors."
        )
        if self._fail:
            raise CompiledAgain(message)
        warnings.warn(message, stacklevel=3)


def described(value: object) -> str:
    """The shape and type of a tensor, or the value of another object."""
    return f"{list(value.shape)} {value.dtype}".replace("torch.", "") if isinstance(value, Tensor) else repr(value)
