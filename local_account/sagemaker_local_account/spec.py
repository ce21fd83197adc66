"""The specification of hosts: what each of a job or a build runs, in which folders, with which environment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .limits import HostLimits

# How like AWS's a host is. "strict": gethostname(2) gives a name such as AWS's machines have (NCCL's lines in ultralytics/yolov5
# issue 12811 begin with `ip-10-0-103-105`), which resolves to nothing; by default it gives `algo-1`, which is easier to read.
Fidelity = Literal["default", "strict"]


@dataclass(frozen=True)
class Mount:
    """A folder of this machine that a job's hosts see at ``path``, all of them the same."""

    path: str
    folder: Path
    read_only: bool


@dataclass(frozen=True)
class HostPlan:
    """One host of a job.

    ``folder`` is the host's own on the machine: ``folder/opt/ml`` is what it sees as ``/opt/ml``, ``folder/tmp`` as ``/tmp``,
    ``folder/home`` as ``home``. ``root`` is the image's tree of files, laid over the machine's own system folders. ``python`` is
    the environment folder whose ``bin`` comes first on the host's PATH. ``starts_after`` seconds its command starts;
    ``disk_mebibytes`` is what fits under ``/opt/ml``, None for as much as the machine's disk. ``mounts`` lie over all else.
    ``hostname`` is what gethostname(2) gives there, ``name`` where it is None; only ``name`` has an address. A host that takes
    more than ``limits`` is ended; None bounds nothing.
    """

    name: str
    group: str | None
    instance_type: str
    instance_count_of_group: int
    address: str
    accelerators: int
    folder: Path
    root: Path
    python: Path
    environment: Mapping[str, str]
    command: tuple[str, ...]
    working_directory: str
    starts_after: float = 0.0
    disk_mebibytes: int | None = None
    mounts: tuple[Mount, ...] = ()
    hostname: str | None = None
    home: str = "/root"
    limits: HostLimits | None = None

    @classmethod
    def alone(
        cls,
        name: str,
        folder: Path,
        root: Path,
        environment: Mapping[str, str],
        command: tuple[str, ...],
        working_directory: str,
        **more: Any,
    ) -> HostPlan:
        """One host without others, on the account's own Python: a build, a function, a trial. ``more`` are further fields."""
        return cls(
            name=name,
            group=None,
            instance_count_of_group=1,
            address="10.0.0.1",
            accelerators=0,
            folder=folder,
            root=root,
            python=Path(sys.prefix),
            environment=environment,
            command=command,
            working_directory=working_directory,
            **{"instance_type": "", **more},
        )


@dataclass(frozen=True)
class JobPlan:
    """A job's hosts, in the order of their names, and the account's endpoint, which is all they can reach besides each other;
    ``endpoint_port`` None: not even that."""

    name: str
    hosts: tuple[HostPlan, ...]
    endpoint_port: int | None
    folder: Path

    def hosts_of(self, groups: list[str] | None) -> list[HostPlan]:
        """The hosts of the groups named; all of them where none is."""
        return [host for host in self.hosts if not groups or host.group in groups]
