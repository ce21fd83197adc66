"""Executions that start together against SageMaker's rate of calls: benchmarks/many_jobs.py, held here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
try:
    from many_jobs import ROWS, retrying_definition, row, simulate, table, workflows_definition
finally:
    sys.path.pop(0)  # the benchmarks' names are not to be those of other tests' modules

PAGE = Path(__file__).parents[2] / "docs" / "many-jobs.md"


@pytest.fixture(scope="module")
def definition() -> Any:
    return workflows_definition()


@pytest.mark.parametrize("number", [20, 100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_executions_that_start_together_all_create_their_jobs(number: int, definition: Any) -> None:
    found = row(number, 0, 1, definition)
    assert found.failed == 0
    # At one job a second none can be sooner; waits are at most some nine minutes.
    assert number - 1 <= found.last < 2 * number + 512
    assert found.calls < 12


def test_the_same_executions_fail_with_one_retrier_of_step_functions_defaults(definition: Any) -> None:
    assert row(100, 0, 1, definition).failed_with_defaults > 90


@pytest.mark.soak  # 5,000 jobs
def test_as_many_jobs_a_day_as_the_rate_allows_are_created_within_minutes(definition: Any) -> None:
    found = row(5_000, 86_400, 1, definition)
    assert (found.failed, found.longest_wait < 600) == (0, True)


def test_a_job_without_retries_fails_in_the_simulation_where_it_is_throttled() -> None:
    definition = retrying_definition()
    del definition["States"]["Train"]["Retry"]
    ended, calls = simulate(definition, 10, 0, 1)
    assert [status for *_, status in ended].count("SUCCEEDED") in (1, 2)
    assert calls.total() == 10


def test_an_execution_that_never_creates_its_job_fails_in_the_simulation(definition: Any) -> None:
    ended, _ = simulate(definition, 40, 0, 0.001)
    assert {(created is None, status) for _, created, status in ended} == {(True, "FAILED"), (False, "SUCCEEDED")}


@pytest.mark.soak  # simulates each row
def test_the_page_has_the_simulations_rows(definition: Any) -> None:
    rows = [row(*one, definition) for one in ROWS if one[0] <= 1_000]
    lines = table(rows).splitlines()[2:]
    assert [line for line in lines if line not in PAGE.read_text()] == []
