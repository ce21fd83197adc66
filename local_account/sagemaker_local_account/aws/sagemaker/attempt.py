"""One attempt of a training job: its hosts from their start until all have ended."""

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

from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.failure_reasons import LONGEST_REASON, HostEnd, oom_kills, reason_of
from sagemaker_local_account.core.safe_paths import JobFolder
from sagemaker_local_account.faults import Faults, FaultTrigger, Interruption, LostHost
from sagemaker_local_account.runtime.pod import CommandError, Pod
from sagemaker_local_account.runtime.spec import ContainerSpec, PodSpec
from sagemaker_local_account.storage.checkpoints import Checkpoints

STOP_SECONDS = 120  # between SIGTERM and SIGKILL, as SageMaker gives
PEERS_SECONDS = 3  # between SIGTERM and SIGKILL for the other hosts once one has failed
POLL_SECONDS = 0.2
CHECKPOINT_SECONDS = 1.0
_LAST_LINES = 20  # of each host, of which FailureReason contains as many as fit
_LONGEST_FAILURE = (
    8192  # bytes that are read of /opt/ml/output/failure, of which FailureReason contains 1,024 characters
)

EndedBy = Literal["itself", "stop", "runtime", "wait", "interruption"]


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended.

    Args:
        ended_by: the first cause of its end.
        failure: the FailureReason of a failed host; None without one.
        interruption: the fault that ended it; None without one.
    """

    ended_by: EndedBy
    failure: str | None = None
    interruption: Interruption | None = None


class Attempt:
    """An attempt of a job.

    Args:
        spec: the job's hosts.
        request: CreateTrainingJob's.
        checkpoints: synchronized while the hosts run; None without CheckpointConfig.
        faults: the faults to inject.
        deadlines: the times of `CLOCK.monotonic` at which the hosts are stopped, by cause.
        stop: set to stop the hosts with SIGTERM.
        abort: set to kill the hosts.
        on_line: called with the host's name and each line that it prints.
    """

    def __init__(
        self,
        spec: PodSpec,
        *,
        request: Mapping[str, Any],
        checkpoints: Checkpoints | None,
        faults: Faults,
        deadlines: Mapping[EndedBy, float],
        stop: threading.Event,
        abort: threading.Event,
        on_line: Callable[[str, str], None],
    ) -> None:
        self._spec = spec
        self._checkpoints = checkpoints
        self._faults = faults
        self._deadlines = deadlines
        self._stop = stop
        self._abort = abort
        self._on_line = on_line
        self._triggers = [FaultTrigger(fault) for fault in faults.of(LostHost, job=spec.name)]
        if request.get("EnableManagedSpotTraining"):
            self._triggers += [FaultTrigger(fault) for fault in faults.of(Interruption, job=spec.name)]
        self._hosts = Pod(spec, on_line=self._on_output)
        self._tail: dict[str, deque[str]] = {host.name: deque(maxlen=_LAST_LINES) for host in spec.hosts}
        self._oom_kills = oom_kills()
        self._ended_by: EndedBy = "itself"
        self._interruption: Interruption | None = None
        self._failure: str | None = None
        self._kill_at: float | None = None

    def lose_host(self, name: str) -> None:
        """Kills a host as if its machine had failed."""
        self._hosts.kill_host(name)

    def run(self) -> Outcome:
        """Starts the hosts and waits for their end.

        Raises:
            HostError: a host could not be started.
        """
        try:
            self._hosts.start()
            next_look = time.monotonic() + CHECKPOINT_SECONDS
            while self._hosts.wait(0) is None:
                self._on_exit(self._hosts.first_exit(POLL_SECONDS))
                self._inject_faults()
                self._check_deadlines()
                if time.monotonic() > next_look:
                    self.sync_checkpoints()
                    next_look = time.monotonic() + CHECKPOINT_SECONDS
            while ended := self._hosts.first_exit(0):
                self._on_exit(ended)
        except CommandError as error:
            # For an image without the command `train`: aws/amazon-sagemaker-examples issues 739 (the log) and 3650 (the
            # FailureReason).
            self._failure = (
                f"ClientError: Artifact upload failed:API error (400): OCI runtime create failed: {error}. SageMaker starts "
                "an image as `docker run IMAGE train`: the image must have an ENTRYPOINT or a command `train`, which "
                "`pip install sagemaker-training` installs"
            )
        finally:
            self._hosts.close()
        return Outcome(self._ended_by, self._failure, self._interruption)

    def sync_checkpoints(self) -> None:
        """Uploads changed checkpoints to S3."""
        if self._checkpoints is not None:
            self._checkpoints.sync()

    def _on_output(self, host: str, line: str) -> None:
        for trigger in self._triggers:
            trigger.observe(line)
        self._tail[host].append(line[-LONGEST_REASON:])
        self._on_line(host, line)

    def _on_exit(self, ended: tuple[str, int] | None) -> None:
        """Stops the other hosts when one has failed."""
        if ended and ended[1] and self._failure is None and self._ended_by == "itself":
            self._failure = self._hosts.exceeded(ended[0]) or reason_of(self._end_of(*ended))
            self._terminate(PEERS_SECONDS)

    def _end_of(self, name: str, code: int) -> HostEnd:
        host = next(host for host in self._spec.hosts if host.name == name)
        return HostEnd(
            where=f"{name} of {host.group}" if host.group else name,
            code=code,
            failure_file=_failure_file(host),
            log_tail=tuple(self._tail[name]),
            lost=name in self._hosts.lost and code == -signal.SIGKILL,
            oom_killed=oom_kills() > self._oom_kills,
        )

    def _inject_faults(self) -> None:
        for trigger in [trigger for trigger in self._triggers if trigger.due]:
            self._triggers.remove(trigger)
            if not self._faults.consume(trigger.fault):
                continue
            if isinstance(trigger.fault, LostHost):
                self._hosts.kill_host(trigger.fault.host)
            elif isinstance(trigger.fault, Interruption):
                self._interruption = trigger.fault
                self._end("interruption")

    def _check_deadlines(self) -> None:
        if self._stop.is_set():
            self._end("stop")
        for why, deadline in self._deadlines.items():
            if CLOCK.monotonic() > deadline:
                self._end(why)
        now = time.monotonic()
        if self._abort.is_set() or (self._kill_at is not None and now > self._kill_at):
            for host in self._spec.hosts:
                self._hosts.kill_host(host.name)

    def _end(self, why: EndedBy) -> None:
        if self._kill_at is None:
            self._ended_by = why
            self._terminate(STOP_SECONDS)

    def _terminate(self, seconds: float) -> None:
        self._hosts.signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + seconds


def ml(host: ContainerSpec) -> Path:
    """Returns the folder that is mounted at /opt/ml of a host."""
    return host.folder / "opt" / "ml"


def _failure_file(host: ContainerSpec) -> str:
    """The content of a host's /opt/ml/output/failure; "" without one."""
    with contextlib.suppress(FileNotFoundError), JobFolder(ml(host), "output").open("failure") as failure:
        return failure.read(_LONGEST_FAILURE).decode(errors="replace").strip()
    return ""
