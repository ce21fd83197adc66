"""Looks at what a job's hosts take of this machine, and ends a host that takes more than its limits.

A control group bounds memory and processes in the kernel, and counts what it refused: that is looked up here. Where this user may
make none, the processes of a host are looked at one by one. The disk is measured in both cases: a quota for each folder would
take root's rights.
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

from .control_groups import Exceeded, Group
from .spec import HostPlan

_LOOK_SECONDS = 0.25
_PROCESS_SECONDS = 0.5  # between looks at processes, each of which reads all of /proc
_DISK_SECONDS = 10.0  # between measurements of a disk that has not filled by as much as a host may take
_LONGEST_MEASUREMENT = 30.0
_log = logging.getLogger(__name__)


class LimitWatch:
    """Calls ``end(host name)`` for a host that has exceeded its limits. ``processes`` are the hosts' first processes, by name."""

    def __init__(self, hosts: Sequence[HostPlan], groups: Mapping[str, Group], end: Callable[[str], None]) -> None:
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
        if self._hosts:
            self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def reason(self, name: str) -> str | None:
        """The FailureReason of a host that exceeded its limits; None of one that did not."""
        return self._reasons.get(name)

    def ended(self, name: str, code: int) -> None:
        """Look once more at a host that is over: what it exceeded may be why it failed."""
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
            except Exception:  # what cannot be looked at now may be next time
                _log.exception("the limits of %s could not be looked at", ", ".join(alive))
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
        """What a host's processes exceed of that which no control group bounds."""
        group, limits, first = self._groups.get(name), self._hosts[name].limits, self.processes.get(name)
        in_kernel = [controller for controller in ("memory", "pids") if group is not None and group.bounds(controller)]
        if len(in_kernel) == 2 or limits is None or first is None:
            return None
        from . import process_use  # psutil, which takes a twentieth of a second to import

        processes = process_use.tree(first)
        if "pids" not in in_kernel and process_use.threads(processes) >= limits.processes:
            return "processes"
        if "memory" not in in_kernel and process_use.exceed(processes, limits.memory):
            return "memory"
        return None

    def _may_be_full(self) -> bool:
        """Whether the disk has filled by as much as one of the hosts may take, whoever filled it."""
        smallest = min(host.limits.disk for host in self._hosts.values() if host.limits is not None)
        return any(self._free - _free(host.folder) >= 0.9 * smallest for host in self._hosts.values())

    def _fullest(self, names: Sequence[str]) -> dict[str, Exceeded]:
        """Those whose folders hold more than they may."""
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
    """The bytes that a folder takes on its disk, counted by du(1), which follows no link and stays on the file system.

    0 where that takes too long, or the folder is not there.
    """
    with contextlib.suppress(subprocess.TimeoutExpired, ValueError, IndexError):
        counted = subprocess.run(
            ["du", "-skx", "--", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what has gone meanwhile
            timeout=_LONGEST_MEASUREMENT,
            check=False,
        )
        return int(counted.stdout.split()[0]) * 1024
    return 0


def _free(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
