"""Every member of CreateTrainingJob, in requests and in the table of docs/members.md."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import aws_stepfunctions_tasks as tasks
from member_cases import paths_of
from sdk_recordings import BETWEEN_HOSTS
from whole_requests import (
    BUCKET,
    EFS,
    KEY,
    LUSTRE,
    NETWORK,
    ON_ULTRASERVERS,
    PLAN,
    network_of,
    request_of,
    whole_requests,
)

from cdk_sagemaker_training import EfsChannel, FsxLustreChannel, Profiler, S3Channel, S3Prefix, UltraServers
from cdk_sagemaker_training.docs_generator import CDK, LEFT_OUT, SDK, cell, members, ours, page
from cdk_sagemaker_training.request.props import prop_names, table

OURS = ours()
PROP_NAMES = prop_names()
DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_members_is_what_make_docs_writes() -> None:
    assert (DOCS / "members.md").read_text() == page()


@pytest.mark.parametrize("member", members())
def test_a_member_is_either_ours_or_left_out_for_a_reason(member: str) -> None:
    assert bool(cell(OURS, member)) != bool(cell(LEFT_OUT, member))


@pytest.mark.parametrize("path", sorted({*OURS, *LEFT_OUT, *CDK, *SDK, *PROP_NAMES}))
def test_a_path_of_the_tables_leads_to_members_of_the_service(path: str) -> None:
    assert any(f"{member}.".startswith(f"{path}.") for member in members())


def test_the_members_that_the_table_calls_ours_are_those_that_requests_have() -> None:
    rendered = {path for request in whole_requests() for path in paths_of(request)}
    assert rendered == {member for member in members() if cell(OURS, member)}


def test_each_member_that_is_ours_is_named_by_a_prop_that_there_is() -> None:
    props = {cell(PROP_NAMES, member).split(".")[0] for member in members() if cell(OURS, member)}
    # `code` adds to the hyperparameters and the channels, which have props of their own.
    assert props == {*table()} - {"code"}


@pytest.mark.parametrize("name", sorted(CDK))
def test_a_prop_that_the_table_says_of_cdk_is_one_of_its_task(name: str) -> None:
    outermost: Any = tasks.SageMakerCreateTrainingJob
    classes = {
        "algorithm_specification": tasks.AlgorithmSpecification,
        "data_source": tasks.DataSource,
        "input_data_config": tasks.Channel,
        "output_data_config": tasks.OutputDataConfig,
        "resource_config": tasks.ResourceConfig,
        "s3_data_source": tasks.S3DataSource,
        "stopping_condition": tasks.StoppingCondition,
    }
    prop = CDK[name].split("`")[1]
    holder: Any = tasks.Channel if prop.startswith("data_source") else outermost
    for part in prop.split("."):
        assert part in inspect.signature(holder.__init__).parameters
        holder = classes.get(part)


def test_a_request_of_every_member() -> None:
    request, *_ = whole_requests()
    channels = {channel["ChannelName"]: channel for channel in request.pop("InputDataConfig")}
    assert channels["labels"] == {
        "ChannelName": "labels",
        "ContentType": "application/x-recordio",
        "CompressionType": "Gzip",
        "DataSource": {
            "S3DataSource": {
                "AttributeNames": ["source-ref", "label"],
                "S3DataDistributionType": "ShardedByS3Key",
                "S3DataType": "AugmentedManifestFile",
                "S3Uri": "s3://bucket/train.manifest",
            }
        },
        "InputMode": "Pipe",
        "RecordWrapperType": "RecordIO",
        "ShuffleConfig": {"Seed": 7},
    }
    assert channels["model"]["DataSource"]["S3DataSource"]["ModelAccessConfig"] == {"AcceptEula": True}
    assert channels["lustre"] == {
        "ChannelName": "lustre",
        "DataSource": {
            "FileSystemDataSource": {
                "DirectoryPath": "/x7jq3bmv/images",
                "FileSystemAccessMode": "rw",
                "FileSystemId": "fs-0123456789abcdef0",
                "FileSystemType": "FSxLustre",
            }
        },
    }
    assert channels["efs"] == {
        "ChannelName": "efs",
        "ContentType": "image/png",
        "DataSource": {
            "FileSystemDataSource": {
                "DirectoryPath": "/images",
                "FileSystemAccessMode": "ro",
                "FileSystemId": "fs-0123456789abcdef1",
                "FileSystemType": "EFS",
            }
        },
    }
    rule_image = request["DebugRuleConfigurations"][0]["RuleEvaluatorImage"]
    assert request == {
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/digits:1",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
            "EnableSageMakerMetricsTimeSeries": True,
            "ContainerEntrypoint": ["python", "train.py"],
            "ContainerArguments": ["--fast"],
            "TrainingImageConfig": {
                "TrainingRepositoryAccessMode": "Vpc",
                "TrainingRepositoryAuthConfig": {
                    "TrainingRepositoryCredentialsProviderArn": (
                        "arn:aws:lambda:us-east-1:123456789012:function:credentials"
                    )
                },
            },
        },
        "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints/"},
        "DebugHookConfig": {
            "LocalPath": "/opt/ml/output/tensors",
            "S3OutputPath": "s3://bucket/tensors/",
            "HookParameters": {"save_interval": "500"},
            "CollectionConfigurations": [
                {"CollectionName": "losses", "CollectionParameters": {"save_interval": "100"}}
            ],
        },
        "DebugRuleConfigurations": [
            {
                "RuleConfigurationName": "Loss",
                "LocalPath": "/opt/ml/processing/output/rule",
                "S3OutputPath": "s3://bucket/rules/",
                "RuleEvaluatorImage": rule_image,
                "InstanceType": "ml.t3.medium",
                "VolumeSizeInGB": 10,
                "RuleParameters": {"rule_to_invoke": "LossNotDecreasing"},
            }
        ],
        "EnableInterContainerTrafficEncryption": True,
        "EnableNetworkIsolation": True,
        "Environment": {"A": "1", **BETWEEN_HOSTS},
        "ExperimentConfig": {
            "ExperimentName": "digits",
            "TrialName": "one",
            "TrialComponentDisplayName": "first",
            "RunName": "run",
        },
        "HyperParameters": {"epochs": "3"},
        "InfraCheckConfig": {"EnableInfraCheck": True},
        "MlflowConfig": {
            "MlflowResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits",
            "MlflowExperimentName": "digits",
            "MlflowRunName": "run",
        },
        "OutputDataConfig": {"CompressionType": "NONE", "KmsKeyId": KEY, "S3OutputPath": "s3://bucket/models/"},
        "ProfilerConfig": {
            "S3OutputPath": "s3://bucket/models/",
            "ProfilingIntervalInMilliseconds": 500,
            "ProfilingParameters": {"DataLoaderProfilingConfig": "{}"},
            "DisableProfiler": False,
        },
        "ProfilerRuleConfigurations": [
            {
                "RuleConfigurationName": "Report",
                "RuleEvaluatorImage": rule_image,
                "S3OutputPath": "s3://bucket/rules/",
            }
        ],
        "ResourceConfig": {
            "InstanceType": "ml.c5.xlarge",
            "InstanceCount": 2,
            "KeepAlivePeriodInSeconds": 600,
            "VolumeKmsKeyId": KEY,
            "VolumeSizeInGB": 100,
        },
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "RoleArn": "arn:aws:iam::123456789012:role/Training",
        "SessionChainingConfig": {"EnableSessionTagChaining": True},
        "StoppingCondition": {"MaxPendingTimeInSeconds": 3600, "MaxRuntimeInSeconds": 3600},
        "Tags": [{"Key": "team", "Value": "vision"}],
        "TensorBoardOutputConfig": {
            "LocalPath": "/opt/ml/output/tensorboard",
            "S3OutputPath": "s3://bucket/tensorboard/",
        },
        "TrainingJobName": "digits-1",
        "VpcConfig": NETWORK,
    }


def test_machines_of_a_plan_lie_on_ultraservers_as_it_is_said() -> None:
    request = request_of(ON_ULTRASERVERS, training_plan=PLAN, ultra_servers=UltraServers([9, 9]))
    assert request["ResourceConfig"] == {
        "InstanceType": "ml.p6e-gb200.36xlarge",
        "InstanceCount": 18,
        "InstancePlacementConfig": {
            "EnableMultipleJobs": False,
            "PlacementSpecifications": [{"InstanceCount": 9}, {"InstanceCount": 9}],
        },
        "TrainingPlanArn": PLAN,
        "VolumeSizeInGB": 30,
    }


def test_a_manifest_is_a_channel_of_its_own_data_type() -> None:
    channel = S3Channel(
        BUCKET, "train.manifest", data_type="ManifestFile", objects=S3Prefix(BUCKET, "images/"), input_mode="FastFile"
    )
    [rendered] = request_of(channels={"images": channel})["InputDataConfig"]
    assert rendered["DataSource"]["S3DataSource"]["S3DataType"] == "ManifestFile"
    assert rendered["InputMode"] == "FastFile"


@pytest.mark.parametrize(("directory", "path"), [("/", "/x7jq3bmv"), ("/images", "/x7jq3bmv/images")])
def test_a_lustre_directory_begins_with_the_file_systems_mount_name(directory: str, path: str) -> None:
    [channel] = request_of(channels={"images": FsxLustreChannel(LUSTRE, directory)}, network=network_of(NETWORK))[
        "InputDataConfig"
    ]
    assert channel["DataSource"]["FileSystemDataSource"]["DirectoryPath"] == path


def test_an_imported_lustre_file_system_is_mounted_by_the_name_that_is_given() -> None:
    imported: Any = SimpleNamespace(file_system_id="fs-0123456789abcdef0")
    channel = FsxLustreChannel(imported, mount_name="fsx")
    [rendered] = request_of(channels={"images": channel}, network=network_of(NETWORK))["InputDataConfig"]
    assert rendered["DataSource"]["FileSystemDataSource"]["DirectoryPath"] == "/fsx"


def test_the_whole_of_an_efs_file_system_is_its_root() -> None:
    [channel] = request_of(channels={"images": EfsChannel(EFS)}, network=network_of(NETWORK))["InputDataConfig"]
    assert channel["DataSource"]["FileSystemDataSource"]["DirectoryPath"] == "/"


def test_a_profiler_that_is_disabled_says_nothing_else() -> None:
    assert request_of(profiler=Profiler(disable=True))["ProfilerConfig"] == {"DisableProfiler": True}
