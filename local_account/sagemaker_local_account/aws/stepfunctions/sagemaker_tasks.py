"""The integrations of Step Functions with SageMaker, `sagemaker:createTrainingJob[.sync]` and `aws-sdk:sagemaker:*`, and others.

moto does not support `.sync`, and names the errors of `aws-sdk` differently from AWS. Both call the account's SageMaker by HTTP,
like other clients.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from botocore.model import ListShape, Shape, StructureShape
from moto.stepfunctions.parser.api import HistoryEventType, TaskFailedEventDetails
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent, FailureEventException
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
from moto.stepfunctions.parser.asl.component.state.exec.state_task import state_task_factory
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.resource import ResourceCondition
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_aws_sdk import (
    StateTaskServiceAwsSdk,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_callback import (
    StateTaskServiceCallback,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_events import (
    StateTaskServiceEvents,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_factory import (
    state_task_service_for,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
    StateTaskServiceSfn,
)
from moto.stepfunctions.parser.asl.eval.callback.callback import (
    CallbackOutcomeFailure,
    CallbackOutcomeFailureError,
    CallbackOutcomeSuccess,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.utils.boto_client import boto_client_for
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

from sagemaker_local_account.aws.events.bus import with_times_in_milliseconds
from sagemaker_local_account.aws.stepfunctions.errors import parent_of
from sagemaker_local_account.aws.stepfunctions.service_calls import sdk_name
from sagemaker_local_account.core.fidelity import ASSUMPTIONS
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.core.service_models import service_model
from sagemaker_local_account.faults import Faults, NotCancelled

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
FINAL = ("Completed", "Failed", "Stopped")

# Step Functions tags the jobs of `.sync` tasks, for which its role needs sagemaker:AddTags.
STARTED_BY_STEP_FUNCTIONS = {"Key": "MANAGED_BY_AWS", "Value": "STARTED_BY_STEP_FUNCTIONS"}


# The fields of CreateTrainingJob that `sagemaker:createTrainingJob` supports. The current documentation does not list them; these
# are what CDK's own task renders and what public state machines use. On AWS an unsupported field ends an execution, uncatchably,
# so fields without evidence are rejected. True: the field with any content.
KNOWN_FIELDS: dict[str, Any] = {
    "AlgorithmSpecification": {
        "AlgorithmName": True,
        "EnableSageMakerMetricsTimeSeries": True,
        "MetricDefinitions": True,
        "TrainingImage": True,
        "TrainingInputMode": True,
    },
    "CheckpointConfig": True,
    "EnableManagedSpotTraining": True,
    "EnableNetworkIsolation": True,
    "Environment": True,
    "HyperParameters": True,
    "InputDataConfig": {
        "ChannelName": True,
        "CompressionType": True,
        "ContentType": True,
        "DataSource": {
            "S3DataSource": {
                "AttributeNames": True,
                "S3DataDistributionType": True,
                "S3DataType": True,
                "S3Uri": True,
            }
        },
        "InputMode": True,
        "RecordWrapperType": True,
    },
    "OutputDataConfig": {"KmsKeyId": True, "S3OutputPath": True},
    "ResourceConfig": {"InstanceCount": True, "InstanceType": True, "VolumeKmsKeyId": True, "VolumeSizeInGB": True},
    "RetryStrategy": True,
    "RoleArn": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": True, "MaxWaitTimeInSeconds": True},
    "Tags": True,
    "TrainingJobName": True,
    "VpcConfig": True,
}


_faults = Faults()  # of the process's account


def lose(faults: Faults) -> None:
    """Does not stop what executions wait for as the faults of an account say."""
    global _faults
    _faults = faults


def install() -> None:
    """Patches moto's task factory."""
    patch(state_task_factory, "state_task_service_for", _task_for, "service_name")


def _task_for(service_name: str) -> Any:
    if service_name == "sagemaker":
        return TrainingTask()
    if service_name == "aws-sdk":
        return AwsSdkTask()
    if service_name == "events":
        return PutEvents()
    if service_name == "states":
        return NestedExecution()
    return state_task_service_for(service_name)


class _SyncTask(StateTaskServiceCallback):
    """A `.sync` task whose job or execution is stopped with the execution, whenever that is stopped.

    moto also awaits a task token, which `.sync` has none of; and an execution that is stopped between the call and the wait
    never looks at what it started.
    """

    def _eval_integration_pattern(self, env: Environment, *args: Any, **kwargs: Any) -> None:
        if self.resource.condition == ResourceCondition.WaitForTaskToken:
            super()._eval_integration_pattern(env, *args, **kwargs)
            return
        build = (
            self._build_sync_resolver
            if self.resource.condition == ResourceCondition.Sync
            else self._build_sync2_resolver
        )
        until_over = build(env, *args, **kwargs)
        env.stack.append(until_over())


class TrainingTask(_SyncTask):
    """The optimised integration: creates a training job and, with `.sync`, waits for its end."""

    def __init__(self) -> None:
        super().__init__({ResourceCondition.Sync})

    def _validate_service_integration_is_supported(self) -> None:
        action, condition = self.resource.api_action, self.resource.condition
        if action != "createTrainingJob" or condition not in (None, ResourceCondition.Sync):
            raise ValueError(
                f"the local account does not support {self.resource.resource_arn}; "
                "of sagemaker it supports createTrainingJob and createTrainingJob.sync"
            )

    def _eval_parameters(self, env: Environment) -> dict[str, Any]:
        parameters: dict[str, Any] = super()._eval_parameters(env)
        unknown = unknown_field(KNOWN_FIELDS, parameters)
        if unknown is not None:
            raise _unknown_field(self, env, unknown)
        return parameters

    def _eval_service_task(
        self,
        env: Environment,
        resource_runtime_part: Any,
        normalised_parameters: dict[str, Any],
        state_credentials: Any,
    ) -> None:
        if self.resource.condition == ResourceCondition.Sync:
            tags = normalised_parameters.get("Tags") or []
            normalised_parameters["Tags"] = [*tags, STARTED_BY_STEP_FUNCTIONS]
        client = boto_client_for(
            service="sagemaker", region=resource_runtime_part.region, state_credentials=state_credentials
        )
        if self.resource.condition == ResourceCondition.Sync:
            _assumed(env, "sync-list-tags")
            _look_at_tags(client, resource_runtime_part, str(normalised_parameters.get("TrainingJobName")))
        response = client.create_training_job(**normalised_parameters)
        response.pop("ResponseMetadata", None)
        env.stack.append(response)

    def _build_sync_resolver(
        self,
        env: Environment,
        resource_runtime_part: Any,
        normalised_parameters: dict[str, Any],
        state_credentials: Any,
    ) -> Callable[[], Any]:
        env.stack.pop()
        client = boto_client_for(
            service="sagemaker", region=resource_runtime_part.region, state_credentials=state_credentials
        )
        name = normalised_parameters["TrainingJobName"]

        def look() -> Any:
            job = client.describe_training_job(TrainingJobName=name)
            return self._outcome(env, job) if job["TrainingJobStatus"] in FINAL else None

        return lambda: _until_over(env, look, lambda: _stop(client, name))

    def _outcome(self, env: Environment, job: dict[str, Any]) -> dict[str, Any]:
        job.pop("ResponseMetadata", None)
        output: dict[str, Any] = with_times_in_milliseconds(job)
        if job["TrainingJobStatus"] == "Completed":
            return output
        name = StatesErrorName(typ=StatesErrorNameType.StatesTaskFailed)
        raise _failed(self, env, name, to_json_str(output, separators=(",", ":")))

    def _from_error(self, env: Environment, ex: Exception) -> FailureEvent:
        if isinstance(ex, ClientError):
            code = ex.response["Error"]["Code"]
            modelled = code in service_model("sagemaker").shape_names
            exception = _exception_name(code) if modelled else "AmazonSageMakerException"
            metadata = ex.response["ResponseMetadata"]
            cause = (
                f"{ex.response['Error']['Message']} (Service: AmazonSageMaker; Status Code: "
                f"{metadata['HTTPStatusCode']}; Error Code: {code}; Request ID: {metadata.get('RequestId')}; Proxy: null)"
            )
            return _failed(self, env, CustomErrorName(f"SageMaker.{exception}"), cause).failure_event
        return super()._from_error(env=env, ex=ex)


class NestedExecution(_SyncTask, StateTaskServiceSfn):
    """`states:startExecution`: moto's, but the nested execution is stopped with its parent.

    With `.sync` the task also ends by its token (`callback/test_callback.py::test_sync_with_task_token`).
    """

    def _build_sync_resolver(self, env: Environment, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        return self._stopping_with(env, super()._build_sync_resolver, *args, **kwargs)

    def _build_sync2_resolver(self, env: Environment, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        return self._stopping_with(env, super()._build_sync2_resolver, *args, **kwargs)

    def _stopping_with(
        self,
        env: Environment,
        build: Any,
        resource_runtime_part: Any,
        normalised_parameters: dict[str, Any],
        state_credentials: Any,
    ) -> Callable[[], Any]:
        execution_arn = env.stack[-1]["ExecutionArn"]
        client = boto_client_for(
            service="stepfunctions", region=resource_runtime_part.region, state_credentials=state_credentials
        )
        look = build(env, resource_runtime_part, normalised_parameters, state_credentials)
        endpoint = env.callback_pool_manager.get(env.states.context_object.context_object_data["Task"]["Token"])

        def look_or_answer() -> tuple[Any] | None:
            answer = endpoint.get_outcome()
            if isinstance(answer, CallbackOutcomeFailure):
                raise CallbackOutcomeFailureError(answer)
            if isinstance(answer, CallbackOutcomeSuccess):
                return (json.loads(answer.output),)
            found = look()
            return None if found is None else (found,)

        def until_over() -> Any:
            try:
                over = _until_over(env, look_or_answer, lambda: client.stop_execution(executionArn=execution_arn))
                return over and over[0]
            finally:
                endpoint.interrupt_all()

        return until_over

    def _from_error(self, env: Environment, ex: Exception) -> FailureEvent:
        """An error that the service's model does not have is that of the SDK's client, as `DynamoDB.AmazonDynamoDBException`."""
        failure: FailureEvent = super()._from_error(env=env, ex=ex)
        if isinstance(ex, ClientError):
            code = ex.response["Error"]["Code"]
            if code not in service_model("stepfunctions").shape_names:
                _assumed(env, "start-execution-error")
                [details] = (failure.event_details or {}).values()
                name = "StepFunctions.AWSStepFunctionsException"
                return _failed(self, env, CustomErrorName(name), details["cause"]).failure_event
        return failure


class PutEvents(StateTaskServiceEvents):
    """`events:putEvents`: moto's, with an error that a state can catch where EventBridge rejects the call.

    moto fails the execution by `States.Runtime`, which `States.ALL` does not catch. AWS documents the name of one error only,
    `EventBridge.FailedEntry`; this is that of the SDK for Java, as in the integration with SageMaker.
    """

    def _from_error(self, env: Environment, ex: Exception) -> FailureEvent:
        if isinstance(ex, ClientError):
            _assumed(env, "put-events-error")
            return _failed(self, env, CustomErrorName("EventBridge.AmazonEventBridgeException"), str(ex)).failure_event
        return super()._from_error(env=env, ex=ex)


class AwsSdkTask(StateTaskServiceAwsSdk):
    """`aws-sdk:*`: moto's, with errors under the names that AWS's SDK for Java gives them, and with CloudWatch Logs.

    moto writes SageMaker's `sagemaker.ResourceInUseException` and, for those outside the service model (validation,
    throttling), `sagemaker.sagemakerException`. It does not know that boto3 calls `cloudwatchlogs` "logs".
    """

    _SERVICE_NAME_SFN_TO_BOTO_OVERRIDES = {  # noqa: RUF012
        **StateTaskServiceAwsSdk._SERVICE_NAME_SFN_TO_BOTO_OVERRIDES,
        "cloudwatchlogs": "logs",
    }

    def _normalise_service_error_name(self, service_name: str) -> str:
        return sdk_name(service_model(self._get_boto_service_name(service_name.lower())).service_id)

    def _eval_parameters(self, env: Environment) -> dict[str, Any]:
        parameters: dict[str, Any] = super()._eval_parameters(env)
        if self.resource.api_name.lower() == "sagemaker":
            operation = self.resource.api_action[:1].upper() + self.resource.api_action[1:]
            if operation in service_model("sagemaker").operation_names:
                unknown = unknown_field_of_shape(
                    service_model("sagemaker").operation_model(operation).input_shape, parameters
                )
                if unknown is not None:
                    raise _unknown_field(self, env, unknown)
        return parameters


def _until_over(env: Environment, look: Callable[[], Any], stop: Callable[[], Any]) -> Any:
    """Polls ``look`` until it returns a result; where the execution ends before, ``stop`` is called.

    Step Functions stops the job or execution when the waiting execution is stopped or times out, or when another branch or
    iteration fails. For the timeout of the state alone this is not documented, and the job or execution continues.

    Args:
        env: the state's environment.
        look: returns the result, or None.
        stop: stops the job or execution.
    """
    while env.is_running():
        outcome = look()
        if outcome is not None:
            return outcome
        time.sleep(POLL_SECONDS)
    parent = parent_of(env)
    if parent is None or not parent.is_running():
        if _faults.consume_first(NotCancelled):
            return None
        try:
            stop()
        except ClientError as error:
            _log.warning("the job or execution of a stopped execution was not stopped: %s", error)
    else:
        _assumed(env, "state-timeout")
    return None


def _assumed(env: Environment, id: str) -> None:
    ASSUMPTIONS.used(env.states.context_object.context_object_data["Execution"]["Id"], id)


def _exception_name(code: str) -> str:
    return code if code.endswith("Exception") else f"{code}Exception"


def _unknown_field(task: Any, env: Environment, name: str) -> FailureEventException:
    _assumed(env, "unknown-field")
    return _failed(
        task,
        env,
        StatesErrorName(typ=StatesErrorNameType.StatesRuntime),
        f'The field "{name}" is not supported by Step Functions',
    )


def _failed(task: Any, env: Environment, error: Any, cause: str) -> FailureEventException:
    details = TaskFailedEventDetails(
        resource=task._get_sfn_resource(),
        resourceType=task._get_sfn_resource_type(),
        error=error.error_name,
        cause=cause,
    )
    return FailureEventException(
        failure_event=FailureEvent(
            env=env,
            error_name=error,
            event_type=HistoryEventType.TaskFailed,
            event_details=EventDetails(taskFailedEventDetails=details),
        )
    )


def _look_at_tags(client: Any, place: Any, name: str) -> None:
    """Calls ListTags, for which AWS's page of policies for this integration has a permission, without saying when it is called.

    It is called before CreateTrainingJob, so that a role without the permission starts no job.
    """
    arn = f"arn:aws:sagemaker:{place.region}:{place.account}:training-job/{name.lower()}"
    try:
        client.list_tags(ResourceArn=arn)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFound":
            raise


def _stop(client: Any, name: str) -> None:
    try:
        client.stop_training_job(TrainingJobName=name)
    except ClientError as error:
        # The job has ended meanwhile.
        if error.response["Error"]["Code"] != "ValidationException":
            raise


def unknown_field(known: dict[str, Any], value: Any) -> str | None:
    """The first field of a value that is not in a table of fields."""
    if isinstance(value, list):
        return next((found for item in value if (found := unknown_field(known, item)) is not None), None)
    if not isinstance(value, dict):
        return None
    for name, item in value.items():
        if name not in known:
            return name
        if isinstance(known[name], dict) and (found := unknown_field(known[name], item)) is not None:
            return found
    return None


def unknown_field_of_shape(shape: Shape | None, value: Any) -> str | None:
    """The first field of a value that is not in the service model."""
    if isinstance(shape, ListShape) and isinstance(value, list):
        return next(
            (found for item in value if (found := unknown_field_of_shape(shape.member, item)) is not None), None
        )
    if not isinstance(shape, StructureShape) or not isinstance(value, dict):
        return None
    for name, item in value.items():
        if name not in shape.members:
            return name
        if (found := unknown_field_of_shape(shape.members[name], item)) is not None:
            return found
    return None
