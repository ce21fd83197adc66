"""app.py whose jobs take fewer and shorter steps, and compile no vector code, which takes g++ twice as long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest import mock

import app
import aws_cdk as cdk

from cdk_sagemaker_training import TrainingWorkflow

FEW = {"epochs": 2, "steps": 20, "sequence": 32, "checkpoint-every": 10}
PLAIN_KERNELS = {"TORCHINDUCTOR_VEC_ISA_OK": "0"}


def with_few_steps(*arguments: Any, hyperparameters: Mapping[str, int], **props: Any) -> TrainingWorkflow:
    few = {name: FEW.get(name, value) for name, value in hyperparameters.items()}
    return TrainingWorkflow(*arguments, hyperparameters=few, environment=PLAIN_KERNELS, **props)


with mock.patch.object(app, "TrainingWorkflow", with_few_steps):
    few = cdk.App()
    for example in (app.HeterogeneousTraining, app.CompiledTraining, app.ModelParallelTraining):
        example(few, example.__name__)
    few.synth()
