"""What a checkpoint has of a run, and what a resumed run takes from it, or refuses by name."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.job import Job
from common.process_group import process_group


@cache
def checkpoints() -> ModuleType:
    """Not with the file, which each of pytest's processes imports: PyTorch's take a second."""
    return importlib.import_module("common.checkpoints")


@pytest.fixture(scope="module", autouse=True)
def _process_group() -> Iterator[None]:
    with process_group(Job.here({})):
        yield


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return dataclasses.replace(Job.here({}), checkpoints=tmp_path)


class Counter:
    """A state beside weights and optimizer."""

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


def trained(steps: int = 1, width: int = 2, decay: float = 0.0, groups: bool = False) -> Any:
    """A model and an optimizer that has taken some steps."""
    torch.manual_seed(steps)
    model = nn.Linear(width, 2)
    given: Any = model.parameters()
    if groups:
        given = [{"params": [model.weight], "weight_decay": 0.5}, {"params": [model.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(given, lr=0.1, weight_decay=decay)
    for _ in range(steps):
        model(torch.ones(1, width)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def checkpointer(job: Job, model: nn.Module, optimizer: Any, **settings: Any) -> Any:
    return checkpoints().Checkpointer(job, [model], [optimizer], **{"fixed": {"seed": 0}, **settings})


def written(job: Job, steps: int = 3, **settings: Any) -> nn.Module:
    """Write a checkpoint of a model that has taken some steps, and return that."""
    model, optimizer = trained(steps)
    writing = checkpointer(job, model, optimizer, **settings)
    writing.save(checkpoints().Progress(steps, 10 * steps))
    writing.wait()
    return model


def a_file_of(folder: Path, name: str) -> Path:
    return next((folder / name).glob("*.distcp"))


def test_a_resumed_training_has_weights_optimizer_state_progress_and_what_else_was_kept(job: Job) -> None:
    before = written(job, states={"counter": Counter(7)})
    (model, optimizer), counter = trained(), Counter(0)
    assert checkpointer(job, model, optimizer, states={"counter": counter}).restore() == checkpoints().Progress(3, 30)
    assert torch.equal(model.weight, before.weight)
    assert [int(state["step"]) for state in optimizer.state.values()] == [3, 3]
    assert counter.value == 7


def test_without_a_checkpoint_a_training_begins(job: Job) -> None:
    model, optimizer = trained()
    weight = model.weight.clone()
    assert checkpointer(job, model, optimizer).restore() == checkpoints().Progress(0, 0)
    assert torch.equal(model.weight, weight)


@pytest.mark.parametrize("groups", [False, True])
def test_a_resumed_optimizer_has_the_decay_and_the_groups_of_its_own_arguments(job: Job, groups: bool) -> None:
    written(job)
    model, optimizer = trained(decay=0.25, groups=groups)
    checkpointer(job, model, optimizer).restore()
    decays = [group["weight_decay"] for group in optimizer.param_groups]
    assert decays == ([0.5, 0.0] if groups else [0.25])


def test_a_setting_that_would_change_the_meaning_of_a_checkpoint_is_refused_by_name(job: Job) -> None:
    written(job)
    message = f"seed must be 0 as in {job.checkpoints / 'step-00000003'}, which this run would resume, got 1"
    with pytest.raises(ValueError, match=re.escape(message)):
        checkpointer(job, *trained(), fixed={"seed": 1}).restore()


def test_settings_that_may_change_are_printed_where_they_do(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    written(job, free={"batch_size": 16})
    checkpointer(job, *trained(), free={"batch_size": 32}).restore()
    assert capsys.readouterr().out == "resumes at step 3, sample 30, batch_size 16 -> 32\n"


def test_a_checkpoint_of_another_model_is_refused_by_the_name_of_a_tensor(job: Job) -> None:
    written(job)
    with pytest.raises(ValueError, match=r"must have model.weight of \[2, 5\], got of \[2, 2\]: of another model"):
        checkpointer(job, *trained(width=5)).restore()


def test_a_checkpoint_without_a_tensor_is_refused_by_its_name(job: Job) -> None:
    written(job)
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"must have model.0.weight of \[2, 2\], got none: of another model"):
        checkpointer(job, model, torch.optim.AdamW(model.parameters())).restore()


def test_a_checkpoint_of_another_version_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("common.checkpoints.VERSION", 1)
        written(job)
    with pytest.raises(ValueError, match="must be of version 2 of this script, got version 1"):
        checkpointer(job, *trained()).restore()


def test_a_checkpoint_without_a_record_is_refused(job: Job) -> None:
    checkpoints().dcp.save({"model": trained()[0].state_dict()}, checkpoint_id=job.checkpoints / "step-00000003")
    with pytest.raises(ValueError, match="step-00000003 has no record of its run"):
        checkpointer(job, *trained()).restore()


def test_a_checkpoint_whose_write_was_interrupted_is_as_if_it_were_not_there(job: Job) -> None:
    (job.checkpoints / "step-00000003").mkdir()
    (job.checkpoints / "step-00000003" / "__0_0.distcp").write_bytes(b"a part")
    assert checkpointer(job, *trained()).restore() == checkpoints().Progress(0, 0)
    assert list(job.checkpoints.iterdir()) == []


def test_of_several_checkpoints_the_newest_that_is_complete_is_resumed_and_what_the_others_lack_is_printed(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps in (3, 4):
        model, optimizer = trained(steps)
        writing = checkpointer(job, model, optimizer)
        writing.save(checkpoints().Progress(steps, 10 * steps))
        writing.wait()
    cut = a_file_of(job.checkpoints, "step-00000004")
    size = cut.stat().st_size
    cut.write_bytes(cut.read_bytes()[:100])
    model, optimizer = trained()
    writing = checkpointer(job, model, optimizer)
    assert writing.restore() == checkpoints().Progress(3, 30)
    assert f"{{'step-00000004': '{cut.name} has 100 of {size} bytes'}}" in capsys.readouterr().out
    assert [at.name for at in job.checkpoints.iterdir()] == ["step-00000003"]


def test_a_step_has_one_checkpoint_which_is_not_written_over(job: Job) -> None:
    model, optimizer = trained(3)
    writing = checkpointer(job, model, optimizer)
    kept = []
    for samples in (30, 40):
        writing.save(checkpoints().Progress(3, samples))
        writing.wait()
        kept.append(a_file_of(job.checkpoints, "step-00000003").stat().st_mtime_ns)
    assert kept[0] == kept[1]
    assert checkpointer(job, *trained()).restore() == checkpoints().Progress(3, 30)


def test_a_stager_that_closes_itself_after_each_use_as_that_of_pytorch_2_11_does_takes_each_checkpoint(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch/distributed/checkpoint/staging.py of 2.11.0: `_stage` ends with `self._state_dict_stager.close()`."""
    staging = importlib.import_module("torch.distributed.checkpoint.staging")

    class Closing(staging.DefaultStager):  # type: ignore[misc, name-defined]
        def _stage(self, states: Any, **options: Any) -> Any:
            staged = super()._stage(states, **options)
            self._state_dict_stager.close()
            return staged

    options = staging.StagingOptions
    monkeypatch.setattr(staging, "DefaultStager", Closing)
    monkeypatch.setattr(
        staging, "StagingOptions", lambda *_: options(False, False, False, False)
    )  # pins no memory here
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    model, optimizer = trained(3)
    writing = checkpointer(job, model, optimizer)
    for steps in (3, 4, 5):
        writing.save(checkpoints().Progress(steps, steps))
    writing.wait()
    assert checkpointer(job, *trained()).restore() == checkpoints().Progress(5, 5)


def damaged_file(job: Job) -> str:
    a_file_of(job.checkpoints, "step-00000003").unlink()
    return "__0_0.distcp has 0 of"


def damaged_metadata(job: Job) -> str:
    metadata = job.checkpoints / "step-00000003" / ".metadata"
    metadata.write_bytes(metadata.read_bytes()[:50])
    return ".metadata cannot be read"


@pytest.mark.parametrize("damage", [damaged_file, damaged_metadata])
def test_where_the_only_checkpoint_is_damaged_the_training_does_not_begin_anew(job: Job, damage: Any) -> None:
    written(job)
    with pytest.raises(ValueError, match=f"no checkpoint in .* is complete: .*{damage(job)}"):
        checkpointer(job, *trained()).restore()


def test_a_loss_scalers_state_is_kept(job: Job) -> None:
    def scaler() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=4.0)

    before = scaler()
    before.load_state_dict({**before.state_dict(), "scale": 0.5, "_growth_tracker": 3})
    written(job, states={"scaler": before})
    after = scaler()
    checkpointer(job, *trained(), states={"scaler": after}).restore()
    assert after.state_dict() == before.state_dict()
    assert after.state_dict()["scale"] == 0.5
