"""Calls of services by tasks: the case of parameters and responses, and what AWS adds to a response.

moto calls services with boto3 and returns its responses; AWS calls them with its SDK for Java 2.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import secrets
import threading
import uuid
import zlib
from email.utils import format_datetime
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotocoreConnectionError
from botocore.model import ListShape, MapShape, Shape, StructureShape
from moto.stepfunctions.parser.api import HistoryEventType, TaskFailedEventDetails
from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent
from moto.stepfunctions.parser.asl.component.state.exec.state_task.lambda_eval_utils import LambdaFunctionErrorException
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service import StateTaskService
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_aws_sdk import (
    StateTaskServiceAwsSdk,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_dynamodb import (
    StateTaskServiceDynamoDB,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_lambda import (
    StateTaskServiceLambda,
)
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task_lambda import StateTaskLambda
from moto.stepfunctions.parser.asl.eval.environment import Environment
from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
from moto.stepfunctions.parser.utils import camel_to_snake_case

from sagemaker_local_account.core.fidelity import ASSUMPTIONS
from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.core.service_models import service_model

# How the errors of optimized integrations begin, by the service of the resource.
_OPTIMIZED = {"sagemaker": "SageMaker", "states": "StepFunctions", "events": "EventBridge", "lambda": "Lambda"}
_WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z][a-z]*\d*|[a-z]+\d*")
_call = threading.local()
_UUID_LENGTH = 36

# The headers of each service's responses as LocalStack recorded them (callback/test_callback.py, services/), besides
# Content-Length, Content-Type, Date and x-amzn-RequestId; None: computed. `events:putEvents` was recorded without metadata; of
# services that are not here nothing was recorded.
_HEADERS: dict[str, dict[str, str | None]] = {
    "dynamodb": {"Connection": "keep-alive", "Server": "Server", "x-amz-crc32": None},
    "ecs": {},
    "lambda": {
        "Connection": "keep-alive",
        "X-Amz-Executed-Version": "$LATEST",
        "X-Amzn-Trace-Id": None,
        "x-amzn-Remapped-Content-Length": "0",
    },
    # Publish's body, in which two UUIDs vary; moto's has other blanks.
    "sns": {"connection": "keep-alive", "Content-Length": "294"},
    "sqs": {"connection": "keep-alive"},
    "stepfunctions": {"connection": "keep-alive"},
}


def install() -> None:
    """Patches moto's tasks."""
    patch(
        StateTaskService,
        "_normalise_parameters",
        _normalise_parameters,
        "self, parameters, boto_service_name, service_action_name",
    )
    patch(
        StateTaskService,
        "_normalise_response",
        _normalise_response,
        "self, response, boto_service_name, service_action_name",
    )
    patch(StateTaskServiceLambda, "_error_cause_from_client_error", staticmethod(_cause_of_lambda), "client_error")
    patch(StateTaskServiceDynamoDB, "_error_cause_from_client_error", staticmethod(_cause_of_dynamodb), "client_error")
    patch(StateTaskLambda, "_from_error", _error_of_function, "self, env, ex")
    patch(StateTask, "_from_error", _error_of_connection, "self, env, ex")


def keep_metadata(client: Any) -> Any:
    """Makes a client keep the metadata of its last response, by thread; returns it."""
    client.meta.events.register("after-call", _keep, unique_id="local-account-metadata")
    return client


def _keep(http_response: Any, parsed: dict[str, Any], event_name: str, **_: Any) -> None:
    metadata = parsed.setdefault("ResponseMetadata", {})
    if event_name.startswith("after-call.s3."):
        # S3's x-amz-id-2, which moto does not send, is in the cause of each failed call (error_handling/test_aws_sdk.py).
        metadata.setdefault("HostId", base64.b64encode(secrets.token_bytes(56)).decode())
    elif len(metadata.get("RequestId", "")) != _UUID_LENGTH:
        metadata["RequestId"] = str(uuid.uuid4())  # moto's are no UUIDs
    _call.metadata, _call.response = metadata, http_response


def _sdk_metadata(service: str) -> dict[str, Any]:
    """`SdkHttpMetadata` and `SdkResponseMetadata` of the call that this thread made last."""
    metadata = getattr(_call, "metadata", None)
    if metadata is None or service not in _HEADERS:
        return {}
    model = service_model(service).metadata
    length = metadata["HTTPHeaders"].get("content-length", "0")
    if model["protocol"] == "json":  # without moto's blanks
        length = str(len(json.dumps(json.loads(_call.response.content), separators=(",", ":"))))
    kind = {"json": f"application/x-amz-json-{model.get('jsonVersion')}", "query": "text/xml"}
    request_id = metadata.get("RequestId", "")
    headers = {
        "Content-Length": length,
        "Content-Type": kind.get(model["protocol"], "application/json"),
        "Date": format_datetime(datetime.datetime.now(datetime.UTC), usegmt=True),
        "x-amzn-RequestId": request_id,
        "x-amz-crc32": str(zlib.crc32(_call.response.content)) if service == "dynamodb" else "",
        "X-Amzn-Trace-Id": f"Root=1-{secrets.token_hex(4)}-{secrets.token_hex(12)}",
    }
    always = ("Content-Length", "Content-Type", "Date", "x-amzn-RequestId")
    sent = {name: headers[name] for name in always}
    sent |= {name: value or headers[name] for name, value in _HEADERS[service].items()}
    return {
        "SdkHttpMetadata": {
            "AllHttpHeaders": {name: [value] for name, value in sent.items()},
            "HttpHeaders": sent,
            "HttpStatusCode": metadata["HTTPStatusCode"],
        },
        "SdkResponseMetadata": {"RequestId": request_id},
    }


def _error_of_connection(self: StateTask, env: Environment, ex: Exception) -> FailureEvent:
    """A call without an answer fails with the exception of the SDK's client; moto ends the execution by States.Runtime."""
    if not isinstance(ex, BotocoreConnectionError | HTTPClientError) or not isinstance(self, StateTaskService):
        return _moto_error_of_task(self, env, ex)
    ASSUMPTIONS.used(env.states.context_object.context_object_data["Execution"]["Id"], "sdk-client-exception")
    service = self.resource.service_name
    name = sdk_name(service_model(self._get_boto_service_name()).service_id)
    error = f"{_OPTIMIZED.get(service, name)}.SdkClientException"
    details = TaskFailedEventDetails(
        resource=self._get_sfn_resource(),
        resourceType=self._get_sfn_resource_type(),
        error=error,
        cause=f"Unable to execute HTTP request: {ex}",
    )
    return FailureEvent(
        env=env,
        error_name=CustomErrorName(error),
        event_type=HistoryEventType.TaskFailed,
        event_details=EventDetails(taskFailedEventDetails=details),
    )


def _error_of_function(self: StateTaskLambda, env: Environment, ex: Exception) -> FailureEvent:
    """The error of a function whose ARN is the resource has the text that the function's runtime wrote; moto's is compact.

    Python's runtime writes blanks after commas (error_handling/test_task_lambda.py::test_raise_exception_catch).
    """
    if isinstance(ex, LambdaFunctionErrorException):
        ex.payload = json.dumps(json.loads(ex.payload))
    return _moto_error_of_function(self, env, ex)


def _cause_of_lambda(client_error: Any) -> Any:
    """`lambda:invoke` calls a version, which the error names (error_handling/test_task_service_lambda.py)."""
    error, cause = _moto_cause_of_lambda(client_error)
    return error, re.sub(r"^(Function not found: arn:[^ ]*:function:[^: ]+) ", r"\1:$LATEST ", cause)


def _cause_of_dynamodb(client_error: Any) -> tuple[str, str]:
    """An error that the service's model does not have is that of the SDK's client (`test_task_service_dynamodb.py`)."""
    error, cause = _moto_cause_of_dynamodb(client_error)
    return ("DynamoDB.AmazonDynamoDBException" if error == "DynamoDB.ValidationException" else error), cause


_moto_cause_of_dynamodb = StateTaskServiceDynamoDB._error_cause_from_client_error
_moto_cause_of_lambda = StateTaskServiceLambda._error_cause_from_client_error
_moto_error_of_function = StateTaskLambda._from_error
_moto_error_of_task = StateTask._from_error


def _operation_shapes(self: StateTaskService, service: str | None, action: str | None) -> tuple[Any, Any]:
    service_name = self._get_boto_service_name(service)
    model = service_model(service_name)
    snake_cased = self._get_boto_service_action(action)
    for name in model.operation_names:
        if camel_to_snake_case(name) == snake_cased:
            operation = model.operation_model(name)
            return operation.input_shape, operation.output_shape
    return None, None


def _normalise_parameters(
    self: StateTaskService,
    parameters: dict[str, Any],
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    """Converts PascalCase parameters to the service's case (StateMachineArn to stateMachineArn), which moto omits."""
    _call.metadata = None
    shape, _ = _operation_shapes(self, boto_service_name, service_action_name)
    if isinstance(shape, StructureShape):
        self._to_boto_request(parameters, shape)
        if self._get_boto_service_name(boto_service_name) == "s3":
            _with_java_defaults(self._get_boto_service_action(service_action_name), parameters)
        elif parameters.get("ReturnConsumedCapacity") in (None, "NONE"):
            # moto's UpdateItem has it always (services/test_aws_sdk_task_service.py::test_dynamodb_put_update_get_item).
            _call.omitted = "ConsumedCapacity"
        if missing := [name for name in shape.required_members if parameters.get(name) is None]:
            _refuse_nulls(self, missing)


def _with_java_defaults(action: str, parameters: dict[str, Any]) -> None:
    """The content type that the SDK for Java sends with a body; it requests no checksum, and boto3 does.

    `services/test_aws_sdk_task_service.py::test_s3_put_object`, `test_s3_get_object`.
    """
    _call.omitted = "Checksum" if action == "get_object" and "ChecksumMode" not in parameters else None
    if action == "put_object" and "Body" in parameters:
        parameters.setdefault("ContentType", "text/plain; charset=UTF-8")


def _refuse_nulls(self: StateTaskService, missing: list[str]) -> None:
    """Answers as DynamoDB does where a member is missing, which the SDK for Java sends and boto3 does not.

    `error_handling/`: `test_task_service_dynamodb.py::test_invalid_param`, `test_aws_sdk.py::test_dynamodb_invalid_param`.
    """
    if self._get_boto_service_name() != "dynamodb":
        return
    nulls = [
        f"Value null at '{it[:1].lower()}{it[1:]}' failed to satisfy constraint: Member must not be null"
        for it in missing
    ]
    detected = "1 validation error" if len(nulls) == 1 else f"{len(nulls)} validation errors"
    error = {"Code": "ValidationException", "Message": f"{detected} detected: {'; '.join(nulls)}"}
    metadata: Any = {"HTTPStatusCode": 400, "RequestId": str(uuid.uuid4())}
    raise ClientError({"Error": error, "ResponseMetadata": metadata}, self._get_boto_service_action())


def _normalise_response(
    self: StateTaskService,
    response: Any,
    boto_service_name: str | None = None,
    service_action_name: str | None = None,
) -> None:
    """Converts a response to PascalCase fields and times as strings; moto returns boto3's response with datetimes.

    Optimized integrations have the response's metadata, which moto drops, and `aws-sdk` tasks have none.
    """
    _, shape = _operation_shapes(self, boto_service_name, service_action_name)
    if isinstance(response, dict):
        plain = as_state_data(response, shape)
        omitted, _call.omitted = getattr(_call, "omitted", None), None
        response.clear()
        response.update({name: it for name, it in plain.items() if not (omitted and name.startswith(omitted))})
        if service_action_name is None and not isinstance(self, StateTaskServiceAwsSdk):
            response.update(_sdk_metadata(self._get_boto_service_name()))


def as_state_data(value: Any, shape: Shape | None = None) -> Any:
    """Converts a boto3 response to a state's data: fields in PascalCase, times as ISO 8601 strings in UTC, streams as text."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, list):
        member = shape.member if isinstance(shape, ListShape) else None
        return [as_state_data(item, member) for item in value]
    if isinstance(value, dict) and isinstance(shape, StructureShape):
        members = shape.members
        return {name[:1].upper() + name[1:]: as_state_data(item, members.get(name)) for name, item in value.items()}
    if isinstance(value, dict):
        member = shape.value if isinstance(shape, MapShape) else None
        return {name: as_state_data(item, member) for name, item in value.items()}
    if hasattr(value, "read"):
        return value.read().decode()
    return value


def sdk_name(service_id: str) -> str:
    """The name of a service at the beginning of the errors of `aws-sdk` tasks: that of its client in the SDK for Java 2.

    The SDK joins the words of the service's id with one capital each: "DynamoDB" is DynamoDb, "SFN" Sfn, "Secrets Manager"
    SecretsManager (LocalStack's recordings of `services/test_aws_sdk_task_service.py`).
    """
    return "".join(word.capitalize() for word in _WORDS.findall(service_id))
