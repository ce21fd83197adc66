"""Jobs that train for hours, of each construct that starts some: the guard, which looks each quarter of an hour, leaves them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    DataParallelJob,
    Grid,
    InstanceGroup,
    NumberField,
    S3Prefix,
    Silence,
    TrainingImage,
    TrainingPipeline,
    TrainingQueue,
    TrainingSweep,
    TrainingTask,
    TrainingWorkflow,
)

pytestmark = pytest.mark.soak  # a deployment of its own
A_STEPPING_JOB = Path(__file__).parent / "a_stepping_job"
HOURS = 3


class Long(cdk.Stack):
    """One job for each way to start one."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Long")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        self.job: dict[str, Any] = {
            "job": DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            "image": TrainingImage.from_asset(self, "Image", directory=str(A_STEPPING_JOB)),
            "output": S3Prefix(bucket, "models/"),
            "environment": {"STEPS": "20000"},
        }
        self.started("Sync", self.workflow("Sync"))
        self.started("Poll", self.workflow("Poll", integration="poll"))
        self.started("Watched", self.workflow("Watched", stop_when=[Silence(cdk.Duration.hours(20))]))
        self.started("Queued", self.workflow("Queued", queue=TrainingQueue(self, "Queue", capacity=1)))
        child = self.workflow("Child")
        child.stop_with(self.machine("OfWorkflow", child.as_task(self, "RunChild")))
        pipeline = TrainingPipeline(self, "Pipeline", steps=[self.workflow("Step")])
        pipeline.stop_with(self.machine("OfPipeline", pipeline.as_task(self, "RunPipeline")))
        rate = sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.rate"))
        row = self.workflow("Row", input_fields={"rate": NumberField()}, hyperparameters={"rate": rate})
        values: Any = Grid({"rate": [0.1]})
        sweep = TrainingSweep(
            self, "Sweep", workflow=row, over=values, results=S3Prefix(bucket, "sweep/"), concurrency=1
        )
        sweep.stop_with(self.machine("OfSweep", sweep.as_task(self, "RunSweep")))
        for name, task in (
            ("Task", TrainingTask(self, "Task", **self.job)),
            ("Jsonata", TrainingTask.jsonata(self, "Jsonata", **self.job)),
        ):
            task.guard(self.machine(f"Of{name}", task))

    def workflow(self, id: str, **props: Any) -> TrainingWorkflow:
        return TrainingWorkflow(self, id, **{**self.job, **props})

    def machine(self, id: str, state: Any) -> sfn.StateMachine:
        machine = sfn.StateMachine(self, id, definition_body=sfn.DefinitionBody.from_chainable(state))
        self.started(id, machine)
        return machine

    def started(self, id: str, machine: Any) -> None:
        cdk.CfnOutput(self, f"{id}Arn", value=getattr(machine, "state_machine", machine).state_machine_arn)


def looks(deployed: Deployed) -> float:
    """How often a guard has looked at all jobs and found none to stop."""
    cloudwatch, now = deployed.client("cloudwatch"), datetime.now(UTC)
    asked: dict[str, Any] = {"Namespace": "AWS/States", "MetricName": "ExecutionsSucceeded"}
    of_guards = [one for one in cloudwatch.list_metrics(**asked)["Metrics"] if "Reconciler" in str(one["Dimensions"])]
    week = {"StartTime": now - timedelta(days=1), "EndTime": now + timedelta(days=6), "Period": 7 * 86_400}
    found = [
        cloudwatch.get_metric_statistics(**asked, **week, Dimensions=one["Dimensions"], Statistics=["Sum"])
        for one in of_guards
    ]
    return sum(point["Sum"] for one in found for point in one["Datapoints"])


def test_no_guard_stops_a_job_that_its_execution_waits_for(deployed: Deployed, tmp_path: Path) -> None:
    outputs = deployed.deploy(Long(cdk.App(outdir=str(tmp_path))))
    arns = [arn for name, arn in outputs.items() if name.endswith("Arn")]
    executions = [deployed.start(arn) for arn in arns]
    wait_until(lambda: len(deployed.running_jobs()) >= len(arns))
    names = sorted(deployed.running_jobs())

    for number in range(1, HOURS * 4 + 1):
        deployed.account.clock.advance(900)
        wait_until(lambda number=number: looks(deployed) >= number)
    assert sorted(deployed.running_jobs()) == names
    states = deployed.client("stepfunctions")
    assert {states.describe_execution(executionArn=one)["status"] for one in executions} == {"RUNNING"}
    alarms = deployed.client("cloudwatch").describe_alarms(AlarmNamePrefix="Long-")["MetricAlarms"]
    assert {alarm["StateValue"] for alarm in alarms} == {"OK"}
    for one in executions:
        states.stop_execution(executionArn=one)
    wait_until(lambda: deployed.account.clock.advance(60) or not deployed.running_jobs())
