"""What shall go wrong, and when: the faults that AWS has by chance and a developer wants on demand.

    account.faults.add(Capacity("ml.p4d.24xlarge", times=2))

`local-account break` says the same in a terminal; `docs/faults.md` shows what each looks like to a job and to its state
machine. A fault happens ``times`` times, or, with None, until it is mended.
"""

from __future__ import annotations

import dataclasses
import random
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_BLOCK = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``times`` it happens. ``job``: only to jobs with this in their names."""

    times: int | None = 1
    job: str = ""

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"times must be at least 1, or None until it is mended, got {self.times}")


@dataclass(frozen=True)
class Capacity(Fault):
    """There is no machine of a type to be had: jobs on it fail with a CapacityError, or wait for MaxPendingTimeInSeconds."""

    instance_type: str


@dataclass(frozen=True)
class ScheduledPlan(Fault):
    """A training plan, by its ARN, has not started: its jobs stay Pending until this is mended, whatever ``times`` says."""

    plan: str


@dataclass(frozen=True)
class Quota(Fault):
    """The account may use ``limit`` machines of a type at a time: a Create beyond that is ResourceLimitExceeded."""

    instance_type: str
    limit: int = 0


@dataclass(frozen=True)
class Throttling(Fault):
    """SageMaker refuses an operation, such as CreateTrainingJob, as called too often."""

    operation: str


@dataclass(frozen=True)
class _DuringTraining(Fault):
    """Happens once a line matches ``at`` (a regular expression), else within ``within`` seconds of training, at a moment
    drawn with ``seed``; at once where neither is said."""

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
    """Spot machines are taken back from a managed spot training job; after ``away`` seconds there are others."""

    away: float = 0


@dataclass(frozen=True)
class LostHost(_DuringTraining):
    """A machine is lost, with all that runs on it."""

    host: str = "algo-1"


@dataclass(frozen=True)
class LateHost(Fault):
    """A host's container starts ``seconds`` after the others'."""

    host: str
    seconds: float


@dataclass(frozen=True)
class FullDisk(Fault):
    """A host's volume holds no more than some MiB under /opt/ml."""

    host: str
    mebibytes: int


@dataclass(frozen=True)
class SlowS3(Fault):
    """S3 answers after ``latency`` seconds, with ``bytes_per_second`` (0: as fast as it can)."""

    bytes_per_second: float = 0
    latency: float = 0


KINDS: Mapping[str, type[Fault]] = {
    kind.__name__: kind
    for kind in (Capacity, ScheduledPlan, Quota, Throttling, Interruption, LostHost, LateHost, FullDisk, SlowS3)
}
F = TypeVar("F", bound=Fault)


class Faults:
    """The faults of one account. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._left: dict[str, int | None] = {}
        self._count = 0

    def add(self, fault: Fault) -> str:
        """Let it go wrong from now on; the name by which it can be mended."""
        with self._lock:
            self._count += 1
            name = f"{type(fault).__name__}-{self._count}"
            self._faults[name], self._left[name] = fault, fault.times
            return name

    def mend(self, name: str) -> None:
        """End a fault. Raises LookupError where there is none of the name, or it has happened as often as it should."""
        with self._lock:
            if name not in self._faults:
                raise LookupError(f"there is no fault {name!r}; there are {', '.join(self._faults) or 'none'}")
            del self._faults[name], self._left[name]

    def left(self) -> dict[str, dict[str, Any]]:
        """Each fault by its name: its kind, what it says, and how often it is still to happen."""
        with self._lock:
            return {
                name: {"kind": type(fault).__name__, **dataclasses.asdict(fault), "times": self._left[name]}
                for name, fault in self._faults.items()
            }

    def of(self, kind: type[F], *, job: str = "") -> list[F]:
        """The faults of a kind that are still to happen to a job of this name."""
        with self._lock:
            return [fault for fault in self._faults.values() if isinstance(fault, kind) and fault.job in job]

    def take(self, fault: Fault) -> bool:
        """Let a fault happen; False where it has happened often enough, or was mended."""
        with self._lock:
            name = next((name for name, other in self._faults.items() if other == fault), None)
            if name is None:
                return False
            left = self._left[name]
            if left is not None:
                self._left[name] = left - 1
                if left == 1:
                    del self._faults[name], self._left[name]
            return True

    def take_one(self, kind: type[F], *, job: str = "", **members: Any) -> F | None:
        """Let the first fault of a kind happen whose members are as said; None where there is none."""
        for fault in self.of(kind, job=job):
            if all(getattr(fault, name) == value for name, value in members.items()) and self.take(fault):
                return fault
        return None

    def slowly(self, app: WSGIApplication, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """The answer to a request of S3, as slowly as a `SlowS3` says."""
        fault = self.take_one(SlowS3)
        if fault is None:
            return app(environ, start_response)
        time.sleep(fault.latency)
        if fault.bytes_per_second:
            time.sleep(int(environ.get("CONTENT_LENGTH") or 0) / fault.bytes_per_second)
        return _dripping(app(environ, start_response), fault.bytes_per_second)


class Moment:
    """When a fault of a training job is due: at a line, or ``seconds`` after the start of its training."""

    def __init__(self, fault: _DuringTraining) -> None:
        self.fault = fault
        self._pattern = re.compile(fault.at) if fault.at is not None else None
        self._heard = False
        self.seconds = random.Random(fault.seed).uniform(0, fault.within)
        self._from = time.monotonic() + self.seconds

    def hear(self, line: str) -> None:
        if self._pattern is not None and self._pattern.search(line):
            self._heard = True

    @property
    def due(self) -> bool:
        return self._heard if self._pattern is not None else time.monotonic() >= self._from


def _dripping(answer: Iterable[bytes], bytes_per_second: float) -> Iterator[bytes]:
    for part in answer:
        for first in range(0, len(part), _BLOCK):
            block = part[first : first + _BLOCK]
            if bytes_per_second:
                time.sleep(len(block) / bytes_per_second)
            yield block
