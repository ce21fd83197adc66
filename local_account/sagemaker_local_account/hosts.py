"""The hosts of a training job, run on this machine: each a tree of processes in namespaces of its own.

A host has its own host name, root folder, processes, and network, in which it meets the other hosts of its job and the
account's endpoint and nothing else. `namespaces.py` makes them, in a process that this module starts and steers: a
process with threads, as the account's is, cannot enter a user namespace.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import logging
import os
import queue
import re
import selectors
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import control_groups, leftovers
from .devices import DEVICES_PATH
from .limit_watch import LimitWatch
from .log_lines import Lines
from .namespaces import NO_COMMAND
from .spec import HostPlan, JobPlan

SYSTEM_FOLDERS = tuple(Path(path) for path in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/nix", "/gnu"))
MESSAGE_BYTES = 65536
# A host's users, unless its image has its own files of them. The machine's are no matter of a job's.
USERS = {
    "group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
}
COULD_NOT = " could not be started: "

# -I and -S keep the account's environment and site packages out of it, which also halves the time that it takes to start.
SUPERVISOR = "import sys; sys.path.append(sys.argv[1]); from sagemaker_local_account.namespaces import main; main()"


class HostError(Exception):
    """A host could not be started; the text says which and why."""


class CommandError(HostError):
    """A host's command is not in its image; the text begins with the words of `docker run` for it."""


class RunningJob:
    """The hosts of `plan` as processes. `on_line(host name, line)` gets what they print, on one thread of this job.

    A host is announced as ended only after its last line was, and after its last process is gone. ``lost`` are those that did not
    end by themselves: `kill_host` ended them, or their supervisor is gone.
    """

    def __init__(self, plan: JobPlan, *, on_line: Callable[[str, str], None]) -> None:
        self.lost: set[str] = set()
        self._plan = plan
        self._on_line = on_line
        self._codes: dict[str, int] = {}
        self._ends: queue.Queue[tuple[str, int]] = queue.Queue()
        self._changed = threading.Condition()
        self._waiting = {host.name for host in plan.hosts}
        self._failed: str | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._watch: LimitWatch | None = None
        self._control: socket.socket | None = None
        self._reader: threading.Thread | None = None
        self._closing = threading.Lock()
        self._groups: dict[str, control_groups.Group] = {}

    def start(self) -> None:
        """Start every host. Returns when each has its process; raises HostError, with nothing left, when one cannot."""
        self._remove_root_folders()  # left by an account that was killed
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = {host.name: os.pipe() for host in self._plan.hosts}
        outputs = {name: write for name, (_, write) in pipes.items()}
        package = Path(__file__).parent.parent
        self._groups = control_groups.make(self._plan)
        try:
            job = _as_json(self._plan, outputs, self._groups)
            with leftovers.held(self._plan.folder) as folder:
                request = json.dumps({**job, "folder": folder}).encode()
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-X", "utf8", "-c", SUPERVISOR, str(package), str(theirs.fileno())],
                    stdin=subprocess.PIPE,
                    pass_fds=[theirs.fileno(), folder, *outputs.values()],
                    env={},
                    cwd="/",
                    start_new_session=True,  # a Ctrl-C in the account's terminal is for the account alone
                )
        except BaseException:
            for read, _ in pipes.values():
                os.close(read)
            raise
        finally:
            theirs.close()
            for write in outputs.values():
                os.close(write)
        lines = {name: Lines(read, functools.partial(self._give, name)) for name, (read, _) in pipes.items()}
        self._reader = threading.Thread(target=self._read, args=(self._control, lines), daemon=True)
        self._reader.start()
        self._watch = LimitWatch(self._plan.hosts, self._groups, self.kill_host)
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
        """The exit codes by host, once all have ended (negative: by that signal). None if `timeout` seconds pass first."""
        with self._changed:
            ended = self._changed.wait_for(lambda: len(self._codes) == len(self._plan.hosts), timeout)
            return {host.name: self._codes[host.name] for host in self._plan.hosts} if ended else None

    def first_exit(self, timeout: float | None = None) -> tuple[str, int] | None:
        """The first host that ended since the last call, and its code. None if `timeout` seconds pass first."""
        try:
            return self._ends.get(timeout=timeout)
        except queue.Empty:
            return None

    def signal(self, signum: int) -> None:
        """Send a signal to the command, which is process 1, of every host that still runs.

        As in a container it gets the signal only if it handles it, and SIGKILL in any case.
        """
        self._command([host.name for host in self._plan.hosts if host.name not in self._codes], signum)

    def kill_host(self, name: str) -> None:
        """End a host with all its processes at once, as if the machine were lost. Its exit code becomes -9."""
        self.lost.add(name)
        self._command([name], None)

    def exceeded(self, name: str) -> str | None:
        """Why a host was ended, or ended by itself, that took more than its limits: a FailureReason. None where it did not."""
        return self._watch.reason(name) if self._watch is not None else None

    def close(self) -> None:
        """End all that is left. Afterwards no process of the job is there, and no mount."""
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
        for host in self._plan.hosts:
            shutil.rmtree(host.folder / "rootfs", ignore_errors=True)

    def _command(self, hosts: list[str], signum: int | None) -> None:
        with contextlib.suppress(OSError):  # all may be over
            if self._control is not None and hosts:
                self._control.send(json.dumps({"hosts": hosts, "signal": signum}).encode())

    def _read(self, control: socket.socket, lines: dict[str, Lines]) -> None:
        """Until the supervisor is gone: lines, and what it tells of the hosts."""
        with selectors.DefaultSelector() as selector:
            selector.register(control, selectors.EVENT_READ)
            for name, source in lines.items():
                selector.register(source, selectors.EVENT_READ, name)
            message = b"{}"
            while message:
                for key, _ in selector.select():
                    if key.data is not None:
                        lines[key.data].read()
                    elif message := control.recv(MESSAGE_BYTES):
                        self._hear(json.loads(message), lines)
                    else:
                        break
        for name in [host.name for host in self._plan.hosts if host.name not in self._codes]:
            self.lost.add(name)
            self._hear({"host": name, "failed": "its supervisor ended", "code": -signal.SIGKILL}, lines)
        for source in lines.values():
            os.close(source.fileno())

    def _hear(self, content: dict[str, Any], lines: dict[str, Lines]) -> None:
        name = content.get("host")
        if name is not None and "code" in content:
            # Its processes are gone, so what they wrote is all there is.
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
                self._codes[name] = content["code"]
                self._ends.put((name, content["code"]))
            self._changed.notify_all()

    def _give(self, name: str, line: str) -> None:
        try:
            self._on_line(name, line)
        except Exception:
            logging.getLogger(__name__).exception("a line of %s was lost", name)


@functools.cache
def namespaces_refused() -> str | None:
    """Why this machine does not let this user run hosts, found out by running one. None where it does."""
    if sys.platform != "linux":
        return f"namespaces are Linux's; this is {sys.platform}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "image").mkdir()
        host = HostPlan.alone(
            name="algo-1",
            instance_type="ml.m5.large",
            folder=folder / "host",
            root=folder / "image",
            environment={"PATH": "/usr/bin:/bin"},
            command=("true",),
            working_directory="/",
        )
        trial = RunningJob(JobPlan("trial", (host,), 1, folder), on_line=lambda host, line: None)
        try:
            trial.start()
        except HostError as error:
            return str(error)
        finally:
            trial.close()
    return None


def _likely_reason(failure: str) -> str:
    """The setting that forbids what has failed, and how to change it; nothing where none does."""
    if not any(word in failure for word in ("unshare", "not permitted", "denied")):
        return ""
    for file, forbidding, remedy in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ):
        path = Path("/proc/sys") / file
        if path.exists() and path.read_text().strip() == forbidding:
            return f"; `sudo sysctl {remedy}` would let it"
    return ""


def _as_json(plan: JobPlan, outputs: dict[str, int], groups: Mapping[str, control_groups.Group]) -> dict[str, Any]:
    """What `namespaces.py` reads."""
    addresses = "".join(f"{host.address} {host.name}\n" for host in plan.hosts)
    return {
        "endpoint_port": plan.endpoint_port,
        "hosts": [
            {
                **_host_as_json(host, addresses),
                "output": outputs[host.name],
                "control_groups": [str(path) for path in groups[host.name].paths] if groups else [],
                "most_processes": _most_processes(host, groups.get(host.name)),
            }
            for host in plan.hosts
        ],
    }


def _host_as_json(host: HostPlan, addresses: str) -> dict[str, Any]:
    # HOME is a variable for the job's programs, and decides nothing here.
    own = {"/opt/ml": host.folder / "opt" / "ml", "/tmp": host.folder / "tmp", host.home: host.folder / "home"}
    for folder in own.values():
        folder.mkdir(parents=True, exist_ok=True)
    read_only = {str(folder): str(folder) for folder in _python_folders(host.python)}
    if (host.folder / "devices").is_dir():
        read_only[DEVICES_PATH] = str(host.folder / "devices")
    return {
        "name": host.name,
        "hostname": host.hostname or host.name,
        "address": host.address,
        "hidden": [] if host.python == Path(sys.prefix) else _own_commands(),
        "rootfs": str(host.folder.absolute() / "rootfs"),
        "image": str(host.root.absolute()),
        "own": {path: str(folder.absolute()) for path, folder in own.items()},
        "read_only": read_only,
        "mounts": [
            {"path": mount.path, "folder": str(mount.folder.absolute()), "read_only": mount.read_only}
            for mount in host.mounts
        ],
        "etc": {
            **{name: text for name, text in USERS.items() if not (host.root / "etc" / name).is_file()},
            # ::1 is left out: the endpoint listens on 127.0.0.1, and some clients try only the first address.
            "hosts": f"127.0.0.1 localhost\n{addresses}",
            "hostname": f"{host.hostname or host.name}\n",
            "resolv.conf": "",
        },
        "environment": dict(host.environment),
        "command": list(host.command),
        "working_directory": host.working_directory,
        "starts_after": host.starts_after,
        "disk_mebibytes": host.disk_mebibytes,
        # As much of the host's memory as Linux has it of a machine's (tmpfs(5)).
        "shared_memory": host.limits.memory // 2 if host.limits is not None else None,
    }


def _most_processes(host: HostPlan, group: control_groups.Group | None) -> int | None:
    """What RLIMIT_NPROC is to be; None where a control group does it, or where the kernel would count the user's others too."""
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    if host.limits is None or (group is not None and group.bounds("pids")) or release < (5, 14):
        return None
    return host.limits.processes


@functools.cache
def _own_commands() -> list[str]:
    """The commands of the account's own packages that a host would find in a system folder, such as /usr/local/bin/train."""
    if not any(Path(sys.prefix).is_relative_to(folder) for folder in SYSTEM_FOLDERS):
        return []
    packages = importlib.metadata.Distribution.discover(path=site.getsitepackages())
    files = [str(package.locate_file(file)) for package in packages for file in package.files or []]
    commands = [os.path.normpath(file) for file in files if file.startswith("/") and "/../" in file]
    return [path for path in commands if os.path.dirname(path) == f"{sys.prefix}/bin"]


def _python_folders(python: Path) -> list[Path]:
    """The folders outside the system's that the environment `python` lives in: its own, those of its interpreter, and, where
    it is an image's, those of packages into which its links lead."""
    python = python.absolute()
    folders = {python, Path(sys.base_prefix)}
    folders |= {Path(sys.prefix)} if python == Path(sys.prefix) else {Path(path) for path in site.getsitepackages()}
    # A virtual environment's interpreter is a link, often to another link.
    link = python / "bin" / "python3"
    while link.is_symlink():
        link = Path(os.path.normpath(link.parent / link.readlink()))
        folders.add(link.parent.parent)
    folders.add(link.resolve().parent.parent)
    outside = {folder for folder in folders if not any(folder.is_relative_to(known) for known in SYSTEM_FOLDERS)}
    return sorted(folder for folder in outside if not any(folder.is_relative_to(other) for other in outside - {folder}))
