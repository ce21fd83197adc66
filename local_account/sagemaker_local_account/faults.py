"""Fault injection: what goes wrong by chance on AWS, on demand.

    account.faults.add(Capacity("ml.p4d.24xlarge", times=2))

`local-account break` does the same in a terminal; `docs/faults.md` shows the effect of each fault on a job and its state machine.
A fault occurs ``times`` times, or with None until it is mended.
"""

from __future__ import annotations

import dataclasses
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from sagemaker_local_account.core import error_responses

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_BLOCK = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault.

    Args:
        times: how often it occurs; None for until it is mended.
        job: only for jobs with this text in their names.
    """

    times: int | None = 1
    job: str = ""

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times must be at least 1, or None until it is mended, got {self.times}")


@dataclass(frozen=True)
class Capacity(Fault):
    """There is no capacity for an instance type: jobs fail with a CapacityError, or wait for MaxPendingTimeInSeconds."""

    instance_type: str


@dataclass(frozen=True)
class ScheduledPlan(Fault):
    """A training plan, given by its ARN, has not started: its jobs are Pending until this is mended; ``times`` is ignored."""

    plan: str


@dataclass(frozen=True)
class Quota(Fault):
    """A quota of ``limit`` machines of a type: CreateTrainingJob beyond it fails with ResourceLimitExceeded.

    Args:
        instance_type: the type.
        limit: its machines.
        in_use: how many of them are used by others than the jobs of this account.
    """

    instance_type: str
    limit: int = 0
    in_use: int = 0


@dataclass(frozen=True)
class _OfCall(Fault):
    """A fault of an operation of any service, such as CreateTrainingJob or StartExecution.

    Args:
        operation: its name.
        caller: only calls of those with this text in their ARN, such as "assumed-role" for what state machines call.
    """

    operation: str
    caller: str = ""


@dataclass(frozen=True)
class Throttling(_OfCall):
    """An operation fails with ThrottlingException."""


@dataclass(frozen=True)
class LostAnswer(_OfCall):
    """An operation succeeds, and the connection is closed without its answer: in a state machine an SdkClientException."""


@dataclass(frozen=True)
class NotCancelled(Fault):
    """Step Functions does not stop what an execution waits for with `.sync` when the execution is stopped or times out.

    "Step Functions makes a best-effort attempt" (Step Functions' guide, Run a Job (.sync)).
    """


@dataclass(frozen=True)
class _DuringTraining(Fault):
    """A fault during training.

    Args:
        at: a regular expression: the fault occurs when a line of the job's output matches.
        within: without ``at`` the fault occurs at a random time in the first ``within`` seconds of training.
        seed: of that random time.
    """

    at: str | None = None
    within: float = 0
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            re.compile(self.at or "")
        except re.error as error:
            raise ValueError(
                f"at must be a regular expression of a line, like 'step 20 ', got {self.at!r}: {error}"
            ) from None
        if self.within < 0:
            raise ValueError(f"within must be 0 or more seconds, like 60, got {self.within}")


@dataclass(frozen=True)
class Interruption(_DuringTraining):
    """A managed spot training job is interrupted; after ``away`` seconds there is capacity again."""

    away: float = 0


@dataclass(frozen=True)
class LostHost(_DuringTraining):
    """A machine fails, with all its processes."""

    host: str = "algo-1"


@dataclass(frozen=True)
class LateHost(Fault):
    """A host's container starts ``seconds`` after the others'."""

    host: str
    seconds: float


@dataclass(frozen=True)
class FullDisk(Fault):
    """A host's volume at /opt/ml has a size of ``mebibytes``."""

    host: str
    mebibytes: int


@dataclass(frozen=True)
class SlowS3(Fault):
    """S3 answers after ``latency`` seconds, with ``bytes_per_second`` (0: unlimited)."""

    bytes_per_second: float = 0
    latency: float = 0


@dataclass(frozen=True)
class LostEvent(Fault):
    """EventBridge does not deliver the event of an execution's end, as AWS does in rare cases.

    Args:
        status: only of executions that end so, like ABORTED; "" for any end.
        machine: only of executions of state machines with this text in their names.
    """

    status: str = ""
    machine: str = ""


KINDS: Mapping[str, type[Fault]] = {
    kind.__name__: kind
    for kind in (
        Capacity,
        ScheduledPlan,
        Quota,
        Throttling,
        Interruption,
        LostHost,
        LateHost,
        FullDisk,
        SlowS3,
        LostEvent,
        LostAnswer,
        NotCancelled,
    )
}
F = TypeVar("F", bound=Fault)


class Faults:
    """The faults of one account; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._remaining: dict[str, int | None] = {}
        self._count = 0

    def add(self, fault: Fault) -> str:
        """Adds a fault; returns its name."""
        with self._lock:
            self._count += 1
            name = f"{type(fault).__name__}-{self._count}"
            self._faults[name], self._remaining[name] = fault, fault.times
            return name

    def mend(self, name: str) -> None:
        """Removes a fault.

        Raises:
            LookupError: there is none of the name, or it has occurred ``times`` times.
        """
        with self._lock:
            if name not in self._faults:
                raise LookupError(f"there is no fault {name!r}; there are {', '.join(self._faults) or 'none'}")
            del self._faults[name], self._remaining[name]

    def remaining(self) -> dict[str, dict[str, Any]]:
        """Returns the members of each fault by name, with its kind and the remaining ``times``."""
        with self._lock:
            return {
                name: {"kind": type(fault).__name__, **dataclasses.asdict(fault), "times": self._remaining[name]}
                for name, fault in self._faults.items()
            }

    def of(self, kind: type[F], *, job: str = "") -> list[F]:
        """Returns the remaining faults of a kind for a job's name."""
        with self._lock:
            return [fault for fault in self._faults.values() if isinstance(fault, kind) and fault.job in job]

    def consume(self, fault: Fault) -> bool:
        """Counts an occurrence of a fault; returns False where it has occurred ``times`` times, or was mended."""
        with self._lock:
            name = next((name for name, other in self._faults.items() if other == fault), None)
            if name is None:
                return False
            remaining = self._remaining[name]
            if remaining is not None:
                self._remaining[name] = remaining - 1
                if remaining == 1:
                    del self._faults[name], self._remaining[name]
            return True

    def consume_first(self, kind: type[F], *, job: str = "", **members: Any) -> F | None:
        """Counts an occurrence of the first fault of a kind with the given members, and returns it; None without one."""
        for fault in self.of(kind, job=job):
            if all(getattr(fault, name) == value for name, value in members.items()) and self.consume(fault):
                return fault
        return None

    def of_calls(
        self,
        call: Callable[[], tuple[str, str]],
        app: WSGIApplication,
        environ: WSGIEnvironment,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        """Answers a request as `Throttling` and `LostAnswer` say.

        Args:
            call: returns the operation that the request asks for, and the ARN of its caller; called before the body is consumed.
            app: answers it where there is no fault.
            environ: the WSGI request.
            start_response: WSGI's.
        """
        faults = self.of(_OfCall)
        if not faults:
            return app(environ, start_response)
        operation, caller = call()
        # The first that was added, so that a call that loses its answer may be followed by throttled ones.
        faults = [fault for fault in faults if fault.operation == operation and fault.caller in caller][:1]
        if any(isinstance(fault, Throttling) and self.consume(fault) for fault in faults):
            return error_responses.throttled(environ, start_response)
        response: list[Any] = []

        def keep(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            response.extend((status, headers, exc_info))

        answer = app(environ, keep)
        if response[0].startswith("2") and any(map(self.consume, faults)):
            return _closed()
        start_response(*response)
        return answer

    def delayed(self, app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers a request to S3, delayed by a `SlowS3`."""
        fault = self.consume_first(SlowS3)
        if fault is None:
            return app(environ, start_response)
        time.sleep(fault.latency)
        if fault.bytes_per_second:
            time.sleep(int(environ.get("CONTENT_LENGTH") or 0) / fault.bytes_per_second)
        return _throttled(app(environ, start_response), fault.bytes_per_second)


class FaultTrigger:
    """The time of a fault during training: at a matching line, or ``seconds`` after the trigger's construction."""

    def __init__(self, fault: _DuringTraining) -> None:
        self.fault = fault
        self._pattern = re.compile(fault.at) if fault.at is not None else None
        self._matched = False
        self.seconds = random.Random(fault.seed).uniform(0, fault.within)
        self._from = time.monotonic() + self.seconds

    def observe(self, line: str) -> None:
        """Matches a line of the job's output."""
        if self._pattern is not None and self._pattern.search(line):
            self._matched = True

    @property
    def due(self) -> bool:
        """Whether the fault is to occur now."""
        return self._matched if self._pattern is not None else time.monotonic() >= self._from


def _closed() -> Iterator[bytes]:
    """A body at which the server closes the connection, before it has sent anything."""
    raise ConnectionAbortedError("a fault lost this answer")
    yield b""


def _throttled(answer: Iterable[bytes], bytes_per_second: float) -> Iterator[bytes]:
    for part in answer:
        for first in range(0, len(part), _BLOCK):
            block = part[first : first + _BLOCK]
            if bytes_per_second:
                time.sleep(len(block) / bytes_per_second)
            yield block
