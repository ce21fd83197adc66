"""Which executions and jobs are stopped before a workflow is deleted, by what AWS answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import Stubber

from cdk_sagemaker_training.handlers.deletion import SECONDS_UNTIL_LATE_JOBS_SHOW, Workflow

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:Training"
HASH, OTHER = (hashlib.md5(name.encode()).hexdigest() for name in (f"{MACHINE}:1", f"{MACHINE}:2"))
NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(hours=1)


class Deleted:
    """A workflow that is deleted, and the answers of AWS, which botocore holds against its service models."""

    def __init__(self) -> None:
        self.workflow = Workflow({"StateMachineArn": MACHINE, "JobNamePrefix": "digits"}, lambda: 600)
        self.states, self.jobs = Stubber(self.workflow.states), Stubber(self.workflow.jobs)
        self.states.activate()
        self.jobs.activate()

    def executions(self, **statuses: str) -> None:
        """Executions by their names, which ended long ago or not at all."""
        listed = [
            {
                "executionArn": f"{MACHINE}:{name}",
                "stateMachineArn": MACHINE,
                "name": name,
                "status": status,
                "startDate": LONG_AGO,
                **({} if status in ("RUNNING", "PENDING_REDRIVE") else {"stopDate": LONG_AGO}),
            }
            for name, status in statuses.items()
        ]
        self.states.add_response("list_executions", {"executions": listed}, {"stateMachineArn": MACHINE})

    def stops_execution(self, name: str) -> None:
        given = {"executionArn": f"{MACHINE}:{name}", "cause": "the workflow is being deleted"}
        self.states.add_response("stop_execution", {"stopDate": NOW}, given)

    def training_jobs(self, **statuses: str) -> None:
        listed = [
            {
                "TrainingJobName": name.replace("_", "-"),
                "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}",
                "CreationTime": LONG_AGO,
                "TrainingJobStatus": status,
            }
            for name, status in statuses.items()
        ]
        given = {"NameContains": "digits", "MaxResults": 100}
        self.jobs.add_response("list_training_jobs", {"TrainingJobSummaries": listed}, given)


@pytest.fixture
def deleted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deleted]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-no-account")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    found = Deleted()
    yield found
    found.states.assert_no_pending_responses()
    found.jobs.assert_no_pending_responses()


@pytest.mark.parametrize("status", ["RUNNING", "PENDING_REDRIVE"])
def test_an_execution_that_runs_or_will_again_is_stopped(deleted: Deleted, status: str) -> None:
    deleted.executions(**{"1": status})
    deleted.stops_execution("1")
    assert deleted.workflow.stop_executions() == ({HASH}, True)


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"])
def test_the_jobs_of_an_execution_that_ended_long_ago_are_looked_for_once(deleted: Deleted, status: str) -> None:
    deleted.executions(**{"1": status})
    assert deleted.workflow.stop_executions() == ({HASH}, False)


@pytest.mark.parametrize(("status", "active"), [("ABORTED", True), ("FAILED", True), ("SUCCEEDED", False)])
def test_the_jobs_of_an_execution_that_ended_just_now_are_looked_for_again_unless_it_succeeded(
    deleted: Deleted, status: str, active: bool
) -> None:
    assert SECONDS_UNTIL_LATE_JOBS_SHOW == 15
    ended: dict[str, Any] = {"executionArn": f"{MACHINE}:1", "stateMachineArn": MACHINE, "name": "1", "status": status}
    listed = [{**ended, "startDate": LONG_AGO, "stopDate": datetime.now(UTC)}]
    deleted.states.add_response("list_executions", {"executions": listed})
    assert deleted.workflow.stop_executions() == ({HASH}, active)


def test_the_unfinished_jobs_of_the_workflows_own_executions_are_stopped(deleted: Deleted) -> None:
    deleted.training_jobs(
        **{
            f"digits_{HASH}_1": "Completed",
            f"digits_{HASH}_2": "Stopping",
            f"digits_{HASH}_3": "InProgress",
            f"digits_{HASH}_c1": "InProgress",
            f"digits_{OTHER}_1": "InProgress",
            f"more_digits_{HASH}_1": "InProgress",
            f"digits_{HASH}_1_evaluation": "InProgress",
        }
    )
    assert deleted.workflow.unfinished({HASH}) == [f"digits-{HASH}-{attempt}" for attempt in ("2", "3", "c1")]


def test_a_job_that_has_ended_before_it_is_stopped_is_no_error(deleted: Deleted) -> None:
    message = "The request was rejected because the training job is in status Completed."
    deleted.jobs.add_client_error("stop_training_job", "ValidationException", message)
    deleted.workflow.stop_job("digits-1")


def test_a_job_that_cannot_be_stopped_is_an_error(deleted: Deleted) -> None:
    deleted.jobs.add_client_error("stop_training_job", "AccessDeniedException", "not authorized")
    with pytest.raises(deleted.workflow.jobs.exceptions.ClientError, match="not authorized"):
        deleted.workflow.stop_job("digits-1")


def test_a_job_that_does_not_end_in_time_is_named_beside_the_others(deleted: Deleted) -> None:
    deleted.workflow.seconds_left = lambda: 4
    described = {
        "TrainingJobName": "digits-2",
        "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits-2",
        "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/model.tar.gz"},
        "TrainingJobStatus": "Stopping",
        "SecondaryStatus": "Stopping",
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "ResourceConfig": {"VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "CreationTime": LONG_AGO,
    }
    deleted.jobs.add_response("describe_training_job", described, {"TrainingJobName": "digits-2"})
    with pytest.raises(TimeoutError, match=r"^digits-2 is Stopping, of these .*: digits-1, digits-2; delete the stack"):
        deleted.workflow.wait("digits-2", ["digits-1", "digits-2"])
