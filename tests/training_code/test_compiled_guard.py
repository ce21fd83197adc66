"""The guard of compiled steps, over real compilations in this process and in one with XLA's counters missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from compiled_program import module
from torch import Tensor

guard_module = module("guard")
CompilationGuard, CompiledAgain = guard_module.CompilationGuard, guard_module.CompiledAgain

Step = Callable[..., Tensor]


@pytest.fixture
def step() -> Iterator[Step]:
    """A compiled function; without code generation, since what is counted are graphs."""

    @torch.compile(backend="aot_eager", dynamic=False)
    def scaled(tokens: Tensor, scale: float) -> Tensor:
        return tokens * scale

    torch._dynamo.reset()
    yield scaled
    torch._dynamo.reset()


def run(step: Step, guard: object, *inputs: tuple[Tensor, float]) -> None:
    for number, (tokens, scale) in enumerate(inputs, start=1):
        with guard.step(number, {"tokens": tokens, "scale": scale}):  # type: ignore[attr-defined]
            step(tokens, scale)


def test_steps_of_one_shape_pass(step: Step) -> None:
    run(step, CompilationGuard(guard_module.DynamoCompilations()), *[(torch.ones(2, 8), 1.0)] * 3)


def test_the_step_that_compiles_again_is_named(step: Step) -> None:
    inputs = [(torch.ones(2, 8), 1.0), (torch.ones(2, 8), 1.0), (torch.ones(2, 7), 1.0)]
    with pytest.raises(CompiledAgain, match=r"^step 3 compiled again, \d+ graphs after \d+: "):
        run(step, CompilationGuard(guard_module.DynamoCompilations()), *inputs)


def test_a_shape_that_changed_is_named(step: Step) -> None:
    with pytest.raises(CompiledAgain, match=r"tokens was \[2, 8\] float32 and is \[2, 7\] float32;"):
        run(step, CompilationGuard(guard_module.DynamoCompilations()), (torch.ones(2, 8), 1.0), (torch.ones(2, 7), 1.0))


def test_a_type_that_changed_is_named(step: Step) -> None:
    double = torch.ones(2, 8, dtype=torch.float64)
    with pytest.raises(CompiledAgain, match=r"tokens was \[2, 8\] float32 and is \[2, 8\] float64"):
        run(step, CompilationGuard(guard_module.DynamoCompilations()), (torch.ones(2, 8), 1.0), (double, 1.0))


def test_a_value_that_changed_is_named(step: Step) -> None:
    with pytest.raises(CompiledAgain, match=r"scale was 1\.0 and is 0\.5"):
        run(step, CompilationGuard(guard_module.DynamoCompilations()), (torch.ones(2, 8), 1.0), (torch.ones(2, 8), 0.5))


def test_the_compilers_own_words_are_passed_on(step: Step) -> None:
    with pytest.raises(CompiledAgain, match=r"tensor 'tokens' size mismatch at index 1\. expected 8, actual 7"):
        run(step, CompilationGuard(guard_module.DynamoCompilations()), (torch.ones(2, 8), 1.0), (torch.ones(2, 7), 1.0))


def test_steps_that_warm_up_may_compile(step: Step) -> None:
    guard = CompilationGuard(guard_module.DynamoCompilations(), warm_up=2)
    run(step, guard, (torch.ones(2, 8), 1.0), (torch.ones(2, 7), 1.0), (torch.ones(2, 7), 1.0))


def test_a_guard_may_only_warn(step: Step) -> None:
    guard = CompilationGuard(guard_module.DynamoCompilations(), fail=False)
    with pytest.warns(UserWarning, match="step 2 compiled again"):
        run(step, guard, (torch.ones(2, 8), 1.0), (torch.ones(2, 7), 1.0))


def test_graphs_of_before_the_guard_do_not_count(step: Step) -> None:
    step(torch.ones(2, 8), 1.0)
    run(step, CompilationGuard(guard_module.DynamoCompilations(), warm_up=0), (torch.ones(2, 8), 1.0))


def test_what_an_evaluation_compiles_between_two_steps_does_not_count(step: Step) -> None:
    guard = CompilationGuard(guard_module.DynamoCompilations(), warm_up=0)
    step(torch.ones(2, 8), 1.0)
    for number in (1, 2):
        with guard.step(number, {}):
            step(torch.ones(2, 8), 1.0)
        step(torch.ones(number, 3), 1.0)
