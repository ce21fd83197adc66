"""cdk-nag's packs on the default workflow; AwsSolutions on the example stacks, and on one with the parts that these lack."""

import importlib.util
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from cdk_nag import (
    AwsSolutionsChecks,
    HIPAASecurityChecks,
    NIST80053R5Checks,
    PCIDSS321Checks,
    ServerlessChecks,
)
from constructs import Construct
from rendered import OF_CDKS_WAY, linted
from stacks import CODE

from cdk_sagemaker_training import (
    Approval,
    ArtifactOf,
    Budget,
    Cause,
    DataParallelJob,
    Debugger,
    EfsChannel,
    FsxLustreChannel,
    Gate,
    Grid,
    InstanceGroup,
    LustreFileSystem,
    MetricLimit,
    Mlflow,
    NumberField,
    Objective,
    PrivateRegistry,
    RegisterModel,
    Retry,
    S3Channel,
    S3Prefix,
    Silence,
    TensorBoard,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingNetwork,
    TrainingPipeline,
    TrainingRole,
    TrainingSweep,
    TrainingWorkflow,
    default_retries,
)
from cdk_sagemaker_training.core.nag import ACKNOWLEDGED

ROOT = Path(__file__).parents[2]
PACKS = (AwsSolutionsChecks, HIPAASecurityChecks, NIST80053R5Checks, PCIDSS321Checks, ServerlessChecks)
RECOMMENDED = json.loads((ROOT / "cdk.json").read_text())["context"]


def examples() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_stacks_under_review", ROOT / "app.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def example_stacks() -> dict[str, Callable[[cdk.App, str], cdk.Stack]]:
    return {
        name: value
        for name, value in vars(examples()).items()
        if isinstance(value, type) and issubclass(value, cdk.Stack) and value is not cdk.Stack
    }


def findings(
    stack: Callable[[cdk.App, str], Construct],
    out: Path,
    *,
    recommended: bool = True,
    validated: bool = False,
    packs: Sequence[Any] = (AwsSolutionsChecks,),
) -> dict[str, list[str]]:
    """What packs of cdk-nag find in a stack, and CDK's validator where it is ``validated``: the constructs by the rule."""
    app = cdk.App(
        outdir=str(out), builtin_cloud_formation_validation=validated, context=RECOMMENDED if recommended else None
    )
    cdk.Validations.of(app).add_plugins(*(pack(app) for pack in packs))
    stack(app, "Stack")
    try:
        app.synth()
    except RuntimeError as error:
        if "ValidationFailed" not in str(error):
            raise
    report = json.loads((out / "validation-report.json").read_text())
    return {
        violation["ruleName"]: [one["constructPath"] for one in violation["violatingConstructs"]]
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
    }


class Everything(cdk.Stack):
    """A job with a key, its data on FSx, and its image built by CodeBuild from one of AWS's containers."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        self.bucket = TrainingBucket(self, "Bucket", encryption_key=kms.Key(self, "Key", enable_key_rotation=True))
        network = TrainingNetwork(self, "Network", max_azs=1, endpoints=["sts", "logs"])
        files = LustreFileSystem(self, "Files", network=network, data=S3Prefix(self.bucket, "images/"))
        self.workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2), launcher=Torchrun()),
            image=TrainingImage.from_codebuild(
                self, "Image", directory=str(ROOT / "training_code"), file="heterogeneous/Dockerfile"
            ),
            channels={"images": FsxLustreChannel(files)},
            output=S3Prefix(self.bucket, "models/"),
            checkpoints=S3Prefix(self.bucket, "checkpoints/"),
            network=network,
            inter_container_encryption=True,
            retries=2,  # too long for one execution to poll
        )


class Plain(cdk.Stack):
    """A workflow with what it needs at least, a bucket, and a network."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        self.workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
            image=TrainingImage.from_dlc(self, "Image", "pytorch-training", "2.6.0-gpu-py312"),
            code=CODE,
            output=S3Prefix(TrainingBucket(self, "Bucket"), "models/"),
            network=TrainingNetwork(self, "Network"),
        )


class Members(cdk.Stack):
    """A job with each member of its request that its role needs leave for, and what that leads to there already."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = s3.Bucket.from_bucket_name(self, "Bucket", "data")
        keys = [kms.Key(self, name, enable_key_rotation=True) for name in ("OutputKey", "VolumeKey")]
        group = ec2.SecurityGroup.from_security_group_id(self, "Group", "sg-1")
        network = TrainingNetwork(self, "Network", security_groups=[group], endpoints=["experiments", "ssmmessages"])
        credentials = lambda_.Function.from_function_attributes(
            self, "Credentials", function_arn=f"arn:aws:lambda:{self.region}:{self.account}:function:credentials"
        )
        TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.c5.xlarge", 2)),
            image=TrainingImage.from_uri(self, "Image", "registry.example.com/team/training:1"),
            private_registry=PrivateRegistry(credentials),
            channels={
                "efs": EfsChannel(
                    efs.FileSystem.from_file_system_attributes(
                        self, "Efs", file_system_id="fs-0123456789abcdef1", security_group=group
                    )
                ),
                "labels": S3Channel(
                    bucket, "a.manifest", data_type="ManifestFile", objects=S3Prefix(bucket, "images/")
                ),
            },
            output=S3Prefix(bucket, "models/"),
            output_key=keys[0],
            volume_key=keys[1],
            network=network,
            remote_debug=True,
            session_tag_chaining=True,
            debugger=Debugger(S3Prefix(bucket, "tensors/")),
            tensorboard=TensorBoard(S3Prefix(bucket, "tensorboard/")),
            mlflow=Mlflow(f"arn:aws:sagemaker:{self.region}:{self.account}:mlflow-tracking-server/digits"),
        )


class Managed(cdk.Stack):
    """A workflow with retries, alternatives, a budget, rules that stop its jobs, a topic that gets its events, and a sweep."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = TrainingBucket(self, "Bucket")
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup(["ml.p5.48xlarge", "ml.p4d.24xlarge"], 2), launcher=Torchrun()),
            image=TrainingImage.from_dlc(self, "Image", "pytorch-training", "2.6.0-gpu-py312"),
            code=CODE,
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            metric_definitions={"loss": "loss=([0-9.]+)"},
            retries={**default_retries(), Cause.SILENT: Retry(attempts=2)},
            alternatives=[DataParallelJob(InstanceGroup("ml.g5.48xlarge", 4), launcher=Torchrun())],
            budget=Budget(hours=48),
            stop_when=[Silence(), MetricLimit("loss", above=10.0)],
            notify=[
                sns.Topic(self, "Topic", enforce_ssl=True, master_key=kms.Key(self, "Key", enable_key_rotation=True))
            ],
            hyperparameters={"epochs": sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.epochs"))},
            input_fields={"epochs": NumberField(whole=True)},
        )
        TrainingSweep(
            self,
            "Sweep",
            workflow=workflow,
            over=Grid({"epochs": [1, 2]}),
            results=S3Prefix(bucket, "sweeps/"),
            concurrency=2,
            objective=Objective("loss", "Minimize"),
        )


class WithWildcards(Everything):
    """One to which the user adds wildcards of their own."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        anything = iam.PolicyStatement(actions=["s3:GetObject"], resources=["arn:aws:s3:::other/*"])
        assert isinstance(self.workflow.role, TrainingRole)
        self.workflow.role.role.add_to_principal_policy(anything)
        self.workflow.state_machine.add_to_role_policy(anything)


class PlainWithMore(Plain):
    """The same, with a bucket and a function as CDK makes them."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        s3.Bucket(self, "Own")
        lambda_.CfnFunction(
            self,
            "Function",
            code=lambda_.CfnFunction.CodeProperty(zip_file="pass"),
            handler="index.handler",
            role="arn:aws:iam::123456789012:role/own",
            runtime="python3.9",
        )


class Bare(cdk.Stack):
    """A bucket as CDK makes it."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        s3.Bucket(self, "Bucket")


class Reading(cdk.Stack):
    """A role that reads an imported bucket, by its own name and by one that the user says."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = s3.Bucket.from_bucket_name(self, "Bucket", "data")
        own = iam.Role(self, "Own", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
        TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
            image=TrainingImage.from_dlc(self, "Image", "pytorch-training", "2.6.0-gpu-py312"),
            code=CODE,
            channels={"images": S3Channel(bucket, "images/")},
            output=S3Prefix(bucket, "models/"),
            role=own,
            integration="sync",
        )


class Piping(cdk.Stack):
    """A pipeline with all kinds of steps, on a bucket with a key."""

    def __init__(self, app: cdk.App, id: str) -> None:
        super().__init__(app, id)
        bucket = TrainingBucket(self, "Bucket", encryption_key=kms.Key(self, "Key", enable_key_rotation=True))
        own = "us-east-1:123456789012"
        topic = sns.Topic.from_topic_attributes(
            self, "Topic", topic_arn=f"arn:aws:sns:{own}:models", key_arn=f"arn:aws:kms:{own}:key/models"
        )
        common: dict[str, Any] = {
            "job": DataParallelJob(InstanceGroup("ml.g5.xlarge")),
            "image": TrainingImage.from_dlc(self, "Image", "pytorch-training", "2.6.0-gpu-py312"),
            "code": CODE,
            "metric_definitions": {"accuracy": "accuracy=([0-9.]+)"},
        }
        first = TrainingWorkflow(self, "Pretraining", output=S3Prefix(bucket, "first/"), **common)
        second = TrainingWorkflow(
            self, "Finetuning", output=S3Prefix(bucket, "second/"), channels={"model": ArtifactOf(first)}, **common
        )
        gate = Gate(self, "GoodEnough", first, metric="accuracy", at_least=0.9)
        register = RegisterModel(self, "Register", second, group="digits", metrics=["accuracy"])
        approval = Approval(self, "Release", topic=topic)
        TrainingPipeline(self, "Pipeline", steps=[first, gate, second, approval, register])


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_finds_nothing_in_the_default_workflow(pack: Any, tmp_path: Path) -> None:
    assert findings(Plain, tmp_path, packs=[pack]) == {}


@pytest.mark.parametrize("pack", PACKS)
def test_a_pack_finds_what_a_function_and_a_bucket_of_the_user_lack_beside_a_workflow(
    pack: Any, tmp_path: Path
) -> None:
    found = findings(PlainWithMore, tmp_path, packs=[pack])
    assert found
    assert {path for paths in found.values() for path in paths} <= {"Stack/Own/Resource", "Stack/Function"}


@pytest.mark.parametrize("stack", [Everything, Managed, Piping])
def test_no_pack_finds_anything_in_a_stack_with_more_parts(stack: type[cdk.Stack], tmp_path: Path) -> None:
    assert findings(stack, tmp_path, packs=PACKS) == {}


def test_each_finding_that_is_suppressed_has_a_reason() -> None:
    stack = Plain(cdk.App(), "Stack")
    Template.from_stack(stack)  # which has the suppressions of permissions added
    entries = [entry for child in stack.node.find_all() for entry in child.node.metadata if entry.type == ACKNOWLEDGED]
    suppressed = {rule: reason for entry in entries for rule, reason in entry.data.items()}
    assert "NIST.800.53.R5-LambdaInsideVPC" in suppressed
    assert [rule for rule, reason in suppressed.items() if len(reason.split()) < 4] == []


@pytest.mark.parametrize("name", example_stacks())
def test_nothing_is_found_in_an_example_that_has_no_reason_beside_the_code(name: str, tmp_path: Path) -> None:
    assert findings(example_stacks()[name], tmp_path) == {}


@pytest.mark.parametrize("recommended", [True, False])
def test_nothing_is_found_in_a_stack_with_all_parts_whatever_its_feature_flags(
    recommended: bool, tmp_path: Path
) -> None:
    assert findings(Everything, tmp_path, recommended=recommended) == {}


def test_nothing_is_found_in_a_job_with_each_member_that_its_role_needs_leave_for(tmp_path: Path) -> None:
    assert findings(Members, tmp_path) == {}


def test_nothing_is_found_in_a_workflow_on_a_role_and_a_bucket_that_there_are_already(tmp_path: Path) -> None:
    assert findings(Reading, tmp_path) == {}


def test_neither_cdk_nag_nor_the_validator_finds_anything_in_a_managed_workflow(tmp_path: Path) -> None:
    assert findings(Managed, tmp_path, validated=True) == {}


@pytest.mark.soak
def test_cfn_lint_finds_nothing_but_what_is_cdks_way_in_a_managed_workflow(tmp_path: Path) -> None:
    app = cdk.App(outdir=str(tmp_path), context=RECOMMENDED)
    Managed(app, "Stack")
    app.synth()
    assert linted((tmp_path / "Stack.template.json").read_text()) <= OF_CDKS_WAY.keys()


def test_nothing_is_found_in_a_pipeline_with_all_kinds_of_steps(tmp_path: Path) -> None:
    assert findings(Piping, tmp_path) == {}


def test_a_wildcard_that_the_user_adds_is_found(tmp_path: Path) -> None:
    assert findings(WithWildcards, tmp_path) == {
        "AwsSolutions-IAM5[Resource::arn:aws:s3:::other/*]": [
            "Stack/Training/Role/Resource/DefaultPolicy/Resource",
            "Stack/Training/StateMachine/Role/DefaultPolicy/Resource",
        ]
    }


def test_what_a_bucket_of_cdks_lacks_is_found(tmp_path: Path) -> None:
    assert set(findings(Bare, tmp_path)) == {"AwsSolutions-S1", "AwsSolutions-S10"}
