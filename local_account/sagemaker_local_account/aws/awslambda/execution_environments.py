"""The execution environments of Lambda functions: hosts that handle one invocation after the other.

An environment is used again. What the handler's module has made outside of the handler stays, and so does what is in /tmp; after
an invocation that timed out or whose process ended, the process is a new one, and /tmp stays (Lambda's guide, "Understanding the
Lambda execution environment lifecycle"; LocalStack's recorded test_lambda_cache_local and
test_lambda_invoke_timed_out_environment_reuse). Between two invocations processes are not frozen, as they are on AWS.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moto.awslambda.models import LambdaFunction, lambda_backends

from sagemaker_local_account.aws.awslambda.arns import unqualified
from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.runtime.pod import HostError, Pod
from sagemaker_local_account.runtime.spec import ContainerSpec, Mount, PodSpec

# The folders of a function's code and of its runtime (Lambda's guide, "Defined runtime environment variables").
TASK, RUNTIMES = "/var/task", "/var/runtime"
_PYTHON = "/var/lang/bin/python"  # AWS's interpreter, which programs in layers name, such as the CDK's AWS CLI
_HOST = "function"
_RUNTIME = Path(__file__).with_name("function_runtime.py")
CDK_HANDLERS = Path(__file__).with_name("cdk_handlers.py")
# Of environments that wait for an invocation.
_MOST_IDLE, _IDLE_SECONDS = 4, 60.0


@dataclass(frozen=True)
class Call:
    """The result of an invocation.

    Args:
        payload: what the handler returned, as JSON, or its error.
        failed: whether it is an error.
        printed: its output.
        request_id: of the invocation.
        log_stream: that of its execution environment.
    """

    payload: str
    failed: bool
    printed: str
    request_id: str
    log_stream: str

    @property
    def reason(self) -> str:
        """The error's type and message."""
        error = json.loads(self.payload or "{}")
        return f"{error.get('errorType')}: {error.get('errorMessage')}"


class Throttled(Exception):
    """As many invocations of a function as it reserves are running."""


class _Ended(Exception):
    """The process of an environment ended during an invocation."""


class _Process:
    """The process of an environment.

    Raises:
        HostError: it could not be started.
    """

    def __init__(self, spec: PodSpec) -> None:
        self.lines: list[str] = []
        self._last_line = ""
        self._printed = threading.Event()
        self._channel, theirs = socket.socketpair()
        self._received = bytearray()
        self.pod = Pod(spec, on_line=self._on_line, inputs={_HOST: theirs.fileno()})
        try:
            with theirs:
                self.pod.start()
        except BaseException:
            self._channel.close()
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    def handle(self, invocation: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Returns the runtime's result, once all that it printed is in ``lines``.

        Raises:
            _Ended: the process ended.
            TimeoutError: it is past ``until``, of the monotonic clock.
        """
        self.lines, self._last_line = [], uuid.uuid4().hex
        self._printed.clear()
        request = json.dumps({**invocation, "last_line": self._last_line}).encode() + b"\n"
        try:
            self._channel.settimeout(_left(until))
            self._channel.sendall(request)
            while b"\n" not in self._received:
                self._channel.settimeout(_left(until))
                if not (more := self._channel.recv(1 << 16)):
                    raise _Ended
                self._received += more
        except (BrokenPipeError, ConnectionResetError):
            raise _Ended from None
        line, _, self._received = self._received.partition(b"\n")
        if not self._printed.wait(_left(until)):
            raise TimeoutError
        result: dict[str, Any] = json.loads(line)
        return result

    def exit_code(self) -> int:
        """Returns the exit code, negative for a signal."""
        codes = self.pod.wait()
        assert codes is not None
        return codes[_HOST]

    def close(self) -> None:
        """Kills what still runs."""
        self.pod.close()
        self._channel.close()

    def _watch(self) -> None:
        self.pod.wait()
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # ends `recv`
        self._printed.set()

    def _on_line(self, _: str, line: str) -> None:
        if line == self._last_line:
            self._printed.set()
        else:
            self.lines.append(line)


@dataclass(eq=False)
class ExecutionEnvironment:
    """The host of a function's invocations, one at a time.

    Args:
        function: moto's.
        version: its code and variables.
        spec: its host.
        log_stream: the log stream's name.
        process: None before the first invocation, and after one that has ended its process.
        idle_since: of the monotonic clock.
    """

    function: LambdaFunction
    version: tuple[Any, ...]
    spec: PodSpec
    log_stream: str
    process: _Process | None = None
    idle_since: float = 0.0

    @classmethod
    def create(
        cls, function: LambdaFunction, version: tuple[Any, ...], variables: Mapping[str, str], parent: Path
    ) -> ExecutionEnvironment:
        """Unpacks the function's code into a new folder.

        Args:
            function: see the class.
            version: see the class.
            variables: of the process.
            parent: where the folder is made.
        """
        folder = Path(tempfile.mkdtemp(dir=parent)).absolute()
        log_stream = f"{time.strftime('%Y/%m/%d', time.gmtime())}/[{function.version}]{uuid.uuid4().hex}"
        layers = lambda_backends[function.account_id][function.region]
        try:
            with atomic_files.naming_full_disk(parent):
                for layer in function.layers:  # a later one over an earlier
                    _unpack(layers.layers_versions_by_arn(layer["Arn"]).code_bytes, folder / "opt")
                _unpack(function.code_bytes, folder / "image" / TASK[1:])
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if getattr(function, "account_handler", None):
            shutil.copy(CDK_HANDLERS, folder / "image" / TASK[1:])
        runtime = folder / "image" / RUNTIMES[1:]
        runtime.mkdir(parents=True)
        shutil.copy(_RUNTIME, runtime)
        python = folder / "image" / _PYTHON[1:]
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        host = ContainerSpec.alone(
            name=_HOST,
            folder=folder / "host",
            root=folder / "image",
            environment={**variables, "AWS_LAMBDA_LOG_STREAM_NAME": log_stream},
            # -P: the runtime's folder is not put on sys.path.
            command=(sys.executable, "-P", f"{RUNTIMES}/{_RUNTIME.name}"),
            working_directory=TASK,
            mounts=(Mount("/opt", folder / "opt", read_only=True),) if function.layers else (),
        )
        endpoint_port = int(variables["AWS_ENDPOINT_URL"].rpartition(":")[2])
        return cls(function, version, PodSpec(folder.name, (host,), endpoint_port, folder), log_stream)

    def invoke(self, invocation: Mapping[str, Any]) -> Call:
        """Handles an invocation; the function's Timeout kills its process.

        Args:
            invocation: the event, the members of the context but for the log stream, and the seconds that it may take.
        """
        if self.process is not None and self.process.pod.wait(0) is not None:  # it has ended while it waited
            self._end_process()
        context = {**invocation["context"], "log_stream_name": self.log_stream}
        of = {"request_id": context["aws_request_id"], "log_stream": self.log_stream}
        try:
            self.process = process = self.process or _Process(self.spec)
        except HostError as error:
            payload = json.dumps({"errorMessage": str(error), "errorType": "Sandbox.Failure"})
            return Call(payload, True, str(error), **of)
        seconds = invocation["seconds"]
        try:
            result = process.handle({**invocation, "context": context}, time.monotonic() + seconds)
            return Call(result["payload"], result["failed"], "\n".join(process.lines), **of)
        except TimeoutError:
            kind, why = "Sandbox.Timedout", f"Task timed out after {seconds:.2f} seconds"
        except _Ended:
            kind, why = "Runtime.ExitError", f"Runtime exited {_how_it_exited(process.exit_code())}"
        self._end_process()
        message = f"RequestId: {of['request_id']} Error: {why}"
        payload = json.dumps({"errorType": kind, "errorMessage": message})
        return Call(payload, True, "\n".join([*process.lines, message]), **of)

    def close(self) -> None:
        """Kills its process and deletes its folder."""
        self._end_process()
        shutil.rmtree(self.spec.folder, ignore_errors=True)

    def _end_process(self) -> None:
        if self.process is not None:
            self.process.close()
        self.process = None


@dataclass
class ExecutionEnvironments:
    """The environments of an account.

    Args:
        folder: where their folders are made.
    """

    folder: Path
    _idle: list[ExecutionEnvironment] = field(default_factory=list)
    _running: Counter[str] = field(default_factory=Counter)  # by ARNs without versions
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _timer: threading.Timer | None = None
    _closed: bool = False

    def invoke(self, function: LambdaFunction, variables: Mapping[str, str], invocation: Mapping[str, Any]) -> Call:
        """Invokes a function in an environment that waits, or else in a new one.

        Args:
            function: moto's.
            variables: of its process.
            invocation: see `ExecutionEnvironment.invoke`.

        Raises:
            Throttled: as many invocations as the function reserves are running.
        """
        version = (function.code_sha_256, *(it["Arn"] for it in function.layers), *sorted(variables.items()))
        with self._one_more(function):
            environment = self._waiting(function, version)
            if environment is None:
                environment = ExecutionEnvironment.create(function, version, variables, self.folder)
            try:
                return environment.invoke(invocation)
            finally:
                environment.idle_since = time.monotonic()
                with self._lock:
                    self._idle.append(environment)
                self._close_what_is_over()

    def close(self) -> None:
        """Closes all that wait, and each other after its invocation."""
        self._closed = True
        self._close_what_is_over()

    @contextlib.contextmanager
    def _one_more(self, function: LambdaFunction) -> Iterator[None]:
        reserved, arn = function.reserved_concurrency, unqualified(function.function_arn)
        with self._lock:
            if reserved is not None and self._running[arn] >= int(reserved):
                raise Throttled
            self._running[arn] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[arn] -= 1
                if not self._running[arn]:
                    del self._running[arn]

    def _waiting(self, function: LambdaFunction, version: tuple[Any, ...]) -> ExecutionEnvironment | None:
        with self._lock:
            found = next((it for it in self._idle if it.function is function and it.version == version), None)
            if found is not None:
                self._idle.remove(found)
        return found

    def _close_what_is_over(self) -> None:
        """Closes what is one too many or has waited for long; looks again when the next one has."""
        with self._lock:
            since = time.monotonic() - _IDLE_SECONDS
            stay = [] if self._closed else [it for it in self._idle[-_MOST_IDLE:] if it.idle_since > since]
            over = [it for it in self._idle if it not in stay]
            self._idle = stay
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if stay:
                self._timer = threading.Timer(min(it.idle_since for it in stay) - since, self._close_what_is_over)
                self._timer.daemon = True
                self._timer.start()
        for environment in over:
            environment.close()


def _unpack(archive: bytes, folder: Path) -> None:
    """Unpacks an archive with the permissions of its files, which `extractall` leaves out."""
    with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
        zipped.extractall(folder)
        for member in zipped.infolist():
            if (mode := member.external_attr >> 16 & 0o777) and not member.is_dir():
                (folder / member.filename).chmod(mode | 0o400)


def _left(until: float) -> float:
    """Seconds until then; a TimeoutError where there are none."""
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _how_it_exited(code: int) -> str:
    """Of a process that ended during an invocation (LocalStack's recorded TestLambdaErrors)."""
    if code == 0:
        return "without providing a reason"
    if code > 0:
        return f"with error: exit status {code}"
    return f"with error: signal: {(signal.strsignal(-code) or str(-code)).lower()}"
