"""Responses of Step Functions' API that moto lacks or leaves incomplete."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from moto.core.exceptions import AWSError
from moto.core.responses import ActionResult, EmptyResult
from moto.stepfunctions.exceptions import InvalidToken
from moto.stepfunctions.parser.asl.static_analyser.variable_references_static_analyser import (
    VariableReferencesStaticAnalyser,
)
from moto.stepfunctions.responses import StepFunctionResponse

from sagemaker_local_account.aws.stepfunctions import definitions
from sagemaker_local_account.aws.stepfunctions.item_execution import ItemExecution
from sagemaker_local_account.aws.stepfunctions.single_state import SingleState
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import add, patch
from sagemaker_local_account.core.service_errors import ServiceError, check

# The items of a page, where the request says none.
_PAGE = 100
# ExecutionStatus as botocore has it; AWS lists it in another order (test_sfn_api.py::test_state_machine_status_filter).
_STATUSES = "RUNNING, SUCCEEDED, FAILED, TIMED_OUT, ABORTED, PENDING_REDRIVE"
_ROUTES = "self, routing_configuration"
_DATA = ("input", "output")


def install() -> None:
    """Patches moto, which drops StopExecution's error and cause, SendTaskFailure's cause, and the stop date of a time-out."""
    patch(StepFunctionResponse, "_authenticate_and_authorize_normal_action", _authenticate, "self, resource")
    patch(StepFunctionResponse, "_validate_routing_configuration", lambda self, routes: None, _ROUTES)
    patch(StepFunctionResponse, "list_state_machines", _list_state_machines, "self")
    patch(StepFunctionResponse, "list_state_machine_aliases", _list_state_machine_aliases, "self")
    add(StepFunctionResponse, "list_state_machine_versions", _list_state_machine_versions)
    add(StepFunctionResponse, "publish_state_machine_version", _publish_state_machine_version)
    add(StepFunctionResponse, "delete_state_machine_version", _delete_state_machine_version)
    add(StepFunctionResponse, "get_activity_task", _get_activity_task)
    patch(StepFunctionResponse, "stop_execution", _stop_execution, "self")
    patch(StepFunctionResponse, "describe_execution", _describe_execution, "self")
    patch(StepFunctionResponse, "list_executions", _list_executions, "self")
    patch(StepFunctionResponse, "send_task_failure", _send_task_failure, "self")
    patch(StepFunctionResponse, "get_execution_history", _get_execution_history, "self")
    patch(StepFunctionResponse, "_describe_state_machine", _describe_state_machine, "self, state_machine_arn")
    patch(StepFunctionResponse, "describe_state_machine_for_execution", _describe_for_execution, "self")
    patch(StepFunctionResponse, "update_state_machine", _with_revision, "self")
    add(StepFunctionResponse, "redrive_execution", _redrive_execution)
    add(StepFunctionResponse, "start_sync_execution", _start_sync_execution)
    add(StepFunctionResponse, "test_state", _test_state)
    add(StepFunctionResponse, "validate_state_machine_definition", _validate_state_machine_definition)


def _authenticate(self: StepFunctionResponse, resource: str) -> None:
    """Validates each request against the service's model, which moto does not."""
    _moto_authenticate(self, resource)
    try:
        check(self._get_action(), json.loads(self.body or "{}"), "stepfunctions")
    except ServiceError as error:
        message = error.message.replace(_STATUSES, "SUCCEEDED, TIMED_OUT, PENDING_REDRIVE, ABORTED, FAILED, RUNNING")
        raise AWSError(message, error.code) from None


_moto_authenticate = StepFunctionResponse._authenticate_and_authorize_normal_action


def _page(self: StepFunctionResponse, items: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
    """The page of a list that a request names, and the token of the next one."""
    given = self._get_param("nextToken")
    starts = {_token(start): start for start in range(len(items))} if given else {None: 0}
    if given not in starts:
        raise InvalidToken("'Invalid token'")
    start = starts[given]
    end = start + (self._get_int_param("maxResults") or _PAGE)
    return items[start:end], _token(end) if end < len(items) else None


def _token(start: int) -> str:
    return base64.b64encode(f"the items from {start}".encode()).decode()


def _list_state_machines(self: StepFunctionResponse) -> ActionResult:
    machines, token = _page(self, self.stepfunction_backend.list_state_machines())
    items = [
        {"creationDate": it.creation_date, "name": it.name, "stateMachineArn": it.arn, "type": it.type}
        for it in machines
    ]
    return ActionResult({"stateMachines": items, "nextToken": token})


def _list_state_machine_versions(self: StepFunctionResponse) -> ActionResult:
    versions, token = _page(self, self.stepfunction_backend.list_versions(self._get_param("stateMachineArn")))
    return ActionResult({"stateMachineVersions": [_version(it) for it in versions], "nextToken": token})


def _version(version: Any) -> dict[str, Any]:
    return {"stateMachineVersionArn": version.arn, "creationDate": version.creation_date}


def _publish_state_machine_version(self: StepFunctionResponse) -> ActionResult:
    backend = self.stepfunction_backend
    machine = backend.own_machine(self._get_param("stateMachineArn"))
    return ActionResult(
        _version(backend.publish(machine, self._get_param("description"), self._get_param("revisionId")))
    )


def _delete_state_machine_version(self: StepFunctionResponse) -> ActionResult:
    self.stepfunction_backend.delete_version(self._get_param("stateMachineVersionArn"))
    return EmptyResult()


def _list_state_machine_aliases(self: StepFunctionResponse) -> ActionResult:
    machine, version, _ = self.stepfunction_backend.machine_of(self._get_param("stateMachineArn"))
    aliases = [
        it
        for it in machine.aliases.values()
        if version is None or version.arn in [route["stateMachineVersionArn"] for route in it.routing_configuration]
    ]
    page, token = _page(self, aliases)
    items = [{"stateMachineAliasArn": it.arn, "creationDate": it.creation_date} for it in page]
    return ActionResult({"stateMachineAliases": items, "nextToken": token})


def _get_activity_task(self: StepFunctionResponse) -> ActionResult:
    task = self.stepfunction_backend.get_activity_task(self._get_param("activityArn"), self._get_param("workerName"))
    return EmptyResult() if task is None else ActionResult({"taskToken": task.task_token, "input": task.task_input})


def _stop_execution(self: StepFunctionResponse) -> ActionResult:
    execution = self.stepfunction_backend.stop_execution(
        self._get_param("executionArn"), error=self._get_param("error"), cause=self._get_param("cause")
    )
    return ActionResult({"stopDate": execution.stop_date or CLOCK.now()})


def _send_task_failure(self: StepFunctionResponse) -> ActionResult:
    self.stepfunction_backend.send_task_failure(
        self._get_param("taskToken"), error=self._get_param("error"), cause=self._get_param("cause")
    )
    return EmptyResult()


def _redrive_execution(self: StepFunctionResponse) -> ActionResult:
    execution = self.stepfunction_backend.redrive_execution(
        self._get_param("executionArn"), self._get_param("clientToken")
    )
    return ActionResult({"redriveDate": execution.redrive_date})


def _describe_execution(self: StepFunctionResponse) -> ActionResult:
    return ActionResult(self.stepfunction_backend.describe_execution(self._get_param("executionArn")).described())


def _get_execution_history(self: StepFunctionResponse) -> ActionResult:
    """Pages of a history, also from its end; moto returns all events in their order, whatever the request says."""
    history = self.stepfunction_backend.get_execution_history(self._get_param("executionArn"))
    events = history["events"]
    if self._get_param("reverseOrder"):
        events = events[::-1]
    if self._get_param("includeExecutionData") is False:
        events = [_without_data(event) for event in events]
    page, token = _page(self, events)
    return ActionResult({"events": page, "nextToken": token})


def _without_data(event: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {key: it for key, it in value.items() if key not in _DATA} if isinstance(value, dict) else value
        for name, value in event.items()
    }


def _describe_state_machine(self: StepFunctionResponse, state_machine_arn: str) -> ActionResult:
    machine = self.stepfunction_backend.describe_state_machine(state_machine_arn)
    return ActionResult(
        {"status": "ACTIVE", "type": machine.type, "creationDate": machine.creation_date, **_machine(machine)}
    )


def _machine(machine: Any) -> dict[str, Any]:
    described = {
        "stateMachineArn": machine.arn,
        "definition": machine.definition,
        "name": machine.name,
        "roleArn": machine.roleArn,
        "encryptionConfiguration": machine.encryptionConfiguration,
        "tracingConfiguration": machine.tracingConfiguration,
        "loggingConfiguration": machine.loggingConfiguration,
        "description": machine.description,
        "revisionId": getattr(machine, "revision_id", None),
        "variableReferences": VariableReferencesStaticAnalyser.process_and_get(machine.definition),
    }
    return {name: value for name, value in described.items() if value}


def _describe_for_execution(self: StepFunctionResponse) -> ActionResult:
    """The definition with which an execution started; moto's is that of today, with other members."""
    execution = self.stepfunction_backend.describe_execution(self._get_param("executionArn"))
    if isinstance(execution, ItemExecution):
        execution = self.stepfunction_backend.describe_execution(execution.parent_arn)
    machine = execution.state_machine
    return ActionResult({**_machine(machine), "updateDate": machine.update_date})


def _with_revision(self: StepFunctionResponse) -> ActionResult:
    result = _moto_update_state_machine(self)
    machine = self.stepfunction_backend.describe_state_machine(self._get_param("stateMachineArn"))
    return ActionResult({**result.result, "revisionId": getattr(machine, "revision_id", None)})


_moto_update_state_machine = StepFunctionResponse.update_state_machine


def _start_sync_execution(self: StepFunctionResponse) -> ActionResult:
    execution = self.stepfunction_backend.start_sync_execution(
        self._get_param("stateMachineArn"), self._get_param("name"), self._get_param("input")
    )
    described = execution.described()
    members = (
        "executionArn", "stateMachineArn", "name", "startDate", "stopDate", "status", "input", "inputDetails", "output",
        "outputDetails", "error", "cause",
    )  # fmt: skip
    # The billed memory is that of the smallest chunk (`test_sfn_api_express.py::test_start_sync_execution`).
    took = (execution.stop_date or execution.start_date) - execution.start_date
    billed = max(1, -(-int(took.total_seconds() * 1000) // 100)) * 100
    return ActionResult(
        {
            # test_express_sync.py::test_base[BASE_RAISE_FAILURE]: also of an execution that failed.
            "outputDetails": {"included": True},
            **{name: described[name] for name in members if name in described},
            "billingDetails": {"billedDurationInMilliseconds": billed, "billedMemoryUsedInMB": 64},
        }
    )


def _test_state(self: StepFunctionResponse) -> ActionResult:
    return ActionResult(SingleState(json.loads(self.body), self.region, self.current_account).run())


def _validate_state_machine_definition(self: StepFunctionResponse) -> ActionResult:
    most = self._get_int_param("maxResults") or 100
    found = definitions.diagnostics(self._get_param("definition"), self._get_param("type") or "STANDARD")
    return ActionResult(
        {"result": "FAIL" if found else "OK", "diagnostics": found[:most], "truncated": len(found) > most}
    )


def _list_executions(self: StepFunctionResponse) -> ActionResult:
    machine, run, status = map(self._get_param, ("stateMachineArn", "mapRunArn", "statusFilter"))
    states = self.stepfunction_backend
    found = states.item_executions(run, status) if run else states.list_executions(machine, status)
    executions, token = _page(self, found)
    members = (
        "executionArn", "stateMachineArn", "stateMachineVersionArn", "stateMachineAliasArn", "mapRunArn", "name", "status",
        "startDate", "stopDate", "redriveCount", "redriveDate",
    )  # fmt: skip
    items = [
        {name: value for name, value in execution.described().items() if name in members} for execution in executions
    ]
    return ActionResult({"executions": items, "nextToken": token})
