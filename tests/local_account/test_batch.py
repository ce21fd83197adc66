"""Queues of training jobs: which job starts next, what becomes of it, and Batch's API as boto3 sees it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_account import Running
from shell_jobs import AN_ERROR_RATHER_THAN_A_HANG, ShellJobs

from sagemaker_local_account.aws.batch.queues import Queues
from sagemaker_local_account.aws.batch.scheduler import FairShare, Use, Waiting, first
from sagemaker_local_account.aws.batch.service_jobs import ServiceJobs
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.service_errors import ServiceError

AN_HOUR, A_DAY = 3_600.0, 86_400.0
HALVES = FairShare({"vision": 0.5, "speech": 1.0, "robots": 1.0}, A_DAY)
HERE = Location("123456789012", "us-east-1")


def started(waiting: list[Waiting], policy: FairShare, capacity: int, seconds: Mapping[str, float]) -> list[Waiting]:
    """The jobs in the order of their start, each of which runs for the seconds of its share."""
    now, running, done, order = 0.0, [], [], []  # type: ignore[var-annotated]
    waiting = [*waiting]
    while waiting:
        job = first(waiting, [*done, *(use for _, use in running)], policy, now)
        assert job is not None
        if sum(use.machines for _, use in running) + job.machines <= capacity:
            waiting.remove(job)
            order.append(job)
            running.append((now + seconds[job.share], Use(job.share, job.machines, now)))
            continue
        now = min(end for end, _ in running)
        done += [Use(use.share, use.machines, use.start, end) for end, use in running if end <= now]
        running = [(end, use) for end, use in running if end > now]
    return order


def backlog(jobs: int, machines: int = 1) -> list[Waiting]:
    """As many jobs of each share, those of one share submitted before those of the next."""
    names = [name for name in ("robots", "speech", "vision") for _ in range(jobs)]
    return [Waiting(f"{name}-{number}", number, machines, name) for number, name in enumerate(names)]


@pytest.mark.parametrize("capacity", [1, 4, 8])
def test_shares_of_2_1_1_start_half_a_quarter_and_a_quarter_of_a_backlog(capacity: int) -> None:
    order = started(backlog(60), HALVES, capacity, dict.fromkeys(HALVES.weights, AN_HOUR))
    found = Counter(job.share for job in order[:100])
    assert {found["vision"], 2 * found["speech"], 2 * found["robots"]} <= {48, 50, 52}


def test_what_counts_is_machines_times_time_and_not_the_number_of_jobs() -> None:
    policy = FairShare({}, 7 * A_DAY)
    order = started(backlog(60), policy, 1, {"vision": 3 * AN_HOUR, "speech": AN_HOUR, "robots": AN_HOUR})
    found = Counter(job.share for job in order[:70])
    assert found["speech"] == found["robots"] == 3 * found["vision"] == 30


def test_a_share_that_used_nothing_for_a_while_is_first_and_its_use_is_forgotten_with_the_decay() -> None:
    policy = FairShare({}, AN_HOUR)
    jobs = [Waiting("a", 0, 1, "speech"), Waiting("b", 1, 1, "vision")]
    uses = [Use("speech", 8, 0.0, 600.0), Use("vision", 1, 0.0, 600.0)]
    assert [first(jobs, uses, policy, now).id for now in (600.0, 600.0 + AN_HOUR)] == ["b", "a"]  # type: ignore[union-attr]


def test_without_a_policy_the_order_is_that_of_submission_whatever_the_priority() -> None:
    jobs = [Waiting("late", 2, 1, priority=9), Waiting("early", 1, 1)]
    assert first(jobs, [], None, 0.0) == jobs[1]


def test_a_shares_job_of_a_higher_priority_is_before_its_others_and_not_before_those_of_a_share_that_used_less() -> (
    None
):
    jobs = [Waiting("a", 0, 1, "vision"), Waiting("b", 1, 1, "vision", priority=5), Waiting("c", 2, 1, "speech")]
    assert first(jobs, [], HALVES, 0.0) == jobs[1]
    assert first(jobs, [Use("vision", 1, 0.0)], HALVES, 60.0) == jobs[2]


class Trained:
    """SageMaker, of which a test says how jobs end."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[Mapping[str, Any]] = []
        self.refusal: ServiceError | None = None

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        self.jobs[request["TrainingJobName"]] = described("InProgress", "Training")
        return {}

    def describe(self, name: str) -> dict[str, Any]:
        return self.jobs[name]

    def stop(self, name: str) -> None:
        self.jobs[name] = described("Stopped", "Stopped")


def described(status: str, secondary: str, reason: str = "") -> dict[str, Any]:
    return {
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "SecondaryStatusTransitions": [{"StatusMessage": f"Training job {status.lower()}"}],
        **({"FailureReason": reason} if reason else {}),
    }


class Queue:
    """A queue of two machines, in the order of submission."""

    def __init__(self) -> None:
        queues, self.trained = Queues(HERE), Trained()
        limits = [{"maxCapacity": 2, "capacityUnit": "NUM_INSTANCES"}]
        queues.create_environment({"serviceEnvironmentName": "machines", "capacityLimits": limits})
        order = [{"order": 1, "serviceEnvironment": "machines"}]
        said = {"jobQueueType": "SAGEMAKER_TRAINING", "priority": 1, "serviceEnvironmentOrder": order}
        queues.create_queue({"jobQueueName": "jobs", **said})
        self.jobs = ServiceJobs(HERE, queues, self.trained, in_background=False)

    def submit(self, name: str, machines: int = 1, **members: Any) -> str:
        payload = {"TrainingJobName": "digits", "ResourceConfig": {"InstanceCount": machines}}
        request = {"jobName": name, "jobQueue": "jobs", "serviceRequestPayload": json.dumps(payload), **members}
        return str(self.jobs.submit(request)["jobId"])

    def end(self, id: str, status: str, reason: str = "") -> None:
        arn = self.jobs.describe(id)["latestAttempt"]["serviceResourceId"]["value"]
        self.trained.jobs[arn.partition("/")[2]] = described(status, status, reason)
        self.jobs.serve()

    def statuses(self, *ids: str) -> list[str]:
        self.jobs.serve()
        return [self.jobs.describe(id)["status"] for id in ids]


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_the_job_at_the_head_holds_up_smaller_ones_behind_it(queue: Queue) -> None:
    ids = [queue.submit("one"), queue.submit("two", machines=2), queue.submit("three")]
    queue.jobs.serve()
    assert queue.statuses(*ids) == ["RUNNING", "RUNNABLE", "RUNNABLE"]
    queue.end(ids[0], "Completed")
    assert queue.statuses(*ids) == ["SUCCEEDED", "RUNNING", "RUNNABLE"]
    queue.end(ids[1], "Completed")
    assert queue.statuses(*ids) == ["SUCCEEDED", "SUCCEEDED", "RUNNING"]


def test_a_training_job_is_named_by_batch_and_has_the_service_jobs_tags(queue: Queue) -> None:
    id = queue.submit("one", tags={"team": "vision"})
    queue.jobs.serve()
    [request] = queue.trained.requests
    value = queue.jobs.describe(id)["latestAttempt"]["serviceResourceId"]["value"]
    assert value == f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{request['TrainingJobName']}"
    assert request["TrainingJobName"].startswith("AWSBatchdigits")
    assert request["Tags"] == [{"Key": "team", "Value": "vision"}]


def test_a_failed_job_is_tried_again_as_its_strategy_says(queue: Queue) -> None:
    rules = [
        {"action": "RETRY", "onStatusReason": "Received status from SageMaker: InternalServerError*"},
        {"action": "EXIT", "onStatusReason": "*"},
    ]
    strategy = {"attempts": 3, "evaluateOnExit": rules}
    id = queue.submit("one", retryStrategy=strategy)
    queue.jobs.serve()
    queue.end(id, "Failed", "InternalServerError: We encountered an internal error.")
    assert queue.statuses(id) == ["RUNNING"]
    queue.end(id, "Failed", "AlgorithmError: exit code 1")
    found = queue.jobs.describe(id)
    assert (found["status"], len(found["attempts"])) == ("FAILED", 2)
    assert found["statusReason"] == "Received status from SageMaker: AlgorithmError: exit code 1"


def test_a_job_for_which_there_is_no_capacity_is_tried_again_without_using_up_its_attempts(queue: Queue) -> None:
    id = queue.submit("one", retryStrategy={"attempts": 1})
    queue.jobs.serve()
    queue.end(id, "Failed", "CapacityError: Unable to provision requested ML compute capacity")
    assert queue.statuses(id) == ["RUNNABLE"]


def test_a_terminated_job_that_waits_fails_without_a_training_job_and_one_that_runs_is_stopped(queue: Queue) -> None:
    ids = [queue.submit("one", machines=2), queue.submit("two")]
    queue.jobs.serve()
    for id in ids:
        queue.jobs.terminate(id, "not needed")
    queue.jobs.serve()
    assert queue.statuses(*ids) == ["FAILED", "FAILED"]
    [runs, waits] = [queue.jobs.describe(id) for id in ids]
    assert {runs["isTerminated"], waits["isTerminated"]} == {True}
    assert {runs["statusReason"], waits["statusReason"]} == {"not needed"}
    assert ("latestAttempt" in runs, "latestAttempt" in waits) == (True, False)


def test_a_request_that_sagemaker_refuses_fails_the_job_with_sagemakers_error(queue: Queue) -> None:
    queue.trained.refusal = ServiceError("ValidationException", "no such role")
    id = queue.submit("one")
    assert queue.statuses(id) == ["FAILED"]
    found = queue.jobs.describe(id)
    assert found["statusReason"] == "Received status from SageMaker: ValidationException: no such role"
    assert "latestAttempt" not in found


def test_a_request_with_a_client_token_that_was_used_is_rejected(queue: Queue) -> None:
    queue.submit("one", clientToken="once")
    with pytest.raises(ServiceError, match="client token once"):
        queue.submit("one", clientToken="once")


def test_jobs_are_listed_by_their_names_beginning_or_by_share_and_status(queue: Queue) -> None:
    ids = [queue.submit(name) for name in ("digits-a", "digits-b", "faces")]
    queue.jobs.serve()
    names = {"jobQueue": "jobs", "filters": [{"name": "JOB_NAME", "values": ["DIGITS-*"]}]}
    assert [job["jobId"] for job in queue.jobs.list(names)["jobSummaryList"]] == [ids[1], ids[0]]
    waiting = queue.jobs.list({"jobQueue": "jobs", "jobStatus": "RUNNABLE"})["jobSummaryList"]
    assert [job["jobId"] for job in waiting] == [ids[2]]


def test_a_deleted_queues_jobs_are_terminated(queue: Queue) -> None:
    ids = [queue.submit("one", machines=2), queue.submit("two")]
    queue.jobs.serve()
    queue.jobs.delete_queue("jobs")
    queue.jobs.serve()
    assert queue.statuses(*ids) == ["FAILED", "FAILED"]


@pytest.fixture(scope="module")
def shell(running: Running) -> ShellJobs:
    return ShellJobs(running.account.environment(), running.account.state)


def test_a_service_job_becomes_a_training_job_of_the_account(shell: ShellJobs) -> None:
    batch = shell.client("batch")
    batch.create_service_environment(
        serviceEnvironmentName="one-machine",
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=[{"maxCapacity": 1, "capacityUnit": "NUM_INSTANCES"}],
    )
    policy = batch.create_scheduling_policy(
        name="teams", fairsharePolicy={"shareDistribution": [{"shareIdentifier": "vision", "weightFactor": 0.5}]}
    )
    queue = batch.create_job_queue(
        jobQueueName="teams",
        jobQueueType="SAGEMAKER_TRAINING",
        priority=1,
        schedulingPolicyArn=policy["arn"],
        serviceEnvironmentOrder=[{"order": 1, "serviceEnvironment": "one-machine"}],
    )["jobQueueArn"]
    said = {
        "jobName": "digits",
        "jobQueue": queue,
        "serviceJobType": "SAGEMAKER_TRAINING",
        "serviceRequestPayload": json.dumps(shell.request("digits", "echo trained > /opt/ml/model/model")),
    }
    with pytest.raises(ClientError, match=r"\(ClientException\).*shareIdentifier must be specified"):
        batch.submit_service_job(**said)
    id = batch.submit_service_job(**said, shareIdentifier="vision")["jobId"]
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while (found := batch.describe_service_job(jobId=id))["status"] not in ("SUCCEEDED", "FAILED"):
        assert time.monotonic() < limit, found
        time.sleep(0.1)
    assert found["status"] == "SUCCEEDED", found
    name = found["latestAttempt"]["serviceResourceId"]["value"].partition("/")[2]
    assert shell.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Completed"


def test_an_operation_of_container_jobs_is_refused_by_name(shell: ShellJobs) -> None:
    with pytest.raises(ClientError, match="the local account does not have Batch's SubmitJob"):
        shell.client("batch").submit_job(jobName="digits", jobQueue="teams", jobDefinition="digits")
