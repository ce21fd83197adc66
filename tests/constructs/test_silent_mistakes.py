"""Mistakes that a template does not show, and by which a job would end after minutes of machines: errors at synthesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from stacks import CODE, ON_ONE_GPU, UserStack, message_of

from cdk_sagemaker_training import (
    Budget,
    DataParallelJob,
    EfsChannel,
    HeterogeneousJob,
    InstanceGroup,
    Ray,
    S3Channel,
    SmpV2,
    Torchrun,
    TrainingImage,
    TrainingNetwork,
    TrainingTask,
    TrainingWorkflow,
)

CONTAINER = "pytorch:2.13-cu133-amzn2023-sagemaker"


def workflow(make: Callable[[UserStack], TrainingImage], **props: Any) -> TrainingWorkflow:
    stack = UserStack()
    least = {"job": ON_ONE_GPU, "output": stack.place("models/")}
    return TrainingWorkflow(stack, "Training", image=make(stack), **{**least, **props})


def dlc(stack: UserStack) -> TrainingImage:
    return TrainingImage.from_dlc(stack, "Image", *CONTAINER.split(":"))


def by_uri(stack: UserStack) -> TrainingImage:
    uri = f"763104351884.dkr.ecr.us-east-1.amazonaws.com/{CONTAINER}"
    return TrainingImage.from_uri(stack, "Image", uri)


@pytest.mark.parametrize("make", [dlc, by_uri])
def test_one_of_awss_containers_without_a_script_is_refused(make: Callable[[UserStack], TrainingImage]) -> None:
    assert message_of(lambda: workflow(make)) == (
        "code must be given with one of AWS's containers, in which there is no training script, like "
        f"TrainingCode('src', entry_point='train.py'), got None with '{CONTAINER}'"
    )


@pytest.mark.parametrize(
    "props",
    [
        {"code": CODE},
        {"container_entrypoint": ["nvidia-smi"]},
        {"hyperparameters": {"sagemaker_submit_directory": "s3://bucket/source.tar.gz"}},
        {"environment": {"SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/input/data/code"}},
    ],
)
def test_one_of_awss_containers_with_a_script_or_another_entry_point_is_taken(props: dict[str, Any]) -> None:
    assert workflow(dlc, **props).image.is_container


def test_a_copy_of_one_of_awss_containers_may_have_a_script() -> None:
    def copied(stack: UserStack) -> TrainingImage:
        return TrainingImage.from_dlc(stack, "Image", *CONTAINER.split(":"), account_id="123456789012")

    assert not workflow(copied).image.is_container


def test_a_launcher_whose_program_is_in_no_container_of_awss_is_refused() -> None:
    job = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), launcher=Ray("train.py"))
    assert "have 'ray_cluster/ray_cluster.py', which the job's launcher starts" in message_of(
        lambda: workflow(dlc, job=job)
    )


@pytest.mark.parametrize("prop", ["max_runtime", "timeout"])
@pytest.mark.parametrize("number", [2, 59])
def test_a_plain_number_that_was_meant_as_hours_or_minutes_is_refused(prop: str, number: int) -> None:
    assert message_of(lambda: UserStack().workflow(**{prop: number})) == (
        f"{prop} must be a Duration, or at least 60 where it is a plain number, which is in seconds, "
        f"like Duration.hours({number}), got {number}"
    )


@pytest.mark.parametrize("other", ["digits", "Digits"])
def test_the_same_prefix_of_names_twice_in_a_stack_is_refused(other: str) -> None:
    stack = UserStack()
    stack.workflow("First", job_name_prefix="digits")
    assert message_of(lambda: stack.task("Second", job_name_prefix=other)) == (
        "job_name_prefix must be another one for each workflow and task of a stack, like "
        f"'{other}-2', got '{other}', which Stack/First has"
    )


def test_stacks_may_have_the_same_prefix() -> None:
    app = cdk.App()
    for name in ("Development", "Production"):
        stack = cdk.Stack(app, name)
        least = UserStack()
        image = TrainingImage.from_uri(stack, "Image", "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1")
        TrainingWorkflow(
            stack, "Train", job=ON_ONE_GPU, image=image, output=least.place("models/"), job_name_prefix="digits"
        )


def test_a_definition_that_step_functions_does_not_take_is_refused() -> None:
    def large() -> None:
        values = {f"text{number}": "x" * 2_400 for number in range(95)}
        others = [DataParallelJob(InstanceGroup(f"ml.g5.{size}xlarge")) for size in (2, 4, 8, 16)]
        UserStack().workflow(hyperparameters=values, alternatives=others)

    message = message_of(large)
    assert message.startswith("Stack/Training must have a definition of at most 1,048,576 bytes (service model of ")
    assert "fewer alternatives, or a file in a channel in place of hyperparameters" in message


class Efs(UserStack):
    """A stack with a VPC of two zones."""

    def __init__(self, **context: bool) -> None:
        super().__init__(context=context)
        self.vpc = ec2.Vpc(self, "Vpc", max_azs=2)

    def read(self, zones: int = 2, read_only: bool = True, **props: Any) -> UserStack:
        """A job with a channel on a new file system of some props, in some zones."""
        subnets = ec2.SubnetSelection(subnets=self.vpc.private_subnets[:zones])
        network = TrainingNetwork(self, "Network", vpc=self.vpc, vpc_subnets=subnets)
        files = efs.FileSystem(self, "Files", vpc=self.vpc, **props)
        self.workflow(network=network, channels={"images": EfsChannel(files, read_only=read_only)})
        return self


DENIED = {"@aws-cdk/aws-efs:denyAnonymousAccess": True}


def policy(*actions: str) -> iam.PolicyDocument:
    statement = iam.PolicyStatement(actions=list(actions), principals=[iam.AnyPrincipal()])
    return iam.PolicyDocument(statements=[statement])


@pytest.mark.parametrize(
    ("context", "props", "action"),
    [
        (DENIED, {}, "ClientMount"),
        ({}, {"file_system_policy": policy("elasticfilesystem:ClientWrite")}, "ClientMount"),
        (
            {},
            {"file_system_policy": policy("elasticfilesystem:ClientMount"), "read_only": False},
            "ClientWrite",
        ),
    ],
)
def test_a_file_system_whose_policy_allows_no_mount_is_refused(
    context: dict[str, bool], props: dict[str, Any], action: str
) -> None:
    stack = Efs(**context).read(**props)
    with pytest.raises(RuntimeError, match=rf"channels\['images'\] must be on a .* elasticfilesystem:{action} "):
        stack.template()


@pytest.mark.parametrize(
    ("context", "props"),
    [
        ({}, {}),
        (DENIED, {"allow_anonymous_access": True, "read_only": False}),
        ({}, {"file_system_policy": policy("elasticfilesystem:Client*"), "read_only": False}),
    ],
)
def test_a_file_system_that_jobs_may_mount_is_taken(context: dict[str, bool], props: dict[str, Any]) -> None:
    assert Efs(**context).read(**props).request()["InputDataConfig"]


def test_a_one_zone_file_system_of_hosts_in_two_zones_is_refused() -> None:
    message = message_of(lambda: Efs().read(one_zone=True))
    assert message.startswith("network must be in the zone of the One Zone file system of channels['images'] alone")
    assert "availability_zones=[" in message


def test_a_one_zone_file_system_of_hosts_in_its_zone_is_taken() -> None:
    assert Efs().read(zones=1, one_zone=True).request()["VpcConfig"]


@pytest.mark.parametrize(
    ("make", "end"),
    [
        (InstanceGroup, "InstanceGroup() missing required argument 'instance_type', like instance_type='ml.g5.xlarge'"),
        (S3Channel, "S3Channel() missing required argument 'bucket', like bucket=s3.Bucket(self, 'Bucket')"),
        (lambda: Budget(hour=3), "Budget() got an unexpected keyword argument 'hour', did you mean 'hours'?"),
        (lambda: Torchrun(processes=2), "'processes', did you mean 'processes_per_host'?"),
        (lambda: SmpV2(hybrid_shard=3), "'hybrid_shard', did you mean 'hybrid_shard_degree'?"),
        (lambda: UserStack().task(hyper_parameters={}), "'hyper_parameters', did you mean 'hyperparameters'?"),
        (lambda: UserStack().workflow(notfy=[]), "'notfy', did you mean 'notify'?"),
        (lambda: TrainingTask(UserStack()), "TrainingTask() missing required argument 'id', like id='text'"),
    ],
)
def test_a_prop_that_is_misspelt_or_missing_says_what_is_meant(make: Callable[[], Any], end: str) -> None:
    with pytest.raises(TypeError) as raised:
        make()
    assert str(raised.value).endswith(end)


@pytest.mark.parametrize(
    ("count", "environment", "sent"),
    [
        (1, None, None),
        (2, None, {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}),
        (2, {"NCCL_SOCKET_IFNAME": "^lo"}, {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "^lo"}),
    ],
)
def test_several_hosts_are_told_the_network_interface_between_them(count: int, environment: Any, sent: Any) -> None:
    stack = UserStack()
    stack.workflow(job=DataParallelJob(InstanceGroup("ml.m5.xlarge", count)), environment=environment)
    assert stack.request().get("Environment") == sent


def test_hosts_of_several_groups_are_told_the_network_interface_between_them() -> None:
    stack = UserStack()
    groups = {"data_group": InstanceGroup("ml.c5.xlarge")}
    stack.workflow(job=HeterogeneousJob(groups=groups, train=ON_ONE_GPU, train_group="dnn_group"))
    assert stack.request()["Environment"]["GLOO_SOCKET_IFNAME"] == "eth0"
