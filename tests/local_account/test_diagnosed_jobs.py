"""`training-jobs diagnose` on jobs of the local account, each with a bottleneck made on purpose, and on two that are fine.

The lines are printed by the jobs themselves. Utilization is published into the account's CloudWatch as SageMaker does it, since
the account's hosts have no GPUs, nor as many vCPUs as their types.
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
from test_training_jobs import Jobs, channel

from cdk_sagemaker_training.cli.main import main
from cdk_sagemaker_training.client.utilization import NAMESPACE


@pytest.fixture(scope="module")
def jobs(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running.account.environment().items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        yield Jobs(running, tmp_path_factory.mktemp("image"))


def program(case: Case) -> str:
    """What every host runs: the first prints the groups, as SageMaker's toolkit does, and the case's lines."""
    groups = [
        {"instance_group_name": group, "hosts": [name for name, of, _ in case.hosts if of == group]}
        for group in case.groups
    ]
    said = "".join(f"sleep {pause}; echo {shlex.quote(text)}\n" for pause, text in case.lines)
    if len(groups) > 1:
        said = f"echo {shlex.quote('SM_RESOURCE_CONFIG=' + json.dumps({'instance_groups': groups}))}\n{said}"
    return f'grep -q \'"current_host": *"algo-1"\' /opt/ml/input/config/resourceconfig.json || exit 0\n{said}:'


def request(case: Case) -> dict[str, Any]:
    groups = [
        {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": count}
        for name, (kind, count) in case.groups.items()
    ]
    one = {name: value for name, value in groups[0].items() if name != "InstanceGroupName"}
    machines = {"InstanceGroups": groups} if len(groups) > 1 else one
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


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_bounds_a_job_of_the_account_is_named(
    jobs: Jobs, case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = f"programs/{CASES.index(case)}/"
    jobs.put(f"{folder}program.sh", program(case))
    members = {**request(case), "InputDataConfig": [channel("program", folder)]}
    job = jobs.run("sh -e /opt/ml/input/data/program/program.sh", **members)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    publish(jobs, job, case)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["training-jobs", "diagnose", job["TrainingJobName"], "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    findings = json.loads(printed.out)["findings"]
    assert (findings[0]["bound"] if findings else None) == case.bound
    if case.change:
        assert case.change in findings[0]["change"].splitlines()
