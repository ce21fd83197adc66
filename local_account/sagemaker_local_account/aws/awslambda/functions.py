"""Lambda functions in Python, which run in hosts with the credentials of the function's role.

moto starts a Docker container for each, or returns an error without Docker. Here the interpreter, with boto3, is the account's
own, whatever the Runtime. The function's output goes to CloudWatch Logs with its role.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moto.awslambda.models import LambdaFunction
from moto.core.exceptions import JsonRESTError

from sagemaker_local_account.aws.awslambda.execution_environments import RUNTIMES, TASK, Call, ExecutionEnvironments
from sagemaker_local_account.aws.sts.sessions import RoleSessions
from sagemaker_local_account.core.clients import OF_JOBS, Clients
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch
from sagemaker_local_account.runtime import leftovers

SERVICE = "lambda.amazonaws.com"
# The variables of the account's clients that functions inherit: the endpoint, without the root's credentials.
_PASSED_ON = (
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "LANG",
    "NO_PROXY",
    "no_proxy",
)
# The supported properties of AWS::Lambda::Function.
HONOURED = frozenset(
    {
        "Architectures",
        "Code",
        "Description",
        "Environment",
        "FunctionName",
        "Handler",
        "LoggingConfig",
        "MemorySize",
        "Role",
        "Runtime",
        "Tags",
        "Timeout",
    }
)

# Of properties that a template leaves out (template reference, AWS::Lambda::Function).
_DEFAULTS = {"Description": "", "Environment": {"Variables": {}}, "MemorySize": 128, "Timeout": 3}

_TAIL_BYTES = 4096  # of an invocation's log (API, Invoke, LogResult)
_log = logging.getLogger(__name__)
_account_functions: Functions


class Functions:
    """Invokes the functions of one account.

    Args:
        folder: the folder for invocations, which is emptied.
        clients: the account's clients.
        sessions: the credentials of roles.
        environment: returns the environment of the account's clients.
    """

    def __init__(
        self, folder: Path, clients: Clients, sessions: RoleSessions, environment: Callable[[], Mapping[str, str]]
    ) -> None:
        leftovers.clear(folder)  # of an account that was killed
        self._environments = ExecutionEnvironments(folder)
        self._clients, self._sessions, self._environment = clients, sessions, environment

    def call(self, function: LambdaFunction, event: Any) -> Call:
        """Invokes a function, and waits for its end or its Timeout, which kills it.

        Args:
            function: moto's.
            event: the handler's first argument.

        Raises:
            LookupError: its role does not exist, or does not allow Lambda to assume it.
        """
        keys = self._sessions.credentials(function.role, SERVICE, function.function_arn)
        request_id = str(uuid.uuid4())
        group = getattr(function, "account_log_group", None) or function.logs_group_name
        context = {
            "aws_request_id": request_id,
            "function_name": function.function_name,
            "function_version": "$LATEST",
            "invoked_function_arn": function.function_arn,
            "log_group_name": group,
            "memory_limit_in_mb": str(function.memory_size),
        }
        called = self._environments.invoke(
            function,
            self._variables(function, keys, group),
            {"event": event, "context": context, "seconds": float(function.timeout)},
        )
        self._keep(function.region, group, called, keys)
        return called

    def close(self) -> None:
        """Ends all processes that wait for invocations."""
        self._environments.close()

    def _variables(self, function: LambdaFunction, keys: Mapping[str, str], group: str) -> dict[str, str]:
        passed_on = self._environment()
        return {
            **{name: passed_on[name] for name in _PASSED_ON if name in passed_on},
            "AWS_DEFAULT_REGION": function.region,
            "AWS_REGION": function.region,
            "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            **function.environment_vars,
            **keys,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.run_time}",
            "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": group,
            "HOME": "/root",
            "LAMBDA_RUNTIME_DIR": RUNTIMES,
            "LAMBDA_TASK_ROOT": TASK,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": "/tmp",
            "TZ": ":UTC",
            "_HANDLER": str(function.handler),
        }

    def _keep(self, region: str, group: str, called: Call, keys: Mapping[str, str]) -> None:
        logs = self._clients.client("logs", region, keys, OF_JOBS)
        now = round(time.time() * 1000)
        events = [{"timestamp": now, "message": line} for line in called.printed.splitlines() if line]
        try:
            if events:
                self._make_stream(logs, group, called.log_stream)
                logs.put_log_events(logGroupName=group, logStreamName=called.log_stream, logEvents=events)
        except Exception as error:  # as on AWS the invocation does not fail
            _log.warning("the log of an invocation was not written to %s: %s", group, error)

    def _make_stream(self, logs: Any, group: str, stream: str) -> None:
        """That of the execution environment, whose earlier invocation may have made it."""
        exists = logs.exceptions.ResourceAlreadyExistsException
        with contextlib.suppress(exists):
            try:
                logs.create_log_stream(logGroupName=group, logStreamName=stream)
            except logs.exceptions.ResourceNotFoundException:  # the role of a function may create its group
                with contextlib.suppress(exists):  # by another invocation
                    logs.create_log_group(logGroupName=group)
                logs.create_log_stream(logGroupName=group, logStreamName=stream)


def install(functions: Functions) -> None:
    """Patches moto's functions to run in hosts."""
    global _account_functions
    _account_functions = functions
    patch(LambdaFunction, "invoke", _invoke, "self, body, request_headers, response_headers")
    patch(LambdaFunction, "create_from_cloudformation_json", _created, CREATE)
    patch(LambdaFunction, "update_from_cloudformation_json", _updated, UPDATE)


def account_functions() -> Functions:
    """Returns the functions of the running account."""
    return _account_functions


def unsupported_properties(properties: Mapping[str, Any]) -> list[str]:
    """Returns the properties of an AWS::Lambda::Function that are not supported, with the value where that is the reason."""
    unsupported = sorted(set(properties) - HONOURED)
    runtime = properties.get("Runtime")
    if not str(runtime).startswith("python3."):
        unsupported.append(f"Runtime {runtime!r}")
    code = properties.get("Code", {})
    unsupported += [f"Code.{name}" for name in sorted(set(code) - {"S3Bucket", "S3Key", "S3ObjectVersion", "ZipFile"})]
    return unsupported


_moto_created = LambdaFunction.create_from_cloudformation_json.__func__


def _created(cls: Any, resource_name: str, cloudformation_json: Any, *args: Any, **kwargs: Any) -> LambdaFunction:
    """Adds the log group, which moto drops, and keeps moto from replacing the template's code by an archive."""
    properties = cloudformation_json["Properties"]
    copied = {**cloudformation_json, "Properties": {**properties, "Code": dict(properties.get("Code", {}))}}
    function: LambdaFunction = _moto_created(cls, resource_name, copied, *args, **kwargs)
    function.account_log_group = _log_group(properties)
    return function


def _updated(
    cls: Any,
    original_resource: Any,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> LambdaFunction:
    """Replaces code and configuration. moto takes the text of a template for an archive, and keeps what is no longer there."""
    properties = cloudformation_json["Properties"]
    if properties.get("FunctionName", original_resource.function_name) != original_resource.function_name:
        raise NotImplementedError  # "Update requires: Replacement"
    code = dict(properties["Code"])
    if "ZipFile" in code:
        code["ZipFile"] = base64.b64encode(cls._create_zipfile_from_plaintext_code(code["ZipFile"]))
    original_resource.update_configuration(_DEFAULTS | properties)
    original_resource.update_function_code(code)
    original_resource.account_log_group = _log_group(properties)
    return original_resource


def _log_group(properties: Mapping[str, Any]) -> str | None:
    group: str | None = properties.get("LoggingConfig", {}).get("LogGroup")
    return group


def _invoke(self: LambdaFunction, body: str | bytes, request_headers: Any, response_headers: Any) -> str:
    """Invoke: returns the handler's result, or its error."""
    if not str(self.run_time).startswith("python3."):
        raise JsonRESTError(
            "ServiceException",
            f"Runtime must be python3.* in the local account, got {self.run_time} of {self.function_name}",
        )
    try:
        event = json.loads(body or "{}")
    except ValueError as error:
        parsing = "Could not parse request body into json: Could not parse payload into json"
        raise JsonRESTError("InvalidRequestContentException", f"{parsing}: {error}") from None
    began = time.monotonic()
    try:
        called = _account_functions.call(self, event)
    except LookupError as error:
        raise JsonRESTError("AccessDeniedException", str(error)) from None
    response_headers["x-amz-executed-version"] = "$LATEST"
    if request_headers.get("X-Amz-Log-Type") == "Tail":
        tail = _tail(called, 1000 * (time.monotonic() - began), self.memory_size)
        response_headers["x-amz-log-result"] = base64.b64encode(tail.encode()[-_TAIL_BYTES:]).decode()
    if called.failed:
        response_headers["x-amz-function-error"] = "Unhandled"
    return called.payload


def _tail(called: Call, milliseconds: float, memory: int) -> str:
    """The log of an invocation with Lambda's own lines; the memory that it used is not known."""
    of = f"RequestId: {called.request_id}"
    used = [
        f"Duration: {milliseconds:.2f} ms",
        f"Billed Duration: {math.ceil(milliseconds)} ms",
        f"Memory Size: {memory} MB",
    ]
    lines = [
        f"START {of} Version: $LATEST",
        called.printed.strip("\n"),
        f"END {of}",
        "\t".join([f"REPORT {of}", *used]),
    ]
    return "".join(f"{line}\n" for line in lines if line)
