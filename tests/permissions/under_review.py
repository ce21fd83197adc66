"""The stacks whose permissions are looked at: the examples, and some that together have every grant of the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from stacks import CODE
from statements import Held, statements
from test_nag import RECOMMENDED, Everything, Members, Piping, Reading, example_stacks

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    LustreFileSystem,
    MetricLimit,
    Neuron,
    NumberField,
    QuotaShare,
    RowsFile,
    S3Prefix,
    Silence,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingNetwork,
    TrainingQueue,
    TrainingSweep,
    TrainingTask,
    TrainingWorkflow,
    default_retries,
)

PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"


class Waiting(cdk.Stack):
    """Jobs that are waited for by `.sync`, as a task and in a workflow that another machine calls; a training plan; a queue."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = s3.Bucket.from_bucket_name(self, "Bucket", "data")
        repository = ecr.Repository.from_repository_name(self, "Repository", "images")
        said: dict[str, Any] = {
            "image": TrainingImage.from_ecr_repository(self, "Image", repository, "1"),
            "output": S3Prefix(bucket, "models/"),
        }
        on_cpus = DataParallelJob(InstanceGroup("ml.c5.xlarge"))
        called = TrainingWorkflow(self, "Called", job=on_cpus, **said)
        body = sfn.DefinitionBody.from_chainable(called.as_task(self, "Call"))
        sfn.StateMachine(self, "Caller", definition_body=body)
        body = sfn.DefinitionBody.from_chainable(TrainingTask(self, "Train", job=on_cpus, **said))
        sfn.StateMachine(self, "Machine", definition_body=body)
        on_gpus = DataParallelJob(InstanceGroup("ml.p4d.24xlarge"))
        topic = sns.Topic(self, "Topic", enforce_ssl=True, master_key=kms.Key(self, "Key", enable_key_rotation=True))
        told: dict[str, Any] = {"notify": [topic], "waiting_longer_than": 3_600}
        watched: dict[str, Any] = {
            "metric_definitions": {"loss": "loss=([0-9.]+)"},
            "retries": default_retries(),
            "stop_when": [Silence(), MetricLimit("loss", above=10.0)],
        }
        TrainingWorkflow(self, "Planned", job=on_gpus, training_plan=PLAN, **watched, **told, **said)
        queue = TrainingQueue(self, "Queue", capacity=8, shares={"vision": 2, "speech": 1})
        TrainingWorkflow(self, "Queued", job=on_cpus, queue=queue.share("vision"), **told, **said)
        machines = {"ml.c5.xlarge": 4}
        quotas = TrainingQueue(self, "Quotas", capacity=machines, shares={"vision": QuotaShare(machines)})
        TrainingWorkflow(self, "OfQuota", job=on_cpus, queue=quotas.share("vision"), **said)


class Writing(cdk.Stack):
    """A compiler's cache in S3, and a file system that exports to a bucket with a key."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = TrainingBucket(self, "Bucket", encryption_key=kms.Key(self, "Key", enable_key_rotation=True))
        network = TrainingNetwork(self, "Network", max_azs=1)
        LustreFileSystem(self, "Files", network=network, data=S3Prefix(bucket, "images/"), export=True)
        compiler = Neuron(cache=S3Prefix(bucket, "cache/"))
        TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.trn1.2xlarge"), Torchrun(), compiler),
            image=TrainingImage.from_dlc(self, "Image", "pytorch-training-neuronx", "2.1.2-neuronx-py310"),
            code=CODE,
            output=S3Prefix(bucket, "models/"),
            job_metrics=True,
        )


class Sweeping(cdk.Stack):
    """A sweep whose rows and results are in a bucket with a key."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = TrainingBucket(self, "Bucket", encryption_key=kms.Key(self, "Key", enable_key_rotation=True))
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
            image=TrainingImage.from_dlc(self, "Image", "pytorch-training", "2.6.0-gpu-py312"),
            code=CODE,
            output=S3Prefix(bucket, "models/"),
            input_fields={"learning_rate": NumberField(0, 1)},
        )
        TrainingSweep(
            self,
            "Sweep",
            workflow=workflow,
            over=RowsFile(bucket, "rows.csv"),
            results=S3Prefix(bucket, "sweeps/"),
            concurrency=4,
        )


STACKS: Mapping[str, Callable[[cdk.App, str], cdk.Stack]] = {
    **example_stacks(),
    **{stack.__name__: stack for stack in (Everything, Members, Piping, Reading, Sweeping, Waiting, Writing)},
}


@cache
def template_of(name: str) -> Mapping[str, Any]:
    app = cdk.App(context=RECOMMENDED)
    STACKS[name](app, "Stack")
    template: Mapping[str, Any] = app.synth().get_stack_by_name("Stack").template
    return template


def held_by(name: str) -> list[Held]:
    return statements(template_of(name))
