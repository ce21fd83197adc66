"""What each host of a job starts with: its command, variables, and the files in /opt/ml/input/config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sagemaker_local_account.aws.sagemaker.container_spec import config_files, pod_spec
from sagemaker_local_account.images.image_store import Image
from sagemaker_local_account.runtime.spec import PodSpec

IMAGE = Image("x", Path("root"), {"FROM_IMAGE": "1", "HOME": "/nowhere"}, ["train.sh"], [], "/work", Path("/venv"), [])


def request(**members: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "digits",
        "AlgorithmSpecification": {"TrainingImage": "x", "TrainingInputMode": "File"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        **members,
    }


def spec_of(given: dict[str, Any], **environment: str) -> PodSpec:
    return pod_spec(
        given, image=IMAGE, folder=Path("job"), endpoint_port=1, environment=environment, devices={"ml.m5.large": 0}
    )


def config_of(given: dict[str, Any], host: int = 0) -> dict[str, Any]:
    spec = spec_of(given)
    return config_files(spec, spec.hosts[host], given)


def channel(name: str, **members: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/images/", **members.pop("source", {})}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **members}


def test_hosts_are_in_the_order_of_text_among_all_and_in_their_own_order_in_a_group() -> None:
    given = request(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 11})
    assert [host.name for host in spec_of(given).hosts] == [f"algo-{number}" for number in range(1, 12)]
    config = config_of(given)["resourceconfig.json"]
    assert config["hosts"][:4] == ["algo-1", "algo-10", "algo-11", "algo-2"]
    [group] = config["instance_groups"]
    assert (group["instance_group_name"], group["hosts"][:3]) == ("homogeneousCluster", ["algo-1", "algo-2", "algo-3"])


def test_a_seed_deals_the_numbers_of_hosts_to_the_groups() -> None:
    """ "Configure a training job with a heterogeneous cluster", SageMaker's developer guide"""
    groups = [
        {"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": count}
        for name, count in (("data_group", 2), ("dnn_group", 1))
    ]

    def dealt(seed: int | None, name: str = "job", **fidelity: Any) -> list[tuple[str, str | None]]:
        given = request(TrainingJobName=name, ResourceConfig={"InstanceGroups": groups})
        given_to = {"folder": Path("job"), "endpoint_port": 1, "environment": {}, "devices": {}}
        spec = pod_spec(given, image=IMAGE, host_seed=seed, **given_to, **fidelity)
        for host in spec.hosts:
            config = config_files(spec, host, given)["resourceconfig.json"]
            assert (config["current_host"], config["current_group_name"]) == (host.name, host.group)
            assert config["hosts"] == ["algo-1", "algo-2", "algo-3"]
            assert all(group["hosts"] == sorted(group["hosts"]) for group in config["instance_groups"])
        assert len({host.address for host in spec.hosts}) == 3
        return [(host.name, host.group) for host in spec.hosts]

    in_order = [("algo-1", "data_group"), ("algo-2", "data_group"), ("algo-3", "dnn_group")]
    each_number = {(f"algo-{number}", "dnn_group") for number in (1, 2, 3)}
    assert dealt(None, fidelity="relaxed") == in_order
    assert {dealt(seed)[-1] for seed in range(20)} == each_number
    assert dealt(7) == dealt(7, "another")
    assert {dealt(None, f"job-{n}")[-1] for n in range(20)} == each_number
    assert dealt(None, "one") == dealt(None, "one")


def test_each_host_has_an_address_of_its_own_and_no_host_the_bridges() -> None:
    given = request(ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 501})
    addresses = [host.address for host in spec_of(given).hosts]
    assert len({*addresses}) == 501
    assert (addresses[0], addresses[248], addresses[249], addresses[500]) == (
        "10.0.0.2",
        "10.0.0.250",
        "10.0.1.1",
        "10.0.2.2",
    )


def test_a_channels_own_input_mode_goes_before_the_algorithms() -> None:
    channels = [channel("fast", InputMode="FastFile", ContentType="image/png"), channel("copied")]
    sharded = channel("sharded", source={"S3DataDistributionType": "ShardedByS3Key"})
    assert config_of(request(InputDataConfig=[*channels, sharded]))["inputdataconfig.json"] == {
        "fast": {
            "ContentType": "image/png",
            "TrainingInputMode": "FastFile",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        },
        "copied": {
            "TrainingInputMode": "File",
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        },
        "sharded": {
            "TrainingInputMode": "File",
            "S3DistributionType": "ShardedByS3Key",
            "RecordWrapperType": "None",
        },
    }


def test_a_host_knows_of_the_channels_of_its_own_group_only() -> None:
    groups = [
        {"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": count}
        for name, count in (("one", 2), ("two", 1))
    ]
    given = request(
        ResourceConfig={"InstanceGroups": groups},
        InputDataConfig=[channel(name, source={"InstanceGroupNames": [name]}) for name in ("one", "two")],
    )
    assert [[*config_of(given, host)["inputdataconfig.json"]] for host in range(3)] == [["one"], ["one"], ["two"]]
    assert [config_of(given, host)["resourceconfig.json"]["current_group_name"] for host in range(3)] == [
        "one",
        "one",
        "two",
    ]


def test_the_requests_variables_go_before_the_accounts_and_those_before_the_images() -> None:
    given = request(Environment={"AWS_REGION": "eu-west-1", "GREETING": "hello"})
    [host] = spec_of(given, AWS_REGION="us-east-1", FROM_IMAGE="2").hosts
    path = host.environment["PATH"]
    assert {name: value for name, value in host.environment.items() if name != "PATH"} == {
        "FROM_IMAGE": "2",
        "HOME": "/root",
        "AWS_REGION": "eu-west-1",
        "GREETING": "hello",
    }
    assert path.split(":")[1:3] == ["/venv/bin", "/usr/local/sbin"]


@pytest.mark.parametrize(
    ("algorithm", "command"),
    [
        ({}, ("train.sh", "train")),
        ({"ContainerArguments": ["--steps", "3"]}, ("train.sh", "--steps", "3")),
        ({"ContainerEntrypoint": ["python", "a.py"]}, ("python", "a.py")),
        ({"ContainerEntrypoint": ["python"], "ContainerArguments": ["a.py"]}, ("python", "a.py")),
    ],
)
def test_an_image_is_started_with_train_unless_the_request_says_otherwise(
    algorithm: dict[str, Any], command: tuple[str, ...]
) -> None:
    given = request(AlgorithmSpecification={"TrainingInputMode": "File", **algorithm})
    assert spec_of(given).hosts[0].command == command
