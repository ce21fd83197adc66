"""EventBridge Scheduler: moto stores schedules and never invokes them.

Targets are state machines, functions, topics and queues, with the target's role; other targets are rejected. A flexible time
window is at its start, and no invocation is repeated. Source: the API reference and the guide of EventBridge Scheduler.
"""

from __future__ import annotations

import functools
import json
import logging
import uuid
from datetime import UTC, datetime
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.scheduler.exceptions import ScheduleGroupNotFound, ValidationException
from moto.scheduler.models import EventBridgeSchedulerBackend, Schedule, ScheduleGroup, scheduler_backends
from moto.scheduler.responses import EventBridgeSchedulerResponse

from sagemaker_local_account.aws.events import invocations
from sagemaker_local_account.aws.events.schedule_expressions import At, InvalidExpression, Rate, parsed, zone_of
from sagemaker_local_account.aws.events.schedule_timer import Occurrences
from sagemaker_local_account.aws.events.targets import check_as_moto
from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import Authorizer
from sagemaker_local_account.iam.policies import Call


class _Refused(ValidationException):
    """The member that Scheduler's errors have their text in, by its service model and as LocalStack recorded them, is Message."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.description = json.dumps({"__type": self.error_type, "Message": message})


SERVICE = "scheduler.amazonaws.com"

_log = logging.getLogger(__name__)
_moto_create = EventBridgeSchedulerBackend.create_schedule
_moto_update = EventBridgeSchedulerBackend.update_schedule
_moto_create_group = EventBridgeSchedulerBackend.create_schedule_group
_moto_delete_group = EventBridgeSchedulerBackend.delete_schedule_group
_moto_answer_update = EventBridgeSchedulerResponse.update_schedule

_SUPPORTED = {"Arn", "DeadLetterConfig", "Input", "RetryPolicy", "RoleArn", "SqsParameters"}
_TARGETS = ("lambda", "sns", "sqs", "states")
_JSON_TARGETS = ("lambda", "states")


class _Installed:
    """The authorizer of the running account, and what delivers."""

    authorizer: Authorizer
    deliveries: invocations.Deliveries


def install(authorizer: Authorizer, deliveries: invocations.Deliveries) -> None:
    """Patches moto's EventBridge Scheduler."""
    _Installed.authorizer, _Installed.deliveries = authorizer, deliveries
    members = "description, end_date, flexible_time_window, group_name, kms_key_arn, name, schedule_expression"
    dates = "schedule_expression_timezone, start_date, state, target"
    backend = EventBridgeSchedulerBackend
    patch(backend, "create_schedule", _create, f"self, {members}, {dates}, action_after_completion")
    patch(backend, "update_schedule", _update, f"self, {members}, {dates}")
    patch(backend, "create_schedule_group", _create_group, "self, name, tags")
    patch(backend, "delete_schedule_group", _delete_group, "self, name")
    patch(EventBridgeSchedulerResponse, "update_schedule", _answer_update, "self")


def invoke_due() -> None:
    """Makes the invocations of each schedule that are due, and deletes what has had its last and is to be deleted."""
    for regions in [*scheduler_backends.values()]:
        for backend in [*regions.values()]:
            for group in [*backend.schedule_groups.values()]:
                for schedule in [*group.schedules.values()]:
                    _look_at(group, schedule)


def _look_at(group: ScheduleGroup, schedule: Schedule) -> None:
    occurrences: Occurrences = schedule.account_occurrences
    due = occurrences.due(schedule.arn)
    if schedule.state != "ENABLED":
        return
    for time in due:
        _Installed.deliveries.add(functools.partial(_invoke, schedule, dict(schedule.target), time))
    if due and occurrences.ended and schedule.action_after_completion == "DELETE":
        group.schedules.pop(schedule.name, None)


def _invoke(schedule: Schedule, target: dict[str, Any], time: datetime) -> None:
    """Invokes the target; an input that cannot be delivered goes to the dead-letter queue and is logged."""
    text = _input_of(schedule, target, time)
    permit = functools.partial(_permit, schedule, target["RoleArn"])
    try:
        invocations.invoke(target["Arn"], text, permit, target.get("SqsParameters", {}).get("MessageGroupId"))
    except Exception as error:
        log_failure(_log, error, "schedule %s: %s not invoked", schedule.arn, target["Arn"])
        queue = target.get("DeadLetterConfig", {}).get("Arn")
        try:
            if queue:
                invocations.invoke(queue, text, permit)
        except Exception as lost:
            log_failure(_log, lost, "schedule %s: input not delivered to the dead-letter queue %s", schedule.arn, queue)


def _permit(schedule: Schedule, role_arn: str, call: Call) -> None:
    authorizer = _Installed.authorizer
    if authorizer.enforced:
        authorizer.check_trust(role_arn, SERVICE, _group_arn(schedule.arn))
        authorizer.check(authorizer.role(role_arn, "scheduler"), call)


def _group_arn(arn: str) -> str:
    """The ARN of a schedule's group, the aws:SourceArn of its calls ("Confused deputy prevention", Scheduler's guide)."""
    return arn.rpartition("/")[0].replace(":schedule/", ":schedule-group/")


def _input_of(schedule: Schedule, target: dict[str, Any], time: datetime) -> str:
    """The input with its context attributes ("Adding context attributes", Scheduler's guide), or the default notification."""
    at = time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    _, _, _, region, account, *_ = schedule.arn.split(":")
    if "Input" not in target:
        notification = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": account,
            "time": at,
            "region": region,
            "resources": [schedule.arn],
            "detail": "{}",
        }
        return json.dumps(notification)
    text = str(target["Input"])
    for name, value in {
        "schedule-arn": schedule.arn,
        "scheduled-time": at,
        "execution-id": uuid.uuid4().hex[:16],
        "attempt-number": "1",
    }.items():
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def _create(self: EventBridgeSchedulerBackend, **members: Any) -> Schedule:
    occurrences = _checked(self, members)
    schedule: Schedule = _moto_create(self, **members)
    schedule.account_occurrences = occurrences
    return schedule


def _update(self: EventBridgeSchedulerBackend, **members: Any) -> Schedule:
    """Updates a schedule; a member that the request lacks has its default (API reference, UpdateSchedule)."""
    self.get_schedule(members["group_name"], members["name"])
    occurrences = _checked(self, members)
    schedule: Schedule = _moto_update(self, **{**members, "state": members["state"] or "ENABLED"})
    schedule.account_occurrences = occurrences
    return schedule


def _answer_update(self: EventBridgeSchedulerResponse) -> str:
    """UpdateSchedule, of which moto ignores ActionAfterCompletion."""
    answer: str = _moto_answer_update(self)
    name = self.uri.split("?")[0].split("/")[-1]
    schedule = self.scheduler_backend.get_schedule(self._get_param("GroupName"), name)
    schedule.action_after_completion = self._get_param("ActionAfterCompletion")
    return answer


def _checked(backend: EventBridgeSchedulerBackend, members: dict[str, Any]) -> Occurrences:
    """The times of a schedule to come.

    Raises:
        ValidationException: AWS refuses the schedule, or the account does not support it. The message for an expression is that
            of LocalStack's tests_create_schedule_with_invalid_schedule_expression, that for a role of aws-sdk-js-v3 6494.
    """
    names = {
        "Name": members["name"],
        "GroupName": members["group_name"],
        "Description": members["description"],
        "ScheduleExpression": members["schedule_expression"],
        "ScheduleExpressionTimezone": members["schedule_expression_timezone"],
        "State": members["state"],
        "FlexibleTimeWindow": {"Mode": (members["flexible_time_window"] or {}).get("Mode")},
        "Target": {name: (members["target"] or {}).get(name) for name in ("Arn", "RoleArn")},
    }
    check_as_moto("CreateSchedule", names, "scheduler")
    group = backend.get_schedule_group(members["group_name"])
    text, zone_name = members["schedule_expression"], members["schedule_expression_timezone"] or "UTC"
    try:
        zone = zone_of(zone_name)
    except InvalidExpression:
        raise _Refused(
            f"ScheduleExpressionTimezone must be a time zone of the IANA database, like Europe/Berlin, got {zone_name!r}"
        ) from None
    try:
        expression = parsed(text, zone, of_scheduler=True)
    except InvalidExpression:
        raise _Refused(f"Invalid Schedule Expression {text}.") from None
    window = members["flexible_time_window"]
    if (window["Mode"] == "FLEXIBLE") != ("MaximumWindowInMinutes" in window):
        raise _Refused(
            f"FlexibleTimeWindow must have MaximumWindowInMinutes with the Mode FLEXIBLE and only then, got {window!r}"
        )
    start, end = (None if time is None else _time(time) for time in (members["start_date"], members["end_date"]))
    if start is not None and end is not None and end <= start:
        raise _Refused(f"EndDate must be after StartDate {start:%Y-%m-%dT%H:%M:%SZ}, got {end:%Y-%m-%dT%H:%M:%SZ}")
    _check_target(members["target"], group.arn)
    now = CLOCK.now()
    if isinstance(expression, At):  # StartDate and EndDate have no effect on it (API reference)
        return Occurrences(expression, now)
    # A rate without StartDate invokes its target at once; a cron expression has no times that have passed.
    begin = start if start is not None and (isinstance(expression, Rate) or start > now) else now
    return Occurrences(expression, begin, end)


def _check_target(target: dict[str, Any], group_arn: str) -> None:
    if invocations.service_of(target["Arn"]) not in _TARGETS or not invocations.is_target(target["Arn"]):
        raise _Refused(
            "Target must be a state machine, a Lambda function, an SNS topic or an SQS queue in the local account, got "
            f"{target['Arn']!r}"
        )
    if unsupported := sorted(target.keys() - _SUPPORTED):
        raise _Refused(f"Target: the local account does not support {', '.join(unsupported)}")
    if invocations.service_of(target["Arn"]) in _JSON_TARGETS and "Input" in target:
        try:
            json.loads(target["Input"])
        except (ValueError, RecursionError):
            raise _Refused("Target.Input must be well-formed JSON for a state machine or a Lambda function") from None
    try:
        _Installed.authorizer.check_trust(target["RoleArn"], SERVICE, group_arn)
    except LookupError:
        raise _Refused(
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the role."
        ) from None


def _time(value: Any) -> datetime:
    """A time of a request, in seconds since 1970, or of a template, in ISO 8601."""
    if isinstance(value, str) and not value.replace(".", "").isdigit():
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    return datetime.fromtimestamp(float(value), UTC)


def _create_group(self: EventBridgeSchedulerBackend, name: str, tags: list[dict[str, str]]) -> ScheduleGroup:
    if name in self.schedule_groups:
        raise JsonRESTError("ConflictException", f"Schedule group {name} already exists.")
    group: ScheduleGroup = _moto_create_group(self, name, tags or [])
    return group


def _delete_group(self: EventBridgeSchedulerBackend, name: str) -> None:
    """Deletes a group and its schedules, not the default one (API reference, DeleteScheduleGroup)."""
    if name == "default":
        raise _Refused("The default schedule group cannot be deleted.")
    if name not in self.schedule_groups:
        raise ScheduleGroupNotFound(name)
    _moto_delete_group(self, name)
