"""The notice of an execution that waits longer than declared: its schedule, and what its function looks at and says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import aws_cdk as cdk
import boto3
import pytest
from aws_cdk import aws_sns as sns
from botocore.stub import ANY, Stubber
from stacks import GUARD, RenderedWorkflow, UserStack, message_of

from cdk_sagemaker_training import TrainingQueue
from cdk_sagemaker_training.features.waiting import LONGEST
from cdk_sagemaker_training.handlers import waiting
from cdk_sagemaker_training.handlers.waiting import Job, waits_since


def rendered(seconds: int = 7_200, *, queued: bool = False) -> RenderedWorkflow:
    stack = UserStack()
    queue = {"queue": TrainingQueue(stack, "Queue", capacity=4)} if queued else {}
    topic = sns.Topic(stack, "Topic")
    return RenderedWorkflow(stack, notify=[topic], waiting_longer_than=cdk.Duration.seconds(seconds), **queue)


def rule(workflow: RenderedWorkflow) -> tuple[str, dict[str, Any]]:
    [(id, found)] = [
        (id, resource["Properties"])
        for id, resource in workflow.template["Resources"].items()
        if resource["Type"] == "AWS::Events::Rule"
        and "ScheduleExpression" in resource["Properties"]
        and GUARD not in id
    ]
    return id, found


def given(workflow: RenderedWorkflow) -> str:
    """The template of the function's input, in which a token is its text."""
    [target] = rule(workflow)[1]["Targets"]
    return json.dumps(target["InputTransformer"]["InputTemplate"])


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [
        (1, "1 minute"),
        (1_199, "1 minute"),
        (7_200, "12 minutes"),
        (86_400, "15 minutes"),
        (LONGEST, "15 minutes"),
    ],
)
def test_it_looks_ten_times_in_the_time_but_within_a_minute_and_a_quarter_of_an_hour(seconds: int, rate: str) -> None:
    workflow = rendered(seconds)
    assert rule(workflow)[1]["ScheduleExpression"] == f"rate({rate})"
    every = 60 * int(rate.split()[0])
    assert f'\\"Seconds\\":{seconds},\\"Every\\":{every},' in given(workflow)


def test_the_function_gets_the_time_for_which_it_is_called() -> None:
    [target] = rule(rendered())[1]["Targets"]
    paths = {path: f"<{name}>" for name, path in target["InputTransformer"]["InputPathsMap"].items()}
    assert f'\\"Time\\":{paths["$.time"]},\\"Resources\\":{paths["$.resources"]}' in given(rendered())


def test_its_event_names_the_schedule_and_goes_to_the_topic() -> None:
    workflow = rendered()
    id, _ = rule(workflow)
    patterns = [one.get("EventPattern") for one in workflow.resources_of("AWS::Events::Rule")]
    assert {
        "source": [waiting.SOURCE],
        "detail-type": [waiting.DETAIL_TYPE],
        "resources": [{"Fn::GetAtt": [id, "Arn"]}],
    } in patterns


def test_only_the_function_may_put_its_event() -> None:
    policies = [id for id, one in rendered().template["Resources"].items() if "events:PutEvents" in json.dumps(one)]
    assert [id.startswith("SageMakerTrainingWaitingHandlerRole") for id in policies] == [True]


def test_in_a_queue_it_is_told_the_queue() -> None:
    assert "JobQueue" in given(rendered(queued=True))
    assert "JobQueue" not in given(rendered())


def test_all_workflows_of_a_stack_share_its_function() -> None:
    stack = UserStack()
    topic = sns.Topic(stack, "Topic")
    for name in ("First", "Second"):
        stack.workflow(name, notify=[topic], waiting_longer_than=3_600)
    template = stack.template()["Resources"]
    functions = [id for id, one in template.items() if "Waiting" in id and one["Type"] == "AWS::Lambda::Function"]
    schedules = [
        id for id, one in template.items() if "ScheduleExpression" in one.get("Properties", {}) and GUARD not in id
    ]
    assert (len(functions), len(schedules)) == (1, 2)


def test_a_workflow_without_it_has_no_schedule() -> None:
    stack = UserStack()
    plain = RenderedWorkflow(stack, notify=[sns.Topic(stack, "Topic")])
    assert not [one for one in plain.resources_of("AWS::Events::Rule") if "ScheduleExpression" in one]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "waiting_longer_than must be a Duration or whole seconds, at least 1, like "),
        (
            LONGEST + 1,
            "waiting_longer_than must be at most a year, as long as an execution runs, like Duration.hours(2)",
        ),
        (cdk.Token.as_number({"Ref": "Parameter"}), "waiting_longer_than must be known when the app is synthesized, "),
    ],
    ids=["none", "more than a year", "a token"],  # a token has another number in each process
)
def test_a_time_that_nothing_can_wait_for_is_refused(value: Any, said: str) -> None:
    stack = UserStack()
    topic = sns.Topic(stack, "Topic")
    assert message_of(lambda: stack.workflow(notify=[topic], waiting_longer_than=value)).startswith(said)


def test_it_needs_a_topic() -> None:
    said = message_of(lambda: UserStack().workflow(waiting_longer_than=3_600))
    assert said == "notify must have a topic with waiting_longer_than, like notify=[topic], got []"


MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:Training"
RULE = "arn:aws:events:us-east-1:123456789012:rule/Waiting"
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("jobs", "since"),
    [
        ([], ago(90)),
        ([Job(None, None)], ago(90)),
        ([Job(None, None), Job(None, ago(70))], ago(90)),  # no capacity, twice
        ([Job(ago(80), None)], None),
        ([Job(ago(80), ago(10))], ago(10)),
        ([Job(None, None), Job(ago(80), ago(70))], ago(70)),  # run again after a job that trained
        ([Job(None, None), Job(None, ago(50)), Job(ago(80), ago(70))], ago(70)),
        ([Job(ago(20), None), Job(None, ago(50)), Job(ago(80), ago(70))], None),
    ],
)
def test_an_execution_waits_since_its_start_or_the_end_of_the_last_job_that_trained(
    jobs: list[Job], since: datetime | None
) -> None:
    assert waits_since(ago(90), iter(jobs)) == since


class Aws:
    """The answers of AWS, which botocore holds against its service models."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = ("stepfunctions", "sagemaker", "batch", "events")
        credentials = {"aws_access_key_id": "of-no-account", "aws_secret_access_key": "of-no-account"}
        made = {name: boto3.client(name, region_name="us-east-1", **credentials) for name in names}
        self.stubs = {name: Stubber(client) for name, client in made.items()}
        for stub in self.stubs.values():
            stub.activate()
        monkeypatch.setattr(waiting.boto3, "client", lambda name, **_: made[name])

    def answers(self, service: str, operation: str, answer: Mapping[str, Any], given: Any = None) -> None:
        self.stubs[service].add_response(operation, dict(answer), given)

    def executions(self, **minutes: float) -> None:
        """Executions that run, by their names, and for how long."""
        listed = [
            {"executionArn": arn(name), "stateMachineArn": MACHINE, "name": name, "status": "RUNNING", "startDate": ago(since)}
            for name, since in minutes.items()
        ]  # fmt: skip
        given = {"stateMachineArn": MACHINE, "statusFilter": "RUNNING"}
        self.answers("stepfunctions", "list_executions", {"executions": listed}, given)

    def training_jobs(self, *names: str, after: datetime = ANY) -> None:
        """Training jobs, the newest first."""
        listed = [
            {"TrainingJobName": name, "TrainingJobArn": f"arn:{name}", "CreationTime": NOW, "TrainingJobStatus": "InProgress"}
            for name in names
        ]  # fmt: skip
        given = {
            "NameContains": "digits", "CreationTimeAfter": after, "SortBy": "CreationTime", "SortOrder": "Descending",
            "MaxResults": 100}  # fmt: skip
        self.answers("sagemaker", "list_training_jobs", {"TrainingJobSummaries": listed}, given)

    def describes(self, name: str, **times: datetime) -> None:
        required = {
            "TrainingJobName": name, "TrainingJobArn": f"arn:{name}", "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Pending", "AlgorithmSpecification": {"TrainingInputMode": "File"}, "CreationTime": NOW,
            "ModelArtifacts": {"S3ModelArtifacts": "s3://data/model"}, "StoppingCondition": {}}  # fmt: skip
        required["ResourceConfig"] = {"VolumeSizeInGB": 1}
        self.answers("sagemaker", "describe_training_job", {**required, **times}, {"TrainingJobName": name})

    def takes_events_of(self, *names: str, failed: int = 0) -> None:
        entries = [
            {
                "Source": "cdk-sagemaker-training",
                "DetailType": "Training Job Waiting",
                "Resources": [RULE],
                "Detail": json.dumps({"Execution": arn(name), "WaitedSeconds": 3_600}),
            }
            for name in names
        ]
        answer = {"FailedEntryCount": failed, "Entries": [{"ErrorCode": "InternalFailure"}] * failed}
        self.answers("events", "put_events", answer, {"Entries": entries})


def arn(name: str) -> str:
    return f"arn:aws:states:us-east-1:123456789012:execution:Training:{name}"


def job_of(name: str, number: int = 0) -> str:
    return f"digits-{hashlib.md5(arn(name).encode()).hexdigest()}-{number}"


def call(**more: Any) -> None:
    event = {"StateMachineArn": MACHINE, "JobNamePrefix": "digits", "Seconds": 3_600, "Every": 360}
    waiting.handler({**event, "Time": "2026-03-02T12:00:00Z", "Resources": [RULE], **more}, None)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    found = Aws(monkeypatch)
    yield found
    for stub in found.stubs.values():
        stub.assert_no_pending_responses()


def test_nothing_is_listed_while_no_execution_runs_for_as_long(aws: Aws) -> None:
    aws.executions(young=59.9)
    call()


def test_the_first_look_after_the_time_puts_an_event_and_no_other_does(aws: Aws) -> None:
    aws.executions(early=59.9, due=60, late=65.9, told=66)
    aws.training_jobs(after=ago(67))
    aws.takes_events_of("due", "late")
    call()


def test_an_execution_that_was_redriven_waits_since_then(aws: Aws) -> None:
    aws.executions(redriven=90)
    [answer] = [queued["response"][1] for queued in aws.stubs["stepfunctions"]._queue]
    answer["executions"][0]["redriveDate"] = ago(60)
    aws.training_jobs()
    aws.takes_events_of("redriven")
    call()


def test_a_job_is_described_unless_a_later_one_of_its_execution_trained(aws: Aws) -> None:
    aws.executions(trains=90, waits=60, retried=90)
    jobs = [job_of("trains", 1), job_of("retried", 1), job_of("waits"), job_of("trains"), job_of("retried")]
    aws.training_jobs(*jobs, "digits-of-another-workflow-0")
    aws.describes(job_of("trains", 1), TrainingStartTime=ago(30))
    aws.describes(job_of("waits"))
    aws.describes(job_of("retried", 1))
    aws.describes(job_of("retried"), TrainingStartTime=ago(85), TrainingEndTime=ago(61))
    aws.takes_events_of("waits", "retried")
    call()


def test_in_a_queue_a_service_job_trains_since_it_started(aws: Aws) -> None:
    def listed(name: str, created: float, **times: float) -> dict[str, Any]:
        moments = {
            key: int(ago(minutes).timestamp() * 1000) for key, minutes in {"createdAt": created, **times}.items()
        }
        return {"jobId": name, "jobName": name, "serviceJobType": "SAGEMAKER_TRAINING", **moments}

    aws.executions(trains=80, waits=62, again=80)
    given = {"jobQueue": "line", "filters": [{"name": "JOB_NAME", "values": ["digits-*"]}]}
    jobs = [
        listed(job_of("again"), 80, startedAt=75, stoppedAt=63),
        listed(job_of("again", 1), 63),
        listed(job_of("waits"), 62),
        listed(job_of("trains"), 79, startedAt=78, stoppedAt=62),
        listed(job_of("trains", 1), 62, startedAt=3),
        listed("digits-older-0", 9_999),
    ]
    aws.answers("batch", "list_service_jobs", {"jobSummaryList": jobs}, given)
    aws.takes_events_of("waits", "again")
    call(JobQueue="line")


def test_a_call_whose_event_is_not_taken_fails_so_that_it_is_repeated(aws: Aws) -> None:
    aws.executions(due=60)
    aws.training_jobs()
    aws.takes_events_of("due", failed=1)
    with pytest.raises(RuntimeError, match=r"events were not put: .*InternalFailure"):
        call()


def test_eleven_executions_are_told_in_two_calls(aws: Aws) -> None:
    names = [f"e{number:02}" for number in range(11)]
    aws.executions(**dict.fromkeys(names, 61.0))
    aws.training_jobs()
    aws.takes_events_of(*names[:10])
    aws.takes_events_of(*names[10:])
    call()
