"""Step Functions: moto's interpreter of state machines, with corrections where it differs from AWS.

moto has two backends for Step Functions, of which one does not execute. Here all clients use the one that executes, also for
state machines made by CloudFormation, with these corrections: StopExecution and TimeoutSeconds end an execution at once, an
execution without a name gets one, and each change of status is an event on the default bus. Corrections of single states are in
`asl_patches.py`; `sagemaker:createTrainingJob` and `aws-sdk:sagemaker:*` are in `sagemaker_tasks.py`.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from moto.core.exceptions import AWSError
from moto.stepfunctions import models as stepfunctions_models
from moto.stepfunctions.exceptions import ExecutionDoesNotExist, InvalidArn, InvalidExecutionInput, ResourceNotFound
from moto.stepfunctions.models import StateMachine
from moto.stepfunctions.parser import api as parser_api
from moto.stepfunctions.parser.api import (
    ExecutionStatus,
    InvalidLoggingConfiguration,
    StateMachineAlreadyExists,
    StateMachineTypeNotSupported,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.credentials import StateCredentials
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.models import stepfunctions_parser_backends
from typing_extensions import override

from sagemaker_local_account.aws.stepfunctions import (
    asl_patches,
    callbacks,
    definitions,
    distributed_map,
    errors,
    jsonata,
    redrive,
    responses,
    sagemaker_tasks,
    service_calls,
)
from sagemaker_local_account.aws.stepfunctions import execution as executions
from sagemaker_local_account.aws.stepfunctions.execution import AccountExecution, validate_log_group
from sagemaker_local_account.aws.stepfunctions.item_execution import ItemExecution
from sagemaker_local_account.aws.stepfunctions.versions import CONTENT, Versions
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.iam.authorizer import AccessDenied, Authorizer
from sagemaker_local_account.iam.policies import Call

_log = logging.getLogger(__name__)

SERVICE = "states.amazonaws.com"

# The managed rules by which Step Functions is notified of the end of a job or execution, by the resource of the waiting state.
MANAGED_RULES = {
    ":states:::sagemaker:createTrainingJob.sync": "StepFunctionsGetEventsForSageMakerTrainingJobsRule",
    ":states:::states:startExecution.sync": "StepFunctionsGetEventsForStepFunctionsExecutionRule",
}

# How long StopExecution waits for the execution's end before it answers.
STOP_SECONDS = 5.0


# How long the end of the account waits for the end of each execution.
CLOSE_SECONDS = 2.0


def install(client_of_role: Callable[[str, str, str, str], Any], authorizer: Authorizer) -> None:
    """Patches moto's Step Functions.

    Args:
        client_of_role: returns the client with which a state calls a service: of service, region, role ARN and state machine ARN.
        authorizer: evaluates the permissions of roles.
    """
    Backend.authorizer = authorizer
    # moto's CloudFormation creates state machines in the backend that does not execute.
    patch(stepfunctions_models, "stepfunctions_backends", stepfunctions_parser_backends)
    patch(stepfunctions_parser_backends, "backend", Backend)
    _replace_client_of_states(client_of_role)
    # moto's errors of the interpreter have no error code: clients show "An error occurred ()".
    for error in AWSError.__subclasses__():
        if error.__module__ == parser_api.__name__:
            patch(error, "TYPE", error.__name__)
    asl_patches.install()
    callbacks.install()
    jsonata.install()
    errors.install()
    executions.install()
    distributed_map.install(authorizer)
    redrive.install()
    sagemaker_tasks.install()
    service_calls.install()
    responses.install()


def _replace_client_of_states(client_of_role: Callable[[str, str, str, str], Any]) -> None:
    """Makes states call services with the role of their state machine; moto's use the keys "ak" and "sk"."""

    def client_for(region: str, service: str, state_credentials: Any = None) -> Any:
        if state_credentials is None:
            raise NotImplementedError(f"the local account has no role with which this state calls {service}")
        client = client_of_role(service, region, state_credentials.role_arn, state_credentials.machine_arn)
        return service_calls.keep_metadata(client)

    patch(StateTask, "_eval_state_credentials", _credentials_of_state, "self, env")
    # Each module has imported the function.
    for name, module in [*sys.modules.items()]:
        if name.startswith(("moto.stepfunctions.parser.", sagemaker_tasks.__name__)) and "boto_client_for" in vars(
            module
        ):
            patch(module, "boto_client_for", client_for, "region, service, state_credentials")


def _credentials_of_state(self: StateTask, env: Environment) -> StateCredentials:
    """Adds the state machine, which moto's lack, for aws:SourceArn in the role's trust policy."""
    credentials = _moto_credentials_of_state(self, env)
    credentials.machine_arn = env.states.context_object.context_object_data["StateMachine"]["Id"]
    return credentials


_moto_credentials_of_state = StateTask._eval_state_credentials


def stop_all() -> None:
    """Stops every running execution, for the end of the account."""
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
    jsonata.close()


class AccessDeniedException(AWSError):
    """Step Functions' error for a role without the permissions."""

    TYPE = "AccessDeniedException"
    STATUS = 400


def _logging(configuration: dict[str, Any] | None) -> dict[str, Any]:
    """A LoggingConfiguration with its defaults.

    Raises:
        InvalidLoggingConfiguration: it has a level and not one destination that exists (`test_sfn_api_logs.py`).
    """
    given = {"level": "OFF", "includeExecutionData": False, **(configuration or {})}
    destinations = given.get("destinations") or []
    if len(destinations) > 1 or (given["level"] != "OFF" and not destinations):
        raise InvalidLoggingConfiguration("Invalid Logging Configuration: Must specify exactly one Log Destination.")
    if destinations and not validate_log_group(given):
        raise InvalidLoggingConfiguration("Invalid Logging Configuration: Log Destination not found.")
    return given


def _revised(machine: StateMachine) -> tuple[Any, ...]:
    """What makes a new revision where it changes."""
    return machine.definition, machine.roleArn, machine.loggingConfiguration, machine.tracingConfiguration


class Backend(callbacks.Callbacks, Versions):
    """moto's executing backend with AWS's rules for names, roles, stopping and deleted state machines."""

    authorizer: Authorizer

    @property
    def _url_module(self) -> Any:
        # moto derives this from the class's own module.
        import moto.stepfunctions.urls

        return moto.stepfunctions.urls

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.deleted_machines: list[StateMachine] = []

    @override
    def create_state_machine(
        self,
        name: str,
        definition: str,
        roleArn: str,
        tags: Any = None,
        publish: bool | None = None,
        loggingConfiguration: dict[str, Any] | None = None,
        tracingConfiguration: dict[str, Any] | None = None,
        encryptionConfiguration: dict[str, Any] | None = None,
        version_description: str | None = None,
        sm_type: str | None = None,
    ) -> StateMachine:
        """Creates a state machine; the same call again returns it, and another with its name is an error.

        "CreateStateMachine's idempotency check is based on the state machine name, definition, type, LoggingConfiguration,
        TracingConfiguration, and EncryptionConfiguration" (API reference). In moto the second definition is lost.
        """
        arn = f"arn:{self.partition}:states:{self.region_name}:{self.account_id}:stateMachine:{name}"
        logging_configuration = _logging(loggingConfiguration)
        definitions.check(definition, sm_type or "STANDARD")
        self._check_role(arn, definition, roleArn)
        existing = next((machine for machine in self.state_machines if machine.arn == arn), None)
        if existing is not None and (
            definition != existing.definition
            or (sm_type or "STANDARD") != existing.type
            or logging_configuration != existing.loggingConfiguration
            or (tracingConfiguration or {"enabled": False}) != existing.tracingConfiguration
        ):
            raise StateMachineAlreadyExists(f"State Machine Already Exists: '{arn}'")
        machine: StateMachine = super().create_state_machine(
            name,
            definition,
            roleArn,
            tags,
            publish,
            logging_configuration,
            tracingConfiguration,
            encryptionConfiguration,
            version_description,
            sm_type,
        )
        machine.sm_type = machine.type
        return machine

    @override
    def tag_resource(self, arn: str, tags: dict[str, str]) -> None:
        """Tags a state machine or activity; a version has no tags (`test_sfn_api_tagging.py::test_tag_state_machine_version`)."""
        if arn not in self.activities and arn not in [machine.arn for machine in self.state_machines]:
            raise ResourceNotFound(arn)
        super().tag_resource(arn, tags)

    @override
    def list_state_machines(self) -> list[StateMachine]:
        # By name (test_sfn_api.py::test_list_sms_pagination).
        return sorted(self.state_machines, key=lambda machine: machine.name)

    @override
    def list_executions(self, state_machine_arn: str, status_filter: str | None = None) -> list[AccountExecution]:
        """The executions of a state machine, or of one of its versions or aliases, the latest first."""
        machine, version, alias = self.machine_of(state_machine_arn)
        if machine.type == "EXPRESS":
            raise StateMachineTypeNotSupported("This operation is not supported by this type of state machine")
        found = [
            it
            for it in machine.executions
            if (status_filter in (None, it.status))
            and (alias is None or it.alias_arn == alias.arn)
            and (alias is not None or version is None or it.version_arn == version.arn)
        ]
        return sorted(found, key=lambda it: it.start_date, reverse=True)

    @override
    def update_state_machine(
        self, arn: str, definition: str | None = None, role_arn: str | None = None, **kwargs: Any
    ) -> StateMachine:
        existing = self.own_machine(arn)
        if definition is not None:
            definitions.check(definition, existing.type)
        if kwargs.get("logging_configuration"):
            kwargs["logging_configuration"] = _logging(kwargs["logging_configuration"])
        self._check_role(arn, definition or existing.definition, role_arn or existing.roleArn)
        publish, description = kwargs.pop("publish", None), kwargs.pop("version_description", None)
        before = _revised(existing)
        machine: StateMachine = super().update_state_machine(arn, definition=definition, role_arn=role_arn, **kwargs)
        if before != _revised(machine):
            # test_sfn_api.py::test_create_update_state_machine_same_parameters: the same values are the same revision.
            machine.revision_id = str(uuid.uuid4())
        if publish:
            machine.latest_version = self.publish(machine, description)
        return machine

    @override
    def _validate_arn(self, arn: str, regex: Any, invalid_msg: str) -> None:
        if not arn.startswith("arn:"):
            raise InvalidArn(f"Invalid Arn: 'Invalid ARN prefix: {arn}'")
        super()._validate_arn(arn, regex, invalid_msg)

    def _check_role(self, machine_arn: str, definition: str, role_arn: str) -> None:
        """Checks the trust policy, and that the role can create the managed rules of `.sync` tasks."""
        try:
            self.authorizer.check_trust(role_arn, SERVICE, machine_arn)
            role = self.authorizer.role(role_arn, "states")
        except LookupError as error:
            if not self.authorizer.enforced:
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
                    self.authorizer.check(role, Call(f"events:{action}", arn))
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
        """Starts an execution; without a name it gets a random one, as on AWS (in moto None)."""
        if name is not None:
            self._validate_name(name)
        machine, version, alias = self.machine_of(state_machine_arn)
        execution_input = "{}" if execution_input is None else execution_input
        try:
            json.loads(execution_input)
        except json.JSONDecodeError as error:
            # test_sfn_api.py::test_invalid_start_execution_input
            text = definitions.jackson(execution_input, error)[0] if execution_input else "Invalid execution input."
            raise InvalidExecutionInput(f"Invalid State Machine Execution Input: '{text}'") from None
        except RecursionError:
            text = "Document nesting depth exceeds the maximum allowed"
            raise InvalidExecutionInput(f"Invalid State Machine Execution Input: '{text}'") from None
        if name is not None and machine.type != "EXPRESS":
            existing = machine._handle_name_input_idempotency(name, execution_input)
            if isinstance(existing, AccountExecution):
                return existing
        name = name or str(uuid.uuid4())
        arn = f"arn:{self.partition}:states:{self.region_name}:{self.account_id}:execution:{machine.name}:{name}"
        if machine.type == "EXPRESS":
            arn = arn.replace(":execution:", ":express:") + f":{uuid.uuid4()}"
        # The execution keeps the definition it started with, without a copy of the executions and the backend.
        snapshot = copy.deepcopy(machine, {id(machine.executions): [], id(machine.backend): machine.backend})
        if version is not None:
            vars(snapshot).update({name: getattr(version, name, None) for name in (*CONTENT, "revision_id")})
        execution = AccountExecution(
            name=name,
            sm_type=snapshot.sm_type,
            role_arn=snapshot.roleArn,
            exec_arn=arn,
            account_id=self.account_id,
            region_name=self.region_name,
            state_machine=snapshot,
            start_date=CLOCK.now(),
            cloud_watch_logging_session=None,
            input_data=execution_input,
            trace_header=trace_header,
            activity_store=self.activities,
            version_arn=version and version.arn,
            alias_arn=alias and alias.arn,
        )
        machine.executions.append(execution)
        execution.start()
        return execution

    def start_sync_execution(self, arn: str, name: str | None, execution_input: str | None) -> AccountExecution:
        """Runs an express state machine to its end; raises StateMachineTypeNotSupported for others."""
        if self.machine_of(arn)[0].type != "EXPRESS":
            raise StateMachineTypeNotSupported("This operation is not supported by this type of state machine")
        execution = self.start_execution(arn, name, execution_input)
        execution.ended.wait()
        return execution

    @override
    def stop_execution(
        self, execution_arn: str, error: str | None = None, cause: str | None = None
    ) -> AccountExecution:
        execution = self.describe_execution(execution_arn)
        execution.request_stop(error=error, cause=cause)
        execution.ended.wait(STOP_SECONDS)
        return execution

    def redrive_execution(self, execution_arn: str, client_token: str | None) -> AccountExecution:
        """Redrives an execution; raises ExecutionNotRedrivable."""
        execution = self.describe_execution(execution_arn)
        if isinstance(execution, ItemExecution):
            raise redrive.ExecutionNotRedrivable(
                "a Map Run redrives its executions, with the execution that it is part of"
            )
        execution.redrive(client_token)
        return execution

    def delete_state_machine(self, arn: str) -> None:
        """Deletes a state machine; its executions continue and can be described, as on AWS (in moto they cannot)."""
        deleted = [machine for machine in self.state_machines if machine.arn == arn]
        super().delete_state_machine(arn)
        self.deleted_machines += [machine for machine in deleted if machine.executions]

    @override
    def describe_execution(self, execution_arn: str) -> Any:
        """An execution, or one that a Map Run started; raises ExecutionDoesNotExist."""
        if ":express:" in execution_arn:
            raise InvalidArn("Invalid Arn: 'Resource type not valid in this context: express'")
        self._validate_execution_arn(execution_arn)
        for execution in self._of_all_machines():
            if execution.execution_arn == execution_arn:
                return execution
        for _, items in self._map_runs():
            if execution_arn in items:
                return items[execution_arn]
        raise ExecutionDoesNotExist(f"Execution Does Not Exist: '{execution_arn}'")

    def item_executions(self, map_run_arn: str, status: str | None) -> list[ItemExecution]:
        """The executions that a Map Run started, the latest first; raises ResourceNotFound."""
        for arn, items in self._map_runs():
            if arn == map_run_arn:
                return [it for it in [*items.values()][::-1] if status in (None, it.status)]
        raise ResourceNotFound(map_run_arn)

    def _of_all_machines(self) -> Iterator[AccountExecution]:
        for machine in [*self.state_machines, *self.deleted_machines]:
            yield from (it for it in machine.executions if isinstance(it, AccountExecution))

    def _map_runs(self) -> Iterator[tuple[str, dict[str, ItemExecution]]]:
        """The ARNs of all Map Runs, and what each has started by its ARN."""
        for execution in self._of_all_machines():
            worker: Any = execution.exec_worker
            if worker is not None and worker.env is not None:
                for record in worker.env.map_run_record_pool_manager.get_all():
                    yield record.map_run_arn, getattr(record, "executions", {})
