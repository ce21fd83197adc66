"""Each script trains as one process of plain PyTorch does: losses, gradients, weights, rates, samples, random numbers.

What is compared is said in oracle_plain.py, what a case is in oracle.py. The cases that every change waits for have the names of
the facts that they show; `make soak` has those and another two hundred, of ranks, batches, layouts and arguments by a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from oracle import TRAINING_CODE, Outcome, refused, run
from oracle_cases import DRAWN, INDUCTOR, OF_RESUMES, OF_SEEDS, QUICK, between, draw
from oracle_mutations import MUTATIONS

SHARDS, CASES_OF_A_KIND = 10, 40


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    return run(QUICK, tmp_path_factory.mktemp("oracle"))


@pytest.mark.parametrize("name", QUICK)
def test_a_script_trains_as_one_process_of_plain_pytorch(outcomes: Mapping[str, Outcome], name: str) -> None:
    assert outcomes[name].found == []


def test_another_seed_reads_and_drops_otherwise_and_a_resumed_training_as_it_would_have(
    outcomes: Mapping[str, Outcome],
) -> None:
    assert {name for pair in OF_SEEDS + OF_RESUMES for name in pair} <= outcomes.keys()
    assert outcomes[OF_RESUMES[0][0]].dropped[0][0]
    assert between(outcomes) == []


@pytest.mark.parametrize(
    ("kind", "options", "refusal"),
    [
        ("data_parallel", {"batch-size": 2000}, "from 1 to the number of samples, 1000, like 64, got 2000"),
        ("data_parallel", {"epochs": 0}, "argument --epochs: must be a whole number from 1 on, like 256, got '0'"),
        ("heterogeneous", {"epochs": 1, "workers": 1}, "at least one sample"),
    ],
)
def test_a_run_that_would_train_nothing_is_refused(
    tmp_path: Path, kind: str, options: Mapping[str, int], refusal: str
) -> None:
    inputs = (
        {} if kind == "data_parallel" else {"digits": 1}
    )  # the data parallel script has a thousand points of its own
    printed = refused(kind, inputs, options, tmp_path)
    assert refusal in printed
    assert not (tmp_path / "output" / "model").exists()


@pytest.mark.soak
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_script_of_any_ranks_and_arguments_trains_as_one_process_of_plain_pytorch(tmp_path: Path, shard: int) -> None:
    cases = {
        f"{kind} {number}": draw(kind, number) for kind in DRAWN for number in range(shard, CASES_OF_A_KIND, SHARDS)
    }
    assert {name: outcome.found for name, outcome in run(cases, tmp_path).items() if outcome.found} == {}


@pytest.mark.soak  # test_compiled_train.py has the losses of what inductor compiles
@pytest.mark.parametrize("script", INDUCTOR)
def test_what_inductor_compiles_trains_as_plain_pytorch(tmp_path: Path, script: str) -> None:
    assert {name: outcome.found for name, outcome in run(INDUCTOR[script], tmp_path).items()} == {
        "not compiled": [],
        "compiled": [],
    }


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_code_has_what_a_planted_bug_replaces(name: str) -> None:
    mutation = MUTATIONS[name]
    assert mutation.old in (TRAINING_CODE / mutation.file).read_text()


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_quick_cases_find_a_planted_bug(tmp_path: Path, name: str) -> None:
    assert MUTATIONS[name].find(tmp_path)
