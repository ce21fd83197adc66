"""EventBridge: what the account itself says on the default bus, and whom it tells.

Executions and training jobs announce each change of their status as on AWS. moto matches rules to events and delivers
to log groups, queues and other buses; to state machines it does not deliver, and its targets know no Input or InputPath.
"""

from __future__ import annotations

import copy
import datetime
import json
import logging
import re
import uuid
from typing import Any

from moto.events.models import Rule, events_backends
from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError, extract_json
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from .permissions import Permissions
from .policies import Call

SERVICE = "events.amazonaws.com"

_log = logging.getLogger(__name__)
_moto_send_to_targets = Rule.send_to_targets


class _Under:
    """The permissions under which rules reach their targets, those of the account that was started last."""

    permissions: Permissions


def install(permissions: Permissions) -> None:
    _Under.permissions = permissions
    Rule.send_to_targets = _send_to_targets


def iso(time: datetime.datetime) -> str:
    return time.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(time: datetime.datetime) -> int:
    return round(time.timestamp() * 1000)


def with_times_in_milliseconds(value: Any) -> Any:
    """A copy with each datetime as milliseconds since 1970: how events and `.sync` write times."""
    if isinstance(value, datetime.datetime):
        return milliseconds(value)
    if isinstance(value, list):
        return [with_times_in_milliseconds(item) for item in value]
    if isinstance(value, dict):
        return {name: with_times_in_milliseconds(item) for name, item in value.items()}
    return value


def execution_changed(execution: Any) -> None:
    """Announce an execution's new status ("Step Functions Execution Status Change")."""
    described = execution.described()
    output = described.get("output")
    detail = {
        "executionArn": described["executionArn"],
        "stateMachineArn": described["stateMachineArn"],
        "name": described["name"],
        "status": described["status"],
        "startDate": milliseconds(described["startDate"]),
        "stopDate": milliseconds(described["stopDate"]) if "stopDate" in described else None,
        "input": described["input"],
        "inputDetails": {"included": True},
        "output": output,
        "outputDetails": None if output is None else {"included": True},
        "error": described.get("error"),
        "cause": described.get("cause"),
        "redriveCount": 0,
        "redriveDate": None,
        "redriveStatus": described["redriveStatus"],
        "redriveStatusReason": described["redriveStatusReason"],
        "stateMachineVersionArn": None,
        "stateMachineAliasArn": None,
    }
    _announce(described["executionArn"], "aws.states", "Step Functions Execution Status Change", detail)


def training_job_changed(job: dict[str, Any]) -> None:
    """Announce a training job's new status ("SageMaker Training Job State Change"): its whole description."""
    detail = with_times_in_milliseconds(job)
    _announce(job["TrainingJobArn"], "aws.sagemaker", "SageMaker Training Job State Change", detail)


def _announce(resource: str, source: str, detail_type: str, detail: dict[str, Any]) -> None:
    _, _, _, region, account, *_ = resource.split(":")
    backend = events_backends[account][region]
    now = datetime.datetime.now(datetime.UTC)
    event = {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": detail_type,
        "source": source,
        "account": account,
        "time": now.timestamp(),
        "region": region,
        "resources": [resource],
        "detail": detail,
    }
    for rule in list(backend.describe_event_bus("default").rules.values()):
        rule.send_to_targets(copy.deepcopy(event))


def _send_to_targets(self: Rule, original_event: Any, transform_input: bool = True) -> None:
    """moto delivers to disabled rules, takes a schedule for a pattern that matches everything, and stops at the first
    target it does not know. Here each target has its own try, and what cannot be delivered is in the account's log."""
    if self.state == "DISABLED" or (self.scheduled_expression and not self.event_pattern.get_pattern()):
        return
    if not self.event_pattern.matches_event(original_event):
        return
    for target in list(self.targets):
        try:
            if ":states:" in target["Arn"] and ":stateMachine:" in target["Arn"]:
                _start_execution(self.arn, target, original_event)
            else:
                alone = copy.copy(self)
                alone.targets = [target]
                _moto_send_to_targets(alone, original_event, transform_input)
        except Exception:
            _log.exception("rule %s: event not delivered to %s", self.name, target["Arn"])


def _start_execution(rule_arn: str, target: dict[str, Any], event: Any) -> None:
    _, _, _, region, account, *_ = target["Arn"].split(":")
    backend = stepfunctions_parser_backends[account][region]
    permissions = _Under.permissions
    if permissions.enforced:
        # On AWS a target without leave shows as a failed invocation of the rule, and here in the account's log.
        permissions.check_trust(target["RoleArn"], SERVICE, rule_arn)
        role = permissions.role(target["RoleArn"], "events")
        permissions.check(role, Call("states:StartExecution", target["Arn"]))
    execution = backend.start_execution(target["Arn"], execution_input=_target_input(target, event))
    _log.info("%s started by an event of %s", execution.execution_arn, event["source"])


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
