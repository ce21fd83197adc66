"""The events that the account's services put on the default event bus.

Executions and training jobs put an event for each change of their status; executions are also counted in CloudWatch's metrics.
moto matches events to rules; `targets.py` delivers them.
"""

from __future__ import annotations

import copy
import datetime
import logging
import uuid
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.events.models import events_backends

from sagemaker_local_account.core.location import Location, region_of
from sagemaker_local_account.faults import Faults, LostEvent

_log = logging.getLogger(__name__)
_faults = Faults()  # of the process's account

# The metric that counts an execution with a status, in the namespace AWS/States.
_METRICS = {
    "RUNNING": "ExecutionsStarted",
    "SUCCEEDED": "ExecutionsSucceeded",
    "FAILED": "ExecutionsFailed",
    "ABORTED": "ExecutionsAborted",
    "TIMED_OUT": "ExecutionsTimedOut",
}


def iso(time: datetime.datetime) -> str:
    """Returns a time in ISO 8601 in UTC, with milliseconds."""
    return time.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(time: datetime.datetime) -> int:
    """Returns a time as milliseconds since 1970."""
    return round(time.timestamp() * 1000)


def with_times_in_milliseconds(value: Any) -> Any:
    """Returns a copy with each datetime as milliseconds since 1970, the format of events and of `.sync` tasks."""
    if isinstance(value, datetime.datetime):
        return milliseconds(value)
    if isinstance(value, list):
        return [with_times_in_milliseconds(item) for item in value]
    if isinstance(value, dict):
        return {name: with_times_in_milliseconds(item) for name, item in value.items()}
    return value


def execution_changed(execution: Any) -> None:
    """Puts the event "Step Functions Execution Status Change" of a standard execution, and the metrics of AWS/States."""
    described = execution.described()
    _count(described)
    if ":express:" in described["executionArn"]:
        return
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
        "redriveCount": described["redriveCount"],
        "redriveDate": milliseconds(described["redriveDate"]) if "redriveDate" in described else None,
        "redriveStatus": described["redriveStatus"],
        "redriveStatusReason": described.get("redriveStatusReason"),
        "stateMachineVersionArn": None,
        "stateMachineAliasArn": None,
    }
    if described["status"] != "RUNNING" and _is_lost(described):
        return
    put_event(described["executionArn"], "aws.states", "Step Functions Execution Status Change", detail)


def lose(faults: Faults) -> None:
    """Loses events of executions as the faults of an account say."""
    global _faults
    _faults = faults


def _is_lost(described: dict[str, Any]) -> bool:
    # "in rare cases an event might not be delivered" (EventBridge's reference, "Delivery level for AWS service events").
    machine = described["stateMachineArn"].rpartition(":")[2]
    faults = [
        fault
        for fault in _faults.of(LostEvent)
        if fault.status in ("", described["status"]) and fault.machine in machine
    ]
    if not any(_faults.consume(fault) for fault in faults[:1]):
        return False
    _log.info("the event that %s is %s was lost", described["executionArn"], described["status"])
    return True


def _count(described: dict[str, Any]) -> None:
    """Puts Step Functions' metrics of an execution's start or end."""
    now = datetime.datetime.now(datetime.UTC)
    metrics = [{"MetricName": _METRICS[described["status"]], "Value": 1.0, "Unit": "Count"}]
    if "stopDate" in described:
        took = milliseconds(described["stopDate"]) - milliseconds(described["startDate"])
        metrics.append({"MetricName": "ExecutionTime", "Value": float(took), "Unit": "Milliseconds"})
    dimensions = [{"Name": "StateMachineArn", "Value": described["stateMachineArn"]}]
    _, _, _, region, account, *_ = described["stateMachineArn"].split(":")
    cloudwatch_backends[account][region].put_metric_data(
        "AWS/States", [{**metric, "Dimensions": dimensions, "Timestamp": now} for metric in metrics]
    )


def training_job_changed(job: dict[str, Any]) -> None:
    """Puts the event "SageMaker Training Job State Change" with the job's description."""
    detail = with_times_in_milliseconds(job)
    put_event(job["TrainingJobArn"], "aws.sagemaker", "SageMaker Training Job State Change", detail)


def put_event(
    resource: str, source: str, detail_type: str, detail: dict[str, Any], location: Location | None = None
) -> None:
    """Puts an event on the default bus of a resource's region.

    Args:
        resource: the ARN of the resource.
        source: such as "aws.sagemaker".
        detail_type: the event's `detail-type`.
        detail: the event's `detail`.
        location: of a resource whose ARN has neither account nor region.
    """
    account, region = (location.account, location.region) if location else (resource.split(":")[4], region_of(resource))
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
