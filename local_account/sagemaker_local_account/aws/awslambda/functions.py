"""Lambda functions in Python, which run in hosts with the credentials of the function's role.

moto starts a Docker container for each, or returns an error without Docker. Here the interpreter, with boto3, is the account's
own, whatever the Runtime. The function's output goes to CloudWatch Logs with its role.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import logging
import math
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from moto.awslambda.models import LambdaFunction, LambdaStorage
from moto.awslambda.responses import LambdaResponse
from moto.core.exceptions import JsonRESTError

from sagemaker_local_account.aws.awslambda import asynchronous, configuration
from sagemaker_local_account.aws.awslambda.asynchronous import Asynchronous
from sagemaker_local_account.aws.awslambda.execution_environments import (
    CDK_HANDLERS,
    RUNTIMES,
    TASK,
    Call,
    ExecutionEnvironments,
    Throttled,
)
from sagemaker_local_account.aws.sts.sessions import RoleSessions
from sagemaker_local_account.core.clients import OF_JOBS, Clients
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch
from sagemaker_local_account.iam.authorizer import Authorizer
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
_TAIL_BYTES = 4096  # of an invocation's log (API, Invoke, LogResult)
_log = logging.getLogger(__name__)
_account_functions: Functions


class TooManyRequests(JsonRESTError):
    """As AWS recorded it (LocalStack's tests/aws/services/lambda_/test_lambda.snapshot.json)."""

    code = 429

    def __init__(self) -> None:
        super().__init__("TooManyRequestsException", "Rate Exceeded.")
        members = {
            "Reason": "ReservedFunctionConcurrentInvocationLimitExceeded",
            "Type": "User",
            "message": "Rate Exceeded.",
        }
        self.description = json.dumps(members)


class Functions:
    """Invokes the functions of one account.

    Args:
        folder: the folder for invocations, which is emptied.
        clients: the account's clients.
        sessions: the credentials of roles.
        environment: returns the environment of the account's clients.
        authorizer: evaluates the permissions of functions' roles in a VPC.
    """

    def __init__(
        self,
        folder: Path,
        clients: Clients,
        sessions: RoleSessions,
        environment: Callable[[], Mapping[str, str]],
        authorizer: Authorizer,
    ) -> None:
        leftovers.clear(folder)  # of an account that was killed
        self._environments = ExecutionEnvironments(folder)
        self._clients, self._sessions, self._environment = clients, sessions, environment
        self.authorizer = authorizer
        self.asynchronous = Asynchronous(self.call, self.client_of)

    def call(self, function: LambdaFunction, event: Any, request_id: str = "") -> Call:
        """Invokes a function, and waits for its end or its Timeout, which kills it.

        Args:
            function: moto's.
            event: the handler's first argument.
            request_id: that of an earlier attempt; "" for one of its own.

        Raises:
            LookupError: its role does not exist, or does not allow Lambda to assume it.
            Throttled: as many invocations as it reserves are running.
        """
        keys = self._sessions.credentials(function.role, SERVICE, function.function_arn)
        request_id = request_id or str(uuid.uuid4())
        group = getattr(function, "account_log_group", None) or function.logs_group_name
        context = {
            "aws_request_id": request_id,
            "function_name": function.function_name,
            "function_version": str(function.version),
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
        self.asynchronous.close()
        self._environments.close()

    def client_of(self, function: LambdaFunction, service: str) -> Any:
        """Returns a client of a service with a function's role."""
        keys = self._sessions.credentials(function.role, SERVICE, function.function_arn)
        return self._clients.client(service, function.region, keys, OF_JOBS)

    def _variables(self, function: LambdaFunction, keys: Mapping[str, str], group: str) -> dict[str, str]:
        passed_on = self._environment()
        return {
            **{name: passed_on[name] for name in _PASSED_ON if name in passed_on},
            "AWS_DEFAULT_REGION": function.region,
            "AWS_REGION": function.region,
            "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin:/opt/bin",
            **function.environment_vars,
            **keys,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.run_time}",
            "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
            "AWS_LAMBDA_FUNCTION_VERSION": str(function.version),
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": group,
            "HOME": "/root",
            "LAMBDA_RUNTIME_DIR": RUNTIMES,
            "LAMBDA_TASK_ROOT": TASK,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": "/tmp",
            "TZ": ":UTC",
            "_HANDLER": f"{CDK_HANDLERS.stem}.{_of_the_cdk(function)}"
            if _of_the_cdk(function)
            else str(function.handler),
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
    patch(LambdaFunction, "vpc_config", property(configuration.vpc_config))
    patch(LambdaResponse, "invoke", _of_qualifier, "self")
    patch(LambdaFunction, "__init__", _made, "self, account_id, spec, region, version")
    patch(LambdaFunction, "get_configuration", _configuration, "self, on_create")
    patch(LambdaFunction, "update_configuration", _configured, "self, config_updates")
    asynchronous.install()
    patch(LambdaStorage, "publish_version", _published, "self, name_or_arn, description")


def account_functions() -> Functions:
    """Returns the functions of the running account."""
    return _account_functions


_moto_created = LambdaFunction.create_from_cloudformation_json.__func__


def _created(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
) -> LambdaFunction:
    """Adds what moto drops, and keeps moto from replacing the template's code by an archive."""
    properties = cloudformation_json["Properties"]
    configuration.check(properties, Location(account_id, region_name), _account_functions.authorizer)
    copied = {**cloudformation_json, "Properties": {**properties, "Code": dict(properties.get("Code", {}))}}
    function: LambdaFunction = _moto_created(cls, resource_name, copied, account_id, region_name, **more)
    configuration.apply(function, properties)
    function.account_handler = configuration.in_python(properties, more.get("LogicalId", ""))
    return function


_moto_invoke = LambdaResponse.invoke


def _of_qualifier(self: LambdaResponse) -> Any:
    """Invoke, of the version or alias that the request names, which moto asks for by another name than the API's."""
    response: Any = self
    qualifier = response.querystring.get("Qualifier", [None])[0]
    response._get_param = lambda name, default=None: qualifier  # the one parameter; moto also finds it in the event
    return _moto_invoke(response)


_moto_made, _moto_configured = LambdaFunction.__init__, LambdaFunction.update_configuration


def _made(self: LambdaFunction, account_id: str, spec: dict[str, Any], region: str, version: str | int = 1) -> None:
    _moto_made(self, account_id, spec, region, version)
    self.account_dead_letters = spec.get("DeadLetterConfig")


def _configured(self: LambdaFunction, config_updates: dict[str, Any]) -> dict[str, Any]:
    """UpdateFunctionConfiguration, with the members that moto does not change."""
    configuration.set_further(self, config_updates)
    answer: dict[str, Any] = _moto_configured(self, config_updates)
    return answer


_moto_configuration = LambdaFunction.get_configuration


def _configuration(self: LambdaFunction, on_create: bool = False) -> dict[str, Any]:
    """Adds what moto has no member for."""
    dead_letters = getattr(self, "account_dead_letters", None)
    found: dict[str, Any] = _moto_configuration(self, on_create)
    return {**found, **({"DeadLetterConfig": dead_letters} if dead_letters else {})}


def _published(self: LambdaStorage, name_or_arn: str, description: str = "") -> LambdaFunction:
    """A function's version, the last one where nothing has changed; moto uses a deleted version's number again."""
    function = self.get_function_by_name_or_arn_forbid_qualifier(name_or_arn)
    versions = self._functions[function.function_name]["versions"]
    if versions and not function.code_or_config_updated:
        last: LambdaFunction = versions[-1]
        return last
    function.code_or_config_updated = False
    function.account_versions = getattr(function, "account_versions", 0) + 1
    made = copy.copy(function)
    made.set_version(function.account_versions)
    made.description = description or made.description
    versions.append(made)
    self._arns[made.function_arn] = made
    return made


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
    configuration.check(properties, Location(account_id, region_name), _account_functions.authorizer)
    code = dict(properties["Code"])
    if "ZipFile" in code:
        code["ZipFile"] = base64.b64encode(cls._create_zipfile_from_plaintext_code(code["ZipFile"]))
    configuration.apply(original_resource, properties)
    original_resource.update_function_code(code)
    return original_resource


def _of_the_cdk(function: LambdaFunction) -> str | None:
    """The name of its handler in `cdk_handlers.py`; None for a function with code of its own."""
    found: str | None = getattr(function, "account_handler", None)
    return found


def _invoke(self: LambdaFunction, body: str | bytes, request_headers: Any, response_headers: Any) -> str:
    """Invoke: returns the handler's result, or its error."""
    if not str(self.run_time).startswith("python3.") and not _of_the_cdk(self):
        raise JsonRESTError(
            "ServiceException",
            f"Runtime must be python3.* in the local account, got {self.run_time} of {self.function_name}",
        )
    try:
        event = json.loads(body or "{}")
    except ValueError as error:
        parsing = "Could not parse request body into json: Could not parse payload into json"
        raise JsonRESTError("InvalidRequestContentException", f"{parsing}: {error}") from None
    kind = request_headers.get("X-Amz-Invocation-Type")
    if kind == "Event":
        _account_functions.asynchronous.begin(self, event)
    if kind in ("DryRun", "Event"):
        return ""
    began = time.monotonic()
    try:
        called = _account_functions.call(self, event)
    except LookupError as error:
        raise JsonRESTError("AccessDeniedException", str(error)) from None
    except Throttled:
        raise TooManyRequests from None
    response_headers["x-amz-executed-version"] = str(self.version)
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
