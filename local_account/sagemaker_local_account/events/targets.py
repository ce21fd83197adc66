"""Delivers matched events to rule targets.

moto delivers to log groups, queues and other buses, ignores other targets, and lacks Input and InputPath. Here rules deliver to
state machines, topics, queues, log groups and buses; PutTargets rejects any other target.
"""

from __future__ import annotations

import copy
import datetime
import functools
import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

from moto.events.exceptions import ValidationException
from moto.events.models import EventPattern, EventsBackend, Rule
from moto.events.responses import EventsHandler
from moto.logs.models import logs_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError, extract_json
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.events import patterns
from sagemaker_local_account.events.log_failures import log_failure
from sagemaker_local_account.iam.authorizer import Authorizer
from sagemaker_local_account.iam.policies import Call

SERVICE = "events.amazonaws.com"

_log = logging.getLogger(__name__)
_moto_send_to_targets = Rule.send_to_targets
_moto_put_rule = EventsBackend.put_rule
_moto_put_targets = EventsBackend.put_targets

# The supported members of a target. RetryPolicy has no effect: a failed delivery within this process would fail again.
_SUPPORTED = {
    "Arn", "DeadLetterConfig", "Id", "Input", "InputPath", "InputTransformer", "RetryPolicy", "RoleArn", "SqsParameters",
}  # fmt: skip


class _Installed:
    """The authorizer of the running account, which evaluates the permissions of deliveries."""

    authorizer: Authorizer


def install(authorizer: Authorizer) -> None:
    """Patches moto's EventBridge."""
    _Installed.authorizer = authorizer
    patch(EventPattern, "load", _load_pattern, "cls, raw_pattern")
    patch(EventPattern, "matches_event", _matches_event, "self, event")
    patch(EventsHandler, "test_event_pattern", _test_event_pattern, "self")
    patch(Rule, "send_to_targets", _send_to_targets, "self, original_event, transform_input")
    patch(
        EventsBackend,
        "put_rule",
        _put_rule,
        "self, name, description, event_bus_arn, event_pattern, role_arn, scheduled_expression, state, "
        "managed_by, tags",
    )
    patch(EventsBackend, "put_targets", _put_targets, "self, name, event_bus_arn, targets")


def _load_pattern(cls: Any, raw_pattern: str | None) -> EventPattern:
    """Refuses the patterns that EventBridge refuses; moto fails at the next event."""
    if not raw_pattern:
        return cls(raw_pattern, {})
    pattern: EventPattern = cls(raw_pattern, json.loads(raw_pattern) if patterns.compiled(raw_pattern) else {})
    return pattern


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> patterns.Pattern:
    return patterns.compiled(text)


def _matches_event(self: EventPattern, event: Any) -> bool:
    text = self.dump()
    return not text or _compiled(text).matches(_with_time(event))


# What an event must have for TestEventPattern.
_MEMBERS = {"id", "account", "source", "time", "region", "detail-type"}


def _test_event_pattern(self: EventsHandler) -> tuple[str, dict[str, Any]]:
    """TestEventPattern, which in moto answers nothing."""
    pattern = patterns.compiled(self._get_param("EventPattern"))
    try:
        event = json.loads(self._get_param("Event"))
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not event.keys() >= _MEMBERS:
        raise ValidationException("Parameter Event is not valid.")
    return json.dumps({"Result": pattern.matches(event)}), self.response_headers


def check_targets(rule: str, targets: list[dict[str, Any]]) -> None:
    """Raises ValidationException unless each target, and each of its members, is supported.

    Args:
        rule: the rule's name.
        targets: PutTargets' members.
    """
    for target in targets:
        if _delivery(target["Arn"]) is None and not _by_moto(target["Arn"]):
            raise ValidationException(
                f"rule {rule}: target {target['Id']} must be a state machine, an SNS topic, an SQS queue, a log group or an "
                f"event bus in the local account, got {target['Arn']!r}"
            )
        unsupported = sorted(name for name in target if name not in _SUPPORTED)
        if unsupported:
            raise ValidationException(
                f"rule {rule}: target {target['Id']}: the local account does not support {', '.join(unsupported)}"
            )


def _put_rule(self: EventsBackend, name: str, *args: Any, **details: Any) -> Rule:
    """Rejects enabled schedules, which moto accepts and never runs."""
    if details.get("scheduled_expression") and details.get("state") != "DISABLED":
        raise ValidationException(
            f"rule {name}: the local account does not support schedules; omit ScheduleExpression or set the rule's State to "
            f"DISABLED, got {details['scheduled_expression']!r}"
        )
    rule: Rule = _moto_put_rule(self, name, *args, **details)
    return rule


def _put_targets(self: EventsBackend, name: str, event_bus_arn: str | None, targets: list[dict[str, Any]]) -> None:
    check_targets(name, targets)
    _moto_put_targets(self, name, event_bus_arn, targets)


def _send_to_targets(self: Rule, original_event: Any, transform_input: bool = True) -> None:
    """Delivers an event to each target; what cannot be delivered goes to the target's dead-letter queue and is logged.

    moto also delivers for disabled rules, treats a schedule as a pattern that matches every event, and stops at the first unknown
    target.
    """
    if self.state == "DISABLED" or (self.scheduled_expression and not self.event_pattern.get_pattern()):
        return
    if not self.event_pattern.matches_event(original_event):
        return
    for target in list(self.targets):
        try:
            deliver = _delivery(target["Arn"])
            if deliver is not None:
                deliver(self.arn, target, _target_input(target, original_event))
            else:
                alone = copy.copy(self)
                alone.targets = [target]
                _moto_send_to_targets(alone, original_event, transform_input)
        except Exception as error:
            log_failure(_log, error, "rule %s: event not delivered to %s", self.name, target["Arn"])
            _to_dead_letters(self.arn, target, original_event)


def _by_moto(arn: str) -> bool:
    """Whether moto delivers to the target: another bus, or an archive, which is a rule in moto."""
    return ":events:" in arn and (":event-bus/" in arn or arn.endswith(":::"))


def _delivery(arn: str) -> Callable[[str, dict[str, Any], str], None] | None:
    service = f"{arn}:::".split(":")[2]
    if service == "states":
        return _to_state_machine if ":stateMachine:" in arn else None
    return {"sqs": _to_queue, "sns": _to_topic, "logs": _to_log_group}.get(service)


def _to_state_machine(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    authorizer = _Installed.authorizer
    if authorizer.enforced:
        # A missing permission is a failed invocation of the rule on AWS, and a line in the account's log here.
        authorizer.check_trust(target["RoleArn"], SERVICE, rule_arn)
        role = authorizer.role(target["RoleArn"], "events")
        authorizer.check(role, Call("states:StartExecution", target["Arn"]))
    execution = stepfunctions_parser_backends[account][region].start_execution(target["Arn"], execution_input=text)
    _log.info("%s started by an event", execution.execution_arn)


def _to_topic(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    _Installed.authorizer.check_service(SERVICE, Call("sns:Publish", target["Arn"]), rule_arn)
    sns_backends[account][region].publish(text, target["Arn"])


def _to_queue(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    _Installed.authorizer.check_service(SERVICE, Call("sqs:SendMessage", target["Arn"]), rule_arn)
    sqs_backends[account][region].send_message(
        queue_name=target["Arn"].rpartition(":")[2],
        message_body=text,
        group_id=target.get("SqsParameters", {}).get("MessageGroupId"),
    )


def _to_log_group(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    group = target["Arn"].split(":log-group:")[1].removesuffix(":*")
    logs = logs_backends[account][region]
    stream = str(uuid.uuid4())
    logs.create_log_stream(group, stream)
    logs.put_log_events(group, stream, [{"timestamp": round(time.time() * 1000), "message": text}])


def _to_dead_letters(rule_arn: str, target: dict[str, Any], event: Any) -> None:
    queue = target.get("DeadLetterConfig", {}).get("Arn")
    if queue:
        try:
            _to_queue(rule_arn, {"Arn": queue}, _target_input({}, event))
        except Exception as error:
            log_failure(_log, error, "event not delivered to the dead-letter queue %s", queue)


def _place(arn: str) -> tuple[str, str]:
    _, _, _, region, account, *_ = arn.split(":")
    return region, account


def _target_input(target: dict[str, Any], event: Any) -> str:
    """The input of a target: the event, a part of it, a constant, or a filled template."""
    event = {name: value for name, value in _with_time(event).items() if name != "ingestion-time"}
    if "Input" in target:
        return str(target["Input"])
    if "InputPath" in target:
        try:
            return json.dumps(extract_json(target["InputPath"], event))
        except NoSuchJsonPathError:
            return "{}"
    if "InputTransformer" in target:
        transformer = target["InputTransformer"]
        return _filled(transformer["InputTemplate"], transformer.get("InputPathsMap", {}), event)
    return json.dumps(event)


def _with_time(event: Any) -> Any:
    """An event with its time as text; moto has seconds since 1970."""
    if not isinstance(event["time"], int | float):
        return event
    time = datetime.datetime.fromtimestamp(event["time"], datetime.UTC)
    return {**event, "time": time.isoformat(timespec="seconds").replace("+00:00", "Z")}


def _filled(template: str, paths: dict[str, str], event: Any) -> str:
    """Fills the `<names>` of an input template: with JSON outside of strings, with text inside.

    moto inserts text in both cases, which is not valid JSON for templates of CDK's `RuleTargetInput.from_object`.
    """
    values: dict[str, Any] = {"aws.events.event.json": event, "aws.events.event.ingestion-time": event["time"]}
    for name, path in paths.items():
        try:
            values[name] = extract_json(path, event)
        except NoSuchJsonPathError:
            values[name] = None
    parts = re.split(r"<([^<>]+)>", template)
    filled = parts[0]
    for name, following in zip(parts[1::2], parts[2::2], strict=True):
        within_string = len(re.findall(r'(?<!\\)"', filled)) % 2 == 1
        if name not in values:
            filled += f"<{name}>"
        elif not within_string:
            filled += json.dumps(values[name])
        elif isinstance(values[name], str):
            filled += json.dumps(values[name])[1:-1]
        else:
            filled += json.dumps(json.dumps(values[name]))[1:-1]
        filled += following
    return filled
