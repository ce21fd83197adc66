"""A pod: the hosts of a job, build or function as processes in separate namespaces.

A host has its own host name, root file system, processes, and network, which connects it to the other hosts of its pod and to the
account's endpoint only. `supervisor.py` makes the namespaces, in a process that this module starts and controls: a process
with threads, such as the account's, cannot enter a user namespace.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import logging
import os
import queue
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sagemaker_local_account.runtime import control_groups, leftovers
from sagemaker_local_account.runtime.limit_watch import LimitWatch
from sagemaker_local_account.runtime.log_lines import Lines
from sagemaker_local_account.runtime.spec import PodSpec
from sagemaker_local_account.runtime.supervisor import NO_COMMAND, received
from sagemaker_local_account.runtime.supervisor_request import request_for

COULD_NOT = " could not be started: "

# -I and -S keep the account's environment and site packages out of it, which also halves the time that it takes to start.
SUPERVISOR = (
    "import sys; sys.path.append(sys.argv[1]); from sagemaker_local_account.runtime.supervisor import main; main()"
)


class HostError(Exception):
    """A host could not be started; the message says which and why."""


class CommandError(HostError):
    """A host's command is not in its image; the message begins with that of `docker run`."""


class Pod:
    """The running hosts of a specification.

    A host is reported as ended only after its last line, and after its last process has ended. ``lost`` has the hosts that
    `kill_host` ended, or whose supervisor ended.

    Args:
        spec: the hosts.
        on_line: called with the host's name and each line that it prints, on one thread of the pod.
        inputs: the descriptors of standard inputs by host name, which the caller closes after `start`; others have none.
    """

    def __init__(
        self, spec: PodSpec, *, on_line: Callable[[str, str], None], inputs: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.lost: set[str] = set()
        self._spec = spec
        self._on_line = on_line
        self._inputs = inputs
        self._codes: dict[str, int] = {}
        self._ends: queue.Queue[tuple[str, int]] = queue.Queue()
        self._changed = threading.Condition()
        self._waiting = {host.name for host in spec.hosts}
        self._failed: str | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._watch: LimitWatch | None = None
        self._control: socket.socket | None = None
        self._reader: threading.Thread | None = None
        self._closing = threading.Lock()
        self._groups: dict[str, control_groups.Group] = {}

    def start(self) -> None:
        """Starts every host; returns when the command of each is about to run.

        Raises:
            CommandError: a command is not in its image.
            HostError: a host could not be started. No process is left.
        """
        self._remove_root_folders()  # of an account that was killed
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = {host.name: os.pipe() for host in self._spec.hosts}
        outputs = {name: write for name, (_, write) in pipes.items()}
        package = Path(__file__).parents[2]
        self._groups = control_groups.make(self._spec)
        try:
            job = request_for(self._spec, self._inputs, outputs, self._groups)
            with leftovers.mark_in_use(self._spec.folder) as folder:
                request = json.dumps({**job, "folder": folder}).encode()
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", "-c", SUPERVISOR, str(package), str(theirs.fileno())],
                    stdin=subprocess.PIPE,
                    pass_fds=[theirs.fileno(), folder, *outputs.values(), *self._inputs.values()],
                    env={},
                    cwd="/",
                    start_new_session=True,  # a Ctrl-C in the terminal goes to the account alone
                )
        except BaseException:
            for read, _ in pipes.values():
                os.close(read)
            raise
        finally:
            theirs.close()
            for write in outputs.values():
                os.close(write)
        lines = {name: Lines(read, functools.partial(self._print_line, name)) for name, (read, _) in pipes.items()}
        self._reader = threading.Thread(target=self._read, args=(self._control, lines), daemon=True)
        self._reader.start()
        self._watch = LimitWatch(self._spec.hosts, self._groups, self.kill_host)
        self._watch.start()
        assert self._supervisor.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._supervisor.stdin as stdin:
            stdin.write(request)
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._failed is not None)
        if self._failed is not None:
            self.close()
            host, _, words = self._failed.partition(COULD_NOT)
            if words.startswith(NO_COMMAND):
                raise CommandError(f"{words} ({host})")
            raise HostError(f"{self._failed}{_likely_reason(self._failed)}")

    def wait(self, timeout: float | None = None) -> dict[str, int] | None:
        """Waits until all hosts have ended.

        Args:
            timeout: in seconds; None waits for ever.

        Returns:
            The exit codes by host, negative for a signal; None after the timeout.
        """
        with self._changed:
            ended = self._changed.wait_for(lambda: len(self._codes) == len(self._spec.hosts), timeout)
            return {host.name: self._codes[host.name] for host in self._spec.hosts} if ended else None

    def first_exit(self, timeout: float | None = None) -> tuple[str, int] | None:
        """Returns the next host that has ended, with its exit code, or None after `timeout` seconds."""
        try:
            return self._ends.get(timeout=timeout)
        except queue.Empty:
            return None

    def signal(self, signum: int) -> None:
        """Sends a signal to the command of every running host.

        The command is process 1: as in a container it receives only signals that it handles, and SIGKILL.
        """
        self._command([host.name for host in self._spec.hosts if host.name not in self._codes], signum)

    def kill_host(self, name: str) -> None:
        """Kills all processes of a host, as if its machine had failed. Its exit code becomes -9."""
        self.lost.add(name)
        self._command([name], None)

    def exceeded(self, name: str) -> str | None:
        """Returns the FailureReason of a host that exceeded its limits; None for another."""
        return self._watch.reason(name) if self._watch is not None else None

    def close(self) -> None:
        """Kills what still runs. Afterwards no process or mount of the pod is left."""
        with self._closing:
            if self._watch is not None:
                self._watch.close()
            if self._control is not None:
                self._control.shutdown(socket.SHUT_WR)
            if self._supervisor is not None:
                self._supervisor.wait()
            if self._reader is not None and self._reader is not threading.current_thread():
                self._reader.join()
            if self._control is not None:
                self._control.close()
            self._control = self._supervisor = self._reader = None
            control_groups.remove(self._groups)
            self._remove_root_folders()

    def _remove_root_folders(self) -> None:
        for host in self._spec.hosts:
            shutil.rmtree(host.folder / "rootfs", ignore_errors=True)

    def _command(self, hosts: list[str], signum: int | None) -> None:
        with contextlib.suppress(OSError):  # all may be over
            if self._control is not None and hosts:
                self._control.send(json.dumps({"hosts": hosts, "signal": signum}).encode())

    def _read(self, control: socket.socket, lines: dict[str, Lines]) -> None:
        """Reads the hosts' lines and the supervisor's messages until the supervisor ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ)
            for name, source in lines.items():
                selector.register(source, selectors.EVENT_READ, name)
            message = b"{}"
            while message:
                for key, _ in selector.select():
                    if key.data is not None:
                        lines[key.data].read()
                    elif message := received(control)[0]:
                        self._on_message(json.loads(message), lines)
                    else:
                        break
        for name in [host.name for host in self._spec.hosts if host.name not in self._codes]:
            self.lost.add(name)
            self._on_message({"host": name, "failed": "its supervisor ended", "code": -signal.SIGKILL}, lines)
        for source in lines.values():
            os.close(source.fileno())

    def _on_message(self, content: dict[str, Any], lines: dict[str, Lines]) -> None:
        name = content.get("host")
        if name is not None and content.get("lost"):
            self.lost.add(name)
        if name is not None and "code" in content:
            # Its processes have ended: no further output comes.
            lines[name].finish()
            if self._watch is not None and name is not None:
                self._watch.ended(name, content["code"])
        with self._changed:
            if "failed" in content and self._waiting and self._failed is None:
                self._failed = f"{name or 'the network'}{COULD_NOT}{content['failed']}"
            if name is not None and "process" in content and self._watch is not None:
                self._watch.processes[name] = content["process"]
            if "started" in content:
                self._waiting.discard(name)
            if name is not None and "code" in content:
                self._waiting.discard(name)  # it may have been killed before its command ran
                self._codes[name] = content["code"]
                self._ends.put((name, content["code"]))
            self._changed.notify_all()

    def _print_line(self, name: str, line: str) -> None:
        try:
            self._on_line(name, line)
        except Exception:
            logging.getLogger(__name__).exception("a line of %s was dropped", name)


def _likely_reason(failure: str) -> str:
    """A hint at the kernel setting that forbids or limits user namespaces, and how to change it; "" without one."""
    if not any(word in failure for word in ("unshare", "not permitted", "denied")):
        return ""
    for file, forbidding, remedy in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ):
        path = Path("/proc/sys") / file
        if path.exists() and path.read_text().strip() == forbidding:
            return f"; `sudo sysctl {remedy}` would allow it"
    if "unshare" in failure and os.strerror(errno.ENOSPC) in failure:  # unshare(2): of namespaces, not of a disk
        limits = {name: Path(f"/proc/sys/user/max_{name}_namespaces") for name in ("user", "net", "pid", "mnt")}
        found = ", ".join(
            f"user.max_{name}_namespaces {it.read_text().strip()}" for name, it in limits.items() if it.exists()
        )
        return f"; no disk is full: a limit of namespaces is reached, of which each host has one of each kind: {found}"
    return ""
