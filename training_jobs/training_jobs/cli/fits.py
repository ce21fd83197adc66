"""``training-jobs fits``: whether a layout of a model fits the GPUs of an instance type, predicted without a GPU."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Annotated

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def fits(
    context: typer.Context,
    instance_type: Annotated[str, typer.Option(help="A type with GPUs, like ml.p4d.24xlarge.")],
    instance_count: Annotated[int, typer.Option(min=1)] = 1,
) -> None:
    """Predict the memory of each GPU for a model and a layout; exit code 1 if it does not fit.

    Further arguments: --model FOLDER (with a config.json of transformers),
    --module FILE.py:FUNCTION (your own), --largest-batch, --smallest-layout (of machines of this type), and the arguments of its
    train.py, such as --tensor 8 --precision bf16 --batch-size 64. Needs torch, and for --model transformers.
    """
    from training_jobs.facts.instance_facts import instance_facts, nearest_with_gpus
    from training_jobs.training_code import SCRIPTS, training_code

    facts = instance_facts(instance_type)
    if facts is None or facts.kind != "gpu":
        raise typer.BadParameter(
            f"instance-type must be a SageMaker training type with GPUs, like {nearest_with_gpus(instance_type)}, "
            f"got {instance_type}"
        )
    if importlib.util.find_spec("torch") is None:
        raise typer.BadParameter("fits needs torch, which this Python does not have: pip install torch transformers")
    code = training_code()
    command = [sys.executable, f"{SCRIPTS}/fits.py", "--ranks", str(facts.devices * instance_count)]
    command += ["--gpu-memory", f"{facts.memory_gib:g}", *context.args]
    os.execve(sys.executable, command, {**os.environ, "PYTHONPATH": f"{code}{os.pathsep}{code}/model_parallel"})
