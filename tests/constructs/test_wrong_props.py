"""A prop of the wrong type: the error names it, whatever its value."""

from typing import Any

import pytest
from aws_cdk import aws_ec2 as ec2
from member_cases import Stack
from stacks import reads

from cdk_sagemaker_training import InstanceGroup
from cdk_sagemaker_training.request.props import table

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
WRONG: dict[str, tuple[Any, str]] = {
    "job": (InstanceGroup("ml.c5.xlarge"), "a kind of job ... DataParallelJob("),
    "image": ("123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1", "a TrainingImage ... TrainingImage.from_dlc("),
    "code": ("src", "a TrainingCode ... TrainingCode('src', entry_point='train.py')"),
    "output": ("s3://bucket/models/", "an S3Prefix ... S3Prefix(bucket, 'models/')"),
    "checkpoints": ("s3://bucket/checkpoints/", "an S3Prefix ... S3Prefix(bucket, 'checkpoints/')"),
    "channels": (["images/"], "a dict ... {'images': S3Channel("),
    "hyperparameters": ([3], "a dict ... {'epochs': 3}"),
    "environment": (["NCCL_DEBUG=INFO"], "a dict ... {'NCCL_DEBUG': 'INFO'}"),
    "metric_definitions": ([{"Name": "loss", "Regex": "(.*)"}], "a dict ... {'loss': "),
    "tags": ([{"Key": "team", "Value": "vision"}], "a dict ... {'team': 'vision'}"),
    "private_registry": (True, "a PrivateRegistry ... PrivateRegistry()"),
    "output_key": (KEY, "a key, not its ARN ... kms.Key("),
    "volume_key": (KEY, "a key, not its ARN ... kms.Key("),
    "volume_size": (100, "a Size ... Size.gibibytes(100)"),
    "role": ("arn:aws:iam::123456789012:role/Training", "a role, not its ARN ... TrainingRole("),
    "network": ("vpc-1", "a TrainingNetwork ... TrainingNetwork("),
    "spot": (True, "a Spot ... Spot("),
    "warm_pool": (600, "a WarmPool ... WarmPool("),
    "ultra_servers": ([18], "an UltraServers ... UltraServers([18])"),
    "debugger": (True, "a Debugger ... Debugger("),
    "profiler": (False, "a Profiler ... Profiler("),
    "tensorboard": ("s3://bucket/tensorboard/", "a TensorBoard ... TensorBoard("),
    "experiment": ("digits", "an Experiment ... Experiment('digits')"),
    "mlflow": ("digits", "an Mlflow ... Mlflow("),
    "job_name_prefix": (3, "text ... 'digits'"),
}
# Numbers, flags and text, whose rules are those of the request.
PLAIN = {
    "checkpoint_local_path",
    "container_arguments",
    "container_entrypoint",
    "infra_check",
    "inter_container_encryption",
    "max_pending",
    "max_runtime",
    "maximum_retry_attempts",
    "metrics_time_series",
    "network_isolation",
    "output_compression",
    "remote_debug",
    "session_tag_chaining",
    "training_plan",
}


@pytest.mark.parametrize("prop", WRONG)
def test_another_thing_than_a_prop_has_to_be_is_refused(prop: str) -> None:
    value, kind = WRONG[prop]
    stack = Stack()
    with pytest.raises(ValueError) as raised:
        stack.workflow("Training", **{prop: value})
    assert reads(str(raised.value), f"{prop} must be {kind} ... got {value!r}")


def test_each_prop_that_is_no_number_flag_or_text_is_among_these() -> None:
    assert {*WRONG, *PLAIN} == {*table()}


def test_a_vpc_in_place_of_a_network_is_refused() -> None:
    stack = Stack()
    with pytest.raises(ValueError, match=r"^network must be a TrainingNetwork"):
        stack.workflow("Training", network=ec2.Vpc(stack, "New"))


def test_a_uri_in_place_of_a_channel_is_refused() -> None:
    stack = Stack()
    with pytest.raises(ValueError, match=r"^channels\['images'\] must be a channel"):
        stack.workflow("Training", channels={"images": "s3://bucket/images/"})


@pytest.mark.parametrize("prop", ["job", "image", "output"])
def test_a_prop_that_is_needed_cannot_be_none(prop: str) -> None:
    stack = Stack()
    with pytest.raises(ValueError, match=f"^{prop} must be .* got None$"):
        stack.workflow("Training", **{prop: None})
