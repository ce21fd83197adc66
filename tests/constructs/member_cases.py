"""The configurations of tests/sdk_requests/cases_members.py, said to TrainingWorkflow, in one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from stacks import UserStack

from cdk_sagemaker_training import (
    DataParallelJob,
    Debugger,
    DebuggerRule,
    EfsChannel,
    Experiment,
    FsxLustreChannel,
    HeterogeneousJob,
    InstanceGroup,
    Mpi,
    PrivateRegistry,
    Profiler,
    S3AccessPoint,
    S3Channel,
    Spot,
    TensorBoard,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
    UltraServers,
    WarmPool,
)
from cdk_sagemaker_training.docs_generator import members

ON_CPUS = DataParallelJob(InstanceGroup("ml.c5.xlarge", 2))
OFF = Profiler(disable=True)
ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/images"
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"


class Stack(UserStack):
    """A stack with what the cases' jobs use, all of which there is already."""

    def __init__(self) -> None:
        super().__init__()
        self.role = iam.Role.from_role_arn(self, "Role", "arn:aws:iam::123456789012:role/Training")
        self.image = self.image_of("123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1")
        self.in_registry = self.image_of("registry.example.com/team/training:1")
        self.group = ec2.SecurityGroup.from_security_group_id(self, "Group", "sg-1", mutable=False)
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id="vpc-1",
            availability_zones=["us-east-1a", "us-east-1b"],
            private_subnet_ids=["subnet-1", "subnet-2"],
        )
        self.network = TrainingNetwork(self, "Network", vpc=vpc, security_groups=[self.group])
        other = ec2.SecurityGroup.from_security_group_id(self, "OtherGroup", "sg-2", mutable=False)
        self.network_of_two_groups = TrainingNetwork(self, "TwoGroups", vpc=vpc, security_groups=[self.group, other])
        self.key, self.other_key = (
            kms.Key.from_key_arn(self, id, f"arn:aws:kms:us-east-1:123456789012:key/{id}")
            for id in (KEY, "abcd1234-12ab-34cd-56ef-1234567890ab")
        )
        self.lustre = fsx.LustreFileSystem.from_lustre_file_system_attributes(
            self, "Lustre", dns_name="lustre", file_system_id="fs-0123456789abcdef0", security_group=self.group
        )
        self.efs = efs.FileSystem.from_file_system_attributes(
            self, "Efs", file_system_id="fs-0123456789abcdef1", security_group=self.group
        )
        self.function = lambda_.Function.from_function_arn(
            self, "Function", "arn:aws:lambda:us-east-1:123456789012:function:credentials"
        )

    def image_of(self, uri: str) -> TrainingImage:
        return TrainingImage.from_uri(self, f"Image{uri.split('.')[0]}", uri)

    def s3(self, prefix: str = "training/", **props: Any) -> dict[str, Any]:
        return {"training": S3Channel(self.bucket, prefix, **props)}

    def spot(self, max_wait: int = 7200, **props: Any) -> dict[str, Any]:
        spot = Spot(self.place("checkpoints/"), max_wait=max_wait)
        return {"spot": spot, "max_runtime": cdk.Duration.hours(1), **props}

    def workflow(self, id: str = "Training", **props: Any) -> TrainingWorkflow:
        plain = {"job": ON_CPUS, "channels": self.s3(), "role": self.role, "profiler": OFF}
        return super().workflow(id, **{**plain, **props})


def beside_data(launcher: Mpi | None = Mpi(8)) -> HeterogeneousJob:  # noqa: B008
    return HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.18xlarge", 2), "label_group": InstanceGroup("ml.m5.xlarge")},
        train=DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2), launcher=launcher),
        train_group="dnn_group",
    )


def debugger(stack: Stack) -> Debugger:
    rule = DebuggerRule(
        "Loss",
        RULES_IMAGE,
        parameters={"rule_to_invoke": "LossNotDecreasing"},
        instance_type="ml.t3.medium",
        volume_size_gb=10,
        output=stack.place("rules/"),
        local_path="/opt/ml/processing/output/rule",
    )
    return Debugger(
        stack.place("tensors/"),
        collections={"losses": {"save_interval": "100"}},
        hook_parameters={"save_interval": "500"},
        rules=[rule],
        local_path="/opt/ml/output/tensors",
    )


def report(stack: Stack) -> DebuggerRule:
    return DebuggerRule(
        "Report", RULES_IMAGE, parameters={"rule_to_invoke": "ProfilerReport"}, output=stack.place("rules/")
    )


def profiler(stack: Stack) -> Profiler:
    own = DebuggerRule(
        "Own",
        RULES_IMAGE,
        parameters={"rule_to_invoke": "LowGPUUtilization"},
        instance_type="ml.t3.medium",
        volume_size_gb=10,
        local_path="/opt/ml/processing/output/own",
    )
    return Profiler(
        stack.place("profile/"),
        interval_milliseconds=500,
        parameters={"CPUProfilingDuration": "3600", "SMPFileRotationSecs": "600"},
        rules=[report(stack), own],
    )


Props = Callable[[Stack], dict[str, Any]]
# By the recording's name: what is said to TrainingWorkflow besides the plain job.
SAME: dict[str, Props] = {
    "members_plain": lambda stack: {},
    "members_fast_file_sharded": lambda stack: {
        "channels": stack.s3(input_mode="FastFile", distribution="ShardedByS3Key", content_type="application/x-parquet")
    },
    "members_pipe": lambda stack: {
        "channels": stack.s3(input_mode="Pipe", compression="Gzip", record_wrapper="RecordIO", shuffle_seed=7)
    },
    "members_manifest": lambda stack: {
        "channels": stack.s3("train.manifest", data_type="ManifestFile", objects=stack.place("images/"))
    },
    "members_augmented_manifest": lambda stack: {
        "channels": stack.s3(
            "labels.manifest",
            data_type="AugmentedManifestFile",
            attribute_names=["source-ref", "label"],
            objects=stack.place("images/"),
            record_wrapper="RecordIO",
            input_mode="Pipe",
        )
    },
    "members_gated_model": lambda stack: {"channels": stack.s3("llama/", accept_eula=True)},
    "members_access_point": lambda stack: {"channels": {"training": S3Channel(S3AccessPoint(ACCESS_POINT), "images/")}},
    "members_fsx": lambda stack: {
        "channels": {
            "training": FsxLustreChannel(
                stack.lustre, "/images", mount_name="x7jq3bmv", content_type="application/x-image"
            )
        },
        "network": stack.network,
    },
    "members_fsx_written": lambda stack: {
        "channels": {"training": FsxLustreChannel(stack.lustre, mount_name="x7jq3bmv", read_only=False)},
        "network": stack.network,
    },
    "members_efs": lambda stack: {
        "channels": {"training": EfsChannel(stack.efs, "/images")},
        "network": stack.network,
    },
    "members_spot": lambda stack: stack.spot(),
    "members_checkpoints": lambda stack: {"checkpoints": stack.place("checkpoints/")},
    "members_checkpoint_path": lambda stack: {
        "checkpoints": stack.place("checkpoints/"),
        "checkpoint_local_path": "/opt/ml/input/kept",
    },
    "members_spot_without_checkpoints": lambda stack: {
        "spot": Spot(max_wait=7200),
        "max_runtime": cdk.Duration.hours(1),
    },
    "members_warm_pool": lambda stack: {"warm_pool": WarmPool(cdk.Duration.minutes(30))},
    "members_volume": lambda stack: {"volume_size": cdk.Size.gibibytes(200), "volume_key": stack.key},
    "members_training_plan": lambda stack: {
        "job": DataParallelJob(InstanceGroup("ml.p6e-gb200.36xlarge", 18)),
        "training_plan": PLAN,
        "ultra_servers": UltraServers({"us-1": 18}, multiple_jobs=True),
    },
    "members_retry": lambda stack: {"maximum_retry_attempts": 3, "max_runtime": cdk.Duration.days(2)},
    "members_infra_check": lambda stack: {"infra_check": True},
    "members_network_and_keys": lambda stack: {
        "network": stack.network,
        "output_key": stack.key,
        "volume_key": stack.other_key,
        "inter_container_encryption": True,
    },
    "members_security_groups": lambda stack: {"network": stack.network_of_two_groups},
    "members_session_chaining": lambda stack: {"session_tag_chaining": True},
    "members_network_isolation": lambda stack: {"network_isolation": True},
    "members_remote_debug": lambda stack: {"remote_debug": True},
    "members_private_registry": lambda stack: {
        "network": stack.network,
        "image": stack.in_registry,
        "private_registry": PrivateRegistry(stack.function),
    },
    "members_entry_point": lambda stack: {
        "container_entrypoint": ["python", "train.py"],
        "container_arguments": ["--fast"],
    },
    "members_script": lambda stack: {
        "hyperparameters": {"epochs": 3, "learning_rate": 0.001, "model": "gpt2", "shuffle": True},
        "environment": {"NCCL_DEBUG": "INFO"},
        "tags": {"team": "vision"},
    },
    "members_metrics": lambda stack: {"metric_definitions": {"loss": "loss=([0-9.]+)"}, "metrics_time_series": True},
    "members_two_expressions": lambda stack: {"metric_definitions": {"loss": ["loss=([0-9.]+)", "loss: ([0-9.]+)"]}},
    "members_output": lambda stack: {"output_compression": "NONE", "output_key": stack.key},
    "members_debugger": lambda stack: {"debugger": debugger(stack)},
    "members_profiler": lambda stack: {"profiler": profiler(stack)},
    "members_tensorboard": lambda stack: {
        "tensorboard": TensorBoard(stack.place("tensorboard/"), "/opt/ml/output/tensorboard")
    },
    "members_experiment": lambda stack: {"experiment": Experiment("digits", "one", "first", "run")},
    "members_groups_mpi": lambda stack: {
        "job": beside_data(),
        "hyperparameters": {"epochs": 3},
        "channels": {
            "images": S3Channel(stack.bucket, "images/", groups=["data_group"]),
            "labels": S3Channel(stack.bucket, "labels/", groups=["label_group", "data_group"]),
        },
    },
    "members_groups_order": lambda stack: {
        "job": replace(beside_data(), order=["dnn_group", "data_group", "label_group"]),
        "hyperparameters": {"epochs": 3},
    },
    "members_one_group": lambda stack: {
        "job": replace(beside_data(), groups={}),
        "hyperparameters": {"epochs": 3},
    },
}


def paths_of(value: Any, path: str = "") -> Iterator[str]:
    """The paths of a request's members that are members of the model: those below a map are the user's."""
    if path in members():
        yield path
    elif isinstance(value, list):
        for item in value:
            yield from paths_of(item, path)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from paths_of(item, f"{path}.{name}".removeprefix("."))
