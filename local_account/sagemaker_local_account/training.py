"""One run of a job's hosts: from their start until all have ended, by themselves or because something ended them."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .failure_reasons import LONGEST_REASON, HostEnd, oom_kills, reason_of
from .faults import Faults, Interruption, LostHost, Moment
from .hosts import CommandError, RunningJob
from .safe_paths import JobFolder
from .spec import HostPlan, JobPlan
from .storage import Checkpoints

STOP_SECONDS = 120  # between SIGTERM and SIGKILL, as SageMaker gives
PEERS_SECONDS = 3  # what the other hosts get once one has failed
LOOK_SECONDS = 0.2
CHECKPOINT_SECONDS = 1.0
_LAST_LINES = 20  # of each host, of which a reason holds what fits
_LONGEST_FAILURE = 8192  # bytes that are read of /opt/ml/output/failure, of which a reason holds 1,024 characters

EndedBy = Literal["itself", "stop", "runtime", "wait", "interruption"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended. ``failure``: why a host failed, None where none did; ``interruption`` is the fault that ended it."""

    ended_by: EndedBy
    failure: str | None = None
    interruption: Interruption | None = None


class Training:
    """A run of a plan's hosts.

    ``stop`` asks the hosts to end, ``abort`` kills them; ``deadlines`` are moments of `time.monotonic` at which the run ends,
    by why. ``on_line(host, line)`` gets what they print.
    """

    def __init__(
        self,
        plan: JobPlan,
        *,
        request: Mapping[str, Any],
        checkpoints: Checkpoints | None,
        faults: Faults,
        deadlines: Mapping[EndedBy, float],
        stop: threading.Event,
        abort: threading.Event,
        on_line: Callable[[str, str], None],
    ) -> None:
        self._plan = plan
        self._checkpoints = checkpoints
        self._faults = faults
        self._deadlines = deadlines
        self._stop = stop
        self._abort = abort
        self._on_line = on_line
        self._moments = [Moment(fault) for fault in faults.of(LostHost, job=plan.name)]
        if request.get("EnableManagedSpotTraining"):
            self._moments += [Moment(fault) for fault in faults.of(Interruption, job=plan.name)]
        self._hosts = RunningJob(plan, on_line=self._hear)
        self._last_lines: dict[str, deque[str]] = {host.name: deque(maxlen=_LAST_LINES) for host in plan.hosts}
        self._oom_kills = oom_kills()
        self._ended_by: EndedBy = "itself"
        self._interruption: Interruption | None = None
        self._failure: str | None = None
        self._kill_at: float | None = None

    def lose_host(self, name: str) -> None:
        """End a host with all that runs on it, as when its machine is lost."""
        self._hosts.kill_host(name)

    def run(self) -> Outcome:
        """Start the hosts and see them to their end. Raises HostError where one cannot be started."""
        try:
            self._hosts.start()
            next_look = time.monotonic() + CHECKPOINT_SECONDS
            while self._hosts.wait(0) is None:
                self._see(self._hosts.first_exit(LOOK_SECONDS))
                self._meet_faults()
                self._end_where_asked()
                if time.monotonic() > next_look:
                    self.keep_checkpoints()
                    next_look = time.monotonic() + CHECKPOINT_SECONDS
            while ended := self._hosts.first_exit(0):
                self._see(ended)
        except CommandError as error:
            # Of a training job's container without `train`: aws/amazon-sagemaker-examples issues 739 (the line in its log) and
            # 3650 (the reason).
            self._failure = (
                f"ClientError: Artifact upload failed:API error (400): OCI runtime create failed: {error}. SageMaker starts "
                "an image as `docker run IMAGE train`: the image has to have an ENTRYPOINT or a command `train`, which "
                "`pip install sagemaker-training` brings"
            )
        finally:
            self._hosts.close()
        return Outcome(self._ended_by, self._failure, self._interruption)

    def keep_checkpoints(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.keep()

    def _hear(self, host: str, line: str) -> None:
        for moment in self._moments:
            moment.hear(line)
        self._last_lines[host].append(line[-LONGEST_REASON:])
        self._on_line(host, line)

    def _see(self, ended: tuple[str, int] | None) -> None:
        """A host that fails of its own is the end of all."""
        if ended and ended[1] and self._failure is None and self._ended_by == "itself":
            self._failure = self._hosts.exceeded(ended[0]) or reason_of(self._end_of(*ended))
            self._terminate(PEERS_SECONDS)

    def _end_of(self, name: str, code: int) -> HostEnd:
        host = next(host for host in self._plan.hosts if host.name == name)
        return HostEnd(
            where=f"{name} of {host.group}" if host.group else name,
            code=code,
            said=_said(host),
            lines=tuple(self._last_lines[name]),
            lost=name in self._hosts.lost and code == -signal.SIGKILL,
            oom_killed=oom_kills() > self._oom_kills,
        )

    def _meet_faults(self) -> None:
        for moment in [moment for moment in self._moments if moment.due]:
            self._moments.remove(moment)
            if not self._faults.take(moment.fault):
                continue
            if isinstance(moment.fault, LostHost):
                self._hosts.kill_host(moment.fault.host)
            elif isinstance(moment.fault, Interruption):
                self._interruption = moment.fault
                self._end("interruption")

    def _end_where_asked(self) -> None:
        now = time.monotonic()
        if self._stop.is_set():
            self._end("stop")
        for why, moment in self._deadlines.items():
            if now > moment:
                self._end(why)
        if self._abort.is_set() or (self._kill_at is not None and now > self._kill_at):
            for host in self._plan.hosts:
                self._hosts.kill_host(host.name)

    def _end(self, why: EndedBy) -> None:
        if self._kill_at is None:
            self._ended_by = why
            self._terminate(STOP_SECONDS)

    def _terminate(self, seconds: float) -> None:
        self._hosts.signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + seconds


def ml(host: HostPlan) -> Path:
    """What a host sees as /opt/ml."""
    return host.folder / "opt" / "ml"


def _said(host: HostPlan) -> str:
    """What a host wrote to /opt/ml/output/failure; empty where it wrote nothing."""
    with contextlib.suppress(FileNotFoundError), JobFolder(ml(host), "output").open("failure") as failure:
        return failure.read(_LONGEST_FAILURE).decode(errors="replace").strip()
    return ""
