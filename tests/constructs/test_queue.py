"""What TrainingQueue makes, what a workflow submits to it, and what cannot be said with a queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, aws_batch
from rendered import lint, resolved
from stacks import RenderedWorkflow, UserStack, message_of
from state_walk import OF_A_CALL, Walk
from whole_requests import ON_GROUPS

from cdk_sagemaker_training import (
    Budget,
    Cause,
    DataParallelJob,
    InstanceGroup,
    MetricLimit,
    QuotaShare,
    Retry,
    TrainingQueue,
    default_retries,
)
from cdk_sagemaker_training.lifecycle.queued import Submission, name_in_payload, submitting_states

G5 = "ml.g5.xlarge"
QUOTA = {"vision": QuotaShare({G5: 4})}
QUEUE_ARN = "arn:aws:batch:us-east-1:123456789012:job-queue/jobs"
ON_TWO = DataParallelJob(InstanceGroup("ml.g5.xlarge", 2))


@cache
def shared() -> RenderedWorkflow:
    stack = UserStack()
    queue = TrainingQueue(stack, "Queue", capacity=8, shares={"vision": 2, "speech": 1, "robots": 0.5})
    return RenderedWorkflow(
        stack, queue=queue.share("vision", priority=3), tags={"team": "digits"}, retries=default_retries()
    )


def actions(rendered: RenderedWorkflow, role: str) -> dict[str, Any]:
    """The resources of each of Batch's and SageMaker's actions that a role has, and of passing the job's role."""
    return {
        action: one["Resource"]
        for one in rendered.statements(role)
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
        if action.startswith(("batch:", "sagemaker:", "iam:"))
    }


def test_a_queue_is_a_service_environment_a_job_queue_and_a_policy_of_fair_shares() -> None:
    template = shared().template["Resources"]
    batch = {
        name: resolved(value["Properties"])
        for name, value in template.items()
        if value["Type"].startswith("AWS::Batch::")
    }
    [environment] = [name for name in batch if name.startswith("QueueEnvironment")]
    assert batch[environment] == {
        "ServiceEnvironmentType": "SAGEMAKER_TRAINING",
        "CapacityLimits": [{"MaxCapacity": 8, "CapacityUnit": "NUM_INSTANCES"}],
    }
    [policy] = [value for name, value in batch.items() if name.startswith("QueuePolicy")]
    # "A lower value has a higher priority": 2, 1 and half a part.
    assert policy["FairsharePolicy"] == {
        "ShareDecaySeconds": 86_400,
        "ShareDistribution": [
            {"ShareIdentifier": "vision", "WeightFactor": 0.5},
            {"ShareIdentifier": "speech", "WeightFactor": 1},
            {"ShareIdentifier": "robots", "WeightFactor": 2},
        ],
    }
    [queue] = [value for value in batch.values() if "JobQueueType" in value]
    assert (queue["JobQueueType"], queue["Priority"]) == ("SAGEMAKER_TRAINING", 1)
    assert [one["Order"] for one in queue["ServiceEnvironmentOrder"]] == [1]
    assert "SchedulingPolicyArn" in queue


def test_a_queue_without_shares_has_no_scheduling_policy_and_its_jobs_neither_share_nor_priority() -> None:
    stack = UserStack()
    rendered = RenderedWorkflow(stack, queue=TrainingQueue(stack, "Queue", capacity=8))
    assert rendered.resources_of("AWS::Batch::SchedulingPolicy") == []
    assert {"ShareIdentifier", "SchedulingPriority"} & set(rendered.request) == set()


@cache
def of_quotas() -> RenderedWorkflow:
    stack = UserStack()
    queue = TrainingQueue(
        stack,
        "Queue",
        capacity={"ml.g5.xlarge": 8, "ml.p4d.24xlarge": 2},
        shares={
            "vision": QuotaShare({"ml.g5.xlarge": 4}, sharing="LEND_AND_BORROW", borrow_limit=50, preempts=True),
            "speech-2": QuotaShare({"ml.g5.xlarge": 4, "ml.p4d.24xlarge": 2}),
            "robots": QuotaShare({"ml.g5.xlarge": 1}, sharing="LEND_AND_BORROW"),
        },
    )
    to = queue.share("vision", priority=3)
    retries = {Cause.PREEMPTED: Retry(attempts=2)}
    return RenderedWorkflow(stack, job=ON_TWO, queue=to, budget=Budget(hours=10), retries=retries)


def test_quota_shares_are_resources_of_a_queue_whose_capacity_is_by_type() -> None:
    resources = {
        kind: [resolved(one) for one in of_quotas().resources_of(f"AWS::Batch::{kind}")]
        for kind in ("ServiceEnvironment", "SchedulingPolicy", "QuotaShare")
    }
    assert resources["ServiceEnvironment"][0]["CapacityLimits"] == [
        {"MaxCapacity": 8, "CapacityUnit": "ml.g5.xlarge"},
        {"MaxCapacity": 2, "CapacityUnit": "ml.p4d.24xlarge"},
    ]
    assert resources["SchedulingPolicy"] == [{"QuotaSharePolicy": {"IdleResourceAssignmentStrategy": "FIFO"}}]
    assert [{name: value for name, value in one.items() if name != "JobQueue"} for one in resources["QuotaShare"]] == [
        {
            "QuotaShareName": "vision",
            "CapacityLimits": [{"MaxCapacity": 4, "CapacityUnit": "ml.g5.xlarge"}],
            "ResourceSharingConfiguration": {"Strategy": "LEND_AND_BORROW", "BorrowLimit": 50},
            "PreemptionConfiguration": {"InSharePreemption": "ENABLED"},
        },
        {
            "QuotaShareName": "speech-2",
            "CapacityLimits": [
                {"MaxCapacity": 4, "CapacityUnit": "ml.g5.xlarge"},
                {"MaxCapacity": 2, "CapacityUnit": "ml.p4d.24xlarge"},
            ],
            "ResourceSharingConfiguration": {"Strategy": "RESERVE"},
            "PreemptionConfiguration": {"InSharePreemption": "DISABLED"},
        },
        {
            "QuotaShareName": "robots",
            "CapacityLimits": [{"MaxCapacity": 1, "CapacityUnit": "ml.g5.xlarge"}],
            "ResourceSharingConfiguration": {"Strategy": "LEND_AND_BORROW", "BorrowLimit": -1},
            "PreemptionConfiguration": {"InSharePreemption": "DISABLED"},
        },
    ]


def test_quota_shares_need_an_aws_cdk_lib_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(aws_batch, "CfnQuotaShare")
    assert message_of(lambda: TrainingQueue(UserStack(), "Queue", capacity={G5: 8}, shares=QUOTA)).startswith(
        "shares must be numbers with an aws-cdk-lib older than 2.245, which has no AWS::Batch::QuotaShare, like "
    )


def test_a_job_of_a_quota_share_names_it_and_may_be_submitted_to_it_and_to_no_other() -> None:
    assert (of_quotas().request["QuotaShareName"], of_quotas().request["SchedulingPriority"]) == ("vision", 3)
    assert "ShareIdentifier" not in of_quotas().request
    [_, _, share] = actions(of_quotas(), "TrainingStateMachineRole")["batch:SubmitServiceJob"]
    assert "QueueSharevision" in str(share)
    assert "QuotaShareArn" in str(share)


class Preempted(Walk):
    """A walk whose service job was preempted before it ended."""

    preemptions = 2

    def _call(self, state: Mapping[str, Any], data: dict[str, Any]) -> int:
        operation = state["Resource"].rpartition(":")[2]
        if operation == "submitServiceJob":
            data["Training"]["Queued"] = {"JobId": "1"}
            self.ends.append(self.now + self.seconds)
            return OF_A_CALL
        if operation == "describeServiceJob" and "ResultSelector" not in state:
            run = {"ServiceResourceId": {"Value": "training-job/digits"}}
            data["Training"]["Service"] = {
                "Status": self._status(),
                "PreemptionSummary": {
                    "PreemptedAttemptCount": self.preemptions,
                    "RecentPreemptedAttempts": [run] * self.preemptions,
                },
                "LatestAttempt": run,
            }
            return OF_A_CALL
        return super()._call(state, data)

    def _job(self) -> dict[str, Any]:
        return {**super()._job(), "TrainingJobStatus": "Completed"}


def walk(status: str) -> Preempted:
    [poller] = of_quotas().pollers.values()
    return Preempted(of_quotas().definition, poller, 60, status, billed=True)


def test_a_job_that_was_preempted_more_often_than_it_may_be_ends_its_execution() -> None:
    walked = walk("FAILED")
    walked.preemptions = 3
    walked.run()
    assert walked.visited[-1] == "Preempted"
    assert of_quotas().request["PreemptionConfiguration"] == {"PreemptionRetriesBeforeTermination": 2}


def test_a_job_that_failed_after_as_many_preemptions_as_it_may_have_ends_by_its_own_failure() -> None:
    assert "Preempted" not in walk("FAILED").run().visited


def test_each_preempted_run_of_a_job_is_taken_from_its_budget() -> None:
    visited = walk("SUCCEEDED").run().visited
    assert visited.count("DescribePreempted") == visited.count("TakeBilledPreempted") == 2
    end = visited.index("DescribeJob")
    assert "DescribePreempted" not in visited[end:]


def test_the_machine_of_a_job_of_a_quota_share_passes_the_check_of_amazon_states_language() -> None:
    assert lint(of_quotas().machines) == []


@pytest.mark.parametrize(
    ("group", "got"),
    [
        (InstanceGroup("ml.g5.xlarge", 7), "like {'ml.g5.xlarge': 7}, got 6 of 'ml.g5.xlarge'"),
        (InstanceGroup("ml.p4d.24xlarge"), "like {'ml.p4d.24xlarge': 1}, got 0 of 'ml.p4d.24xlarge'"),
    ],
    ids=["more than it may borrow", "a type that it has not"],
)
def test_a_job_that_would_wait_for_ever_for_its_quota_share_is_an_error(group: InstanceGroup, got: str) -> None:
    stack = UserStack()
    share = QuotaShare({"ml.g5.xlarge": 4}, sharing="LEND_AND_BORROW", borrow_limit=50)
    machines = {"ml.g5.xlarge": 8, "ml.p4d.24xlarge": 2}
    queue = TrainingQueue(stack, "Queue", capacity=machines, shares={"vision": share})
    message = message_of(lambda: stack.workflow(job=DataParallelJob(group), queue=queue.share("vision")))
    must = "capacity of the share 'vision' of Stack/Queue must be at least the machines of one job"
    assert message == f"{must}, {got}"


def test_what_is_submitted_equals_what_the_sdk_submits_for_the_same_job() -> None:
    recorded = json.loads((Path(__file__).parents[1] / "sdk_requests" / "queue.json").read_text())
    given = {**recorded["payload"], "TrainingJobName.$": "$.Training.JobName"}
    del given["TrainingJobName"]
    states = submitting_states(given, Submission(QUEUE_ARN, "vision", 3), "stack-training", "aws")
    parameters = states["Create"]["Parameters"]
    ours = {name[:1].lower() + name[1:]: value for name, value in parameters.items()}
    assert ours.pop("serviceRequestPayload.$") == "States.JsonToString($.Training.Request)"
    assert (ours.pop("jobName.$"), ours.pop("clientToken.$")) == ("$.Training.JobName", "$.Training.JobName")
    ours["retryStrategy"] = {name.lower(): value for name, value in ours["retryStrategy"].items()}
    theirs = recorded["request"]
    assert json.loads(theirs.pop("serviceRequestPayload")) == states["Payload"]["Parameters"]
    assert theirs.pop("jobName") == "stack-training-1"
    # The SDK ends each job after a day unless it is told otherwise; here the job's own max_runtime is the limit.
    assert theirs.pop("timeoutConfig") == {"attemptDurationSeconds": 86_400}
    assert ours == theirs


def test_where_no_job_was_submitted_none_is_stopped() -> None:
    assert shared().definition["States"]["IsFound"]["Default"] == "WhyRefused"
    assert shared().definition["States"]["WhyRefused"]["Default"] == "Error"
    assert of_quotas().definition["States"]["IsFound"]["Default"] == "Error"


def test_the_execution_of_a_job_is_a_tag_of_its_service_job() -> None:
    assert shared().request["Tags"] == {"team": "digits", "StepFunctionsExecution.$": "$$.Execution.Id"}


@pytest.mark.parametrize(
    "prefix",
    [
        "a",
        "stack-training-04d490aa",
        "a-name-of-23-characters",
        "a-prefix-of-26-characters1",
        "a-hyphen-is-number-23--",
    ],
)
def test_the_name_that_batch_makes_of_a_payloads_has_room_for_its_attempt(prefix: str) -> None:
    name = f"AWSBatch{name_in_payload(prefix)}{'0' * 32}"
    assert len(name) <= 63
    assert not name_in_payload(prefix).endswith("-")


def test_each_role_has_what_its_calls_take_and_no_more() -> None:
    jobs = "arn:aws:batch:us-east-1:123456789012:service-job/*"
    machine = actions(shared(), "TrainingStateMachineRole")
    trained = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"
    assert machine.pop("iam:PassRole") == shared().states["Payload"]["Parameters"]["RoleArn"]
    assert machine.pop("batch:SubmitServiceJob")[1] == jobs
    assert machine == {
        "batch:TagResource": jobs,
        "batch:TerminateServiceJob": jobs,
        "batch:DescribeServiceJob": "*",
        "batch:ListServiceJobs": "*",
        "sagemaker:DescribeTrainingJob": [
            f"{trained}AWSBatchstack-training-04d490aa*",
            f"{trained}awsbatchstack-training-04d490aa*",
        ],
    }
    assert actions(shared(), "TrainingPollerStateMachineRole") == {"batch:DescribeServiceJob": "*"}
    guarding = actions(shared(), "SageMakerTrainingJobsGuardRole")
    assert {name: one for name, one in guarding.items() if name.startswith("batch:")} == {
        "batch:DescribeServiceJob": "*",
        "batch:ListServiceJobs": "*",
        "batch:TerminateServiceJob": jobs,
    }


def test_the_machines_pass_the_check_of_amazon_states_language() -> None:
    assert lint(shared().machines) == []


def test_an_execution_may_wait_as_long_as_step_functions_lets_it_unless_a_time_out_is_given() -> None:
    assert "TimeoutSeconds" not in shared().definition
    stack = UserStack()
    queue = TrainingQueue(stack, "Queue", capacity=8)
    assert RenderedWorkflow(stack, queue=queue, timeout=Duration.days(2)).definition["TimeoutSeconds"] == 172_800


def test_errors_of_batch_are_signs_of_the_causes_as_those_of_sagemaker_are() -> None:
    text = json.dumps(shared().definition["States"]["WhyRefused"])
    assert "Batch.SdkClientException" in text
    assert "SageMaker." not in text


def test_what_cannot_be_said_with_a_queue_is_an_error_that_names_it() -> None:
    stack = UserStack()
    line = TrainingQueue(stack, "Line", capacity=1)
    shares = TrainingQueue(stack, "Shares", capacity=8, shares={"vision": 2})
    for props, message in (
        (
            {"queue": line, "integration": "sync"},
            "integration must be 'poll' with a queue, since `.sync` creates a job",
        ),
        (
            {"queue": line, "alternatives": [ON_TWO]},
            "alternatives must be left out with a queue, since AWS Batch itself",
        ),
        (
            {"queue": line, "stop_when": [MetricLimit("loss", above=1.0)], "metric_definitions": {"loss": "loss=(.*)"}},
            "stop_when must be left out with a queue",
        ),
        ({"queue": shares}, "queue must be one of the shares of Stack/Shares, like queue.share('vision')"),
        (
            {"queue": line, "job": ON_TWO},
            "capacity of Stack/Line must be at least the machines of one job, like capacity=2",
        ),
        (
            {"queue": line, "job": ON_GROUPS},
            "capacity of Stack/Line must be at least the machines of one job, like capacity=3",
        ),
    ):
        assert message in message_of(lambda props=props: stack.workflow(f"Training{len(stack.node.children)}", **props))


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"capacity": 0}, "capacity must be a number of machines from 1, like 8, got 0"),
        ({"capacity": {G5: 8}}, "capacity must be a number of machines without quota shares, like 8, or shares quota "),
        ({"capacity": {}}, "capacity must have a type, like {'ml.p5.48xlarge': 4}, got {}"),
        (
            {"capacity": {G5: 0}, "shares": QUOTA},
            "capacity['ml.g5.xlarge'] must be a number of machines from 1, like 4",
        ),
        ({"capacity": {"g5": 1}, "shares": QUOTA}, "capacity must be a SageMaker training type"),
        ({"shares": QUOTA}, "capacity must be machines by type with quota shares, like {'ml.p5.48xlarge': 8}, got 8"),
        ({"shares": {**QUOTA, "speech": 1}}, "shares must be quota shares or numbers, like {'vision': 2, 'speech': 1}"),
        (
            {"capacity": {"ml.p4d.24xlarge": 1}, "shares": QUOTA},
            "shares['vision'] must have types of the queue's capacity ('ml.p4d.24xlarge'), like 'ml.p4d.24xlarge', got 'ml.g5",
        ),
        (
            {"capacity": {G5: 8}, "shares": {"a b": QuotaShare({G5: 1})}},
            "shares must have names of 1 to 128 letters, digits, hyphens and underscores, like 'vision', got 'a b'",
        ),
        (
            {"capacity": {G5: 8}, "shares": {f"team{number}": QuotaShare({G5: 1}) for number in range(21)}},
            "shares must be at most 20 quota shares, like 3, got 21",
        ),
        (
            {"capacity": {G5: 8}, "shares": QUOTA, "share_decay": 60},
            "share_decay must be left out without shares that are numbers",
        ),
        (
            {"shares": {"team-a": 1}},
            "shares must have names of 1 to 255 letters and digits, like 'teamA', got 'team-a'",
        ),
        ({"shares": {"vision": 0}}, "shares['vision'] must be a number from 0.0011 to 10000, like 2, got 0"),
        ({"shares": {}}, "shares must have a share, like {'vision': 2, 'speech': 1}, or be left out, got {}"),
        ({"share_decay": 60}, "share_decay must be left out without shares"),
        ({"shares": {"vision": 1}, "share_decay": Duration.days(8)}, "share_decay must be 1 second to 7 days"),
    ],
)
def test_a_queue_that_batch_would_refuse_is_an_error(props: dict[str, Any], message: str) -> None:
    assert message in message_of(lambda: TrainingQueue(UserStack(), "Queue", **{"capacity": 8, **props}))


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"capacity": {}}, "capacity must have a type, like {'ml.p5.48xlarge': 4}, got {}"),
        ({"capacity": {G5: 0}}, "capacity['ml.g5.xlarge'] must be a number of machines from 1, like 4, got 0"),
        (
            {"capacity": {f"ml.g5.{size}xlarge": 1 for size in (2, 4, 8, 12, 16, 24)}},
            "capacity must have 1 to 5 types, like {'ml.p5.48xlarge': 4}, got 6",
        ),
        (
            {"sharing": "BORROW"},
            "sharing must be one of 'RESERVE', 'LEND', 'LEND_AND_BORROW', like 'LEND', got 'BORROW'",
        ),
        (
            {"sharing": "LEND", "borrow_limit": 50},
            "borrow_limit must be left out unless sharing is 'LEND_AND_BORROW', like borrow_limit=None, got 50 with 'LEND'",
        ),
        (
            {"sharing": "LEND_AND_BORROW", "borrow_limit": -1},
            "borrow_limit must be a percentage from 0, like 100, got -1",
        ),
    ],
)
def test_a_quota_share_that_batch_would_refuse_is_an_error(props: dict[str, Any], message: str) -> None:
    assert message_of(lambda: QuotaShare(**{"capacity": {G5: 1}, **props})) == message


def test_a_share_that_is_not_there_and_a_priority_out_of_bounds_are_errors() -> None:
    queue = TrainingQueue(UserStack(), "Queue", capacity=8, shares={"vision": 2, "speech": 1})
    assert "name must be a share of Stack/Queue ('vision', 'speech'), like 'vision', got 'robots'" in message_of(
        lambda: queue.share("robots")
    )
    assert "priority must be a whole number from 0 to 9999, like 10, got 10000" in message_of(
        lambda: queue.share("vision", priority=10_000)
    )


@pytest.mark.parametrize(
    ("share", "retry", "said"),
    [
        ("vision", Retry(attempts=3, first_wait=60), "retries of Cause.PREEMPTED must be a number of attempts"),
        ("fair", Retry(attempts=3), "queue must be a QuotaShare of a TrainingQueue where retries have Cause.PREEMPTED"),
        (None, Retry(attempts=3), "queue must be given where retries have Cause.PREEMPTED"),
    ],
    ids=["with waits", "of a fair share", "without a queue"],
)
def test_preemptions_are_limited_in_quota_shares_alone_and_without_waits(
    share: str | None, retry: Retry, said: str
) -> None:
    stack = UserStack()
    quotas = TrainingQueue(stack, "Quotas", capacity={G5: 8}, shares=QUOTA)
    fair = TrainingQueue(stack, "Fair", capacity=8, shares={"fair": 2})
    queue = {"vision": lambda: quotas.share("vision"), "fair": lambda: fair.share("fair"), None: lambda: None}[share]()
    assert said in message_of(lambda: stack.workflow(queue=queue, retries={Cause.PREEMPTED: retry}))


@pytest.mark.parametrize(
    ("share", "is_preempted"),
    [
        (QuotaShare({G5: 4}, sharing="LEND_AND_BORROW"), True),
        (QuotaShare({G5: 4}, preempts=True), True),
        (QuotaShare({G5: 4}, sharing="LEND"), False),
        (QuotaShare({G5: 4}), False),
    ],
    ids=["borrows", "preempts", "lends", "reserves"],
)
def test_a_budget_of_jobs_that_batch_may_run_again_without_limit_is_an_error(
    share: QuotaShare, is_preempted: bool
) -> None:
    def props(stack: UserStack, **more: Any) -> dict[str, Any]:
        queue = TrainingQueue(stack, "Queue", capacity={G5: 8}, shares={"vision": share})
        return {"queue": queue.share("vision"), "budget": Budget(hours=10), **more}

    stack = UserStack()
    if is_preempted:
        message = message_of(lambda: stack.workflow(**props(stack)))
        assert message.startswith(
            "retries must have Cause.PREEMPTED with budget and a quota share whose jobs are preempted"
        )
        assert "like {Cause.PREEMPTED: Retry(attempts=3)}" in message
    else:
        stack.workflow(**props(stack))
    limited = UserStack()
    limited.workflow(**props(limited, retries={Cause.PREEMPTED: Retry(attempts=0)}))
