"""A control group per host, so that the kernel deals out this machine's cores by hosts and not by processes.

Without one it deals them out by sessions (autogroup, sched(7)): a host whose processes start sessions of their own, as
torchrun's workers do, then gets as many shares as it has workers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from .spec import JobPlan


def make(plan: JobPlan) -> dict[str, Path]:
    """A control group for each host, by the host's name; none where this user may not make them."""
    parent = _parent()
    if parent is None:
        return {}
    groups = {host.name: parent / f"{_prefix(plan.folder.parent)}{plan.name}-{host.name}" for host in plan.hosts}
    try:
        for group in groups.values():
            group.mkdir(exist_ok=True)
            # Who may make a group may still not move processes into it.
            (group / "cgroup.procs").open("w").close()
    except OSError:
        remove(groups)
        return {}
    return groups


def remove(groups: dict[str, Path]) -> None:
    """Take away groups whose processes have ended."""
    for group in groups.values():
        with contextlib.suppress(OSError):
            group.rmdir()


def remove_left(jobs: Path) -> None:
    """Take away the groups of the jobs in a folder, whose account was killed."""
    parent = _parent()
    if parent is not None:
        remove({group.name: group for group in parent.glob(f"{_prefix(jobs)}*")})


def available() -> bool:
    """Whether this user may make control groups that share the processor."""
    parent = _parent()
    return parent is not None and os.access(parent, os.W_OK)


def _prefix(jobs: Path) -> str:
    # By the folder: one account at a time has it, and so knows which groups are left of the one before.
    return f"local-account-{hashlib.sha256(str(jobs.resolve()).encode()).hexdigest()[:12]}-"


def _parent() -> Path | None:
    """The folder for new groups that share the processor; None where there is none."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split(" - ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return None
    # cgroups(7): of version 1 it is the hierarchy of the controller cpu, of version 2 the only one, which has no names here.
    paths = {name: path for _, names, path in own for name in names.split(",")}
    for before, after in mounts:
        root, mount = before.split()[3:5]
        kind, _, options = after.split()[:3]
        first = kind == "cgroup" and "cpu" in options.split(",")
        path = Path(paths.get("cpu" if first else "", "/"))
        if not (first or kind == "cgroup2") or not path.is_relative_to(root):
            continue
        here = Path(mount) / path.relative_to(root)
        if first:
            return here
        # Of version 2 a group holds processes or groups, so they go beside this process's own.
        beside = here.parent if here != Path(mount) else here
        if _shares_cpu(beside):
            return beside
    return None


def _shares_cpu(folder: Path) -> bool:
    """Whether groups below a folder of version 2 share the processor, if need be from now on."""
    control = folder / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        if "cpu" not in control.read_text().split():
            control.write_text("+cpu")
        return "cpu" in control.read_text().split()
    return False
