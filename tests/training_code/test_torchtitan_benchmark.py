"""benchmarks/model_parallel_torchtitan.py, without torchtitan, which the tests do not install: ours takes its place."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import model_parallel_torchtitan

    return model_parallel_torchtitan


def case_of(benchmark: Any) -> Any:
    return benchmark.Case(**benchmark.SIZES, ranks=1, microbatches=1, precision="fp32", recompute=False)


def started(losses: list[float], parameters: int = 7) -> dict[str, Any]:
    return {"parameters": parameters, "losses": losses}


def test_two_trainings_with_the_same_losses_are_compared(benchmark: Any) -> None:
    both = {"ours": started([7.0, 6.5]), "torchtitan": started([7.0, 6.50005])}
    benchmark.require_same_training(case_of(benchmark), both)


@pytest.mark.parametrize(
    ("theirs", "reason"),
    [(started([7.0, 6.6]), "losses of step 2 differ"), (started([7.0, 6.5], 8), "has 7 parameters")],
)
def test_trainings_that_differ_are_not_compared(benchmark: Any, theirs: dict[str, Any], reason: str) -> None:
    with pytest.raises(RuntimeError, match=reason):
        benchmark.require_same_training(case_of(benchmark), {"ours": started([7.0, 6.5]), "torchtitan": theirs})


def test_each_rank_has_its_own_tokens_and_as_targets_the_next(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(case_of(benchmark), context=8)
    batches = []
    for rank in ("0", "1", "0"):
        monkeypatch.setenv("RANK", rank)
        batches.append(case.batch())
    first, other, again = batches
    assert first[0].tolist() == again[0].tolist() != other[0].tolist()
    assert first[0][:, 1:].tolist() == first[1][:, :-1].tolist()


@pytest.mark.soak  # two trainings of two ranks each
def test_both_trainings_run_in_turn_and_equal_ones_have_equal_memory_and_losses(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(benchmark.SCRIPTS, "torchtitan", "training_ours.py")
    arguments = (
        "--rounds 2 --steps 1 --ranks 2 --microbatches 2 --precision fp32 --recompute on --json --torchtitan-python"
    )
    monkeypatch.setattr(sys, "argv", ["model_parallel_torchtitan.py", *arguments.split(), sys.executable])
    benchmark.main()
    [result] = json.loads(capsys.readouterr().out)["results"]
    assert result["memory"] == 1.0
    assert result["losses"]["ours"] == result["losses"]["torchtitan"]
    assert result["losses"]["ours"][-1] < result["losses"]["ours"][0]
    assert 0 < result["time"]["least"] <= result["time"]["median"] <= result["time"]["most"]


@pytest.mark.soak
def test_a_training_that_ends_at_once_raises_what_it_wrote(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmark.SCRIPTS, "ours", "no_such_script.py")
    with pytest.raises(RuntimeError, match=r"(?s)no_such_script.py ended:.*can't open file"):
        benchmark.measure(case_of(benchmark), 1, 1, sys.executable)
