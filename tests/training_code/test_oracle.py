"""Each script trains as one process of plain PyTorch does: losses, gradients, weights, rates, samples, random numbers.

What is compared is said in oracle_plain.py, what a case is in oracle.py. The cases that every change waits for have the names of
the facts that they show; `make soak` has those and another two hundred, of ranks, batches, layouts and arguments by a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from oracle import Outcome, run
from oracle_cases import DRAWN, QUICK, draw

SHARDS, CASES_OF_A_KIND = 10, 40


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    return run(QUICK, tmp_path_factory.mktemp("oracle"))


@pytest.mark.parametrize("name", QUICK)
def test_a_script_trains_as_one_process_of_plain_pytorch(outcomes: Mapping[str, Outcome], name: str) -> None:
    assert outcomes[name].found == []


@pytest.mark.parametrize(
    ("script", "one", "other"),
    [
        (
            "data parallel",
            "the last samples of an epoch are read, and count as much as others",
            "another seed",
        ),
        ("Hugging Face", "dropout", "dropout, another seed"),
    ],
)
def test_another_seed_reads_in_another_order(
    outcomes: Mapping[str, Outcome], script: str, one: str, other: str
) -> None:
    assert outcomes[f"{script}: {one}"].read[:19] != outcomes[f"{script}: {other}"].read[:19]


def test_another_seed_drops_other_units(outcomes: Mapping[str, Outcome]) -> None:
    one, other = (outcomes[f"Hugging Face: {name}"].dropped for name in ("dropout", "dropout, another seed"))
    assert one
    assert other
    assert not {digest for step in one for digest in step} & {digest for step in other for digest in step}


@pytest.mark.parametrize("name", ["dropout", "dropout in stages"])
def test_a_resumed_training_reads_and_drops_what_it_would_have_without_the_interruption(
    outcomes: Mapping[str, Outcome], name: str
) -> None:
    whole, resumed = outcomes[f"Hugging Face: {name}"], outcomes[f"Hugging Face: {name}, resumed"]
    assert whole.dropped
    assert (whole.read, whole.dropped) == (resumed.read, resumed.dropped)


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_script_of_any_ranks_and_arguments_trains_as_one_process_of_plain_pytorch(tmp_path: Path, shard: int) -> None:
    cases = {
        f"{kind} {number}": draw(kind, number) for kind in DRAWN for number in range(shard, CASES_OF_A_KIND, SHARDS)
    }
    assert {name: outcome.found for name, outcome in run(cases, tmp_path).items() if outcome.found} == {}
