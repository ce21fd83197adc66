"""The job as one machine sees it, by the variables that SageMaker's training toolkit itself sets, and by none."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.job import ONLY_GROUP, Job, use_the_jobs_network

TOOLKIT = "import json; from sagemaker_training.environment import Environment; print(json.dumps(Environment().to_env_vars()))"
TWO_GROUPS = {
    "current_host": "algo-3",
    "current_instance_type": "ml.g5.xlarge",
    "current_group_name": "dnn_group",
    "hosts": [f"algo-{number}" for number in range(1, 13)],
    "instance_groups": [
        # In the order of text, as hosts have been seen to be listed.
        {
            "instance_group_name": "data_group",
            "instance_type": "ml.c5.xlarge",
            "hosts": [
                "algo-1",
                "algo-10",
                "algo-11",
                "algo-12",
                "algo-2",
                *(f"algo-{number}" for number in range(4, 10)),
            ],
        },
        {"instance_group_name": "dnn_group", "instance_type": "ml.g5.xlarge", "hosts": ["algo-3"]},
    ],
    "network_interface_name": "eth0",
}
NO_GROUPS = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}


@dataclass(frozen=True)
class Seen:
    """A host's ``/opt/ml``, and its job as ``Job.here`` reads it from what the toolkit finds there."""

    base: Path
    job: Job


def seen(base: Path, resources: dict[str, Any], channels: tuple[str, ...] = (), **variables: str) -> Seen:
    folder = base / "input" / "config"
    folder.mkdir(parents=True)
    (folder / "resourceconfig.json").write_text(json.dumps(resources))
    (folder / "hyperparameters.json").write_text("{}")
    (folder / "inputdataconfig.json").write_text(json.dumps({name: {"TrainingInputMode": "File"} for name in channels}))
    environment = {"SAGEMAKER_BASE_DIR": str(base), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", TOOLKIT]
    printed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    return Seen(base, Job.here({**json.loads(printed.splitlines()[-1]), **variables}))


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return seen(tmp_path_factory.mktemp("grouped"), TWO_GROUPS, ("digits", "more-digits"), TRAINING_JOB_ARN="arn:of:it")


@pytest.fixture(scope="module")
def homogeneous(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return seen(tmp_path_factory.mktemp("homogeneous"), NO_GROUPS)


def test_a_host_knows_its_name_and_its_group(grouped: Seen) -> None:
    assert (grouped.job.host, grouped.job.group) == ("algo-3", "dnn_group")


def test_a_group_is_its_own_hosts(grouped: Seen) -> None:
    assert grouped.job.group_hosts == ("algo-3",)


def test_hosts_are_in_the_order_of_their_numbers(grouped: Seen) -> None:
    assert grouped.job.groups["data_group"] == tuple(f"algo-{number}" for number in (1, 2, *range(4, 13)))


def test_a_channel_is_found_by_its_name(grouped: Seen) -> None:
    assert grouped.job.channels["digits"] == grouped.base / "input" / "data" / "digits"


def test_a_channel_with_a_hyphen_is_found_by_its_name(grouped: Seen) -> None:
    assert grouped.job.channels["more-digits"] == grouped.base / "input" / "data" / "more-digits"


def test_the_model_the_output_and_the_checkpoints_lie_where_sagemaker_takes_them_from(grouped: Seen) -> None:
    job, base = grouped.job, grouped.base
    assert (job.model, job.output, job.checkpoints) == (base / "model", base / "output" / "data", base / "checkpoints")


def test_the_jobs_arn_is_the_one_that_sagemaker_gives(grouped: Seen) -> None:
    assert grouped.job.arn == "arn:of:it"


def test_a_job_without_groups_is_one_group_of_all_hosts(homogeneous: Seen) -> None:
    assert homogeneous.job.groups == {ONLY_GROUP: ("algo-1", "algo-2")}


def test_a_job_without_channels_has_none(homogeneous: Seen) -> None:
    assert homogeneous.job.channels == {}


def test_the_ranks_are_torchruns() -> None:
    job = Job.here({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"})
    assert (job.rank, job.ranks, job.local_rank, job.local_ranks) == (5, 8, 1, 4)


def test_a_process_that_torchrun_did_not_start_is_the_only_one() -> None:
    job = Job.here({})
    assert (job.rank, job.ranks, job.local_rank, job.local_ranks) == (0, 1, 0, 1)


def test_a_laptop_is_one_host_of_one_group() -> None:
    job = Job.here({})
    assert job.groups == {job.group: (job.host,)}


def test_a_laptop_writes_below_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = Job.here({})
    folders = {tmp_path / "output" / name for name in ("model", "data", "checkpoints")}
    assert {job.model, job.output, job.checkpoints} == folders


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, {}),
        ({"SM_NETWORK_INTERFACE_NAME": "eth1"}, {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}),
        (
            {"SM_NETWORK_INTERFACE_NAME": "eth1", "NCCL_SOCKET_IFNAME": "^lo,docker0"},
            {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "^lo,docker0"},
        ),
    ],
    ids=["on a laptop", "on SageMaker", "where the job says another"],
)
def test_ranks_are_joined_on_the_jobs_own_interface(given: dict[str, str], used: dict[str, str]) -> None:
    environment = {**given}
    use_the_jobs_network(environment)
    assert {name: value for name, value in environment.items() if "SOCKET" in name} == used
