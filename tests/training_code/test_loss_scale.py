"""model_parallel/loss_scale.py: fp16's scaled loss, and the agreement on the steps to take of two real ranks, over gloo."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from preloaded import start

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
KIND = TRAINING_CODE / "model_parallel"
# Rank 1 alone has the gradients that are not finite; rank 0 prints.
TWO_RANKS = """
import json, sys, torch
from dataclasses import replace
from pathlib import Path
from common.checkpoints import Checkpointer, Progress
from common.job import Job
from common.process_group import process_group
from loss_scale import GROWTH_INTERVAL, LossScale

def after(scale, gradient, of_rank_1):
    weight = torch.nn.Parameter(torch.zeros(1))
    scale.scaled(weight * (of_rank_1 if job.rank else gradient)).backward()
    taken = scale.unscale([weight])
    return taken, weight.grad.item(), scale.value

def raised(scale):
    try: after(scale, 1.0, float("inf"))
    except RuntimeError as error: return str(error)

def restored(folder):
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    def checkpointer_of(**states):
        return Checkpointer(replace(job, checkpoints=folder), [module], [optimizer], fixed={}, states=states)
    scale, later = LossScale("fp16"), LossScale("fp16")
    checkpointer = checkpointer_of(loss_scale=scale)
    after(scale, 1.0, float("nan"))
    checkpointer.save(Progress(1))
    after(scale, 1.0, float("nan"))
    checkpointer.wait()
    checkpointer_of(loss_scale=later).restore()
    checkpointer_of().restore()
    kept = LossScale("fp16")
    checkpointer = checkpointer_of()
    checkpointer.save(Progress(2))
    checkpointer.wait()
    steps = checkpointer_of(loss_scale=kept).restore().steps
    return scale.value, later.value, steps, kept.value

def train():
    small = 2.0**-24
    grown, least, found = LossScale("fp16"), LossScale("fp16"), {}
    found["finite"] = after(LossScale("fp16"), small, small)
    found["infinite"] = after(LossScale("fp16"), small, float("inf"))
    found["bf16"] = after(LossScale("bf16"), 2.0, float("inf"))
    grown.load_state_dict({"scale": 2.0**16, "steps": GROWTH_INTERVAL - 1})
    found["grown"] = after(grown, small, small)
    least.load_state_dict({"scale": 1.0, "steps": 0})
    found["least"] = raised(least)
    found["restored"] = restored(Path(sys.argv[1]))
    return found

job = Job.here()
with process_group(job):
    found = train()
if job.rank == 0:
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("scale")
    program, errors = folder / "program.py", folder / "errors"
    program.write_text(TWO_RANKS)
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, (TRAINING_CODE, KIND)))}
    with start([program, folder / "checkpoints"], cwd=folder, env=variables, ranks=2, errors=errors) as process:
        printed, _ = process.communicate()
        assert process.wait() == 0, errors.read_text()
    return dict(json.loads(printed.splitlines()[-1]))


def test_a_step_is_that_of_the_gradient_without_its_scale(found: dict[str, Any]) -> None:
    assert found["finite"] == [True, 2.0**-24, 2.0**16]


def test_all_ranks_skip_a_step_in_which_one_has_an_infinite_gradient_and_halve_the_scale(
    found: dict[str, Any],
) -> None:
    assert found["infinite"] == [False, 2.0**-24, 2.0**15]


def test_no_other_format_scales_or_leaves_a_step_out(found: dict[str, Any]) -> None:
    assert found["bf16"] == [True, 2.0, 1.0]


def test_the_scale_doubles_after_2000_steps_that_are_taken(found: dict[str, Any]) -> None:
    assert found["grown"] == [True, 2.0**-24, 2.0**17]


def test_gradients_that_are_infinite_without_a_scale_are_an_error(found: dict[str, Any]) -> None:
    assert found["least"] == "the gradients are not finite in fp16 even with a loss scale of 1, so no step is taken"


def test_a_checkpoint_has_the_scale_which_other_formats_neither_read_nor_write(
    found: dict[str, Any],
) -> None:
    assert found["restored"] == [2.0**14, 2.0**15, 2, 2.0**16]
