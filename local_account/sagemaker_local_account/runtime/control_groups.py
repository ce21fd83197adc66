"""A control group per host: CPU time is shared between hosts, and each host's memory and processes are limited.

Without control groups CPU time is shared between sessions (autogroup, sched(7)): a host whose processes start sessions, as
torchrun's workers do, gets one share per worker; memory and processes are then limited by `limit_watch.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sagemaker_local_account.runtime.limits import HostLimits
from sagemaker_local_account.runtime.spec import PodSpec

CONTROLLERS = ("cpu", "memory", "pids")

# The limit that a host has exceeded.
Exceeded = Literal["memory", "processes", "disk"]


@dataclass(frozen=True)
class Group:
    """The control group of one host: its folder by controller, in cgroup v2 the same for all."""

    folders: dict[str, Path]

    @property
    def paths(self) -> list[Path]:
        """The group's folders."""
        return sorted({*self.folders.values()})

    def bounds(self, controller: str) -> bool:
        """Whether the group has a controller."""
        return controller in self.folders

    def exceeded(self) -> Exceeded | None:
        """Returns the limit that its processes have exceeded since the group was made, or None."""
        for controller, file, key, what in (
            ("memory", "memory.events", "oom_kill", "memory"),
            ("memory", "memory.oom_control", "oom_kill", "memory"),  # version 1
            ("pids", "pids.events", "max", "processes"),
        ):
            folder = self.folders.get(controller)
            if folder is not None and _count(folder / file, key):
                return what  # type: ignore[return-value]  # the literals above
        return None


def make(spec: PodSpec) -> dict[str, Group]:
    """Makes a control group for each host with the available controllers.

    Returns:
        The groups by host name; empty where no controller is available.
    """
    groups: dict[str, Group] = {host.name: Group({}) for host in spec.hosts}
    for controller, parent in _parents().items():
        made = {host.name: parent / f"{_prefix(spec.folder.parent)}{spec.name}-{host.name}" for host in spec.hosts}
        try:
            for host in spec.hosts:
                made[host.name].mkdir(exist_ok=True)
                # The permission to make a group does not imply that to move processes into it.
                (made[host.name] / "cgroup.procs").open("w").close()
                if host.limits is not None:
                    _limit(controller, made[host.name], host.limits)
        except OSError:
            # In version 2 the controllers before this one use the same folders.
            remove({name: Group({controller: made[name]}) for name in made if made[name] not in groups[name].paths})
            continue
        for name, folder in made.items():
            groups[name].folders[controller] = folder
    return groups if all(group.folders for group in groups.values()) else {}


def remove(groups: dict[str, Group]) -> None:
    """Removes groups whose processes have ended."""
    for group in groups.values():
        for folder in group.paths:
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_leftover(jobs: Path) -> None:
    """Removes the groups of the jobs in a folder whose account was killed."""
    for parent in {*_parents().values()}:
        for folder in parent.glob(f"{_prefix(jobs)}*"):
            with contextlib.suppress(OSError):
                folder.rmdir()


def available(controller: str = "cpu") -> bool:
    """Whether this user may make control groups with a controller: ``cpu``, ``memory`` or ``pids``."""
    parent = _parents().get(controller)
    return parent is not None and os.access(parent, os.W_OK)


def _limit(controller: str, folder: Path, limits: HostLimits) -> None:
    """Sets the limit; raises OSError where the kernel rejects it."""
    if controller == "pids":
        (folder / "pids.max").write_text(str(limits.processes))
    elif controller == "memory" and (folder / "memory.max").exists():
        (folder / "memory.max").write_text(str(limits.memory))
        with contextlib.suppress(OSError):  # a kernel without swap has no such file
            (folder / "memory.swap.max").write_text("0")
    elif controller == "memory":
        (folder / "memory.limit_in_bytes").write_text(str(limits.memory))
        with contextlib.suppress(OSError):
            (folder / "memory.memsw.limit_in_bytes").write_text(str(limits.memory))


def _count(file: Path, key: str) -> int:
    """The number of a key in a file of lines ``key number``; 0 without one."""
    with contextlib.suppress(OSError):
        return next((int(line.split()[1]) for line in file.read_text().splitlines() if line.split()[0] == key), 0)
    return 0


def _prefix(jobs: Path) -> str:
    # By the folder, which one account at a time uses, so that it finds the groups of the account before it.
    return f"local-account-{hashlib.sha256(str(jobs.resolve()).encode()).hexdigest()[:12]}-"


def _parents() -> dict[str, Path]:
    """The folder for new groups of each available controller."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return {}
    # cgroups(7): in version 1 each controller has a hierarchy, in version 2 all have the same, without names here.
    paths = {name: path for _, names, path in own for name in names.split(",")}
    parents: dict[str, Path] = {}
    for before, after in mounts:
        root, mount = before.split()[3:5]
        kind, _, options = after.split()[:3]
        of_first = [name for name in CONTROLLERS if kind == "cgroup" and name in options.split(",")]
        path = Path(paths.get(of_first[0] if of_first else "", "/"))
        if not (of_first or kind == "cgroup2") or not path.is_relative_to(root):
            continue
        here = Path(mount) / path.relative_to(root)
        if of_first:
            parents.update(dict.fromkeys(of_first, here))
            continue
        # In version 2 a group contains processes or groups, so new ones are siblings of this process's own.
        beside = here.parent if here != Path(mount) else here
        for name in CONTROLLERS:
            if name not in parents and _passes_on(name, beside):
                parents[name] = beside
    return parents


def _passes_on(controller: str, folder: Path) -> bool:
    """Enables a controller for the groups below a folder of version 2; returns whether they have it."""
    control = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if controller not in control.read_text().split():
            control.write_text(f"+{controller}")
        return controller in control.read_text().split()
    return False
