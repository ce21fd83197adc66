"""Step Functions: moto's interpreter of state machines, put right where AWS does otherwise.

moto has two backends for Step Functions: one that only remembers and one that interprets. Here everybody gets the one
that interprets, state machines made by CloudFormation included, and its executions keep AWS's word: StopExecution and
TimeoutSeconds end an execution at once whatever its states are doing, an execution without a name is named, and each
change of status is an event on the default bus. What single states do differently from AWS is put right in
`interpreter.py`; what `sagemaker:createTrainingJob` and `aws-sdk:sagemaker:*` do is in `training_task.py`.
"""

from __future__ import annotations

import copy
import datetime
import json
import logging
import sys
import threading
import uuid
from collections.abc import Callable
from typing import Any

from moto.core.exceptions import AWSError
from moto.core.responses import ActionResult
from moto.stepfunctions import models as stepfunctions_models
from moto.stepfunctions.exceptions import ExecutionDoesNotExist, InvalidExecutionInput
from moto.stepfunctions.models import StateMachine
from moto.stepfunctions.parser.api import ExecutionStatus, InvalidDefinition
from moto.stepfunctions.parser.asl.component.state.exec.state_task.credentials import StateCredentials
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.evaluation_details import ExecutionDetails
from moto.stepfunctions.parser.asl.eval.program_state import ProgramStopped
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str
from moto.stepfunctions.parser.backend.execution import BaseExecutionWorkerCommunication, Execution
from moto.stepfunctions.parser.models import StepFunctionsParserBackend, stepfunctions_parser_backends
from moto.stepfunctions.responses import StepFunctionResponse

from . import events, interpreter, redrive, training_task
from .patches import add, patch
from .permissions import AccessDenied, Permissions
from .policies import Call

_log = logging.getLogger(__name__)

SERVICE = "states.amazonaws.com"

# The rules by which Step Functions learns of the ends of what it waits for, by the resource of the state that waits.
MANAGED_RULES = {
    ":states:::sagemaker:createTrainingJob.sync": "StepFunctionsGetEventsForSageMakerTrainingJobsRule",
    ":states:::states:startExecution.sync": "StepFunctionsGetEventsForStepFunctionsExecutionRule",
}

# How long StopExecution waits for an execution to notice, before it answers.
STOP_NOTICED_SECONDS = 5.0

# How long the end of a process waits for its executions to notice that they were stopped.
CLOSE_SECONDS = 2.0


def install(client_of_role: Callable[[str, str, str, str], Any], permissions: Permissions) -> None:
    """Make moto's Step Functions this account's. Repeated calls renew what states call through, and who may.

    ``client_of_role`` gives the client of a service in a region that acts as a role for a state machine.
    """
    Backend.permissions = permissions
    # moto's CloudFormation creates state machines in the backend that does not execute them, where the API, told to
    # execute, never looks. On AWS there is one Step Functions.
    patch(stepfunctions_models, "stepfunctions_backends", stepfunctions_parser_backends)
    patch(stepfunctions_parser_backends, "backend", Backend)
    _replace_client_of_states(client_of_role)
    # moto's has no code, which clients then show as "An error occurred ()".
    patch(InvalidDefinition, "TYPE", "InvalidDefinition")
    interpreter.install()
    redrive.install()
    training_task.install()
    # moto drops StopExecution's error and cause, and the stop date of an execution that timed out.
    patch(StepFunctionResponse, "stop_execution", _stop_execution, "self")
    patch(StepFunctionResponse, "describe_execution", _describe_execution, "self")
    patch(StepFunctionResponse, "list_executions", _list_executions, "self")
    add(StepFunctionResponse, "redrive_execution", _redrive_execution)


def _replace_client_of_states(client_of_role: Callable[[str, str, str, str], Any]) -> None:
    """moto's states call AWS with the keys "ak" and "sk", which the gate refuses; on AWS they act as the machine's role."""

    def client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        if state_credentials is None:
            raise NotImplementedError(f"the local account does not know as which role this state calls {service}")
        return client_of_role(service, region, state_credentials.role_arn, state_credentials.machine_arn)

    patch(StateTask, "_eval_state_credentials", _credentials_of_state, "self, env")
    # Each module has the function under a name of its own.
    for name, module in [*sys.modules.items()]:
        if name.startswith(("moto.stepfunctions.parser.", training_task.__name__)) and "boto_client_for" in vars(
            module
        ):
            patch(module, "boto_client_for", client_for, "region, service, state_credentials")


def _credentials_of_state(self: StateTask, env: Environment) -> StateCredentials:
    """moto's know the role, but not the machine that the role's trust policy may ask for."""
    credentials = _moto_credentials_of_state(self, env)
    credentials.machine_arn = env.states.context_object.context_object_data["StateMachine"]["Id"]
    return credentials


_moto_credentials_of_state = StateTask._eval_state_credentials


def stop_all() -> None:
    """Stop every execution that still runs; for the end of the account."""
    running = [
        execution
        for regions in stepfunctions_parser_backends.values()
        for backend in regions.values()
        for machine in backend.state_machines
        for execution in machine.executions
        if execution.exec_status == ExecutionStatus.RUNNING
    ]
    for execution in running:
        execution.request_stop(error=None, cause="the local account was closed")
    for execution in running:
        execution.ended.wait(CLOSE_SECONDS)


class AccessDeniedException(AWSError):
    """Step Functions' refusal of a role."""

    TYPE = "AccessDeniedException"
    STATUS = 400


class Backend(StepFunctionsParserBackend):
    """moto's executing backend with AWS's rules for names, for roles, for stopping and for deleted machines."""

    permissions: Permissions

    @property
    def _url_module(self) -> Any:
        # moto derives this from the class's own module.
        import moto.stepfunctions.urls

        return moto.stepfunctions.urls

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.deleted_machines: list[StateMachine] = []

    def create_state_machine(self, name: str, definition: str, roleArn: str, *args: Any, **kwargs: Any) -> StateMachine:
        arn = f"arn:{self.partition}:states:{self.region_name}:{self.account_id}:stateMachine:{name}"
        self._check_role(arn, definition, roleArn)
        machine: StateMachine = super().create_state_machine(name, definition, roleArn, *args, **kwargs)
        return machine

    def update_state_machine(
        self, arn: str, definition: str | None = None, role_arn: str | None = None, **kwargs: Any
    ) -> StateMachine:
        existing = self.describe_state_machine(arn)
        self._check_role(arn, definition or existing.definition, role_arn or existing.roleArn)
        machine: StateMachine = super().update_state_machine(arn, definition=definition, role_arn=role_arn, **kwargs)
        return machine

    def _check_role(self, machine_arn: str, definition: str, role_arn: str) -> None:
        """What waits for a job or an execution by `.sync` does so by a rule that its role must be able to make."""
        try:
            self.permissions.check_trust(role_arn, SERVICE, machine_arn)
            role = self.permissions.role(role_arn, "states")
        except LookupError as error:
            if not self.permissions.enforced:
                return
            raise AccessDeniedException(
                f"Neither the global service principal {SERVICE}, nor the regional one is authorized to assume the "
                f"provided role: {error}"
            ) from None
        for resource, rule in MANAGED_RULES.items():
            if resource not in definition:
                continue
            arn = f"arn:aws:events:{self.region_name}:{self.account_id}:rule/{rule}"
            try:
                for action in ("PutTargets", "PutRule", "DescribeRule"):
                    self.permissions.check(role, Call(f"events:{action}", arn))
            except AccessDenied as denied:
                raise AccessDeniedException(
                    f"'{role_arn}' is not authorized to create managed-rule: {denied}"
                ) from None

    def start_execution(
        self,
        state_machine_arn: str,
        name: str | None = None,
        execution_input: str | None = None,
        trace_header: str | None = None,
    ) -> AccountExecution:
        """Start an execution; without a name it gets a random one, as on AWS (in moto its name is None)."""
        if name is not None:
            self._validate_name(name)
        machine = self.describe_state_machine(state_machine_arn)
        execution_input = "{}" if execution_input is None else execution_input
        try:
            json.loads(execution_input)
        except ValueError as error:
            raise InvalidExecutionInput(f"Invalid State Machine Execution Input: '{error}'") from None
        if name is not None:
            existing = machine._handle_name_input_idempotency(name, execution_input)
            if isinstance(existing, AccountExecution):
                return existing
        name = name or str(uuid.uuid4())
        # The execution keeps the definition it started with; its live executions and the backend are not part of that.
        snapshot = copy.deepcopy(machine, {id(machine.executions): [], id(machine.backend): machine.backend})
        execution = AccountExecution(
            name=name,
            sm_type=snapshot.sm_type,
            role_arn=snapshot.roleArn,
            exec_arn=f"arn:{self.partition}:states:{self.region_name}:{self.account_id}:execution:{machine.name}:{name}",
            account_id=self.account_id,
            region_name=self.region_name,
            state_machine=snapshot,
            start_date=datetime.datetime.now(datetime.UTC),
            cloud_watch_logging_session=None,
            input_data=execution_input,
            trace_header=trace_header,
            activity_store={},
        )
        machine.executions.append(execution)
        execution.start()
        return execution

    def stop_execution(
        self, execution_arn: str, error: str | None = None, cause: str | None = None
    ) -> AccountExecution:
        execution = self.describe_execution(execution_arn)
        execution.request_stop(error=error, cause=cause)
        execution.ended.wait(STOP_NOTICED_SECONDS)
        return execution

    def redrive_execution(self, execution_arn: str, client_token: str | None) -> AccountExecution:
        execution = self.describe_execution(execution_arn)
        execution.redrive(client_token)
        return execution

    def delete_state_machine(self, arn: str) -> None:
        """Delete a machine; its executions go on to their ends and can be described, as on AWS (in moto they cannot)."""
        deleted = [machine for machine in self.state_machines if machine.arn == arn]
        super().delete_state_machine(arn)
        self.deleted_machines += [machine for machine in deleted if machine.executions]

    def describe_execution(self, execution_arn: str) -> AccountExecution:
        self._validate_execution_arn(execution_arn)
        for machine in [*self.state_machines, *self.deleted_machines]:
            for execution in machine.executions:
                if execution.execution_arn == execution_arn and isinstance(execution, AccountExecution):
                    return execution
        raise ExecutionDoesNotExist(f"Execution Does Not Exist: '{execution_arn}'")


class AccountExecution(Execution):
    """An execution that tells the event bus of each change of its status."""

    def __init__(self, **details: Any) -> None:
        super().__init__(**details)
        self.ended = threading.Event()
        self.redrive_count = 0
        self.redrive_date: datetime.datetime | None = None
        self._redriven_by: set[str] = set()
        self._redriving = threading.Lock()

    def get_start_execution_details(self) -> ExecutionDetails:
        details = super().get_start_execution_details()
        # $$.Execution.StartTime is a string on AWS; moto hands out a datetime, which no intrinsic function takes.
        details.start_time = events.iso(self.start_date)
        return details

    def start(self) -> None:
        super().start()
        events.execution_changed(self)

    def redrive(self, client_token: str | None) -> None:
        """Go on from the state that was not successful; once for each token."""
        with self._redriving:
            if client_token in self._redriven_by:
                return
            if (reason := redrive.why_not(self)) is not None:
                raise redrive.ExecutionNotRedrivable(reason)
            if client_token is not None:
                self._redriven_by.add(client_token)
            self.redrive_count += 1
            self.redrive_date = datetime.datetime.now(datetime.UTC)
            self.ended.clear()
            self.error = self.cause = self.stop_date = None
            former: Any = vars(self)["exec_worker"]
            worker = redrive.RedrivenWorker(former, self.redrive_count, self._get_start_execution_worker_comm())
            self.exec_worker = worker
            self.exec_status = ExecutionStatus.RUNNING
        events.execution_changed(self)
        worker.start()

    def request_stop(self, *, error: str | None, cause: str | None) -> None:
        """Ask the execution to end as ABORTED; `ended` is set once it has."""
        worker = self.exec_worker
        # The worker's thread makes its environment; StopExecution can come before it has.
        while worker is not None and worker.env is None and not self.ended.wait(0.01):
            pass
        if worker is not None and worker.env is not None:
            worker.env.set_stop(stop_date=datetime.datetime.now(datetime.UTC), cause=cause, error=error)

    def _get_start_execution_worker_comm(self) -> BaseExecutionWorkerCommunication:
        return _Communication(self)

    def described(self) -> dict[str, Any]:
        """DescribeExecution's output."""
        reason = redrive.why_not(self)
        description = {
            "executionArn": self.exec_arn,
            "stateMachineArn": self.state_machine.arn,
            "name": self.name,
            "status": self.status,
            "startDate": self.start_date,
            "input": self.execution_input,
            "inputDetails": {"included": True},
            "redriveCount": self.redrive_count,
            "redriveDate": self.redrive_date,
            "redriveStatus": "REDRIVABLE" if reason is None else "NOT_REDRIVABLE",
            "redriveStatusReason": reason,
            "stopDate": self.stop_date,
            "error": self.error,
            "cause": self.cause,
        }
        if self.exec_status == ExecutionStatus.SUCCEEDED:
            description["output"] = to_json_str(self.output, separators=(",", ":"))
            description["outputDetails"] = {"included": True}
        return {name: value for name, value in description.items() if value is not None}


class _Communication(BaseExecutionWorkerCommunication):
    execution: AccountExecution

    def terminated(self) -> None:
        super().terminated()
        state = self.execution.exec_worker.env.program_state()
        if isinstance(state, ProgramStopped):
            self.execution.error = state.error
            self.execution.cause = state.cause
        try:
            events.execution_changed(self.execution)
        finally:
            self.execution.ended.set()


def _stop_execution(self: StepFunctionResponse) -> ActionResult:
    execution = self.stepfunction_backend.stop_execution(
        self._get_param("executionArn"), error=self._get_param("error"), cause=self._get_param("cause")
    )
    return ActionResult({"stopDate": execution.stop_date or datetime.datetime.now(datetime.UTC)})


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
