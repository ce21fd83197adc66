"""The entry point of a training container: it starts the image's own entry point, and forwards SIGTERM to the training script.

    COPY entrypoint/entrypoint.py /usr/local/bin/
    ENTRYPOINT ["python", "/usr/local/bin/entrypoint.py", "bash", "-m", "start_with_right_hostname.sh"]

The arguments are the ENTRYPOINT of the base image, in the example that of AWS's PyTorch containers. It requires Linux and Python
3.8 or later, and no packages.

SageMaker stops a job, and interrupts a spot one, by SIGTERM to process 1 of each container, and kills it 120 s later. In AWS's
containers that is bash or the training toolkit, which do not forward it (aws/deep-learning-containers issue 632;
aws/sagemaker-training-toolkit issues 125 and 173); an init such as tini or dumb-init would also end the toolkit, torchrun and
data workers before the script has written its checkpoint.

SIGTERM goes only to processes that handle it: in each branch of the process tree to the first with a handler that is no
launcher, whose handler ends its workers; to one that sets its handler later, then. Launchers and toolkit end after the script,
orphans are reaped, and the exit code is that of the command (128 + N for one that was ended by signal N).

It also sets PET_LOCAL_ADDR, unless it is set, to the host's name, such as ``algo-1``: on a single host torchrun otherwise uses
the machine's own name, which in AWS's containers need not resolve (aws/sagemaker-pytorch-training-toolkit issue 143).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import NamedTuple

# Launchers, which handle SIGTERM by ending their workers: torch.distributed.elastic's agent, Open MPI, and their commands.
LAUNCHERS = frozenset(
    [
        *("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        *("accelerate", "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.launch"),
        *("mpirun", "mpirun.real", "mpiexec", "orterun", "orted", "prterun", "prte", "prted", "smddprun", "sshd"),
    ]
)
RESOURCES = "/opt/ml/input/config/resourceconfig.json"
SECONDS = 0.5  # the interval of checks for new handlers after a SIGTERM


class Process(NamedTuple):
    """A process of this container. ``started`` is in clock ticks since boot; with ``pid`` it is a unique id."""

    pid: int
    parent: int
    started: int
    arguments: list[str]
    handles_sigterm: bool

    @property
    def is_launcher(self) -> bool:
        """Whether its program, or the script or module that Python runs, is a launcher."""
        arguments = self.arguments[:1]
        if arguments and os.path.basename(arguments[0]).startswith("python"):
            rest = [argument for argument in self.arguments[1:] if argument == "-m" or not argument.startswith("-")]
            arguments = rest[1:2] if rest[:1] == ["-m"] else rest[:1]
        # sshd writes more than its name there: "sshd: root@notty".
        return any(os.path.basename(argument).split(":")[0] in LAUNCHERS for argument in arguments)


def processes() -> dict[int, Process]:
    """All processes of this container, by process id."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = _process(int(name))
            except (OSError, ValueError, IndexError):  # it has ended
                continue
    return found


def _process(pid: int) -> Process:
    with open(f"/proc/{pid}/stat") as file:
        # The program's name, in parentheses, can contain any character; the fields after it are numbered from 3 (proc(5)).
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        arguments = [os.fsdecode(argument) for argument in file.read().split(b"\0") if argument]
    with open(f"/proc/{pid}/status") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    return Process(pid, int(fields[1]), int(fields[19]), arguments, bool(caught >> (signal.SIGTERM - 1) & 1))


def receivers(known: dict[int, Process], command: int) -> list[Process]:
    """The receivers of SIGTERM: descendants of ``command``, and of launchers' daemons, whose parent is this process."""
    children: dict[int, list[Process]] = {}
    for process in known.values():
        children.setdefault(process.parent, []).append(process)
    found = []
    # Other orphans are not the script.
    waiting = [child for child in children.get(os.getpid(), []) if child.pid == command or child.is_launcher]
    while waiting:
        process = waiting.pop()
        if process.handles_sigterm and not process.is_launcher:
            found.append(process)
        else:
            waiting += children.get(process.pid, [])
    return found


def forward(command: int, signalled: set[tuple[int, int]]) -> None:
    """Send SIGTERM to each receiver that is not among ``signalled``, and add it."""
    for process in receivers(processes(), command):
        if (process.pid, process.started) not in signalled:
            signalled.add((process.pid, process.started))
            named = " ".join(process.arguments)[:200]
            print(f"entrypoint: forwards SIGTERM to process {process.pid}: {named}", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)


def reap(command: int) -> int | None:
    """Reap ended processes; returns the exit code of ``command`` once it has ended."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == command:
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def environment() -> dict[str, str]:
    """The command's environment: this process's, and PET_LOCAL_ADDR for torchrun."""
    try:
        with open(RESOURCES) as file:
            return {"PET_LOCAL_ADDR": json.load(file)["current_host"], **os.environ}
    except (OSError, ValueError, KeyError):  # not a training job's container
        return dict(os.environ)


def run(arguments: list[str]) -> int:
    """Run a command as process 1, until it ends; returns its exit code."""
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    # Blocked signals stay pending until they are waited for, also for process 1. The command starts without blocked or ignored
    # ones.
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        reset = (signal.SIGPIPE, signal.SIGXFSZ)
        command = os.posix_spawnp(arguments[0], arguments, environment(), setsigmask=(), setsigdef=reset)
    except OSError as error:  # the exit codes of shells and Docker
        print(f"entrypoint: {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    signalled: set[tuple[int, int]] | None = None
    code = None
    while code is None:
        received = signal.sigwaitinfo(awaited) if signalled is None else signal.sigtimedwait(awaited, SECONDS)
        if received is not None and received.si_signo == signal.SIGTERM:
            signalled = set()
        code = reap(command)
        if code is None and signalled is not None:
            forward(command, signalled)
    return code


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("entrypoint: needs the command to start, like: entrypoint.py bash -m start_with_right_hostname.sh")
    sys.exit(run(sys.argv[1:]))
