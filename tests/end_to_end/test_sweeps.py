"""Sweeps through deployed state machines, with permissions enforced: rows that fail, a second run, a file that is refused."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from deployed import Deployed, wait_until

from cdk_sagemaker_training import (
    ChoiceField,
    DataParallelJob,
    Grid,
    InstanceGroup,
    NumberField,
    Objective,
    RowsFile,
    S3Prefix,
    TrainingImage,
    TrainingSweep,
    TrainingWorkflow,
)
from sagemaker_local_account.faults import NotCancelled

pytestmark = pytest.mark.usefixtures("no_job_left")
A_SWEPT_JOB = Path(__file__).parent / "a_swept_job"
LEARNING_RATES = [0.25, 0.9, 0.125, 0.5]
FILE = "rows.csv"


class Sweeps(cdk.Stack):
    """A workflow whose job has its learning rate as its loss, and sweeps of it."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Sweeps")
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge", sfn.JsonPath.number_at("$.machines"))),
            image=TrainingImage.from_asset(self, "Image", directory=str(A_SWEPT_JOB)),
            output=S3Prefix(bucket, "models/"),
            environment={"LEARNING_RATE": sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.learning_rate"))},
            metric_definitions={"loss": "loss=([0-9.]+)"},
            input_fields={"learning_rate": NumberField(0, 1), "machines": ChoiceField([1, 2], default=1)},
        )
        sweeps = {
            "Tolerant": {
                "over": Grid({"learning_rate": LEARNING_RATES, "machines": [1]}),
                "tolerated_failure_count": 1,
            },
            "Strict": {"over": Grid({"learning_rate": [0.9, 0.75], "machines": [1]}), "concurrency": 1},
            "OfFile": {"over": RowsFile(bucket, FILE), "tolerated_failure_percentage": 5, "concurrency": 8},
        }
        for name, props in sweeps.items():
            sweep = TrainingSweep(
                self,
                name,
                workflow=workflow,
                results=S3Prefix(bucket, f"sweeps/{name}/"),
                objective=Objective("loss", "Minimize"),
                **{"concurrency": 2, **props},  # type: ignore[arg-type]
            )
            cdk.CfnOutput(self, f"{name}Arn", value=sweep.state_machine.state_machine_arn)
        nightly = sfn.DefinitionBody.from_chainable(sweep.as_task(self, "Sweep"))
        machine = sfn.StateMachine(self, "Nightly", definition_body=nightly)
        sweep.stop_with(machine)
        cdk.CfnOutput(self, "NightlyArn", value=machine.state_machine_arn)
        cdk.CfnOutput(self, "WorkflowArn", value=workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)


class Swept:
    """The deployed sweeps."""

    def __init__(self, deployed: Deployed, outputs: dict[str, str]) -> None:
        self.deployed, self.outputs = deployed, outputs
        self.s3, self.states = deployed.client("s3"), deployed.client("stepfunctions")

    def run(self, name: str) -> dict[str, Any]:
        return self.deployed.ended(self.deployed.start(self.outputs[f"{name}Arn"]))

    def output(self, name: str) -> dict[str, Any]:
        ended = self.run(name)
        assert ended["status"] == "SUCCEEDED", ended
        return dict(json.loads(ended["output"]))

    def table(self, name: str) -> list[dict[str, str]]:
        found = self.s3.get_object(Bucket=self.outputs["BucketName"], Key=f"sweeps/{name}/table.csv")
        return list(csv.DictReader(io.StringIO(found["Body"].read().decode())))

    def run_of(self, **fields: Any) -> dict[str, Any]:
        """A run of the workflow itself."""
        started = self.states.start_execution(stateMachineArn=self.outputs["WorkflowArn"], input=json.dumps(fields))
        return self.deployed.ended(started["executionArn"])

    def runs(self) -> int:
        """How often the workflow was run."""
        pages = self.states.get_paginator("list_executions").paginate(stateMachineArn=self.outputs["WorkflowArn"])
        return sum(len(page["executions"]) for page in pages)

    def write_file(self, *lines: str) -> None:
        self.s3.put_object(Bucket=self.outputs["BucketName"], Key=FILE, Body="\n".join(lines).encode())


@pytest.fixture(scope="module")
def swept(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return Swept(deployed, deployed.deploy(Sweeps(cdk.App(outdir=str(tmp_path_factory.mktemp("assembly"))))))


@pytest.mark.soak  # the sweep that ends with its table runs below, and test_sweeps.py of the constructs has which rows run again
def test_a_sweep_has_a_table_of_all_rows_and_a_second_run_does_only_what_failed(swept: Swept) -> None:
    before = swept.runs()
    output = swept.output("Tolerant")
    assert {name: output[name] for name in ("Rows", "Completed", "Failed", "NotRun")} == {
        "Rows": 4,
        "Completed": 3,
        "Failed": 1,
        "NotRun": 0,
    }
    assert (output["Best"]["learning_rate"], output["Best"]["Metrics.loss"]) == (0.125, 0.125)
    assert output["Best"]["S3ModelArtifacts"].endswith("/output/model.tar.gz")
    table = swept.table("Tolerant")
    assert [(row["learning_rate"], row["Status"]) for row in table] == [
        ("0.25", "Completed"),
        ("0.9", "Failed"),
        ("0.125", "Completed"),
        ("0.5", "Completed"),
    ]
    assert table[1]["Reason"].startswith("TrainingJobFailed: ")
    assert "the loss diverges" in table[1]["Reason"]
    assert swept.runs() - before == 4
    assert swept.output("Tolerant") == output
    assert swept.runs() - before == 5


def test_more_failures_than_are_tolerated_end_the_sweep_with_its_table(swept: Swept) -> None:
    ended = swept.run("Strict")
    assert (ended["status"], ended["error"]) == ("FAILED", "TrainingSweepFailed")
    assert ended["cause"].startswith("States.ExceedToleratedFailureThreshold: ")
    table = f"s3://{swept.outputs['BucketName']}/sweeps/Strict/table.csv"
    assert ended["cause"].endswith(f"; of 2 rows 0 completed and 1 failed; the table is {table}")
    assert [row["Status"] for row in swept.table("Strict")] == ["Failed", "NotRun"]


def test_a_file_with_a_row_that_is_not_allowed_starts_no_job(swept: Swept) -> None:
    before = swept.runs()
    swept.write_file("learning_rate,machines", "0.5,1", "0.5,3")
    ended = swept.run("OfFile")
    assert (ended["status"], ended["error"]) == ("FAILED", "InvalidInput")
    assert "row 2: machines must be one of 1, 2, got 3" in ended["cause"]
    assert swept.runs() == before


def test_an_input_without_a_field_that_has_a_default_is_taken_and_another_value_is_refused(swept: Swept) -> None:
    ended = swept.run_of(learning_rate=0.25)
    assert ended["status"] == "SUCCEEDED", ended
    assert json.loads(ended["output"])["ResourceConfig"]["InstanceCount"] == 1
    refused = swept.run_of(learning_rate=0.25, machines=3)
    assert (refused["error"], refused["cause"]) == ("InvalidInput", "machines must be one of 1, 2, got 3")


def test_the_guard_stops_a_sweep_whose_stopped_parent_did_not(swept: Swept) -> None:
    deployed, clock, faults = swept.deployed, swept.deployed.account.clock, swept.deployed.account.faults
    swept.write_file("learning_rate,machines", "0,1")
    faults.add(NotCancelled())
    parent = deployed.start(swept.outputs["NightlyArn"])

    def running(name: str) -> list[str]:
        of = {"stateMachineArn": swept.outputs[f"{name}Arn"], "statusFilter": "RUNNING"}
        return [one["executionArn"] for one in swept.states.list_executions(**of)["executions"]]

    [execution] = wait_until(lambda: running("Workflow"))
    [sweep] = running("OfFile")
    deployed.the_job_of(execution, until="Training")
    clock.advance(1_800)  # with a parent that runs it stops nothing
    swept.states.stop_execution(executionArn=parent)
    assert deployed.ended(parent)["status"] == "ABORTED"
    assert (running("Workflow"), running("OfFile")) == ([execution], [sweep])
    wait_until(lambda: clock.advance(60) or not running("OfFile"))
    ended = deployed.ended(sweep)
    assert (ended["status"], ended["error"]) == ("ABORTED", "ParentExecutionEnded")
    assert ended["cause"] == f"{parent} has ended, which started it"
    assert deployed.ended(execution)["status"] == "ABORTED"
    wait_until(lambda: clock.advance(60) or not deployed.running_jobs())
    assert faults.remaining() == {}


@pytest.mark.soak
def test_a_sweep_of_200_rows_of_which_5_percent_fail_runs_only_those_again(swept: Swept) -> None:
    before = swept.runs()
    rates = [number / 1_000 for number in range(1, 191)] + [0.9 + number / 1_000 for number in range(10)]
    swept.write_file("learning_rate,machines", *(f"{rate},1" for rate in rates))
    output = swept.output("OfFile")
    assert (output["Rows"], output["Completed"], output["Failed"], output["NotRun"]) == (200, 190, 10, 0)
    assert output["Best"]["learning_rate"] == 0.001
    assert swept.runs() - before == 200
    # All of these fail again, which is more than 5 percent of the rows that run.
    again = swept.run("OfFile")
    assert (again["status"], again["error"]) == ("FAILED", "TrainingSweepFailed")
    assert "of 200 rows 190 completed and 10 failed" in again["cause"]
    assert swept.runs() - before <= 210
