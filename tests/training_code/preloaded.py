"""Programs that are forked off one process which has imported PyTorch: a new interpreter takes seconds of a processor for that.

    with start([script, "--steps", "5"], cwd=folder, env={"PYTHONPATH": folder}, ranks=2) as program:
        print(program.stdout.read())

Each process begins as ``python SCRIPT ARGUMENTS`` does: ``__main__``, ``sys.argv``, ``sys.path``, environment, working directory
and session are its own, and it ends as that does, except that its memory is not freed. Only what PyTorch and OpenMP read while
they are imported is the same for all, `ENVIRONMENT`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing import util
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

# Inductor compiles in the process itself, and no vector code, which takes g++ twice as long.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}
MODULES = (
    "sklearn.datasets",
    "torch._inductor.compile_fx",
    "torch.distributed.checkpoint._fsspec_filesystem",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
    "torch.utils.data",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
)
MOST_BYTES = 100_000  # of a request to fork
PR_SET_PDEATHSIG = 1  # prctl(2)


class Process:
    """A forked process, with the members of `subprocess.Popen` that tests use."""

    def __init__(self, request: Mapping[str, Any], output: int) -> None:
        self.returncode: int | None = None
        self._status, theirs = socket.socketpair()
        encoded = json.dumps(request).encode()
        assert len(encoded) < MOST_BYTES
        socket.send_fds(_forking_process(), [encoded], [output, theirs.fileno()])
        theirs.close()
        self.pid = int.from_bytes(self._status.recv(4), "little")

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended, which is negative for a signal."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self.returncode = int.from_bytes(self._status.recv(4), "little", signed=True)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Program:
    """The processes of one host that print to one pipe: one, or as many ranks as torchrun would start there."""

    def __init__(self, processes: Sequence[Process], output: int, store: object) -> None:
        self.processes, self.stdout = processes, os.fdopen(output)
        self._store = store  # ends with the last reference

    @property
    def pid(self) -> int:
        return self.processes[0].pid

    def wait(self, timeout: float | None = None) -> int:
        """Once all have ended: 0, or the exit code of the first that failed."""
        return next(filter(None, [process.wait(timeout) for process in self.processes]), 0)

    def poll(self) -> int | None:
        return None if any(process.poll() is None for process in self.processes) else self.wait()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What they have still to print, once they and all that they started have closed their output."""
        with self.stdout:
            rest = self.stdout.read()
        self.wait(timeout)
        return rest, None

    def send_signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End what is left, with the processes that it started in its session."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.stdout.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start(
    arguments: Sequence[object],
    *,
    cwd: Path,
    env: Mapping[str, str],
    ranks: int = 1,
    world: int | None = None,
    first: int = 0,
    store: Any = None,
    errors: Path | None = None,
    forkserver: bool = False,
) -> Program:
    """Run a script on one host; with several ranks, or in a world of several, with the variables that torchrun sets.

    Args:
        arguments: the script's path and its arguments.
        ranks: the processes of this host.
        world: the processes of all hosts; `ranks` unless said.
        first: the rank of this host's first process.
        store: what `agents_store` gave, where several hosts share one.
        errors: a file for standard error, which else goes where the output goes.
        forkserver: multiprocessing's forkserver, if the program starts it, has PyTorch already too.
    """
    world = world or ranks
    store = store or (agents_store() if world > 1 else None)
    reading, writing = os.pipe()
    processes = []
    for local in range(ranks):
        launched = (
            {
                "RANK": first + local,
                "LOCAL_RANK": local,
                "WORLD_SIZE": world,
                "LOCAL_WORLD_SIZE": ranks,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": store.port,
                "TORCHELASTIC_USE_AGENT_STORE": True,
            }
            if store
            else {}
        )
        variables = {**env, **{name: str(value) for name, value in launched.items()}}
        request = {
            "arguments": [*map(str, arguments)],
            "cwd": str(cwd),
            "environment": variables,
            "errors": errors and str(errors),
            "forkserver": forkserver,
        }
        processes.append(Process(request, writing))
    os.close(writing)
    return Program(processes, reading, store)


def agents_store() -> Any:
    """The store by which ranks meet, as torchrun's agent keeps it: it outlives every rank."""
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@cache
def _forking_process() -> socket.socket:
    """A connection to the process that forks the others, one for all of pytest's, which ends with the last of their connections.

    Its address is a name without a file, which only one process can be the first to bind.
    """
    address = f"\0preloaded {os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}"
    process: subprocess.Popen[bytes] | None = None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, contextlib.suppress(OSError):
        listener.bind(address)  # an error where another process of pytest's was first
        listener.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(listener.fileno())],
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **ENVIRONMENT},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    while connection.connect_ex(address) == errno.ECONNREFUSED:  # bound, and about to listen
        assert process is None or process.poll() is None
        time.sleep(0.01)

    def end() -> None:
        connection.close()
        if process:
            process.wait()

    atexit.register(end)
    return connection


def _serve(listener: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns it in the forked process, and None in this one when the last connection has ended."""
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    connections = [listener.accept()[0]]
    statuses: dict[int, socket.socket] = {}
    owners: dict[int, socket.socket] = {}  # whose request each process is
    while connections:
        ready, _, _ = select.select([listener, woken, *connections], [], [])
        if woken in ready:
            woken.recv(4096)
        if listener in ready:
            connections.append(listener.accept()[0])
        for connection in [one for one in connections if one in ready]:
            encoded, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 2)
            if not encoded:
                for pid in statuses:
                    if owners[pid] is connection:
                        os.kill(pid, signal.SIGKILL)
                connections.remove(connection)
                connection.close()
                continue
            output, status = descriptors
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(output, 1)
                os.dup2(output, 2)
                for inherited in (listener, woken, wakes, *connections, *statuses.values()):
                    inherited.close()
                os.close(output)
                os.close(status)
                return dict(json.loads(encoded))
            os.close(output)
            owners[pid], statuses[pid] = connection, socket.socket(fileno=status)
            statuses[pid].send(pid.to_bytes(4, "little"))
        _reap(statuses)
    return None


def _reap(statuses: dict[int, socket.socket]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with statuses.pop(pid) as connection, contextlib.suppress(OSError):  # where nobody waits for it any more
            connection.send(os.waitstatus_to_exitcode(status).to_bytes(4, "little", signed=True))


def _run(request: Mapping[str, Any]) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if request["errors"]:
        with open(request["errors"], "ab") as errors:
            os.dup2(errors.fileno(), 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = request["arguments"]
    sys.path[:0] = [str(Path(sys.argv[0]).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if request["forkserver"]:
        _prepare_forkserver()
    _end(_code_of(sys.argv[0]))


def _code_of(script: str) -> int:
    """Runs a script as ``__main__``; returns the exit code that it ends with."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """Ends this process as the interpreter does, but leaves its memory to the kernel: to free PyTorch's modules takes 0.3 s."""
    _flush()
    threading._shutdown()
    atexit._run_exitfuncs()
    _flush()
    os._exit(code)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _prepare_forkserver() -> None:
    """Forks a child that becomes multiprocessing's forkserver when the program starts it, in place of a new interpreter."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    owner, child = os.getpid(), os.fork()
    if child == 0:
        ours.close()
        _become_forkserver(its)
    its.close()
    start_interpreter = util.spawnv_passfds

    def spawnv_passfds(path: bytes, arguments: Sequence[str], descriptors: Sequence[int]) -> int:
        if "forkserver" not in arguments[-1] or os.getpid() != owner or ours.fileno() == -1:
            return start_interpreter(path, arguments, descriptors)
        with ours:
            socket.send_fds(ours, [json.dumps([arguments[-1], *descriptors]).encode()], descriptors)
        return child

    util.spawnv_passfds = spawnv_passfds


def _become_forkserver(requests: socket.socket) -> NoReturn:
    """Runs what an interpreter of its own would be given by `-c`, with the descriptors that it names."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    encoded, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, 2)
    requests.close()
    if encoded:
        prctl(PR_SET_PDEATHSIG, 0)  # it ends of itself, when nothing is left that could ask it
        code, *numbers = json.loads(encoded)
        apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(*numbers, *descriptors) + 1) for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        for descriptor, number in zip(apart, numbers, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.modules["__main__"] = ModuleType("__main__")
        with contextlib.suppress(SystemExit):
            exec(code, {})
    os._exit(0)


if __name__ == "__main__":
    for name in MODULES:
        if importlib.util.find_spec(name.partition(".")[0]):
            importlib.import_module(name)
    gc.freeze()
    forked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if forked is not None:
        _run(forked)
