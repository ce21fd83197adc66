"""Lambda functions in Python, each call of which is a process in a host of its own, as jobs have them, under the function's role.

moto starts a container of Docker's for each, or, without Docker, gives an error of that as the function's own. Here the code is
the function's, and the interpreter, with boto3, this account's own, whatever the Runtime. It writes its log under its role.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import sys
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.awslambda.models import LambdaFunction
from moto.core.exceptions import JsonRESTError

from . import atomic_files, leftovers
from .clients import OF_JOBS, Clients
from .hosts import HostError, RunningJob
from .patches import CREATE, patch
from .safe_paths import JobFolder
from .sessions import Sessions
from .spec import HostPlan, JobPlan

SERVICE = "lambda.amazonaws.com"
# Where Lambda has a function's code, and its runtime ("Defined runtime environment variables").
_TASK, _RUNTIMES = "/var/task", "/var/runtime"
_HOST, _RESULT = "function", "result.json"
_RUNTIME = Path(__file__).with_name("function_runtime.py")
# Of the environment of the account's clients: what leads to the account, and nothing of its root's.
_PASSED_ON = (
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "LANG",
    "NO_PROXY",
    "no_proxy",
)
# The properties of AWS::Lambda::Function that a function is run by.
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

_log = logging.getLogger(__name__)
_of_the_account: Functions


@dataclass(frozen=True)
class Call:
    """What came of a call: what the handler returned as JSON, or its error; what it printed."""

    payload: str
    failed: bool
    printed: str

    @property
    def reason(self) -> str:
        """Why it failed, in a line."""
        error = json.loads(self.payload or "{}")
        return f"{error.get('errorType')}: {error.get('errorMessage')}"


class Functions:
    """Calls the functions of one account, each call with a folder of its own in ``folder``, which is cleared."""

    def __init__(
        self, folder: Path, clients: Clients, sessions: Sessions, environment: Callable[[], Mapping[str, str]]
    ) -> None:
        leftovers.clear(folder)  # of an account that was killed
        self._folder = folder
        self._clients, self._sessions, self._environment = clients, sessions, environment

    def call(self, function: LambdaFunction, event: Any) -> Call:
        """Call a function, and wait for its end or until its Timeout, which ends it.

        Raises LookupError where its role is not there, or does not let Lambda take it on.
        """
        keys = self._sessions.of(function.role, SERVICE, function.function_arn)
        request_id = str(uuid.uuid4())
        stream = f"{time.strftime('%Y/%m/%d', time.gmtime())}/[$LATEST]{uuid.uuid4().hex}"
        group = getattr(function, "account_log_group", function.logs_group_name)
        seconds = float(function.timeout)
        context = {
            "aws_request_id": request_id,
            "function_name": function.function_name,
            "function_version": "$LATEST",
            "invoked_function_arn": function.function_arn,
            "log_group_name": group,
            "log_stream_name": stream,
            "memory_limit_in_mb": str(function.memory_size),
        }
        given = {"event": event, "context": context, "seconds": seconds, "result": f"/tmp/{_RESULT}"}
        called = self._run(function, self._variables(function, keys), given, seconds)
        if called is None:
            message = f"{request_id} Task timed out after {seconds:.2f} seconds"
            called = Call(json.dumps({"errorMessage": message, "errorType": "Sandbox.Timedout"}), True, message)
        self._keep(function.region, group, stream, called.printed, keys)
        return called

    def _run(
        self, function: LambdaFunction, variables: Mapping[str, str], given: Mapping[str, Any], seconds: float
    ) -> Call | None:
        """Run a function's process in a host of its own, as jobs have one: who may call the account's API may give it any code.
        None where it has not ended by then."""
        lines: list[str] = []
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            folder = Path(name).absolute()
            task, runtime = folder / "image" / _TASK[1:], folder / "image" / _RUNTIMES[1:]
            with atomic_files.naming_full_disk(self._folder):
                zipfile.ZipFile(io.BytesIO(function.code_bytes)).extractall(task)
            runtime.mkdir(parents=True)
            shutil.copy(_RUNTIME, runtime)
            (runtime / "call.json").write_text(json.dumps(given))
            # -P: not with this package's folder in front of the modules that the code imports.
            command = (sys.executable, "-P", f"{_RUNTIMES}/{_RUNTIME.name}", f"{_RUNTIMES}/call.json")
            host = HostPlan.alone(
                name=_HOST,
                folder=folder / "host",
                root=folder / "image",
                environment=variables,
                command=command,
                working_directory=_TASK,
            )
            plan = JobPlan(folder.name, (host,), int(variables["AWS_ENDPOINT_URL"].rpartition(":")[2]), folder)
            running = RunningJob(plan, on_line=lambda _, line: lines.append(line))
            try:
                running.start()
                codes = running.wait(seconds)
            except HostError as error:
                return Call(json.dumps({"errorMessage": str(error), "errorType": "Sandbox.Failure"}), True, str(error))
            finally:
                running.close()
            payload = ""
            with contextlib.suppress(FileNotFoundError), JobFolder(host.folder, "tmp").open(_RESULT) as result:
                payload = result.read().decode()
        return None if codes is None else Call(payload, bool(codes[_HOST]), "\n".join(lines))

    def _variables(self, function: LambdaFunction, keys: Mapping[str, str]) -> dict[str, str]:
        passed_on = self._environment()
        return {
            **{name: passed_on[name] for name in _PASSED_ON if name in passed_on},
            "AWS_DEFAULT_REGION": function.region,
            "AWS_REGION": function.region,
            "PATH": f"{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
            **function.environment_vars,
            **keys,
            "AWS_LAMBDA_FUNCTION_NAME": function.function_name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_size),
            "HOME": "/root",
            "LAMBDA_TASK_ROOT": _TASK,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": "/tmp",
            "_HANDLER": str(function.handler),
        }

    def _keep(self, region: str, group: str, stream: str, printed: str, keys: Mapping[str, str]) -> None:
        logs = self._clients.client("logs", region, keys, OF_JOBS)
        now = round(time.time() * 1000)
        events = [{"timestamp": now, "message": line} for line in printed.splitlines() if line]
        try:
            if events:
                logs.create_log_stream(logGroupName=group, logStreamName=stream)
                logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
        except Exception as error:  # as on AWS nobody hears of it
            _log.warning("the log of a function's call was not kept in %s: %s", group, error)


def install(functions: Functions) -> None:
    """Make moto's functions call processes; a renewed call renews the account."""
    global _of_the_account
    _of_the_account = functions
    patch(LambdaFunction, "invoke", _invoke, "self, body, request_headers, response_headers")
    patch(LambdaFunction, "create_from_cloudformation_json", _created, CREATE)


def of_the_account() -> Functions:
    return _of_the_account


def not_run(properties: Mapping[str, Any]) -> list[str]:
    """The properties of an AWS::Lambda::Function for which it cannot be run here, each with its value where that is why."""
    unheard = sorted(set(properties) - HONOURED)
    runtime = properties.get("Runtime")
    if not str(runtime).startswith("python3."):
        unheard.append(f"Runtime {runtime!r}")
    code = properties.get("Code", {})
    unheard += [f"Code.{name}" for name in sorted(set(code) - {"S3Bucket", "S3Key", "S3ObjectVersion", "ZipFile"})]
    return unheard


_moto_created = LambdaFunction.create_from_cloudformation_json.__func__


def _created(cls: Any, resource_name: str, cloudformation_json: Any, *args: Any, **kwargs: Any) -> LambdaFunction:
    """moto changes the template's code into an archive, and drops where the log is kept."""
    properties = cloudformation_json["Properties"]
    copied = {**cloudformation_json, "Properties": {**properties, "Code": dict(properties.get("Code", {}))}}
    function: LambdaFunction = _moto_created(cls, resource_name, copied, *args, **kwargs)
    group = properties.get("LoggingConfig", {}).get("LogGroup")
    if group:
        function.account_log_group = group
    return function


def _invoke(self: LambdaFunction, body: str | bytes, request_headers: Any, response_headers: Any) -> str:
    """Invoke: what the handler returned, or its error."""
    if not str(self.run_time).startswith("python3."):
        raise JsonRESTError(
            "ServiceException",
            f"the local account runs Lambda functions in Python only; {self.function_name} is of {self.run_time}",
        )
    try:
        called = _of_the_account.call(self, json.loads(body or "{}"))
    except LookupError as error:
        raise JsonRESTError("AccessDeniedException", str(error)) from None
    if called.failed:
        response_headers["x-amz-function-error"] = "Unhandled"
    return called.payload
