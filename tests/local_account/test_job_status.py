"""What DescribeTrainingJob returns of a job's status and times, and when a job has waited long enough for machines."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest

from sagemaker_local_account.aws.sagemaker import job_status, scheduler
from sagemaker_local_account.aws.sagemaker.host_logs import Metrics
from sagemaker_local_account.aws.sagemaker.job_status import COMPLETED, JobStatus, failed
from sagemaker_local_account.aws.sagemaker.scheduler import CapacityWait, NoCapacity
from sagemaker_local_account.core.clock import Clock
from sagemaker_local_account.faults import Capacity, Faults, ScheduledPlan

AN_HOUR = 3_600
PLAN = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock for these jobs, which is advanced alone."""
    found = Clock()
    for module in (job_status, scheduler):
        monkeypatch.setattr(module, "CLOCK", found)
    return found


class Status(JobStatus):
    """The status of a job, and each description that was an event's."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        super().__init__({"TrainingJobName": "digits"}, "arn", Metrics([]), self.events.append)
        self.change("Starting", "Starting the training job")

    def seconds_of(self, status: str) -> int:
        [one] = [one for one in self.description()["SecondaryStatusTransitions"] if one["Status"] == status]
        return round((one["EndTime"] - one["StartTime"]).total_seconds())


def test_each_status_ends_when_the_next_begins(clock: Clock) -> None:
    job = Status()
    clock.advance(10)
    job.change("Downloading", "Downloading input data")
    clock.advance(20)
    job.change("Training", "Training in progress")
    assert (job.seconds_of("Starting"), job.seconds_of("Downloading")) == (10, 20)
    assert "EndTime" not in job.description()["SecondaryStatusTransitions"][-1]
    clock.advance(30)
    job.finish(COMPLETED, 0)
    assert (job.seconds_of("Training"), job.seconds_of("Completed")) == (30, 0)
    assert [event["SecondaryStatus"] for event in job.events] == ["Starting", "Downloading", "Training", "Completed"]


def test_another_message_of_the_same_status_is_no_other_transition(clock: Clock) -> None:
    job = Status()
    clock.advance(10)
    job.change("Starting", "Preparing the instances for training")
    [only] = job.description()["SecondaryStatusTransitions"]
    assert (only["StatusMessage"], "EndTime" in only) == ("Preparing the instances for training", False)
    assert (job.description()["LastModifiedTime"] - only["StartTime"]).total_seconds() == pytest.approx(10, abs=1)


def test_training_begins_once_and_what_had_no_machines_is_not_billed(clock: Clock) -> None:
    job = Status()
    clock.advance(100)
    job.change("Downloading", "Downloading input data")
    began = job.description()["TrainingStartTime"]
    clock.advance(1_000)
    job.change("Interrupted", "The machines were taken")
    job.change("Downloading", "Downloading input data")
    described = job.description()
    downloading = [
        each["StartTime"] for each in described["SecondaryStatusTransitions"] if each["Status"] == "Downloading"
    ]
    assert described["TrainingStartTime"] == began == downloading[0]
    job.finish(COMPLETED, 400)
    described = job.description()
    assert (described["TrainingTimeInSeconds"], described["BillableTimeInSeconds"]) == (1_000, 600)
    assert described["TrainingEndTime"] == described["LastModifiedTime"]


def test_a_job_of_less_than_a_second_is_billed_the_least_that_the_service_model_knows(clock: Clock) -> None:
    job = Status()
    job.change("Downloading", "Downloading input data")
    job.finish(COMPLETED, 0)
    described = job.description()
    model = botocore.session.get_session().get_service_model("sagemaker")
    for name in ("TrainingTimeInSeconds", "BillableTimeInSeconds"):
        assert described[name] == model.shape_for(name).metadata["min"]


def test_a_job_that_did_not_start_has_no_times(clock: Clock) -> None:
    job = Status()
    job.finish(failed("CapacityError"), 0)
    assert not {"TrainingTimeInSeconds", "BillableTimeInSeconds", "TrainingStartTime"} & job.description().keys()


def test_a_failure_reason_has_at_most_1024_characters(clock: Clock) -> None:
    job = Status()
    job.finish(failed("ClientError: " + 2_000 * "x"), 0)
    assert len(job.description()["FailureReason"]) == 1_024


def test_a_job_that_is_stopping_enters_no_other_status_and_ends_as_stopped(clock: Clock) -> None:
    job = Status()
    assert job.begin_stopping()
    assert not job.begin_stopping()
    job.change("Uploading", "Uploading generated training model")
    assert job.description()["SecondaryStatus"] == "Stopping"
    job.finish(COMPLETED, 0)
    assert (job.current, job.description()["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert not job.begin_stopping()


def waiting(faults: Faults, kind: str = "ml.g5.xlarge", **limits: int) -> CapacityWait:
    resources = {"InstanceType": kind, "InstanceCount": 1, "TrainingPlanArn": PLAN}
    request = {"TrainingJobName": "digits", "ResourceConfig": resources, "StoppingCondition": limits}
    return CapacityWait(request, faults)


def test_the_time_without_capacity_adds_up_to_the_longest_pending_time(clock: Clock) -> None:
    faults = Faults()
    faults.add(Capacity("ml.g5.xlarge", times=None))
    wait = waiting(faults, MaxPendingTimeInSeconds=2 * AN_HOUR)
    for over in (False, False, True):
        assert wait.reason() == "Waiting for capacity of ml.g5.xlarge"
        assert wait.over is over
        clock.advance(AN_HOUR)


def test_the_time_before_a_training_plan_starts_does_not_count(clock: Clock) -> None:
    faults = Faults()
    scheduled = faults.add(ScheduledPlan(PLAN))
    wait = waiting(faults, MaxPendingTimeInSeconds=AN_HOUR)
    assert wait.reason() == f"Waiting for the start of the training plan {PLAN}"
    clock.advance(100 * AN_HOUR)
    assert wait.reason() == f"Waiting for the start of the training plan {PLAN}"
    faults.mend(scheduled)
    faults.add(Capacity("ml.g5.xlarge", times=None))
    assert wait.reason() == "Waiting for capacity of ml.g5.xlarge"
    assert not wait.over


@pytest.mark.parametrize(("kind", "limits"), [("ml.g5.xlarge", {}), ("ml.m5.xlarge", {"MaxPendingTimeInSeconds": 60})])
def test_without_a_pending_time_or_accelerators_no_capacity_is_an_error(
    clock: Clock, kind: str, limits: dict[str, int]
) -> None:
    faults = Faults()
    faults.add(Capacity(kind))
    with pytest.raises(NoCapacity):
        waiting(faults, kind, **limits).reason()
    assert waiting(faults, kind, **limits).reason() is None
