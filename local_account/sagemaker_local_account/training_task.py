"""What a Task state does with SageMaker: `sagemaker:createTrainingJob[.sync]` and `aws-sdk:sagemaker:*`.

moto forwards the first without waiting for the job and refuses `.sync`; the second it calls, but names its errors
otherwise than AWS. Both call this account's own SageMaker by HTTP, as every other client does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from botocore.loaders import Loader
from botocore.model import ListShape, ServiceModel, Shape, StructureShape
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
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_factory import (
    state_task_service_for,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_sfn import (
    StateTaskServiceSfn,
)
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.asl.utils.boto_client import boto_client_for
from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

from .events import with_times_in_milliseconds
from .interpreter import parent_of
from .patches import patch

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
FINAL = ("Completed", "Failed", "Stopped")

# CreateTrainingJob's fields that `sagemaker:createTrainingJob` is known to take. The current documentation lists none;
# these are what CDK's own task renders and what public state machines were seen to run with. An unknown field ends an
# execution on AWS, uncatchably, so a field without evidence is refused here. True: whatever the field holds.
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

# Step Functions tags the jobs it waits for, which is why its role needs sagemaker:AddTags.
STARTED_BY_STEP_FUNCTIONS = {"Key": "MANAGED_BY_AWS", "Value": "STARTED_BY_STEP_FUNCTIONS"}

_sagemaker = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def install() -> None:
    """Hand out this module's tasks for SageMaker, and moto's for everything else."""
    patch(state_task_factory, "state_task_service_for", _task_for, "service_name")


def _task_for(service_name: str) -> Any:
    if service_name == "sagemaker":
        return TrainingTask()
    if service_name == "aws-sdk":
        return AwsSdkTask()
    if service_name == "states":
        return NestedExecution()
    return state_task_service_for(service_name)


class TrainingTask(StateTaskServiceCallback):
    """The optimised integration: creates a training job and, with `.sync`, waits for its end."""

    def __init__(self) -> None:
        # WaitForTaskToken is refused below; moto needs it among the patterns to wait for anything at all.
        super().__init__({ResourceCondition.Sync, ResourceCondition.WaitForTaskToken})

    def _validate_service_integration_is_supported(self) -> None:
        action, condition = self.resource.api_action, self.resource.condition
        if action != "createTrainingJob" or condition not in (None, ResourceCondition.Sync):
            raise ValueError(
                f"the local account does not have {self.resource.resource_arn}: "
                "of sagemaker it has createTrainingJob and createTrainingJob.sync"
            )

    def _eval_parameters(self, env: Environment) -> dict[str, Any]:
        parameters: dict[str, Any] = super()._eval_parameters(env)
        unknown = _not_in(KNOWN_FIELDS, parameters)
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
            modelled = code in _sagemaker.shape_names
            exception = _exception_name(code) if modelled else "AmazonSageMakerException"
            metadata = ex.response["ResponseMetadata"]
            cause = (
                f"{ex.response['Error']['Message']} (Service: AmazonSageMaker; Status Code: "
                f"{metadata['HTTPStatusCode']}; Error Code: {code}; Request ID: {metadata.get('RequestId')}; Proxy: null)"
            )
            return _failed(self, env, CustomErrorName(f"SageMaker.{exception}"), cause).failure_event
        return super()._from_error(env=env, ex=ex)


class NestedExecution(StateTaskServiceSfn):
    """`states:startExecution`: moto's, which leaves the other execution running when its own is stopped."""

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
        return lambda: _until_over(env, look, lambda: client.stop_execution(executionArn=execution_arn))


class AwsSdkTask(StateTaskServiceAwsSdk):
    """`aws-sdk:*`: moto's, with SageMaker's errors under the names that AWS's SDK for Java gives them.

    moto writes them `sagemaker.ResourceInUseException` and, for those outside the service model (validation,
    throttling), `sagemaker.sagemakerException`.
    """

    @staticmethod
    def _normalise_service_error_name(service_name: str) -> str:
        if service_name.lower() == "sagemaker":
            return "SageMaker"
        name: str = StateTaskServiceAwsSdk._normalise_service_error_name(service_name)
        return name

    def _eval_parameters(self, env: Environment) -> dict[str, Any]:
        parameters: dict[str, Any] = super()._eval_parameters(env)
        if self.resource.api_name.lower() == "sagemaker":
            operation = self.resource.api_action[:1].upper() + self.resource.api_action[1:]
            if operation in _sagemaker.operation_names:
                unknown = _not_in_shape(_sagemaker.operation_model(operation).input_shape, parameters)
                if unknown is not None:
                    raise _unknown_field(self, env, unknown)
        return parameters


def _until_over(env: Environment, look: Callable[[], Any], stop: Callable[[], Any]) -> Any:
    """What ``look`` gives once it gives something; where the execution ends before that, what it waits for is stopped.

    Step Functions does so when the execution is stopped or times out, or when another branch or iteration fails. When only
    the state's own TimeoutSeconds has passed, no document says that it does, and what it waited for goes on.
    """
    while env.is_running():
        outcome = look()
        if outcome is not None:
            return outcome
        time.sleep(POLL_SECONDS)
    parent = parent_of(env)
    if parent is None or not parent.is_running():
        try:
            stop()
        except ClientError as error:
            _log.warning("what the execution waited for was not stopped: %s", error)
    return None


def _exception_name(code: str) -> str:
    return code if code.endswith("Exception") else f"{code}Exception"


def _not_in(known: dict[str, Any], value: Any) -> str | None:
    """The first field of a value that a table of fields does not have."""
    if isinstance(value, list):
        return next((found for item in value if (found := _not_in(known, item)) is not None), None)
    if not isinstance(value, dict):
        return None
    for name, item in value.items():
        if name not in known:
            return name
        if isinstance(known[name], dict) and (found := _not_in(known[name], item)) is not None:
            return found
    return None


def _not_in_shape(shape: Shape | None, value: Any) -> str | None:
    """The first field of a value that the service's model does not have."""
    if isinstance(shape, ListShape) and isinstance(value, list):
        return next((found for item in value if (found := _not_in_shape(shape.member, item)) is not None), None)
    if not isinstance(shape, StructureShape) or not isinstance(value, dict):
        return None
    for name, item in value.items():
        if name not in shape.members:
            return name
        if (found := _not_in_shape(shape.members[name], item)) is not None:
            return found
    return None


def _unknown_field(task: Any, env: Environment, name: str) -> FailureEventException:
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
    """Call ListTags, which AWS's page of policies for this integration has without saying when it is called.

    Here it is before there is a job, so that a role without it starts none.
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
        # The job came to its end by itself meanwhile.
        if error.response["Error"]["Code"] != "ValidationException":
            raise
