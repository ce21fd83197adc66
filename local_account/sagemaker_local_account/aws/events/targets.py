"""Delivers matched events to rule targets.

moto delivers to log groups, queues and other buses, ignores other targets, and lacks Input and InputPath. Here rules deliver to
state machines, functions, topics, queues, log groups and buses; PutTargets rejects any other target.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.events.exceptions import ValidationException
from moto.events.models import EventPattern, EventsBackend, Rule, events_backends
from moto.events.responses import EventsHandler
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError, extract_json

from sagemaker_local_account.aws.events import input_transformer, invocations, patterns, put_events
from sagemaker_local_account.aws.events.schedule_expressions import InvalidExpression, Rate, parsed
from sagemaker_local_account.aws.events.schedule_timer import Occurrences
from sagemaker_local_account.aws.log_failures import log_failure
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.core.service_errors import ServiceError, check
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


MOST_TARGETS = 5  # of a rule (EventBridge's guide, "Quotas")


class _Installed:
    """The authorizer of the running account, which evaluates the permissions of deliveries, and what delivers."""

    authorizer: Authorizer
    deliveries: invocations.Deliveries


def install(authorizer: Authorizer, deliveries: invocations.Deliveries) -> None:
    """Patches moto's EventBridge."""
    _Installed.authorizer, _Installed.deliveries = authorizer, deliveries
    put_events.install()
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
    # Schedules are checked in _put_rule.
    for checked in ("_CRON_REGEX", "_RATE_REGEX"):
        patch(EventsBackend, checked, re.compile(""))
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
    given = {name: self._get_param(name) for name in ("EventPattern", "Event")}
    if None in given.values():
        check_as_moto("TestEventPattern", given, "events")
    pattern = patterns.compiled(given["EventPattern"])
    try:
        event = json.loads(given["Event"])
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
    if targets:  # a template may have none
        check_as_moto("PutTargets", {"Rule": rule, "Targets": targets}, "events")
    if len({target["Id"] for target in targets}) > MOST_TARGETS:
        raise _too_many()
    for target in targets:
        arn = target["Arn"]
        if not (invocations.is_target(arn) or _is_bus(arn) or _is_archive(arn)):
            raise ValidationException(
                f"rule {rule}: target {target['Id']} must be a state machine, a Lambda function, an SNS topic, an SQS queue, a "
                f"log group or an event bus in the local account, got {target['Arn']!r}"
            )
        unsupported = sorted(name for name in target if name not in _SUPPORTED)
        if unsupported:
            raise ValidationException(
                f"rule {rule}: target {target['Id']}: the local account does not support {', '.join(unsupported)}"
            )
        _check_input(target)


def check_as_moto(operation: str, request: dict[str, Any], service: str) -> None:
    """Raises the ValidationException of a request that the service model does not allow, as moto raises it."""
    try:
        check(operation, {name: value for name, value in request.items() if value is not None}, service)
    except ServiceError as error:
        raise JsonRESTError(error.code, error.message) from None


def _too_many() -> JsonRESTError:
    """Recorded in LocalStack's test_add_exceed_fife_targets_per_rule."""
    return JsonRESTError("LimitExceededException", "The requested resource exceeds the maximum number allowed.")


def _check_input(target: dict[str, Any]) -> None:
    """Refuses what AWS refuses, with its messages.

    Recorded in LocalStack's test_put_event_input_path_and_input_transformer and
    test_put_events_with_input_transformer_missing_keys.
    """
    if len(target.keys() & {"Input", "InputPath", "InputTransformer"}) > 1:
        raise ValidationException(
            f"Only one of Input, InputPath, or InputTransformer must be provided for target {target['Id']}."
        )
    transformer = target.get("InputTransformer", {})
    for name in input_transformer.names_of(transformer.get("InputTemplate", "")):
        if name not in transformer.get("InputPathsMap", {}):
            raise ValidationException(f"InputTemplate for target {target['Id']} contains invalid placeholder {name}.")


def _put_rule(self: EventsBackend, name: str, *args: Any, **details: Any) -> Rule:
    """Refuses schedules that AWS refuses, and sets the times of others.

    The messages are those of LocalStack's test_put_rule_with_invalid_schedule_rate and tests_put_rule_with_invalid_schedule_cron.
    A rate begins when the rule is put ("Rate expressions", EventBridge's guide).
    """
    pattern, role = details.get("event_pattern"), details.get("role_arn")
    request = {"Name": name, "Description": details.get("description"), "EventPattern": pattern, "RoleArn": role}
    check_as_moto("PutRule", {**request, "State": details.get("state")}, "events")
    occurrences = None
    if text := details.get("scheduled_expression"):
        try:
            expression = parsed(text)
        except InvalidExpression:
            raise ValidationException("Parameter ScheduleExpression is not valid.") from None
        begin = CLOCK.now() + (expression.interval if isinstance(expression, Rate) else timedelta())
        occurrences = Occurrences(expression, begin)
    rule: Rule = _moto_put_rule(self, name, *args, **details)
    rule.account_occurrences = occurrences
    return rule


def invoke_due() -> None:
    """Delivers the event of each scheduled rule whose time has come (recorded in LocalStack's tests_schedule_rate_target_sqs)."""
    for regions in [*events_backends.values()]:
        for backend in [*regions.values()]:
            for rule in [*backend.describe_event_bus("default").rules.values()]:
                occurrences: Occurrences | None = getattr(rule, "account_occurrences", None)
                due = occurrences.due(rule.arn) if occurrences is not None else []
                for time in due if rule.state != "DISABLED" else ():
                    event = {
                        "version": "0",
                        "id": str(uuid.uuid4()),
                        "detail-type": "Scheduled Event",
                        "source": "aws.events",
                        "account": rule.account_id,
                        "time": time.timestamp(),
                        "region": rule.region_name,
                        "resources": [rule.arn],
                        "detail": {},
                    }
                    _Installed.deliveries.add(functools.partial(deliver_to, rule, [*rule.targets], event))


def _put_targets(
    self: EventsBackend, name: str, event_bus_arn: str | None, targets: list[dict[str, Any]] | None
) -> None:
    if targets is None:  # a request without them
        check_as_moto("PutTargets", {"Rule": name}, "events")
    targets = targets or []
    check_targets(name, targets)
    rule = self.describe_event_bus(event_bus_arn or "default").rules.get(name)
    known = [] if rule is None else rule.targets
    if len({target["Id"] for target in (*known, *targets)}) > MOST_TARGETS:
        raise _too_many()
    _moto_put_targets(self, name, event_bus_arn, targets)


def _send_to_targets(self: Rule, original_event: Any, transform_input: bool = True) -> None:
    """Delivers an event to the rule's targets after this call, which fails for nothing that a rule does.

    moto also delivers for disabled rules, treats a schedule as a pattern that matches every event, and stops at the first unknown
    target.
    """
    if self.state == "DISABLED" or (self.scheduled_expression and not self.event_pattern.get_pattern()):
        return
    targets = list(self.targets)

    def deliver() -> None:
        try:
            matches = self.event_pattern.matches_event(original_event)
        except Exception as error:
            log_failure(_log, error, "rule %s: event not matched", self.name)
            return
        if matches:
            deliver_to(self, targets, original_event, transform_input)

    _Installed.deliveries.add(deliver)


def deliver_to(rule: Rule, targets: list[dict[str, Any]], event: Any, transform_input: bool = True) -> None:
    """Delivers an event to targets; what cannot be delivered goes to the target's dead-letter queue and is logged.

    Args:
        rule: moto's.
        targets: those of the rule.
        event: as moto has it.
        transform_input: moto's, for what moto delivers.
    """
    for target in targets:
        try:
            if _is_bus(target["Arn"]):
                _forward(rule.arn, target, event)
            elif _is_archive(target["Arn"]):
                alone = copy.copy(rule)
                alone.targets = [target]
                _moto_send_to_targets(alone, event, transform_input)
            else:
                group_id = target.get("SqsParameters", {}).get("MessageGroupId")
                permit = functools.partial(_permit, rule.arn, target)
                invocations.invoke(target["Arn"], _target_input(target, event, rule.arn), permit, group_id)
        except Exception as error:
            log_failure(_log, error, "rule %s: event not delivered to %s", rule.name, target["Arn"])
            _to_dead_letters(rule.arn, target, event)


def _forward(rule_arn: str, target: dict[str, Any], event: Any) -> None:
    """Puts an event on another bus as it is: moto's is a new one without its resources.

    Recorded in LocalStack's test_put_events_to_default_eventbus_for_custom_eventbus.
    """
    arn = target["Arn"]
    _, _, _, region, account, name = arn.split(":", 5)
    if "RoleArn" in target:
        _permit_role(target["RoleArn"], rule_arn, Call("events:PutEvents", arn))
    for rule in [*events_backends[account][region].describe_event_bus(name.partition("/")[2]).rules.values()]:
        rule.send_to_targets(copy.deepcopy(event))


def _is_bus(arn: str) -> bool:
    return ":events:" in arn and ":event-bus/" in arn


def _is_archive(arn: str) -> bool:
    """Whether moto delivers to the target: its archives are rules."""
    return ":events:" in arn and arn.endswith(":::")


def _permit_role(role_arn: str, rule_arn: str, call: Call) -> None:
    authorizer = _Installed.authorizer
    if authorizer.enforced:
        authorizer.check_trust(role_arn, SERVICE, rule_arn)
        authorizer.check(authorizer.role(role_arn, "events"), call)


def _permit(rule_arn: str, target: dict[str, Any], call: Call) -> None:
    """A state machine is started with the target's role; other targets allow it by their own policies, log groups' aside."""
    service = invocations.service_of(call.resource)
    if service == "states":
        _permit_role(target.get("RoleArn", ""), rule_arn, call)
    elif service != "logs":
        _Installed.authorizer.check_service(SERVICE, call, rule_arn)


def _to_dead_letters(rule_arn: str, target: dict[str, Any], event: Any) -> None:
    queue = target.get("DeadLetterConfig", {}).get("Arn")
    if queue:
        try:
            permit = functools.partial(_permit, rule_arn, target)
            invocations.invoke(queue, _target_input({}, event, rule_arn), permit)
        except Exception as error:
            log_failure(_log, error, "event not delivered to the dead-letter queue %s", queue)


def _target_input(target: dict[str, Any], event: Any, rule_arn: str) -> str:
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
        paths = transformer.get("InputPathsMap", {})
        return input_transformer.filled(transformer["InputTemplate"], paths, event, rule_arn)
    return json.dumps(event)


def _with_time(event: Any) -> Any:
    """An event with its time as text; moto has seconds since 1970."""
    if not isinstance(event["time"], int | float):
        return event
    time = datetime.fromtimestamp(event["time"], UTC)
    return {**event, "time": time.isoformat(timespec="seconds").replace("+00:00", "Z")}
