"""Hosts whose own names nobody resolves, as AWS's machines have them, and which images rename them."""

import shutil
from pathlib import Path

import pytest
from host_jobs import ENVIRONMENT, Job

from cdk_sagemaker_training import training_code_path
from sagemaker_local_account.aws.sagemaker.container_spec import pod_spec
from sagemaker_local_account.images.image_store import Image
from sagemaker_local_account.runtime.spec import Fidelity

REQUEST = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {"TrainingImage": "x", "TrainingInputMode": "File"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
}
RANK = """
import os, socket, sys
from datetime import timedelta
import torch, torch.distributed as dist
sys.path.insert(0, "/opt/ml/code")
from common.job import use_the_jobs_network
rank = int({rank})
os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="algo-1", MASTER_PORT="7777", SM_NETWORK_INTERFACE_NAME="eth0")
{before}
try:
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    number = torch.tensor(rank + 1)
    dist.all_reduce(number)
    print(f"the sum is {{number}}")
except RuntimeError as error:
    print(f"gloo failed: {{error}}".splitlines()[0][:11])
    os._exit(0)
"""


def hostnames(*entrypoint: str, **options: Fidelity) -> list[str | None]:
    image = Image("x", Path("root"), {}, [*entrypoint], [], "/", Path("python"), [])
    plan = pod_spec(REQUEST, image=image, folder=Path("job"), endpoint_port=1, environment={}, devices={}, **options)
    return [host.hostname for host in plan.hosts]


def environments(**more: object) -> list[dict[str, str]]:
    image = Image("x", Path("root"), {}, ["train"], [], "/", Path("python"), [])
    plan = pod_spec(
        {**REQUEST, **more},
        image=image,
        folder=Path("job"),
        endpoint_port=1,
        environment={},
        devices={"ml.p3.2xlarge": 0},
    )
    return [dict(host.environment) for host in plan.hosts]


@pytest.mark.parametrize(
    ("instance_type", "value"),
    [("ml.g5.xlarge", "true"), ("ml.m5.large", None), ("ml.trn1.2xlarge", None), ("ml.p3.2xlarge", None)],
)
def test_accelerate_uses_the_cpu_where_gpus_are_listed(instance_type: str, value: str | None) -> None:
    [found] = environments(ResourceConfig={"InstanceType": instance_type, "InstanceCount": 1})
    assert found.get("ACCELERATE_USE_CPU") == value


def test_a_jobs_own_variable_goes_before_the_accounts() -> None:
    machines = {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1}
    [found] = environments(ResourceConfig=machines, Environment={"ACCELERATE_USE_CPU": "false"})
    assert found["ACCELERATE_USE_CPU"] == "false"


def sums(folder: Path, before: str) -> list[str]:
    """What two ranks print, each on a host of its own, that do `before` before they join."""
    shutil.copytree(Path(training_code_path()) / "common", folder / "image" / "opt" / "ml" / "code" / "common")
    programs = [RANK.format(rank=rank, before=before) for rank in range(2)]
    with Job(folder, *programs, strict=True, environment=ENVIRONMENT) as job:
        assert job.wait(60) is not None
        return [line for _, line in job.all_lines() if line.startswith(("the sum", "gloo failed"))]


def test_hosts_have_names_like_awss_each_its_own() -> None:
    first, second = hostnames("python", "main.py")
    assert first is not None
    assert first.startswith("ip-10-0-")
    assert first != second


def test_relaxed_hosts_are_called_as_their_peers_call_them() -> None:
    assert hostnames("python", "main.py", fidelity="relaxed") == [None, None]


def test_a_container_that_starts_as_awss_pytorch_containers_do_has_its_name_in_the_job() -> None:
    """docs/pytorch/deployment/sagemaker.md of aws/deep-learning-containers"""
    start = ("bash", "-m", "start_with_right_hostname.sh")
    assert hostnames(*start) == [None, None]
    assert hostnames("/usr/local/bin/sagemaker_entrypoint.sh") == [None, None]
    assert None not in hostnames("python", "/usr/local/bin/entrypoint.py", *start)
    assert None not in hostnames("bash", "-m", "/usr/local/bin/entrypoint.sh")


def test_a_hosts_own_name_resolves_to_nothing_and_its_peers_names_to_their_addresses(tmp_path: Path) -> None:
    program = """
import socket
print(socket.gethostname(), socket.gethostbyname("algo-1"))
try:
    socket.gethostbyname(socket.gethostname())
except socket.gaierror:
    print("nobody")
"""
    with Job(tmp_path, program, strict=True) as job:
        assert [job.line()[1], job.line()[1]] == ["ip-10-0-9-1 10.0.0.1", "nobody"]


@pytest.mark.parametrize(
    ("before", "printed"),
    # gloo binds to what gethostname(2) resolves to, and where that is nothing to loopback (aws-samples/aws-do-eks 69).
    [
        pytest.param("pass", ["gloo failed", "gloo failed"], marks=pytest.mark.soak),
        ("use_the_jobs_network()", ["the sum is 3", "the sum is 3"]),
    ],
)
def test_ranks_join_by_the_jobs_network_and_not_by_their_hosts_names(
    tmp_path: Path, before: str, printed: list[str]
) -> None:
    assert sums(tmp_path, before) == printed
