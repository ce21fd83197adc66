"""Container and pod specifications: the command, folders, environment and limits of each host of a job or build."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sagemaker_local_account.runtime.limits import HostLimits

# How closely a host resembles AWS's. "strict": gethostname(2) returns a name such as AWS's machines have (NCCL's lines in
# ultralytics/yolov5 issue 12811 begin with `ip-10-0-103-105`), which does not resolve; "relaxed": `algo-1`, in every image.
Fidelity = Literal["strict", "relaxed"]


@dataclass(frozen=True)
class Mount:
    """A folder of this machine that is mounted at ``path`` in all hosts of a job."""

    path: str
    folder: Path
    read_only: bool


@dataclass(frozen=True)
class ContainerSpec:
    """The specification of one host.

    Args:
        name: the name that resolves to its address.
        group: the instance group; None without one.
        instance_type: such as "ml.m5.large".
        instance_count_of_group: the number of hosts of its group.
        address: its IPv4 address.
        accelerators: the number of GPUs or Neuron devices.
        folder: the host's folder on this machine: ``opt/ml`` is mounted at ``/opt/ml``, ``tmp`` at ``/tmp``, and ``home`` at
            the host's ``home``.
        root: the image's root folder, which is laid over the machine's system folders.
        python: the Python environment, whose ``bin`` comes first on the host's PATH.
        environment: the variables of the command.
        command: the program and its arguments.
        working_directory: of the command.
        starts_after: seconds until the command starts.
        disk_mebibytes: the size of the volume at ``/opt/ml``; None for the machine's disk.
        mounts: further folders, mounted last.
        hostname: what gethostname(2) returns; None for ``name``.
        home: the mount point of ``folder/home``.
        limits: the host is killed when it exceeds them; None for no limits.
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
    ) -> ContainerSpec:
        """Returns the specification of a single host with the account's own Python, for builds and functions.

        Args:
            name: see the class.
            folder: see the class.
            root: see the class.
            environment: see the class.
            command: see the class.
            working_directory: see the class.
            more: further fields.
        """
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
class PodSpec:
    """The specification of the hosts of a job, build or function.

    Args:
        name: the job's name.
        hosts: in the order of their names.
        endpoint_port: the port of the account's endpoint, which hosts can reach besides each other; None for no access.
        folder: the job's folder.
    """

    name: str
    hosts: tuple[ContainerSpec, ...]
    endpoint_port: int | None
    folder: Path

    def hosts_of(self, groups: list[str] | None) -> list[ContainerSpec]:
        """Returns the hosts of the given instance groups, or all hosts."""
        return [host for host in self.hosts if not groups or host.group in groups]
