"""Executions that start together in an account with AWS's rates: each creates its job, as the simulation says."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import ROOT, Deployed, ending_at_once, wait_until

from cdk_sagemaker_training import TrainingWorkflow

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    from many_jobs import simulate, workflows_definition
finally:
    sys.path.pop(0)  # the benchmarks' names are not to be those of other tests' modules

pytestmark = pytest.mark.soak
RATES = True


class Many(cdk.Stack):
    """A workflow whose jobs end at once."""

    def __init__(self, app: cdk.App, context: Path) -> None:
        super().__init__(app, "Many")
        props = ending_at_once(self, context, s3.Bucket(self, "Bucket"))
        workflow = TrainingWorkflow(self, "Training", **props, integration="sync")
        cdk.CfnOutput(self, "Machine", value=workflow.state_machine.state_machine_arn)


def created_jobs(deployed: Deployed) -> dict[str, Any]:
    """The names of all training jobs, and when each was created."""
    pages = deployed.client("sagemaker").get_paginator("list_training_jobs").paginate(MaxResults=100)
    return {one["TrainingJobName"]: one["CreationTime"] for page in pages for one in page["TrainingJobSummaries"]}


def created_calls(log: Path) -> int:
    """How many calls of CreateTrainingJob the account has logged."""
    return len(re.findall(r"CreateTrainingJob", log.read_text())) if log.exists() else 0


@pytest.mark.parametrize(
    "number", [100, pytest.param(1_000, marks=pytest.mark.timeout(3_600))]
)  # the latter 19 minutes
def test_executions_that_start_together_all_create_their_jobs(deployed: Deployed, tmp_path: Path, number: int) -> None:
    outputs = deployed.deploy(Many(cdk.App(outdir=str(tmp_path / "assembly")), tmp_path / "context"))
    names = [f"many-{number}-{one}" for one in range(number)]
    log = deployed.account.state / "account.log"
    jobs_before, calls_before = created_jobs(deployed), created_calls(log)
    over = threading.Event()

    def twice_as_fast() -> None:
        while not over.wait(0.5):
            deployed.account.clock.advance(0.5)

    clock = threading.Thread(target=twice_as_fast)
    clock.start()
    try:
        executions = [deployed.start(outputs["Machine"], name) for name in names]
        states = deployed.client("stepfunctions")

        def ended() -> Counter[str] | None:
            pages = states.get_paginator("list_executions").paginate(stateMachineArn=outputs["Machine"])
            found = Counter(one["status"] for page in pages for one in page["executions"] if one["name"] in names)
            return None if found["RUNNING"] or found.total() < number else found

        assert wait_until(ended) == {"SUCCEEDED": number}
    finally:
        over.set()
        clock.join()
    created = sorted(at for name, at in created_jobs(deployed).items() if name not in jobs_before)
    assert len(created) == number
    # One a second of the account's clock, give or take what passes between the bucket and a job's own time.
    assert (created[-1] - created[0]).total_seconds() > number - 5
    began = states.describe_execution(executionArn=executions[0])["startDate"]
    last = (created[-1] - began).total_seconds()
    simulated, calls = simulate(workflows_definition(), number, 0, 1)
    expected = max(at for _, at, _ in simulated if at is not None)
    made = created_calls(log) - calls_before
    print(f"\nlast job after {last:.0f} s, simulated {expected:.0f} s; {made} calls, simulated {calls.total()}")
    assert 0.5 * expected < last < 2 * expected
    assert 0.6 * calls.total() < made < 1.6 * calls.total()
