"""What the constructs write for a model-parallel job, as its training code reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import get_args

import pytest
from preloaded import start

from cdk_sagemaker_training import NativeParallelism
from cdk_sagemaker_training.jobs.parallelism import Precision, Schedule

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
LAYOUTS = [
    NativeParallelism(pipeline=2, data_shard=2, schedule=schedule, precision=precision)
    for schedule in get_args(Schedule)
    for precision in get_args(Precision)
]


@pytest.fixture(scope="module")
def understood(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """The degrees of each layout, by train.py's own reading of the job's environment."""
    code = (
        "import json, os, sys, train; from dataclasses import asdict, replace; from common.job import Job\n"
        "found, job = [], replace(Job.here({}), ranks=4)\n"
        "for given in json.loads(sys.argv[1]):\n"
        "    os.environ['TRAINING_PARALLELISM'] = given\n"
        "    found.append(asdict(train.degrees_of(train.config([]), job)))\n"
        "print(json.dumps(found))"
    )
    folder = tmp_path_factory.mktemp("reading")
    (folder / "reading.py").write_text(code)
    paths = os.pathsep.join(map(str, (TRAINING_CODE, TRAINING_CODE / "model_parallel")))
    given = json.dumps([layout.environment()["TRAINING_PARALLELISM"] for layout in LAYOUTS])
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    with start([folder / "reading.py", given], cwd=folder, env=variables) as program:
        output, _ = program.communicate()
    assert program.wait() == 0, output
    return list(json.loads(output))


@pytest.mark.parametrize("number", range(len(LAYOUTS)), ids=lambda n: f"{LAYOUTS[n].schedule}-{LAYOUTS[n].precision}")
def test_every_schedule_and_precision_is_understood(understood: list[dict[str, object]], number: int) -> None:
    said, read = json.loads(LAYOUTS[number].environment()["TRAINING_PARALLELISM"]), understood[number]
    pytorchs = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
    assert read == said | {"schedule": pytorchs[LAYOUTS[number].schedule]}
