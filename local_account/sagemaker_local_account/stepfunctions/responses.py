"""Responses of Step Functions' API that moto lacks or leaves incomplete."""

from __future__ import annotations

import datetime

from moto.core.responses import ActionResult, EmptyResult
from moto.stepfunctions.responses import StepFunctionResponse

from sagemaker_local_account.core.patches import add, patch


def install() -> None:
    """Patches moto, which drops StopExecution's error and cause, SendTaskFailure's cause, and the stop date of a time-out."""
    patch(StepFunctionResponse, "stop_execution", _stop_execution, "self")
    patch(StepFunctionResponse, "describe_execution", _describe_execution, "self")
    patch(StepFunctionResponse, "list_executions", _list_executions, "self")
    patch(StepFunctionResponse, "send_task_failure", _send_task_failure, "self")
    add(StepFunctionResponse, "redrive_execution", _redrive_execution)


def _stop_execution(self: StepFunctionResponse) -> ActionResult:
    execution = self.stepfunction_backend.stop_execution(
        self._get_param("executionArn"), error=self._get_param("error"), cause=self._get_param("cause")
    )
    return ActionResult({"stopDate": execution.stop_date or datetime.datetime.now(datetime.UTC)})


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


def _list_executions(self: StepFunctionResponse) -> ActionResult:
    executions, next_token = self.stepfunction_backend.list_executions(
        self._get_param("stateMachineArn"),
        status_filter=self._get_param("statusFilter"),
        max_results=self._get_int_param("maxResults"),
        next_token=self._get_param("nextToken"),
    )
    members = (
        "executionArn",
        "stateMachineArn",
        "name",
        "status",
        "startDate",
        "stopDate",
        "redriveCount",
        "redriveDate",
    )
    items = [
        {name: value for name, value in execution.described().items() if name in members} for execution in executions
    ]
    return ActionResult({"executions": items, "nextToken": next_token})
