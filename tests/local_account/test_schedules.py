"""Scheduled rules and schedules: which expressions AWS accepts, when they come, and what they invoke."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as event_targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as scheduler_targets
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from botocore.exceptions import ClientError
from cdk_stacks import deploy, destroy
from running_account import Running
from state_machines import AN_ERROR_RATHER_THAN_A_HANG as LIMIT

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.aws.events.schedule_expressions import InvalidExpression, parsed, zone_of
from sagemaker_local_account.aws.events.schedule_timer import MOST_AT_ONCE

A_DAY = 86_400


def until(found: Callable[[], Any]) -> Any:
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        if value := found():
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come to pass")


# Recorded on AWS: LocalStack's test_put_rule_with_invalid_schedule_rate, tests_put_rule_with_(invalid_)schedule_cron,
# tests_create_schedule_with_invalid_schedule_expression and test_create_schedule_with_valid_cron_expressions.
REFUSED_BY_BOTH = """
rate(10 seconds)|rate(10 years)|rate()|rate(10)|rate(10 minutess)|rate(foo minutes)|rate(-10 minutes)|rate( 10 minutes )
 rate(10 minutes)|cron(0 1 * * * *)|cron(7 20 * * NOT *)|cron(INVALID)|cron(0 dummy ? * MON-FRI *)|cron(71 8 1 * ? *)|cron()
"""
REFUSED_BY_RULES = """
rate(1 minutes)|rate(1 hours)|rate(1 days)|rate(10 minute)|rate(10 hour)|rate(10 day)|rate(0 minutes)|rate(10 MINUTES)
cron(15 12 ? * -1 *)|cron(*/60 * * * ? *)|at(2027-01-01T00:00:00)
"""  # the last line: winglang/wing 7115, aws/aws-sdk-js 4212, and the guide
ACCEPTED_BY_BOTH = """
rate(1 minute)|cron(0 2 ? * SAT *)|cron(0 12 * * ? *)|cron(5,35 14 * * ? *)|cron(15 10 ? * 6L 2002-2005)|cron(0 2 ? * SAT#3 *)
cron(* * ? * SAT#3 *)|cron(0/5 5 ? JAN 1-5 2022)|cron(0 10 * * ? *)|cron(15 12 * * ? *)|cron(0 18 ? * MON-FRI *)|cron(0 8 1 * ? *)
cron(0/15 * * * ? *)|cron(0/10 * ? * MON-FRI *)|cron(0/5 8-17 ? * MON-FRI *)|cron(0/30 20-23 ? * MON-FRI *)
cron(0/30 0-2 ? * MON-FRI *)|cron(0-15/1 8-8 ? * 2,3,4,5,6,7 *)|cron(30-30 13-13 ? * 2,4,6 *)|cron(1-31/30 1-1 ? * 1,7 *)
cron(*/15 * * * ? *)|cron(0-59/10 0-23/2 ? * * *)
"""


def listed(texts: str) -> list[str]:
    return [text for line in texts.strip("\n").splitlines() for text in line.split("|")]


def refuses(text: str, *, of_scheduler: bool) -> bool:
    try:
        parsed(text, of_scheduler=of_scheduler)
    except InvalidExpression:
        return True
    return False


def test_expressions_are_accepted_and_refused_as_aws_did() -> None:
    for of_scheduler in (False, True):
        assert [text for text in listed(REFUSED_BY_BOTH) if not refuses(text, of_scheduler=of_scheduler)] == []
        assert [text for text in listed(ACCEPTED_BY_BOTH) if refuses(text, of_scheduler=of_scheduler)] == []
    assert [text for text in listed(REFUSED_BY_RULES) if not refuses(text, of_scheduler=False)] == []
    assert [
        text for text in ("at(2021-12-31T23:59:59Z)", "at(2021-12-31)") if not refuses(text, of_scheduler=True)
    ] == []
    assert not refuses("at(2022-12-31T23:59:59)", of_scheduler=True)


def test_an_expression_cut_anywhere_is_refused() -> None:
    for whole in ("cron(0/5 8-17 ? JAN,FEB MON-FRI 2026-2030)", "rate(15 minutes)", "at(2027-01-01T00:00:00)"):
        assert [end for end in range(len(whole)) if not refuses(whole[:end], of_scheduler=True)] == []


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("cron(15 10 ? * 6L 2026-2027)", ["2026-11-27T10:15", "2026-12-25T10:15", "2027-01-29T10:15"]),
        ("cron(0 2 ? * SAT#3 *)", ["2026-12-19T02:00", "2027-01-16T02:00"]),
        ("cron(0 8 1W * ? *)", ["2026-12-01T08:00", "2027-01-01T08:00"]),
        ("cron(0 8 1W 5,8 ? 2027)", ["2027-05-03T08:00", "2027-08-02T08:00"]),  # the 1st is a Saturday, and a Sunday
        ("cron(0 8 31W * ? *)", ["2026-12-31T08:00", "2027-01-29T08:00", "2027-03-31T08:00"]),
        (
            "cron(0 8 31W 10 ? 2027)",
            ["2027-10-29T08:00"],
        ),  # the 31st is a Sunday, and the Monday after in another month
        ("cron(0 0 L 2 ? *)", ["2027-02-28T00:00", "2028-02-29T00:00"]),
        ("cron(1/20 20-21 ? * FRI-MON *)", ["2026-11-27T20:01", "2026-11-27T20:21", "2026-11-27T20:41"]),
        ("cron(0 0 30 2 ? *)", []),
        ("rate(90 minutes)", ["2026-11-26T00:00", "2026-11-26T01:30", "2026-11-26T03:00"]),
    ],
)
def test_the_times_of_an_expression(expression: str, times: list[str]) -> None:
    found = parsed(expression).times(datetime(2026, 11, 26, tzinfo=UTC))
    assert [f"{time:%Y-%m-%dT%H:%M}" for time in itertools.islice(found, max(1, len(times)))] == times


def test_a_local_time_that_is_skipped_has_no_invocation_and_one_that_is_twice_has_one() -> None:
    cron = parsed("cron(30 2 27-29,31 3,10 ? 2027)", zone_of("Europe/Berlin"))
    found = [f"{time:%m-%dT%H:%M}" for time in cron.times(datetime(2027, 1, 1, tzinfo=UTC))]
    # Daylight saving time begins on 28 March 2027 at 2:00, and ends on 31 October at 3:00.
    assert found == [
        "03-27T01:30",
        "03-29T00:30",
        "03-31T00:30",
        "10-27T00:30",
        "10-28T00:30",
        "10-29T00:30",
        "10-31T00:30",
    ]


class Scheduled:
    """An account that enforces permissions, and a stack of CDK's rules and schedules."""

    def __init__(self, account: LocalAccount) -> None:
        self.account, self.running = account, Running(account)
        stack = cdk.Stack(cdk.App(), "Scheduled")
        queue, lost = sqs.Queue(stack, "Queue"), sqs.Queue(stack, "Lost")
        topic = sns.Topic(stack, "Topic")
        machine = sfn.StateMachine(
            stack, "Machine", definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Only"))
        )
        function = lambda_.Function(
            stack,
            "Function",
            code=lambda_.Code.from_inline("def handler(event, context): print('invoked by', event['source'])"),
            handler="index.handler",
            log_group=logs.LogGroup(stack, "Logs", log_group_name="of-the-function"),
            runtime=lambda_.Runtime.PYTHON_3_13,
        )
        daily = events.Rule(stack, "Daily", schedule=events.Schedule.cron(hour="4", minute="0"))
        for target in (
            event_targets.SfnStateMachine(machine),
            event_targets.SqsQueue(queue),
            event_targets.LambdaFunction(function),
        ):
            daily.add_target(target)
        group = scheduler.ScheduleGroup(stack, "Group", schedule_group_name="mine")
        weekly = scheduler.Schedule(
            stack,
            "Weekly",
            schedule=scheduler.ScheduleExpression.cron(
                week_day="MON", hour="9", minute="30", time_zone=cdk.TimeZone.EUROPE_BERLIN
            ),
            schedule_group=group,
            time_window=scheduler.TimeWindow.flexible(cdk.Duration.minutes(15)),
            target=scheduler_targets.StepFunctionsStartExecution(
                machine,
                input=scheduler.ScheduleTargetInput.from_object({"at": scheduler.ContextAttribute.scheduled_time}),
            ),
        )
        scheduler.Schedule(
            stack,
            "Refused",
            schedule=scheduler.ScheduleExpression.cron(hour="12", minute="0"),
            target=scheduler_targets.SnsPublish(topic, dead_letter_queue=lost),
        )
        # Its role may send to the dead-letter queue, and may not publish.
        topic.add_to_resource_policy(
            cdk.aws_iam.PolicyStatement(
                effect=cdk.aws_iam.Effect.DENY,
                principals=[cdk.aws_iam.AnyPrincipal()],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
            )
        )
        outputs = {
            "Machine": machine.state_machine_arn,
            "Queue": queue.queue_url,
            "Lost": lost.queue_url,
            "QueueArn": queue.queue_arn,
            "Weekly": weekly.schedule_name,
            "Daily": daily.rule_name,
        }
        for name, value in outputs.items():
            cdk.CfnOutput(stack, f"Its{name}", value=value)
        template = assertions.Template.from_stack(stack).to_json()
        self.outputs = deploy(self.running, "scheduled", template["Resources"], Outputs=template["Outputs"])
        self.schedules, self.rules = self.running.client("scheduler"), self.running.client("events")
        self.role = self.running.role("Schedules", "scheduler.amazonaws.com")
        statement = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": self.outputs["ItsQueueArn"]}
        self.running.client("iam").put_role_policy(
            RoleName="Schedules",
            PolicyName="send",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
        )

    def advance_to(self, hour: int, minute: int = 0, days: int = 0) -> None:
        """Advances the clock to the next such time, and as many days."""
        now = self.account.clock.now()
        then = now.replace(hour=hour, minute=minute, second=5, microsecond=0)
        then += timedelta(days=days + (then <= now))
        self.account.clock.advance((then - now).total_seconds())

    def taken(self, output: str = "ItsQueue") -> list[str]:
        """The messages of a queue, which are deleted."""
        client, found = self.running.client("sqs"), []
        while messages := client.receive_message(QueueUrl=self.outputs[output], MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(str(message["Body"]))
                client.delete_message(QueueUrl=self.outputs[output], ReceiptHandle=message["ReceiptHandle"])
        return found

    def inputs(self) -> list[Any]:
        client = self.running.client("stepfunctions")
        found = client.list_executions(stateMachineArn=self.outputs["ItsMachine"])["executions"]
        return [json.loads(client.describe_execution(executionArn=it["executionArn"])["input"]) for it in found]

    def create(self, name: str, expression: str, **members: Any) -> None:
        target = {"Arn": self.outputs["ItsQueueArn"], "RoleArn": self.role, "Input": name}
        whole = {"FlexibleTimeWindow": {"Mode": "OFF"}, "Target": target, **members}
        self.schedules.create_schedule(Name=name, ScheduleExpression=expression, **whole)


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scheduled]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        found = Scheduled(account)
        yield found
        destroy(found.running, "scheduled")
        assert found.rules.list_rules()["Rules"] == []
        assert found.schedules.list_schedules(GroupName="mine")["Schedules"] == []


def test_a_rule_of_cdks_with_a_schedule_invokes_its_targets_each_day(scheduled: Scheduled) -> None:
    scheduled.advance_to(4)
    [message] = until(scheduled.taken)
    event = json.loads(message)
    now = scheduled.account.clock.now()
    assert (event["source"], event["detail-type"], event["detail"]) == ("aws.events", "Scheduled Event", {})
    assert event["time"] == f"{now:%Y-%m-%d}T04:00:00Z"
    assert event["resources"] == [scheduled.rules.describe_rule(Name=scheduled.outputs["ItsDaily"])["Arn"]]
    # On a Monday from 4:00 to 8:30 the clock passes the weekly schedule's time too.
    assert until(lambda: [given["source"] for given in scheduled.inputs() if "at" not in given]) == ["aws.events"]
    log = scheduled.running.client("logs")
    [printed] = until(lambda: log.filter_log_events(logGroupName="of-the-function")["events"])
    assert printed["message"] == "invoked by aws.events"
    scheduled.advance_to(4, days=2)
    assert len(until(lambda: len(found := scheduled.taken()) == 3 and found)) == 3


def test_a_schedule_of_cdks_invokes_its_target_at_a_local_time_with_the_scheduled_time(scheduled: Scheduled) -> None:
    now = scheduled.account.clock.now()
    scheduled.account.clock.advance(8 * A_DAY)

    def invoked() -> list[datetime]:
        """Its times since then: by the day of the week an earlier test's clock has passed one too."""
        times = [datetime.fromisoformat(given["at"]) for given in scheduled.inputs() if "at" in given]
        return [time.astimezone(zone_of("Europe/Berlin")) for time in times if time > now]

    time = until(invoked)[0]
    assert (time.isoweekday(), time.hour, time.minute) == (1, 9, 30)
    described = scheduled.schedules.get_schedule(GroupName="mine", Name=scheduled.outputs["ItsWeekly"])
    assert described["FlexibleTimeWindow"] == {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15}


def test_what_a_schedules_role_may_not_do_goes_to_its_dead_letter_queue(scheduled: Scheduled) -> None:
    scheduled.taken("ItsLost")
    scheduled.advance_to(12)
    [message] = until(lambda: scheduled.taken("ItsLost"))
    assert json.loads(message)["source"] == "aws.scheduler"
    assert "is not authorized to perform: sns:Publish" in (scheduled.account.state / "account.log").read_text()


def test_a_one_time_schedule_invokes_once_and_is_deleted_where_it_says_so(scheduled: Scheduled) -> None:
    now = scheduled.account.clock.now()
    scheduled.taken()
    for name, days, more in (("kept", 1, {}), ("deleted", 1, {"ActionAfterCompletion": "DELETE"}), ("past", -1, {})):
        scheduled.create(name, f"at({now + timedelta(days=days):%Y-%m-%dT%H:%M:%S})", **more)
    scheduled.create("disabled", f"at({now + timedelta(days=1):%Y-%m-%dT%H:%M:%S})", State="DISABLED")
    found: list[str] = []
    scheduled.account.clock.advance(A_DAY + 1)
    until(lambda: found.extend(text for text in scheduled.taken() if text[0] != "{") or len(found) == 2)
    assert sorted(found) == ["deleted", "kept"]
    names = {one["Name"] for one in scheduled.schedules.list_schedules(GroupName="default")["Schedules"]}
    assert names >= {"kept", "past", "disabled"}
    assert "deleted" not in names


def test_a_rate_begins_at_once_or_at_its_start_and_ends_at_its_end(scheduled: Scheduled) -> None:
    now = scheduled.account.clock.now()
    scheduled.taken()
    scheduled.create("hourly", "rate(1 hour)", EndDate=now + timedelta(hours=2, minutes=30))
    scheduled.create("later", "rate(1 hour)", StartDate=now + timedelta(hours=2), EndDate=now + timedelta(hours=4))
    found: list[str] = []

    def have(*names: str) -> None:
        until(lambda: found.extend(text for text in scheduled.taken() if text[0] != "{") or len(found) == len(names))
        assert sorted(found) == sorted(names)

    have("hourly")
    scheduled.account.clock.advance(5 * 3_600)
    have(*["hourly"] * 3, *["later"] * 3)


def test_a_time_that_passes_more_often_at_once_invokes_for_the_last_times(scheduled: Scheduled) -> None:
    scheduled.rules.put_rule(Name="often", ScheduleExpression="rate(1 minute)")
    url = scheduled.running.client("sqs").create_queue(QueueName="often")["QueueUrl"]
    arn = f"arn:aws:sqs:us-east-1:{url.split('/')[-2]}:often"
    rules = {"Service": "events.amazonaws.com"}
    statement = {"Effect": "Allow", "Principal": rules, "Action": "sqs:SendMessage", "Resource": arn}
    scheduled.running.client("sqs").set_queue_attributes(
        QueueUrl=url, Attributes={"Policy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})}
    )
    scheduled.rules.put_targets(Rule="often", Targets=[{"Id": "it", "Arn": arn}])
    scheduled.outputs["Often"] = url
    scheduled.account.clock.advance(A_DAY + 30)
    found: list[str] = []
    until(lambda: found.extend(scheduled.taken("Often")) or len(found) >= MOST_AT_ONCE)
    scheduled.rules.disable_rule(Name="often")
    assert len({json.loads(text)["time"] for text in found}) == len(found) == MOST_AT_ONCE
    log = (scheduled.account.state / "account.log").read_text()
    assert ":rule/often: 1440 of its times passed at once, and it is invoked for the last 24" in log
    scheduled.rules.remove_targets(Rule="often", Ids=["it"])
    scheduled.rules.delete_rule(Name="often")


def test_a_schedule_that_aws_refuses_is_refused_with_its_message(scheduled: Scheduled) -> None:
    def refused(call: Callable[[], Any]) -> tuple[str, str]:
        with pytest.raises(ClientError) as error:
            call()
        found = error.value.response["Error"]
        return found["Code"], found["Message"]

    rules = scheduled.rules
    rules.create_event_bus(Name="own")
    assert refused(lambda: rules.put_rule(Name="a", ScheduleExpression="rate(1 minutes)")) == (
        "ValidationException",
        "Parameter ScheduleExpression is not valid.",
    )
    assert refused(lambda: rules.put_rule(Name="a", ScheduleExpression="rate(1 day)", EventBusName="own")) == (
        "ValidationException",
        "ScheduleExpression is supported only on the default event bus.",
    )
    rules.delete_event_bus(Name="own")
    assert refused(lambda: scheduled.create("a", "cron(71 8 1 * ? *)")) == (
        "ValidationException",
        "Invalid Schedule Expression cron(71 8 1 * ? *).",
    )
    other = scheduled.running.role("NotOfSchedules", "states.amazonaws.com")
    target = {"Arn": scheduled.outputs["ItsQueueArn"], "RoleArn": other}
    assert refused(lambda: scheduled.create("a", "rate(1 day)", Target=target)) == (
        "ValidationException",
        "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
    )
    long = "a" * 65
    assert f"Value '{long}' at 'name' failed to satisfy" in refused(lambda: scheduled.create(long, "rate(1 day)"))[1]
    assert refused(lambda: scheduled.create("a", "rate(1 day)", GroupName="none"))[0] == "ResourceNotFoundException"
    assert refused(lambda: scheduled.schedules.create_schedule_group(Name="mine"))[0] == "ConflictException"
    zone = refused(lambda: scheduled.create("a", "rate(1 day)", ScheduleExpressionTimezone="Berlin"))
    assert "like Europe/Berlin, got 'Berlin'" in zone[1]
    universal = {"Arn": "arn:aws:scheduler:::aws-sdk:sqs:sendMessage", "RoleArn": scheduled.role}
    assert "aws-sdk:sqs:sendMessage" in refused(lambda: scheduled.create("a", "rate(1 day)", Target=universal))[1]


def test_an_updated_schedule_has_the_defaults_of_what_the_request_lacks(scheduled: Scheduled) -> None:
    scheduled.create("changed", "rate(1 day)", State="DISABLED", Description="one", ActionAfterCompletion="DELETE")
    scheduled.schedules.update_schedule(
        Name="changed",
        ScheduleExpression="cron(0 0 1 1 ? 2199)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": scheduled.outputs["ItsQueueArn"], "RoleArn": scheduled.role},
    )
    found = scheduled.schedules.get_schedule(Name="changed")
    assert (found["ScheduleExpression"], found["State"]) == ("cron(0 0 1 1 ? 2199)", "ENABLED")
    assert (found.get("Description"), found.get("ActionAfterCompletion")) == (None, None)


def test_a_user_needs_leave_for_each_operation_of_scheduler(scheduled: Scheduled) -> None:
    iam = scheduled.running.client("iam")
    iam.create_user(UserName="planner")
    own = "arn:aws:scheduler:us-east-1:*:schedule/mine/*"
    statements = [
        {"Effect": "Allow", "Action": ["scheduler:CreateSchedule", "scheduler:DeleteSchedule"], "Resource": own},
        {"Effect": "Allow", "Action": "iam:PassRole", "Resource": scheduled.role},
    ]
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_user_policy(UserName="planner", PolicyName="own", PolicyDocument=document)
    key = iam.create_access_key(UserName="planner")["AccessKey"]
    client = scheduled.running.client(
        "scheduler", aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"]
    )
    schedule = {
        "ScheduleExpression": "cron(0 0 1 1 ? 2199)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": scheduled.outputs["ItsQueueArn"], "RoleArn": scheduled.role},
    }
    client.create_schedule(Name="theirs", GroupName="mine", **schedule)
    client.delete_schedule(Name="theirs", GroupName="mine")
    for call in (
        lambda: client.create_schedule(Name="theirs", **schedule),
        lambda: client.get_schedule(Name="theirs", GroupName="mine"),
        client.list_schedules,
    ):
        with pytest.raises(ClientError, match="not authorized to perform: scheduler:"):
            call()
