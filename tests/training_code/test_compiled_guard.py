"""The guard of compiled steps, over real compilations in this process, without code generation, which is not what it watches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

import pytest
import torch
from compiled_program import module
from torch import Tensor, nn

Step = Callable[..., Tensor]


@pytest.fixture
def compiled() -> Iterator[Callable[[nn.Module], nn.Module]]:
    torch._dynamo.reset()
    yield lambda model: torch.compile(model, backend="aot_eager", dynamic=False, fullgraph=True)  # type: ignore[return-value]
    torch._dynamo.reset()


class Scale(nn.Module):
    def forward(self, tokens: Tensor, scale: float) -> Tensor:
        return tokens * scale


@cache
def guard_module() -> ModuleType:
    """Not with the file, which each of pytest's processes imports: Dynamo takes a second."""
    return module("guard")


EIGHT, SEVEN = torch.ones(2, 8), torch.ones(2, 7)


def run(step: Step, guard: object, *inputs: tuple[Tensor, float]) -> None:
    for number, (tokens, scale) in enumerate(inputs, start=1):
        with guard.step(number):  # type: ignore[attr-defined]
            step(tokens, scale)


def test_steps_of_one_shape_pass(compiled: Callable[[nn.Module], nn.Module]) -> None:
    run(compiled(Scale()), guard_module().Guard(fail=True), *[(EIGHT, 1.0)] * 3)


@pytest.mark.parametrize(
    ("third", "cause"),
    [
        ((SEVEN, 1.0), r"tensor 'tokens' size mismatch at index 1\. expected 8, actual 7"),
        ((EIGHT.double(), 1.0), r"tensor 'tokens' dtype mismatch\. expected Float, actual Double"),
        ((EIGHT, 0.5), r"scale"),
    ],
)
def test_a_step_that_would_be_compiled_again_is_refused_by_its_number_and_cause(
    compiled: Callable[[nn.Module], nn.Module], third: tuple[Tensor, float], cause: str
) -> None:
    with pytest.raises(RuntimeError, match=cause) as refused:
        run(compiled(Scale()), guard_module().Guard(fail=True), (EIGHT, 1.0), (EIGHT, 1.0), third)
    [note] = refused.value.__notes__
    assert note.startswith("in step 3, which has not updated the weights. Pad every batch to one length")


def test_a_refused_step_has_not_updated_the_weights(compiled: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Linear(8, 1)
    optimizer, step, guard = (
        torch.optim.SGD(model.parameters(), lr=1.0),
        compiled(model),
        guard_module().Guard(fail=True),
    )

    def train(number: int, rows: int) -> Tensor:
        with guard.step(number):
            step(torch.ones(rows, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        return model.weight.detach().clone()

    before = train(1, rows=2)
    with pytest.raises(RuntimeError, match="size mismatch"):
        train(2, rows=3)
    assert torch.equal(model.weight, before)


def test_recompilations_are_warnings_until_the_limit_is_an_error(
    compiled: Callable[[nn.Module], nn.Module],
) -> None:
    step, guard = compiled(Scale()), guard_module().Guard(fail=False)
    limit = torch._dynamo.config.recompile_limit
    run(step, guard, (EIGHT, 1.0))
    for number in range(2, limit + 1):
        with (
            pytest.warns(UserWarning, match=rf"^step {number} compiled again: .*tensor 'tokens' size mismatch"),
            guard.step(number),
        ):
            step(torch.ones(2, 8 + number), 1.0)
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit), guard.step(limit + 1):
        step(torch.ones(2, 9 + limit), 1.0)


def test_what_is_compiled_between_two_steps_does_not_count(
    compiled: Callable[[nn.Module], nn.Module], recwarn: pytest.WarningsRecorder
) -> None:
    for fail in (True, False):
        step, guard = compiled(Scale()), guard_module().Guard(fail=fail)
        for number in (1, 2):
            run(step, guard, (EIGHT, 1.0))
            step(torch.ones(number, 3), 1.0)
    assert not [warning for warning in recwarn if "compiled again" in str(warning.message)]


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda loss: loss.item(), "item"),
        (lambda loss: print(loss), "__repr__"),
        (lambda loss: f"{loss:.3f}", "__format__"),
        (lambda loss: 1 if loss > 3 else 2, "__bool__"),
        (lambda loss: float(loss), "__float__"),
        (lambda loss: int(loss), "__int__"),
        (lambda loss: math.isfinite(loss), "__float__"),
        (lambda loss: [1, 2][(loss > 3).long()], "__index__"),
        (lambda loss: loss.tolist(), "tolist"),
        (lambda loss: loss.detach().cpu(), "cpu"),
        (lambda loss: loss.detach().numpy(), "numpy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_value_that_is_read_between_model_and_optimizer_is_refused(
    compiled: Callable[[nn.Module], nn.Module], read: Callable[[Tensor], object], name: str, number: int
) -> None:
    step, guard = compiled(Scale()), guard_module().Guard(fail=True)
    if number == 2:
        run(step, guard, (EIGHT, 1.0))
    message = rf"the step reads a tensor's value by Tensor\.{name}: log after the step$"
    with pytest.raises(RuntimeError, match=message), guard.step(number):
        read(step(EIGHT, 1.0).sum())


def test_a_value_may_be_read_after_a_step(compiled: Callable[[nn.Module], nn.Module]) -> None:
    with guard_module().Guard(fail=True).step(1):
        loss = compiled(Scale())(EIGHT, 1.0).sum()
    assert loss.item() == 16


def test_the_optimizers_step_and_the_scalers_read_nothing() -> None:
    model = nn.Linear(8, 1)
    optimizer, scaler = torch.optim.AdamW(model.parameters(), fused=True), torch.amp.GradScaler("cpu")
    for _ in range(2):
        with guard_module().NoReads():
            scaler.scale(model(EIGHT).sum()).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert scaler.state_dict()["scale"] == 65536
