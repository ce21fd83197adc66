"""Queues with quota shares: whose job starts, whose is preempted, and what becomes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_batch import HERE, Trained, described

from sagemaker_local_account.aws.batch.queues import Queues
from sagemaker_local_account.aws.batch.quota_shares import Decision, Job, Share, decide
from sagemaker_local_account.aws.batch.service_jobs import ServiceJobs
from sagemaker_local_account.core.service_errors import ServiceError

SMALL, LARGE = "ml.m5.large", "ml.m5.xlarge"
UNLIMITED = float("inf")


def job(id: str, share: str, count: int = 1, *, order: int = 0, priority: int = 0, start: float | None = None) -> Job:
    return Job(id, order, share, {SMALL: count}, priority, start)


def shares(**given: Share) -> dict[str, Share]:
    return given


def test_a_job_within_its_shares_limits_starts_before_one_that_borrows_and_was_submitted_earlier() -> None:
    given = shares(a=Share({SMALL: 2}, borrow_percent=UNLIMITED), b=Share({SMALL: 2}, lends=True))
    running = [job("1", "a", 2, start=1.0)]
    waiting = [job("2", "a", order=2), job("3", "b", order=3)]
    assert decide(waiting, running, given, {SMALL: 4}) == Decision(waiting[1])


def test_a_share_uses_what_another_lends_and_not_what_it_reserves() -> None:
    running, waiting = [job("1", "a", start=1.0)], [job("2", "a")]
    for lends, expected in ((True, Decision(waiting[0])), (False, Decision())):
        given = shares(a=Share({SMALL: 1}, borrow_percent=UNLIMITED), b=Share({SMALL: 1}, lends=lends))
        assert decide(waiting, running, given, {SMALL: 2}) == expected


@pytest.mark.parametrize(("percent", "starts"), [(0.0, False), (50.0, False), (100.0, True)])
def test_a_share_borrows_up_to_a_percentage_of_its_own_limit(percent: float, starts: bool) -> None:
    given = shares(a=Share({SMALL: 2}, borrow_percent=percent), b=Share({SMALL: 4}, lends=True))
    waiting = [job("2", "a", 2)]
    found = decide(waiting, [job("1", "a", 2, start=1.0)], given, {SMALL: 6})
    assert found == (Decision(waiting[0]) if starts else Decision())


def test_a_job_of_a_type_without_a_limit_waits() -> None:
    waiting = [Job("1", 0, "a", {LARGE: 1})]
    given = shares(a=Share({SMALL: 2}, borrow_percent=UNLIMITED))
    assert decide(waiting, [], given, {SMALL: 2, LARGE: 2}) == Decision()


def test_what_a_share_has_lent_is_taken_back_from_the_borrowing_job_that_started_last() -> None:
    given = shares(a=Share({SMALL: 1}, lends=True, borrow_percent=UNLIMITED), b=Share({SMALL: 2}, lends=True))
    running = [job("1", "a", start=3.0), job("2", "a", start=2.0), job("3", "a", start=1.0)]
    assert decide([job("4", "b")], running, given, {SMALL: 3}) == Decision(preempt=(running[0],))
    assert decide([job("4", "b", 2)], running, given, {SMALL: 3}) == Decision(preempt=(running[0], running[1]))


def test_a_shares_own_machines_are_not_taken_for_another() -> None:
    given = shares(a=Share({SMALL: 2}, lends=True), b=Share({SMALL: 2}, lends=True))
    running = [job("1", "a", 2, start=1.0)]
    assert decide([job("2", "b", 2)], running, given, {SMALL: 3}) == Decision()


@pytest.mark.parametrize("preempts", [True, False])
def test_a_job_of_a_lower_priority_is_preempted_where_its_share_says_so(preempts: bool) -> None:
    given = shares(a=Share({SMALL: 2}, preempts=preempts))
    running = [job("1", "a", priority=2, start=1.0), job("2", "a", priority=1, start=2.0)]
    found = decide([job("3", "a", priority=3)], running, given, {SMALL: 4})
    assert found == Decision(preempt=(running[1],) if preempts else ())
    assert decide([job("4", "a", priority=1)], running, given, {SMALL: 4}) == Decision()


def test_of_jobs_of_the_same_lower_priority_the_one_that_started_last_is_preempted() -> None:
    given = shares(a=Share({SMALL: 2}, preempts=True))
    running = [job("1", "a", start=1.0), job("2", "a", start=2.0)]
    assert decide([job("3", "a", priority=1)], running, given, {SMALL: 2}) == Decision(preempt=(running[1],))


def test_no_job_is_preempted_that_has_no_machine_of_the_type_that_is_needed() -> None:
    given = shares(a=Share({SMALL: 1, LARGE: 1}, preempts=True))
    running = [Job("1", 0, "a", {LARGE: 1}, 0, 2.0), job("2", "a", start=1.0)]
    found = decide([job("3", "a", priority=1)], running, given, {SMALL: 1, LARGE: 1})
    assert found == Decision(preempt=(running[1],))


def test_within_a_share_the_job_of_the_highest_priority_is_first_and_then_the_earliest() -> None:
    given = shares(a=Share({SMALL: 1}))
    waiting = [job("1", "a", order=1), job("2", "a", order=2, priority=5), job("3", "a", order=3, priority=5)]
    assert decide(waiting, [], given, {SMALL: 1}) == Decision(waiting[1])


def test_a_share_is_read_as_create_quota_share_has_it() -> None:
    request = {
        "capacityLimits": [{"capacityUnit": SMALL, "maxCapacity": 2}],
        "resourceSharingConfiguration": {"strategy": "LEND_AND_BORROW", "borrowLimit": 50},
        "preemptionConfiguration": {"inSharePreemption": "ENABLED"},
    }
    assert Share.of(request) == Share({SMALL: 2}, lends=True, borrow_percent=50.0, preempts=True)
    request["resourceSharingConfiguration"] = {"strategy": "LEND_AND_BORROW"}
    assert Share.of(request).borrow_percent == UNLIMITED
    request["resourceSharingConfiguration"] = {"strategy": "LEND"}
    assert (Share.of(request).lends, Share.of(request).borrow_percent) == (True, 0.0)


class Queue:
    """A queue of two machines, of which each of two shares has one and lends it; ``vision`` borrows."""

    def __init__(self) -> None:
        self.queues, self.trained = Queues(HERE), Trained()
        self.queues.create_environment(
            {"serviceEnvironmentName": "machines", "capacityLimits": [{"maxCapacity": 2, "capacityUnit": SMALL}]}
        )
        policy = {"name": "teams", "quotaSharePolicy": {"idleResourceAssignmentStrategy": "FIFO"}}
        self.queue = {
            "jobQueueType": "SAGEMAKER_TRAINING",
            "priority": 1,
            "schedulingPolicyArn": self.queues.create_policy(policy)["arn"],
            "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": "machines"}],
        }
        self.queues.create_queue({"jobQueueName": "jobs", **self.queue})
        for name, strategy in (("vision", "LEND_AND_BORROW"), ("speech", "LEND")):
            self.queues.create_quota_share(
                {
                    "quotaShareName": name,
                    "jobQueue": "jobs",
                    "capacityLimits": [{"maxCapacity": 1, "capacityUnit": SMALL}],
                    "resourceSharingConfiguration": {"strategy": strategy},
                    "preemptionConfiguration": {"inSharePreemption": "DISABLED"},
                }
            )
        self.jobs = ServiceJobs(HERE, self.queues, self.trained, in_background=False)

    def submit(self, share: str, **members: Any) -> str:
        payload = {"TrainingJobName": "digits", "ResourceConfig": {"InstanceType": SMALL, "InstanceCount": 1}}
        request = {"jobName": share, "jobQueue": "jobs", "serviceRequestPayload": json.dumps(payload), **members}
        id = str(self.jobs.submit({"quotaShareName": share, **request})["jobId"])
        self.jobs.serve()
        return id

    def statuses(self, *ids: str) -> list[str]:
        return [self.jobs.describe(id)["status"] for id in ids]

    def training_job(self, id: str) -> str:
        arn: str = self.jobs.describe(id)["latestAttempt"]["serviceResourceId"]["value"]
        return arn.partition("/")[2]


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_a_job_on_a_borrowed_machine_is_stopped_for_the_shares_own_and_runs_again_after_it(queue: Queue) -> None:
    own, borrowed = queue.submit("vision"), queue.submit("vision")
    first = queue.training_job(borrowed)
    queue.jobs.serve()
    assert queue.statuses(own, borrowed) == ["RUNNING", "RUNNING"]
    owner = queue.submit("speech")
    for _ in range(3):  # decide, stop, and start what waits
        queue.jobs.serve()
    assert queue.trained.jobs[first]["TrainingJobStatus"] == "Stopped"
    assert queue.statuses(own, borrowed, owner) == ["RUNNING", "RUNNABLE", "RUNNING"]
    found = queue.jobs.describe(borrowed)
    assert found["preemptionSummary"]["preemptedAttemptCount"] == 1
    assert "latestAttempt" not in found
    queue.trained.jobs[queue.training_job(owner)] = described("Completed", "Completed")
    for _ in range(2):
        queue.jobs.serve()
    assert queue.statuses(own, borrowed, owner) == ["RUNNING", "RUNNING", "SUCCEEDED"]
    assert queue.training_job(borrowed) != first


def test_a_job_that_may_not_be_preempted_once_more_fails(queue: Queue) -> None:
    queue.submit("vision")
    limit = {"preemptionConfiguration": {"preemptionRetriesBeforeTermination": 0}, "retryStrategy": {"attempts": 3}}
    borrowed = queue.submit("vision", **limit)
    queue.submit("speech")
    for _ in range(3):
        queue.jobs.serve()
    found = queue.jobs.describe(borrowed)
    assert (found["status"], found["preemptionSummary"]["preemptedAttemptCount"]) == ("FAILED", 1)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"quotaShareName": "robots"}, "has no quota share robots that is enabled"),
        ({"shareIdentifier": "vision"}, "shareIdentifier must not be specified for the job queue"),
    ],
)
def test_a_submission_to_no_such_share_is_refused(queue: Queue, members: dict[str, str], message: str) -> None:
    with pytest.raises(ServiceError, match=message):
        queue.submit("vision", **members)


def test_a_disabled_share_takes_no_jobs(queue: Queue) -> None:
    [arn] = [one["quotaShareArn"] for one in queue.queues.quota_shares_of("jobs") if one["quotaShareName"] == "speech"]
    assert arn == "arn:aws:batch:us-east-1:123456789012:job-queue/jobs/quota-share/speech"
    queue.jobs.update_quota_share({"quotaShareArn": arn, "state": "DISABLED"})
    with pytest.raises(ServiceError, match="has no quota share speech that is enabled"):
        queue.submit("speech")


def test_a_queue_with_quota_shares_has_a_service_environment_of_instance_types(queue: Queue) -> None:
    limits = [{"maxCapacity": 2, "capacityUnit": "NUM_INSTANCES"}]
    queue.queues.create_environment({"serviceEnvironmentName": "any", "capacityLimits": limits})
    order = [{"order": 1, "serviceEnvironment": "any"}]
    with pytest.raises(ServiceError, match="whose capacity limits are instance types"):
        queue.queues.create_queue({"jobQueueName": "others", **queue.queue, "serviceEnvironmentOrder": order})
