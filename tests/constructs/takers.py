"""Everything public that takes props, with what each needs beside the prop that a test gets wrong."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any, get_args

from aws_cdk import aws_sns as sns
from member_cases import RULES_IMAGE, Stack

import cdk_sagemaker_training as library
from cdk_sagemaker_training import (
    DataParallelJob,
    Grid,
    InstanceGroup,
    NativeParallelism,
    NumberField,
    S3Prefix,
    TrainingProps,
    TrainingQueue,
    TrainingTask,
    TrainingWorkflow,
)
from cdk_sagemaker_training.props.prop import declared, options_of
from cdk_sagemaker_training.props.prop_types import annotations_of

STACK = Stack()
MACHINE_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:training"
QUEUE_ARN = "arn:aws:batch:us-east-1:123456789012:job-queue/jobs"
QUEUE = TrainingQueue(STACK, "Queue", capacity=8, shares={"vision": 2, "speech": 1})
PLACE = S3Prefix(STACK.bucket, "some/")
GROUP = InstanceGroup("ml.g5.xlarge")
JOB = DataParallelJob(GROUP)
WORKFLOW = {"job": JOB, "image": STACK.image, "output": PLACE}
SCOPED = {"scope": STACK, "id": "New"}
MEASURED = TrainingWorkflow(STACK, "Measured", **WORKFLOW, metric_definitions={"accuracy": "accuracy=([0-9.]+)"})
# What is needed of each beside the prop that is wrong.
NEEDED: dict[str, dict[str, Any]] = {
    "Advice": {"id": "team:slow", "text": "Slow."},
    "Alternative": {"job": JOB},
    "Approval": {**SCOPED, "topic": sns.Topic(STACK, "Topic")},
    "ArtifactOf": {"workflow": MEASURED},
    "Budget": {"hours": 24, "dollars": 100, "prices": {"ml.g5.xlarge": 1.41}},
    "CompiledJob": {"group": GROUP},
    "ChoiceField": {"values": ["ml.g5.xlarge"]},
    "DataParallelJob": {"group": GROUP},
    "Debugger": {"output": PLACE},
    "DebuggerRule": {"name": "Loss", "evaluator_image": RULES_IMAGE},
    "EfsChannel": {"file_system": STACK.efs},
    "Experiment": {"experiment_name": "digits"},
    "FsxLustreChannel": {"file_system": STACK.lustre, "mount_name": "fsx"},
    "Grid": {"values": {"learning_rate": [0.1, 0.01]}},
    "Gate": {**SCOPED, "workflow": MEASURED, "metric": "accuracy", "at_least": 0.9, "at_most": 1.0},
    "HeterogeneousJob": {"groups": {"data": GROUP}, "train": JOB, "train_group": "dnn"},
    "InstanceGroup": {"instance_type": "ml.g5.xlarge"},
    "InstancePreference": {"instance_type": "ml.g5.xlarge"},
    "JobRequest": {"resource_config": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1}},
    "LustreFileSystem": {**SCOPED, "network": STACK.network, "data": PLACE},
    "MetricLimit": {"metric": "loss", "above": 10.0, "below": 0.0},
    "Plateau": {"metric": "loss"},
    "Mlflow": {"resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits"},
    "Model": {"parameters": 8_030_261_248},
    "ModelParallelJob": {"group": GROUP, "parallelism": NativeParallelism()},
    "Neuron": {"cache": PLACE},
    "Objective": {"metric": "loss", "goal": "Minimize"},
    "QueueShare": {"queue": QUEUE, "name": "vision"},
    "QuotaShare": {"capacity": {"ml.g5.xlarge": 4}, "sharing": "LEND_AND_BORROW"},
    "ParallelSteps": {"branches": [[MEASURED], [MEASURED]]},
    "RegisterModel": {**SCOPED, "workflow": MEASURED, "group": "digits"},
    "Retry": {"attempts": 3, "first_wait": 60, "until": 3_600},
    "Rows": {"values": [{"learning_rate": 0.1}]},
    "RowsFile": {"bucket": STACK.bucket, "key": "rows.csv"},
    "S3AccessPoint": {"arn": "arn:aws:s3:us-east-1:123456789012:accesspoint/images"},
    "S3Channel": {"bucket": STACK.bucket, "prefix": "images/"},
    "S3Prefix": {"bucket": STACK.bucket},
    "SmpV1": {"parameters": {"pipeline_parallel_degree": 2}},
    "Spot": {"checkpoints": PLACE, "max_wait": 7200},
    "TensorBoard": {"output": PLACE},
    "TrainingBucket": SCOPED,
    "TrainingCode": {"directory": "training_code/compiled"},
    "TrainingDashboard": {
        **SCOPED,
        "workflow": TrainingWorkflow(STACK, "Counted", **WORKFLOW, job_metrics=True),
        "dollars_per_hour": 1.41,
    },
    "TrainingImage.from_asset": {**SCOPED, "directory": "training_code"},
    "TrainingImage.from_codebuild": {**SCOPED, "directory": "training_code"},
    "TrainingImage.from_dlc": {**SCOPED, "repository": "pytorch-training", "tag": "2.6.0-gpu-py312"},
    "TrainingImage.from_ecr_repository": {**SCOPED, "repository": STACK.image.repository, "tag": "1"},
    "TrainingImage.from_neuron": SCOPED,
    "TrainingImage.from_training_compiler": {**SCOPED, "framework": "pytorch", "version": "1.13.1"},
    "TrainingImage.from_uri": {**SCOPED, "image_uri": "registry.example.com/team/training:1"},
    "TrainingNetwork": SCOPED,
    "TrainingNetwork.from_lookup": SCOPED,
    "TrainingPipeline": {**SCOPED, "steps": [MEASURED]},
    "TrainingQueue": {**SCOPED, "capacity": 8, "shares": {"vision": 2}},
    "TrainingQueue.from_queue_arn": {**SCOPED, "queue_arn": QUEUE_ARN},
    "TrainingQueue.from_queue_attributes": {**SCOPED, "queue_arn": QUEUE_ARN, "capacity": 8, "shares": {"vision": 2}},
    "TrainingRole": SCOPED,
    "TrainingRole.from_role_arn": {**SCOPED, "role_arn": "arn:aws:iam::123456789012:role/training"},
    "TrainingRole.from_role_name": {**SCOPED, "role_name": "training"},
    "TrainingSweep": {
        **SCOPED,
        "workflow": TrainingWorkflow(STACK, "Swept", **WORKFLOW, input_fields={"learning_rate": NumberField()}),
        "over": Grid({"learning_rate": [0.1]}),
        "results": PLACE,
        "concurrency": 4,
    },
    "TrainingTask": {**SCOPED, **WORKFLOW},
    "TrainingWorkflow": {**SCOPED, **WORKFLOW},
    "TrainingWorkflow.from_state_machine_arn": {**SCOPED, "state_machine_arn": MACHINE_ARN},
    "TrainingWorkflow.from_training_workflow_attributes": {**SCOPED, "state_machine_arn": MACHINE_ARN},
    "UltraServers": {"counts": [1]},
    "WarmPool": {"keep_alive": 600},
    "efa_environment": {"instance_type": "ml.p4d.24xlarge"},
    "rescaled_learning_rate": {"learning_rate": 0.1, "batch_size": 1, "new_batch_size": 2},
    "suggested_batch_sizes": {"model": "gpt2"},
}
# Public names that take no props of their own: protocols, what the library makes, and what is checked with its taker.
WITHOUT = {
    "Attempt",
    "Cause",
    "Compiler",
    "Feature",
    "ITrainingQueue",
    "ITrainingWorkflow",
    "Launcher",
    "Parallelism",
    "Seam",
    "SuggestedBatchSize",
    "TrainingFunctions",
    "TrainingJob",
    "TrainingProps",
}


NUMBERS = itertools.count()


def takers() -> dict[str, Callable[..., Any]]:
    """Every public value, construct and function, and what constructs are made by besides."""
    found: dict[str, Callable[..., Any]] = {}
    for name in set(library.__all__) - WITHOUT:
        public = getattr(library, name)
        if name != "TrainingImage":  # which its static methods make
            found[name] = public
        for method, made_by in inspect.getmembers(public, inspect.isfunction):
            is_static = isinstance(inspect.getattr_static(public, method), staticmethod)
            if is_static and method.startswith("from_") and "cdk_sagemaker" in made_by.__module__:
                found[f"{name}.{method}"] = made_by
    return found


def annotations(taker: Callable[..., Any]) -> dict[str, str]:
    """The text of each prop's type, without the modules of its parts, by the prop's name."""
    annotated = taker if is_dataclass(taker) and not hasattr(taker.__init__, "__wrapped__") else None
    hints = annotations_of(annotated or (taker.__init__ if inspect.isclass(taker) else taker))
    if taker in (TrainingWorkflow, TrainingTask):
        hints = {**hints, **annotations_of(TrainingProps)}
    return {name: text_of(declared(hint)[0]) for name, hint in hints.items() if name not in ("self", "kind", "return")}


def text_of(hint: Any) -> str:
    texts = []
    for option in options_of(hint):
        kind = declared(option)[0]
        texts.append(kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind))
    return re.sub(r"\b\w+\.", "", " | ".join(texts)).replace("NoneType", "None")


TAKERS = takers()
PROPS = [(name, prop, text) for name in sorted(TAKERS) for prop, text in sorted(annotations(TAKERS[name]).items())]


def refusal_of(name: str, prop: str, value: Any) -> str | None:
    """What is said to a prop with a value; None where it is taken."""
    props = {**NEEDED.get(name, {}), prop: value}
    if props.get("id") == "New":
        props["id"] = f"New{next(NUMBERS)}"
    try:
        TAKERS[name](**props)
    except (ValueError, TypeError) as refusal:
        return str(refusal)
    return None


def is_whole(refusal: str | None, prop: str) -> bool:
    """Whether a refusal begins with the prop and has the rule and the value."""
    return refusal is not None and bool(re.match(rf"{prop}\b.* must .*, got ", refusal, re.DOTALL))
