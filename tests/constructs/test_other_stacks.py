"""What a workflow uses may be made in another stack, or in the stack around a nested one: each reference has a target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct
from stacks import CODE, ENVIRONMENT

from cdk_sagemaker_training import (
    DataParallelJob,
    EfsChannel,
    FsxLustreChannel,
    Grid,
    InstanceGroup,
    LustreFileSystem,
    NumberField,
    S3Channel,
    S3Prefix,
    Silence,
    TrainingDashboard,
    TrainingImage,
    TrainingNetwork,
    TrainingPipeline,
    TrainingQueue,
    TrainingRole,
    TrainingSweep,
    TrainingTask,
    TrainingWorkflow,
    default_retries,
)

ON_ONE_GPU = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
FOLDER = str(Path(__file__).parents[1] / "end_to_end" / "a_released_job")
PSEUDO = re.compile(r"AWS::\w+")


class Shared:
    """What another stack has: of each kind of resource that a workflow takes."""

    def __init__(self, scope: Construct) -> None:
        self.scope = scope
        self.key = kms.Key(scope, "Key")
        self.bucket = s3.Bucket(scope, "Bucket", encryption_key=self.key)
        self.repository = ecr.Repository(scope, "Repository")
        self.vpc = ec2.Vpc(scope, "Vpc", max_azs=2)
        self.network = TrainingNetwork(scope, "Network", vpc=self.vpc)
        self.topic = sns.Topic(scope, "Topic")
        self.file_system = efs.FileSystem(scope, "Files", vpc=self.vpc)
        self.role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))


def plain(scope: Construct, shared: Shared, **more: Any) -> TrainingWorkflow:
    repository_image = TrainingImage.from_ecr_repository(scope, "Image", shared.repository, "1")
    props = {"image": repository_image, "job": ON_ONE_GPU, "output": S3Prefix(shared.bucket, "models/"), **more}
    return TrainingWorkflow(scope, "Training", **props)


def everything(scope: Construct, shared: Shared) -> None:
    plain(
        scope,
        shared,
        output_key=shared.key,
        channels={
            "images": S3Channel(shared.bucket, "images/"),
            "files": EfsChannel(shared.file_system),
        },
        checkpoints=S3Prefix(shared.bucket, "checkpoints/"),
        network=shared.network,
        retries=default_retries(),
        notify=[shared.topic],
        stop_when=[Silence(cdk.Duration.hours(2))],
        max_runtime=cdk.Duration.hours(4),
    )


def with_a_role(scope: Construct, shared: Shared) -> None:
    plain(scope, shared, role=TrainingRole(scope, "OfOthers", role=shared.role))


def queued(scope: Construct, shared: Shared) -> None:
    plain(scope, shared, queue=TrainingQueue(scope, "Queue", capacity=2))


def with_code(scope: Construct, shared: Shared) -> None:
    image = TrainingImage.from_dlc(scope, "Container", "pytorch-training", "2.6.0-gpu-py312")
    plain(scope, shared, image=image, code=CODE)


def swept(scope: Construct, shared: Shared) -> None:
    rate = sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.rate"))
    workflow = plain(scope, shared, hyperparameters={"rate": rate}, input_fields={"rate": NumberField(0, 1)})
    TrainingSweep(
        scope,
        "Sweep",
        workflow=workflow,
        over=Grid({"rate": [0.1]}),
        results=S3Prefix(shared.bucket, "sweeps/"),
        concurrency=2,
    )


def in_a_pipeline(scope: Construct, shared: Shared) -> None:
    TrainingPipeline(scope, "Pipeline", steps=[plain(scope, shared)])


def in_a_machine(scope: Construct, shared: Shared) -> None:
    run = plain(scope, shared).as_task(scope, "Run")
    sfn.StateMachine(scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(run))


def a_task(scope: Construct, shared: Shared) -> None:
    image = TrainingImage.from_ecr_repository(scope, "Image", shared.repository, "1")
    task = TrainingTask(scope, "Train", image=image, job=ON_ONE_GPU, output=S3Prefix(shared.bucket, "models/"))
    task.guard(sfn.StateMachine(scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(task)))


def in_anothers_queue(scope: Construct, shared: Shared) -> None:
    plain(scope, shared, queue=TrainingQueue(shared.scope, "Queue", capacity=2))


def with_anothers_image(scope: Construct, shared: Shared) -> None:
    plain(scope, shared, image=TrainingImage.from_asset(shared.scope, "Image", directory=FOLDER))


def with_an_image_that_another_builds(scope: Construct, shared: Shared) -> None:
    plain(scope, shared, image=TrainingImage.from_codebuild(shared.scope, "Image", directory=FOLDER))


def with_anothers_lustre(scope: Construct, shared: Shared) -> None:
    network = TrainingNetwork(shared.scope, "OneZone", max_azs=1)
    lustre = LustreFileSystem(
        shared.scope, "Lustre", network=network, data=S3Prefix(shared.bucket, "images/"), storage_gib=1_200
    )
    plain(scope, shared, network=network, channels={"images": FsxLustreChannel(lustre)})


def of_anothers_workflow(scope: Construct, shared: Shared) -> None:
    rate = sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.rate"))
    workflow = plain(shared.scope, shared, hyperparameters={"rate": rate}, input_fields={"rate": NumberField(0, 1)})
    results = S3Prefix(shared.bucket, "sweeps/")
    TrainingSweep(scope, "Sweep", workflow=workflow, over=Grid({"rate": [0.1]}), results=results, concurrency=2)
    run = workflow.as_task(scope, "Run", input=sfn.TaskInput.from_object({"rate": 0.1}))
    sfn.StateMachine(scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(run))
    workflow.grant_start_execution(iam.Role(scope, "Caller", assumed_by=iam.AccountRootPrincipal()))
    TrainingDashboard(scope, "Dashboard", workflow=workflow)


def in_anothers_pipeline(scope: Construct, shared: Shared) -> None:
    TrainingPipeline(scope, "Pipeline", steps=[plain(shared.scope, shared)])


def references(value: Any) -> Iterator[str]:
    """The logical ids that a template's value refers to."""
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "Ref":
                yield item
            elif name == "Fn::GetAtt":
                yield item[0] if isinstance(item, list) else item.partition(".")[0]
            elif name == "DependsOn":
                yield from [item] if isinstance(item, str) else item
            elif name == "Fn::Sub":
                text = item if isinstance(item, str) else item[0]
                yield from (part.partition(".")[0] for part in re.findall(r"\$\{([^!}]+)\}", text))
            yield from references(item)


def without_a_target(template: dict[str, Any]) -> list[str]:
    targets = {*template.get("Resources", {}), *template.get("Parameters", {}), *template.get("Conditions", {})}
    return sorted({name for name in references(template) if name not in targets and not PSEUDO.fullmatch(name)})


USES: list[Callable[[Construct, Shared], None]] = [
    everything,
    with_a_role,
    queued,
    with_code,
    swept,
    in_a_pipeline,
    in_a_machine,
    a_task,
    in_anothers_queue,
    with_anothers_image,
    with_an_image_that_another_builds,
    with_anothers_lustre,
    of_anothers_workflow,
    in_anothers_pipeline,
]


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
@pytest.mark.parametrize("nested", [False, True], ids=["beside", "nested"])
def test_each_reference_to_another_stack_has_a_target(use: Callable[[Construct, Shared], None], nested: bool) -> None:
    app = cdk.App(analytics_reporting=False)
    data = cdk.Stack(app, "Data", env=ENVIRONMENT)
    training = cdk.NestedStack(data, "Nested") if nested else cdk.Stack(app, "Training", env=ENVIRONMENT)
    use(training, Shared(data))
    assembly = Path(app.synth().directory)
    templates = [json.loads(file.read_text()) for file in assembly.glob("*.template.json")]
    assert len(templates) == 2
    assert [without_a_target(template) for template in templates] == [[], []]
