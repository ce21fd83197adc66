"""The limits of a job's host: memory, processes and disk."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from sagemaker_local_account.core.failure_reasons import OUT_OF_MEMORY

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_AMOUNT = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>%|[KMGT]iB)?")
_GIB = 2**30


@dataclass(frozen=True)
class HostLimits:
    """The limits of one host.

    Args:
        memory: in bytes.
        processes: the number of processes and threads.
        disk: in bytes.
        of_type: the memory is the instance type's, at which AWS ends a job too; else the limit is this machine's.
        of_volume: the disk is VolumeSizeInGB, at which AWS ends a job too; else the limit is this machine's.
    """

    memory: int
    processes: int
    disk: int
    of_type: bool = False
    of_volume: bool = False

    def memory_reason(self, host: str) -> str:
        """Returns the FailureReason of a host that exceeded its memory.

        The first sentence is the service's (app/grandchallenge/components/backends/amazon_sagemaker_base.py of
        comic/grand-challenge.org, which compares a training job's FailureReason with it, and sees exit codes -9, 1 and 137).
        """
        if self.of_type:
            return OUT_OF_MEMORY
        return f"{OUT_OF_MEMORY} On this machine {host} has {readable(self.memory)} (local-account --host-memory)"

    def processes_reason(self, host: str) -> str:
        """Returns the FailureReason of a host that exceeded its processes; AWS documents no such limit, the error is EAGAIN."""
        return (
            f"AlgorithmError: Resource temporarily unavailable: {host} reached {self.processes} processes and threads, the "
            "most that a host has on this machine (local-account --host-processes), exit code: 137"
        )

    def disk_reason(self, host: str) -> str:
        """Returns the FailureReason of a host that exceeded its disk; on AWS the script gets ENOSPC."""
        why = "VolumeSizeInGB" if self.of_volume else "what this machine has for it, local-account --host-disk"
        return (
            f"AlgorithmError: [Errno 28] No space left on device: {host} has {readable(self.disk)} of disk ({why}), "
            "exit code: 137"
        )


@dataclass(frozen=True)
class Limits:
    """The limits of the hosts of an account's jobs.

    Args:
        memory: per host: a share of this machine's memory such as "50%", or a size such as "8GiB"; at most the instance type's.
        processes: per host, threads included.
        disk: per job: a share of the free space in the account's folder when the job starts, or a size; per host at most
            VolumeSizeInGB.
    """

    memory: str = "50%"
    processes: int = 4096
    disk: str = "50%"

    def __post_init__(self) -> None:
        for option, text in (("host_memory", self.memory), ("host_disk", self.disk)):
            if _amount(text, _GIB) is None:
                raise ValueError(f"{option} must be a share like '50%' or a size like '8GiB', got {text!r}")
        if self.processes < 1:
            raise ValueError(f"host_processes must be at least 1, like 4096, got {self.processes}")

    def of_host(self, instance_type: str, volume_gib: int | None, hosts: int, folder: Path) -> HostLimits:
        """Returns the limits of one host of a job.

        Args:
            instance_type: the host's.
            volume_gib: VolumeSizeInGB.
            hosts: the number of the job's hosts.
            folder: the job's folder.
        """
        memory = _amount(self.memory, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) or 0
        disk = (_amount(self.disk, shutil.disk_usage(folder).free) or 0) // hosts
        of_type = _memory_of(instance_type)
        volume = volume_gib * _GIB if volume_gib else None
        return HostLimits(
            memory=min(memory, of_type or memory),
            processes=self.processes,
            disk=min(disk, volume or disk),
            of_type=of_type is not None and of_type <= memory,
            of_volume=volume is not None and volume <= disk,
        )


def readable(size: int) -> str:
    """Returns a size with its unit, such as ``1.5 GiB``."""
    unit = next(unit for unit in reversed(_UNITS) if size >= _UNITS[unit] or not unit)
    return f"{size / _UNITS[unit]:.4g} {unit or 'bytes'}"


def _amount(text: str, whole: int) -> int | None:
    """The bytes of a size, or of a share of ``whole``; None for other texts and for 0."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return None
    number, unit = float(match["number"]), match["unit"] or ""
    if number <= 0 or (unit == "%" and number > 100):
        return None
    return int(number / 100 * whole) if unit == "%" else int(number * _UNITS[unit])


def _memory_of(instance_type: str) -> int | None:
    """The memory of an ``ml.`` type in bytes: that of EC2's type of the same name in moto; None for an unknown type."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    found = INSTANCE_TYPES.get(instance_type.removeprefix("ml."))
    return int(found["MemoryInfo"]["SizeInMiB"]) * 2**20 if found else None
