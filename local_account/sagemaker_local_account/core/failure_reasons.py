"""The FailureReason of a training job, from the exit of one of its hosts.

For a container that wrote no /opt/ml/output/failure SageMaker's is `AlgorithmError: , exit code: 1` (aws-samples/
amazon-sagemaker-ml-pipeline-deploy-with-terraform 12). In that case this one names the host, the signal, and the last lines
of the log.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_REASON = 1024  # characters of FailureReason (service model of SageMaker)
SHELL_SIGNAL = 128  # what Docker and shells add to a signal's number to make it an exit code

# SageMaker's message for a container that was killed for its memory (DIAGNijmegen/rse-grand-challenge compares with it).
OUT_OF_MEMORY = (
    "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an "
    "instance."
)


@dataclass(frozen=True)
class HostEnd:
    """How a host ended.

    Args:
        where: its name and group, such as `algo-2 of data_group`.
        code: its exit code, negative for a signal.
        failure_file: the content of /opt/ml/output/failure; "" without one.
        log_tail: the last lines of its log.
        lost: it was killed as if its machine had failed.
        oom_killed: the kernel's OOM killer has ended a process of this machine while it ran.
    """

    where: str
    code: int
    failure_file: str = ""
    log_tail: Sequence[str] = ()
    lost: bool = False
    oom_killed: bool = False


def reason_of(end: HostEnd) -> str:
    """Returns the FailureReason, of at most 1,024 characters; of a longer log the last lines are kept."""
    by = _signal(end.code)
    if end.lost:
        return (
            f"InternalServerError: the host {end.where} was lost: its processes were ended by {by}; "
            "a job requires all of its hosts"
        )
    code = f", exit code: {end.code if end.code >= 0 else SHELL_SIGNAL - end.code}"
    if end.failure_file:
        return f"{f'AlgorithmError: {end.failure_file}'[: LONGEST_REASON - len(code)]}{code}"
    if end.oom_killed and by == "SIGKILL":
        return f"{OUT_OF_MEMORY} The kernel's out-of-memory killer ended {end.where}{code}"
    if end.code < 0:
        what = f"the command on {end.where} was ended by {by}"
    else:
        what = f"the command on {end.where} ended" + (f", with a shell's exit code for {by}" if by else "")
    if end.log_tail:
        what += "; its last lines:\n"
    start = f"AlgorithmError: {what}"
    return f"{start}{_last(end.log_tail, LONGEST_REASON - len(start) - len(code))}{code}"


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """Returns the number of OOM kills since the machine started; 0 where the kernel does not count them."""
    with contextlib.suppress(OSError):
        for line in vmstat.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0


def _signal(code: int) -> str:
    """The name of the signal of an exit code, or ""."""
    number = -code if code < 0 else code - SHELL_SIGNAL
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return ""


def _last(log_tail: Sequence[str], room: int) -> str:
    """The last complete lines that fit into ``room`` characters, or the end of the last line."""
    text = "\n".join(log_tail).rstrip()
    if len(text) <= room:
        return text
    text = text[-room:]
    first, _, rest = text.partition("\n")
    return rest or first
