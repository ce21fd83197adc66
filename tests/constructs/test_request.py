import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Token
from stacks import message_of, reads
from whole_requests import BUCKET, ON_GROUPS, request_of

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Spot,
)
from cdk_sagemaker_training.jobs.hyperparameters import encode_hyperparameter
from cdk_sagemaker_training.request.access import check_job_name_prefix

ON_ONE_GPU = DataParallelJob(InstanceGroup("ml.g5.xlarge"))


def refusal_of(job: Any = ON_GROUPS, **props: Any) -> str:
    return message_of(lambda: request_of(job, **props))


def test_a_heterogeneous_request_has_groups_and_neither_type_nor_count() -> None:
    assert request_of(
        ON_GROUPS,
        hyperparameters={"epochs": 3},
        channels={
            "digits": S3Channel(BUCKET, "digits/", groups=["data_group"]),
            "labels": S3Channel(BUCKET, "labels/"),
        },
        metric_definitions={"loss": "loss ([0-9.]+)"},
        tags={"team": "vision"},
    ) == {
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/digits:1",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss ([0-9.]+)"}],
        },
        "Environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"},
        "HyperParameters": {
            "epochs": "3",
            "sagemaker_distribution_instance_groups": '["dnn_group"]',
            "sagemaker_torch_distributed_enabled": "true",
        },
        "InputDataConfig": [
            {
                "ChannelName": "digits",
                "DataSource": {
                    "S3DataSource": {
                        "InstanceGroupNames": ["data_group"],
                        "S3DataDistributionType": "FullyReplicated",
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://bucket/digits/",
                    }
                },
                "InputMode": "File",
            },
            {
                "ChannelName": "labels",
                "DataSource": {
                    "S3DataSource": {
                        "InstanceGroupNames": ["data_group", "dnn_group"],
                        "S3DataDistributionType": "FullyReplicated",
                        "S3DataType": "S3Prefix",
                        "S3Uri": "s3://bucket/labels/",
                    }
                },
                "InputMode": "File",
            },
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/models/"},
        "ResourceConfig": {
            "InstanceGroups": [
                {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "InstanceGroupName": "data_group"},
                {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "InstanceGroupName": "dnn_group"},
            ],
            "VolumeSizeInGB": 30,
        },
        "RoleArn": "arn:aws:iam::123456789012:role/Training",
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "Tags": [{"Key": "team", "Value": "vision"}],
        "TrainingJobName": "digits-1",
    }


def test_channels_without_groups_name_none() -> None:
    [channel] = request_of(ON_GROUPS, channels={"digits": S3Channel(BUCKET)})["InputDataConfig"]
    assert "InstanceGroupNames" not in channel["DataSource"]["S3DataSource"]


def test_spot_brings_its_checkpoints_and_its_waiting_time() -> None:
    spot = Spot(S3Prefix(BUCKET, "checkpoints/one/"), max_wait=Duration.hours(2))
    request = request_of(ON_ONE_GPU, spot=spot)
    assert request["EnableManagedSpotTraining"] is True
    assert request["CheckpointConfig"] == {
        "LocalPath": "/opt/ml/checkpoints",
        "S3Uri": "s3://bucket/checkpoints/one/",
    }
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200}


def test_a_spot_job_that_may_wait_for_less_than_it_may_run_is_refused() -> None:
    message = refusal_of(ON_ONE_GPU, spot=Spot(S3Prefix(BUCKET), max_wait=60))
    assert message.startswith("spot.max_wait must be at least max_runtime")
    assert message.endswith("Duration.seconds(3600), got 60 seconds")


def test_a_spot_job_may_wait_for_as_long_as_it_may_run() -> None:
    request = request_of(ON_ONE_GPU, spot=Spot(S3Prefix(BUCKET), max_wait=3_600))
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3_600, "MaxWaitTimeInSeconds": 3_600}


def test_more_than_100_hyperparameters_are_refused_the_jobs_own_included() -> None:
    assert len(request_of(ON_GROUPS, hyperparameters={f"h{n}": n for n in range(98)})["HyperParameters"]) == 100
    message = refusal_of(hyperparameters={f"h{n}": n for n in range(99)})
    assert message.startswith("hyperparameters must be at most 100")
    assert message.endswith("got 101")


@pytest.mark.parametrize("prefix", ["", "-a", "a-", "a_b", "x" * 27])
def test_a_bad_job_name_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError) as raised:
        check_job_name_prefix(prefix)
    assert reads(str(raised.value), f"job_name_prefix must be 1 to 26 letters, digits and hyphens ... got {prefix!r}")


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        3,
        0.001,
        1e-05,
        "text",
        "5",
        "true",
        "null",
        "",
        [1, "a"],
        {"a": [True]},
        '"quoted"',
        "a b",
        "two\nlines",
    ],
)
def test_the_toolkit_reads_each_hyperparameter_as_it_was_meant(
    value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sagemaker_training import environment

    file = tmp_path / "hyperparameters.json"
    file.write_text(json.dumps({"it": encode_hyperparameter("it", value)}))
    monkeypatch.setattr(environment, "hyperparameters_file_dir", str(file))
    read = environment.read_hyperparameters()["it"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"text", Decimal("0.1"), [object()], {"a": object()}])
def test_a_hyperparameter_without_a_json_form_is_refused(value: object) -> None:
    message = refusal_of(hyperparameters={"it": value})
    assert message.startswith("hyperparameters['it'] must be text, a number, a bool, a list or a dict")


def test_a_hyperparameter_that_holds_itself_is_refused() -> None:
    cycle: dict[str, Any] = {}
    cycle["again"] = [cycle]
    message = refusal_of(hyperparameters={"it": cycle})
    assert message.startswith("hyperparameters['it'] must not contain itself")


def test_a_hyperparameter_known_only_later_goes_as_the_text_that_it_is() -> None:
    assert encode_hyperparameter("it", "${Token[TOKEN.1]}") == "${Token[TOKEN.1]}"


def test_a_number_known_only_later_is_refused_with_the_text_to_write_instead() -> None:
    message = refusal_of(hyperparameters={"it": Token.as_number({"Ref": "Steps"})})
    assert message.startswith("hyperparameters['it'] must be text if it is a token")


def test_a_hyperparameter_without_a_value_is_refused() -> None:
    message = refusal_of(hyperparameters={"resume": None})
    assert message.startswith(
        "hyperparameters['resume'] must be left out where it has no value, since the script would"
    )
    assert message.endswith("got None")
