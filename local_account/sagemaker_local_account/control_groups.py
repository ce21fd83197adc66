"""A control group per host: the kernel deals out this machine's cores by hosts, and bounds each host's memory and processes.

Without one it deals cores out by sessions (autogroup, sched(7)): a host whose processes start sessions of their own, as
torchrun's workers do, then gets as many shares as it has workers. What bounds memory and processes then is `limit_watch.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .limits import HostLimits
from .spec import JobPlan

CONTROLLERS = ("cpu", "memory", "pids")

# What a host has run out of.
Exceeded = Literal["memory", "processes", "disk"]


@dataclass(frozen=True)
class Group:
    """The control group of one host: its folder by controller. Version 2 has one folder for all of them."""

    folders: dict[str, Path]

    @property
    def paths(self) -> list[Path]:
        return sorted({*self.folders.values()})

    def bounds(self, controller: str) -> bool:
        return controller in self.folders

    def exceeded(self) -> Exceeded | None:
        """What its processes were refused, or ended for, since the group was made."""
        for controller, file, key, what in (
            ("memory", "memory.events", "oom_kill", "memory"),
            ("memory", "memory.oom_control", "oom_kill", "memory"),  # version 1
            ("pids", "pids.events", "max", "processes"),
        ):
            folder = self.folders.get(controller)
            if folder is not None and _count(folder / file, key):
                return what  # type: ignore[return-value]  # the literals above
        return None


def make(plan: JobPlan) -> dict[str, Group]:
    """A control group for each host, by the host's name, of the controllers that this user may use; none where of none."""
    groups: dict[str, Group] = {host.name: Group({}) for host in plan.hosts}
    for controller, parent in _parents().items():
        made = {host.name: parent / f"{_prefix(plan.folder.parent)}{plan.name}-{host.name}" for host in plan.hosts}
        try:
            for host in plan.hosts:
                made[host.name].mkdir(exist_ok=True)
                # Who may make a group may still not move processes into it.
                (made[host.name] / "cgroup.procs").open("w").close()
                if host.limits is not None:
                    _limit(controller, made[host.name], host.limits)
        except OSError:
            # Of version 2 the controllers before this one use the same folders.
            remove({name: Group({controller: made[name]}) for name in made if made[name] not in groups[name].paths})
            continue
        for name, folder in made.items():
            groups[name].folders[controller] = folder
    return groups if all(group.folders for group in groups.values()) else {}


def remove(groups: dict[str, Group]) -> None:
    """Take away groups whose processes have ended."""
    for group in groups.values():
        for folder in group.paths:
            with contextlib.suppress(OSError):
                folder.rmdir()


def remove_left(jobs: Path) -> None:
    """Take away the groups of the jobs in a folder, whose account was killed."""
    for parent in {*_parents().values()}:
        for folder in parent.glob(f"{_prefix(jobs)}*"):
            with contextlib.suppress(OSError):
                folder.rmdir()


def available(controller: str = "cpu") -> bool:
    """Whether this user may make control groups with a controller: ``cpu``, ``memory`` or ``pids``."""
    parent = _parents().get(controller)
    return parent is not None and os.access(parent, os.W_OK)


def _limit(controller: str, folder: Path, limits: HostLimits) -> None:
    """Raises OSError where the kernel does not take the limit."""
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
    """A number of a file of lines ``key number``; 0 where it has none."""
    with contextlib.suppress(OSError):
        return next((int(line.split()[1]) for line in file.read_text().splitlines() if line.split()[0] == key), 0)
    return 0


def _prefix(jobs: Path) -> str:
    # By the folder: one account at a time has it, and so knows which groups are left of the one before.
    return f"local-account-{hashlib.sha256(str(jobs.resolve()).encode()).hexdigest()[:12]}-"


def _parents() -> dict[str, Path]:
    """The folder for new groups of each controller that there is one for."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return {}
    # cgroups(7): of version 1 each controller has a hierarchy, of version 2 all have the only one, which has no names here.
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
        # Of version 2 a group holds processes or groups, so they go beside this process's own.
        beside = here.parent if here != Path(mount) else here
        for name in CONTROLLERS:
            if name not in parents and _passes_on(name, beside):
                parents[name] = beside
    return parents


def _passes_on(controller: str, folder: Path) -> bool:
    """Whether groups below a folder of version 2 have a controller, if need be from now on."""
    control = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if controller not in control.read_text().split():
            control.write_text(f"+{controller}")
        return controller in control.read_text().split()
    return False
