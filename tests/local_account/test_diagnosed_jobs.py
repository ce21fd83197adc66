"""`training-jobs diagnose` on jobs of the local account, each with a bottleneck made on purpose, and on two that are fine.

Of CASES the jobs print the lines. Utilization is published into the account's CloudWatch as SageMaker does it, since the
account's hosts have no GPUs, nor as many vCPUs as their types. The jobs of REAL have the bottleneck itself, and what is read is
what the data service and torch say of it; a step's work on an accelerator is a pause. What only CloudWatch shows cannot be made
without GPUs: busy GPUs, their memory, a small batch, a slow host. A slow network would have to be slower than loopback.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from diagnosed_jobs import CASES, Case
from running_account import Running
from test_training_jobs import Jobs, channel, groups

from sagemaker_local_account.images.image_store import ImageStore
from training_jobs.cli.main import main
from training_jobs.client.utilization import NAMESPACE


@pytest.fixture(scope="module")
def jobs(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.account.environment().items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        yield Jobs(running, tmp_path_factory.mktemp("image"))


def program(case: Case) -> str:
    """What every host runs: the first prints the groups, as SageMaker's toolkit does, and the case's lines."""
    hosts = [
        {"instance_group_name": group, "hosts": [name for name, of, _ in case.hosts if of == group]}
        for group in case.groups
    ]
    said = "".join(f"sleep {pause}; echo {shlex.quote(text)}\n" for pause, text in case.lines)
    if len(hosts) > 1:
        said = f"echo {shlex.quote('SM_RESOURCE_CONFIG=' + json.dumps({'instance_groups': hosts}))}\n{said}"
    return f'grep -q \'"current_host": *"algo-1"\' /opt/ml/input/config/resourceconfig.json || exit 0\n{said}:'


def request(case: Case) -> dict[str, Any]:
    members = [
        {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": count}
        for name, (kind, count) in case.groups.items()
    ]
    one = {name: value for name, value in members[0].items() if name != "InstanceGroupName"}
    machines = {"InstanceGroups": members} if len(members) > 1 else one
    return {
        "ResourceConfig": {**machines, "VolumeSizeInGB": 1},
        **({"HyperParameters": dict(case.hyperparameters)} if case.hyperparameters else {}),
    }


def publish(jobs: Jobs, job: dict[str, Any], case: Case) -> None:
    data = [
        {
            "MetricName": metric,
            "Dimensions": [{"Name": "Host", "Value": f"{job['TrainingJobName']}/{host}"}],
            "Timestamp": job["TrainingStartTime"],
            "Value": value,
            "Unit": "Percent",
        }
        for host, metrics in case.published().items()
        for metric, value in metrics.items()
    ]
    jobs.running.client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=data)


def diagnosed(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> list[dict[str, Any]]:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["training-jobs", "diagnose", job["TrainingJobName"], "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    return list(json.loads(printed.out)["findings"])


TRAINING_CODE = Path(__file__).parents[2] / "training_code"
TORCH_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/torch-jobs:1"
TORCH_DOCKERFILE = """
FROM python:3.11
RUN pip install torch numpy
COPY data_service /opt/ml/code/data_service
ENTRYPOINT ["python", "-u", "/opt/ml/input/data/program/train.py"]
"""
# What SageMaker's toolkit does before a script: it prints the hosts of the groups, and sets variables.
TOOLKIT = """
import json, os, sys, time
sys.path.insert(0, "/opt/ml/code")
if __name__ == "__main__":
    config = json.load(open("/opt/ml/input/config/resourceconfig.json"))
    print("SM_RESOURCE_CONFIG=" + json.dumps(config), flush=True)
    groups = {one["instance_group_name"]: one for one in config.get("instance_groups", [])}
    os.environ["SM_CURRENT_HOST"] = config["current_host"]
    os.environ["SM_CURRENT_INSTANCE_GROUP"] = config.get("current_group_name", "")
    os.environ["SM_INSTANCE_GROUPS_DICT"] = json.dumps(groups)
"""
READS = """
import torch
from data_service import read_batches

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, index):
        ended = time.process_time() + {prepare}
        while time.process_time() < ended:
            pass
        return torch.full((16,), float(index))

if __name__ == "__main__":
    with read_batches(Rows(), batch_size=4, workers=1, local_workers={local}, epochs=2) as batches:
        for epoch in range(2):
            for batch in batches.epoch(epoch):
                time.sleep({step})
"""
RECOMPILES = """
os.environ["TORCH_LOGS"] = "recompiles"
import torch

@torch.compile(backend="eager")
def double(values):
    return 2 * values

for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
    double(torch.ones(4, dtype=dtype))
"""
CHECKPOINTS = """
import gzip

for step in range(1, 16):
    time.sleep(0.05)
    if step == 8:
        with gzip.open("/opt/ml/model/checkpoint.gz", "wb") as file:
            file.write(os.urandom(50_000_000))
    print("step", step, "loss 0.5", flush=True)
"""
WITH_DATA_HOSTS = groups(dnn_group=1, data_group=2)
ALONE = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
REAL = {
    "slow preprocessing on one machine": ("data_cpu", READS.format(prepare=0.01, local=1, step=0), ALONE),
    "slow preprocessing on data hosts": ("data_cpu", READS.format(prepare=0.01, local=0, step=0), WITH_DATA_HOSTS),
    "idle data group": ("idle_data_group", READS.format(prepare=0, local=0, step=0.05), WITH_DATA_HOSTS),
    "fine on one machine": (None, READS.format(prepare=0, local=1, step=0.05), ALONE),
    "recompilation": ("compilation", RECOMPILES, ALONE),
    "slow checkpoint": ("checkpoints", CHECKPOINTS, ALONE),
}


@pytest.fixture(scope="module")
def torch_image(running: Running, tmp_path_factory: pytest.TempPathFactory) -> str:
    dockerfile = tmp_path_factory.mktemp("torch") / "Dockerfile"
    dockerfile.write_text(TORCH_DOCKERFILE)
    store = ImageStore(running.account.state)
    store.build(TRAINING_CODE, dockerfile, [TORCH_IMAGE])
    store.push(TORCH_IMAGE)
    return TORCH_IMAGE


@pytest.mark.soak
@pytest.mark.parametrize("name", REAL)
def test_what_really_bounds_a_job_of_the_account_is_named(
    jobs: Jobs,
    torch_image: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    bound, script, machines = REAL[name]
    folder = f"real/{list(REAL).index(name)}/"
    jobs.put(f"{folder}train.py", TOOLKIT + script)
    algorithm = {"TrainingImage": torch_image, "TrainingInputMode": "File"}
    members = {"AlgorithmSpecification": algorithm, "ResourceConfig": machines}
    job = jobs.run("", **members, InputDataConfig=[channel("program", folder)])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), jobs.said(job["TrainingJobName"]))
    findings = diagnosed(job, monkeypatch, capsys, tmp_path)
    assert (findings[0]["bound"] if findings else None) == bound


# The account has no processing jobs, as which the profiler's rules run, so that no job of it has their reports.
WITHOUT_REPORTS = [case for case in CASES if not case.reports]


@pytest.mark.soak
@pytest.mark.parametrize("case", WITHOUT_REPORTS, ids=lambda case: case.name)
def test_what_bounds_a_job_of_the_account_is_named(
    jobs: Jobs, case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = f"programs/{CASES.index(case)}/"
    jobs.put(f"{folder}program.sh", program(case))
    members = {**request(case), "InputDataConfig": [channel("program", folder)]}
    job = jobs.run("sh -e /opt/ml/input/data/program/program.sh", **members)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    publish(jobs, job, case)
    findings = diagnosed(job, monkeypatch, capsys, tmp_path)
    assert (findings[0]["bound"] if findings else None) == case.bound
    if case.change:
        assert case.change in findings[0]["change"].splitlines()
