"""Whom an EventBridge rule tells, and what it says to them.

moto delivers to log groups, queues and other buses, drops what it does not know, and knows no Input or InputPath. Here
rules deliver to state machines, topics, queues, log groups and buses; any other target is refused when it is put.
"""

from __future__ import annotations

import copy
import datetime
import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

from moto.events.exceptions import ValidationException
from moto.events.models import EventsBackend, Rule
from moto.logs.models import logs_backends
from moto.sns.models import sns_backends
from moto.sqs.models import sqs_backends
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError, extract_json
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from .log_failures import log_failure
from .patches import patch
from .permissions import Permissions
from .policies import Call

SERVICE = "events.amazonaws.com"

_log = logging.getLogger(__name__)
_moto_send_to_targets = Rule.send_to_targets
_moto_put_rule = EventsBackend.put_rule
_moto_put_targets = EventsBackend.put_targets

# What a target may say and is heard. RetryPolicy has nothing to do: a delivery within this process fails for good.
_HEARD = {
    "Arn", "DeadLetterConfig", "Id", "Input", "InputPath", "InputTransformer", "RetryPolicy", "RoleArn", "SqsParameters",
}  # fmt: skip


class _Under:
    """The permissions under which rules reach their targets, those of the account that was started last."""

    permissions: Permissions


def install(permissions: Permissions) -> None:
    _Under.permissions = permissions
    patch(Rule, "send_to_targets", _send_to_targets, "self, original_event, transform_input")
    patch(
        EventsBackend,
        "put_rule",
        _put_rule,
        "self, name, description, event_bus_arn, event_pattern, role_arn, scheduled_expression, state, "
        "managed_by, tags",
    )
    patch(EventsBackend, "put_targets", _put_targets, "self, name, event_bus_arn, targets")


def refuse(rule: str, targets: list[dict[str, Any]]) -> None:
    """Raise unless each target is one that events are delivered to, with nothing said that is not heard."""
    for target in targets:
        if _delivery(target["Arn"]) is None and not _by_moto(target["Arn"]):
            raise ValidationException(
                f"rule {rule}: target {target['Id']} must be a state machine, an SNS topic, an SQS queue, a log group or an "
                f"event bus in the local account, got {target['Arn']!r}"
            )
        unheard = sorted(name for name in target if name not in _HEARD)
        if unheard:
            raise ValidationException(
                f"rule {rule}: target {target['Id']}: the local account does not honour {', '.join(unheard)}"
            )


def _put_rule(self: EventsBackend, name: str, *args: Any, **details: Any) -> Rule:
    """moto takes a schedule and never keeps it."""
    if details.get("scheduled_expression") and details.get("state") != "DISABLED":
        raise ValidationException(
            f"rule {name}: the local account keeps no schedules; leave ScheduleExpression out or set the rule's State to "
            f"DISABLED, got {details['scheduled_expression']!r}"
        )
    rule: Rule = _moto_put_rule(self, name, *args, **details)
    return rule


def _put_targets(self: EventsBackend, name: str, event_bus_arn: str | None, targets: list[dict[str, Any]]) -> None:
    refuse(name, targets)
    _moto_put_targets(self, name, event_bus_arn, targets)


def _send_to_targets(self: Rule, original_event: Any, transform_input: bool = True) -> None:
    """moto delivers to disabled rules, takes a schedule for a pattern that matches everything, and stops at the first
    target it does not know. Here each target has its own try; what cannot be delivered goes to the target's dead-letter
    queue, and is in the account's log."""
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
    """Another bus, or the archive that moto keeps as a rule of its own."""
    return ":events:" in arn and (":event-bus/" in arn or arn.endswith(":::"))


def _delivery(arn: str) -> Callable[[str, dict[str, Any], str], None] | None:
    service = f"{arn}:::".split(":")[2]
    if service == "states":
        return _to_state_machine if ":stateMachine:" in arn else None
    return {"sqs": _to_queue, "sns": _to_topic, "logs": _to_log_group}.get(service)


def _to_state_machine(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    permissions = _Under.permissions
    if permissions.enforced:
        # On AWS a target without leave shows as a failed invocation of the rule, and here in the account's log.
        permissions.check_trust(target["RoleArn"], SERVICE, rule_arn)
        role = permissions.role(target["RoleArn"], "events")
        permissions.check(role, Call("states:StartExecution", target["Arn"]))
    execution = stepfunctions_parser_backends[account][region].start_execution(target["Arn"], execution_input=text)
    _log.info("%s started by an event", execution.execution_arn)


def _to_topic(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    _Under.permissions.check_service(SERVICE, Call("sns:Publish", target["Arn"]), rule_arn)
    sns_backends[account][region].publish(text, target["Arn"])


def _to_queue(rule_arn: str, target: dict[str, Any], text: str) -> None:
    region, account = _place(target["Arn"])
    _Under.permissions.check_service(SERVICE, Call("sqs:SendMessage", target["Arn"]), rule_arn)
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
    """What a target gets: the event, a part of it, a constant, or a template filled from it."""
    event = {name: value for name, value in event.items() if name != "ingestion-time"}
    if isinstance(event["time"], int | float):
        time = datetime.datetime.fromtimestamp(event["time"], datetime.UTC)
        event["time"] = time.isoformat(timespec="seconds").replace("+00:00", "Z")
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


def _filled(template: str, paths: dict[str, str], event: Any) -> str:
    """An input template with its `<names>` replaced: by JSON where they stand bare, by text within a string.

    moto writes text in both places, which is not JSON for what CDK's `RuleTargetInput.from_object` makes.
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
