"""Monitors the resource usage of a job's hosts, and kills a host that exceeds its limits.

With a control group the kernel limits memory and processes, and its counters are polled here. Without one the host's processes
are measured individually. Disk usage is measured in both cases: a quota per folder requires root.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sagemaker_local_account.runtime.control_groups import Exceeded, Group
from sagemaker_local_account.runtime.spec import ContainerSpec

_LOOK_SECONDS = 0.25
_PROCESS_SECONDS = 0.5  # between measurements of processes, each of which reads all of /proc
_DISK_SECONDS = 10.0  # between measurements of disk usage, unless free space has decreased by as much as a host may use
_LONGEST_MEASUREMENT = 30.0
_log = logging.getLogger(__name__)


class LimitWatch:
    """A thread that monitors hosts.

    ``processes`` has the process id of each host's process 1, by host name.

    Args:
        hosts: the hosts; those without limits are not monitored.
        groups: their control groups, by host name.
        end: called with the name of a host that has exceeded its limits.
    """

    def __init__(self, hosts: Sequence[ContainerSpec], groups: Mapping[str, Group], end: Callable[[str], None]) -> None:
        self._hosts = {host.name: host for host in hosts if host.limits is not None}
        self._groups = groups
        self._end = end
        self._reasons: dict[str, str] = {}
        self._gone: set[str] = set()
        self._closed = threading.Event()
        self._next_processes = 0.0
        self._soonest_disk = 0.0
        self._next_disk = time.monotonic() + _DISK_SECONDS
        self._free = min((_free(host.folder) for host in self._hosts.values()), default=0)
        self._thread = threading.Thread(target=self._run, name="limits", daemon=True)
        self.processes: dict[str, int] = {}

    def start(self) -> None:
        """Starts the thread."""
        if self._hosts:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def reason(self, name: str) -> str | None:
        """Returns the FailureReason of a host that exceeded its limits; None for another."""
        return self._reasons.get(name)

    def ended(self, name: str, code: int) -> None:
        """Checks the limits of a host that has ended with an exit code: exceeding one may be why it failed."""
        self._gone.add(name)
        if name not in self._hosts or name in self._reasons or code == 0:
            return
        group = self._groups.get(name)
        exceeded = group.exceeded() if group is not None else None
        if exceeded is None and self._may_be_full():
            exceeded = self._fullest([name]).get(name)
        if exceeded is not None:
            self._note(name, exceeded)

    def _run(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            alive = [name for name in self._hosts if name not in self._gone and name not in self._reasons]
            try:
                found = self._look(alive)
            except Exception:  # it may succeed next time
                _log.exception("the limits of %s could not be checked", ", ".join(alive))
                continue
            for name, exceeded in found.items():
                self._note(name, exceeded)
                self._end(name)

    def _look(self, names: Sequence[str]) -> dict[str, Exceeded]:
        found: dict[str, Exceeded] = {}
        now = time.monotonic()
        for name in names:
            group = self._groups.get(name)
            exceeded = group.exceeded() if group is not None else None
            if exceeded is not None:
                found[name] = exceeded
        if now >= self._next_processes:
            for name in names:
                unbounded = self._of_processes(name)
                if unbounded is not None:
                    found.setdefault(name, unbounded)
            # No more than a tenth of a core, however many processes this machine has.
            self._next_processes = time.monotonic() + max(_PROCESS_SECONDS, 10 * (time.monotonic() - now))
        if names and (now >= self._next_disk or (now >= self._soonest_disk and self._may_be_full())):
            began = time.monotonic()
            found = {**self._fullest(names), **found}
            ended = time.monotonic()
            self._soonest_disk, self._next_disk = ended + 10 * (ended - began), ended + _DISK_SECONDS
        return found

    def _of_processes(self, name: str) -> Exceeded | None:
        """The limit that a host's processes exceed, of those without a control group."""
        group, limits, first = self._groups.get(name), self._hosts[name].limits, self.processes.get(name)
        in_kernel = [controller for controller in ("memory", "pids") if group is not None and group.bounds(controller)]
        if len(in_kernel) == 2 or limits is None or first is None:
            return None
        from sagemaker_local_account.runtime import process_use  # psutil, which takes a twentieth of a second to import

        processes = process_use.tree(first)
        if "pids" not in in_kernel and process_use.threads(processes) >= limits.processes:
            return "processes"
        if "memory" not in in_kernel and process_use.exceed(processes, limits.memory):
            return "memory"
        return None

    def _may_be_full(self) -> bool:
        """Whether free space has decreased by nearly as much as one of the hosts may use."""
        smallest = min(host.limits.disk for host in self._hosts.values() if host.limits is not None)
        return any(self._free - _free(host.folder) >= 0.9 * smallest for host in self._hosts.values())

    def _fullest(self, names: Sequence[str]) -> dict[str, Exceeded]:
        """The hosts that exceed their disk limit."""
        found: dict[str, Exceeded] = {}
        for name in names:
            limits = self._hosts[name].limits
            if limits is not None and disk_usage(self._hosts[name].folder) > limits.disk:
                found[name] = "disk"
        return found

    def _note(self, name: str, exceeded: Exceeded) -> None:
        host = self._hosts[name]
        where = f"{name} of {host.group}" if host.group else name
        if host.limits is not None:
            reasons = {
                "memory": host.limits.memory_reason,
                "processes": host.limits.processes_reason,
                "disk": host.limits.disk_reason,
            }
            self._reasons.setdefault(name, reasons[exceeded](where))


def disk_usage(folder: Path) -> int:
    """Returns the disk usage of a folder in bytes by du(1), without following links or leaving the file system.

    0 where that takes more than 30 seconds, or the folder does not exist.
    """
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError, IndexError):
        counted = subprocess.run(
            ["du", "-skx", "--", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # of files that were removed meanwhile
            timeout=_LONGEST_MEASUREMENT,
            check=False,
        )
        return int(counted.stdout.split()[0]) * 1024
    return 0


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
