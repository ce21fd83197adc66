"""The checkpoint of a model that each rank has whole: how it is written, and what a resumed training takes from it."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.job import Job
from common.whole_checkpoint import read, restore, write


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return dataclasses.replace(Job.here({}), checkpoints=tmp_path)


def trained(rate: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model with weights of 1 and an optimizer that has taken a step with that rate."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    nn.init.ones_(model.weight)
    return model, optimizer


def states(model: nn.Module, optimizer: torch.optim.Optimizer, **more: Any) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more}


def test_a_checkpoint_gives_back_weights_optimizer_state_and_what_else_it_has(job: Job) -> None:
    write(job, states(*trained(rate=0.1), steps=7, position=3))
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    found = restore(job, model, optimizer)
    assert (found["steps"], found["position"]) == (7, 3)
    assert model.weight.tolist() == [[1, 1], [1, 1]]
    assert [int(state["step"]) for state in optimizer.state.values()] == [1, 1]


def test_a_resumed_training_has_the_learning_rate_of_its_own_arguments(job: Job) -> None:
    write(job, states(*trained(rate=0.1), steps=1))
    model, optimizer = trained(rate=0.5)
    restore(job, model, optimizer)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]


def test_without_a_checkpoint_a_training_begins(job: Job) -> None:
    model, optimizer = trained(rate=0.1)
    assert restore(job, model, optimizer) == {"steps": 0}
    assert model.weight.tolist() == [[1, 1], [1, 1]]


def test_a_checkpoint_whose_writing_fails_leaves_the_one_before(job: Job) -> None:
    def full(_: Any, file: Path) -> None:
        file.write_bytes(b"a part")
        raise OSError("no space left on device")

    write(job, {"steps": 1})
    with pytest.raises(OSError, match="no space"):
        write(job, {"steps": 2}, full)
    assert read(job) == {"steps": 1}


def test_ranks_that_resume_from_different_steps_do_not_train(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    write(job, {"steps": 84})
    monkeypatch.setattr(dist, "all_gather_object", lambda found, mine: found.__setitem__(slice(None), [mine, 0]))
    with pytest.raises(RuntimeError, match=r"all ranks must resume from the same step, got \[84, 0\] by rank"):
        read(dataclasses.replace(job, ranks=2))
