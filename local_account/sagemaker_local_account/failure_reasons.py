"""Why a host failed, in the form of SageMaker's FailureReason.

For a container that wrote no /opt/ml/output/failure SageMaker's is `AlgorithmError: , exit code: 1` (aws-samples/
amazon-sagemaker-ml-pipeline-deploy-with-terraform 12). Where that says nothing, this one names the host, the signal that
ended it, and its last lines.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_REASON = 1024  # characters of FailureReason (service model of SageMaker)
SHELL_SIGNAL = 128  # what Docker and shells add to a signal's number to make it an exit code

# SageMaker's words for a container that the kernel ended for its memory (DIAGNijmegen/rse-grand-challenge compares with them).
OUT_OF_MEMORY = (
    "ClientError: Please use an instance type with more memory, or reduce the size of job data processed on an "
    "instance."
)


@dataclass(frozen=True)
class HostEnd:
    """How a host ended: ``where`` it was (`algo-2 of data_group`), its exit code, negative for a signal, what it wrote to
    /opt/ml/output/failure, and the last lines of its log. ``lost`` as a machine is; ``oom_killed``: the kernel has ended a
    process of this machine for its memory while it ran."""

    where: str
    code: int
    said: str = ""
    lines: Sequence[str] = ()
    lost: bool = False
    oom_killed: bool = False


def reason_of(end: HostEnd) -> str:
    """The FailureReason, of at most 1,024 characters; of too many lines the last ones are kept."""
    by = _signal(end.code)
    if end.lost:
        return (
            f"InternalServerError: the host {end.where} was lost: its processes were ended by {by}; "
            "a job does not go on without one of its hosts"
        )
    code = f", exit code: {end.code if end.code >= 0 else SHELL_SIGNAL - end.code}"
    if end.said:
        return f"{f'AlgorithmError: {end.said}'[: LONGEST_REASON - len(code)]}{code}"
    if end.oom_killed and by == "SIGKILL":
        return f"{OUT_OF_MEMORY} The kernel's out-of-memory killer ended {end.where}{code}"
    if end.code < 0:
        what = f"the command on {end.where} was ended by {by}"
    else:
        what = f"the command on {end.where} ended" + (f", with a shell's exit code for {by}" if by else "")
    if end.lines:
        what += "; its last lines:\n"
    start = f"AlgorithmError: {what}"
    return f"{start}{_last(end.lines, LONGEST_REASON - len(start) - len(code))}{code}"


def oom_kills(vmstat: Path = Path("/proc/vmstat")) -> int:
    """How many processes the kernel has ended for their memory since this machine started; 0 where it does not count."""
    with contextlib.suppress(OSError):
        for line in vmstat.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0


def _signal(code: int) -> str:
    """The name of the signal that an exit code stands for; empty where it stands for none."""
    number = -code if code < 0 else code - SHELL_SIGNAL
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return ""


def _last(lines: Sequence[str], room: int) -> str:
    """The last of the lines that fit whole; of one that does not, its end."""
    text = "\n".join(lines).rstrip()
    if len(text) <= room:
        return text
    text = text[-room:]
    first, _, rest = text.partition("\n")
    return rest or first
