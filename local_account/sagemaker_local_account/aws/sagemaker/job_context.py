"""The account's services that training jobs use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_local_account.faults import Faults
from sagemaker_local_account.images.image_store import ImageStore
from sagemaker_local_account.runtime.limits import Limits
from sagemaker_local_account.runtime.spec import Fidelity
from sagemaker_local_account.storage.file_systems import FileSystems


@dataclass(frozen=True)
class JobContext:
    """What a job uses of its account.

    Args:
        folder: the folder of the region's jobs.
        endpoint_url: the account's endpoint.
        region: the jobs' region.
        client: returns a client of a service with the given AWS_* variables.
        images: resolves TrainingImage.
        file_systems: mounts the channels on file systems.
        credentials: returns the AWS_* variables of a role for a job's ARN.
        devices: accelerators per instance type, instead of the type's own.
        fidelity: how closely hosts resemble AWS's.
        host_seed: deals the numbers of hosts to instance groups; None for a seed of each job, its name.
        limits: the memory, processes and disk of hosts.
        faults: the faults to inject.
        on_change: called with the description after each change of status.
    """

    folder: Path
    endpoint_url: str
    region: str
    client: Callable[[str, Mapping[str, str]], Any]
    images: ImageStore
    file_systems: FileSystems
    credentials: Callable[[str, str], Mapping[str, str]]
    devices: Mapping[str, int]
    fidelity: Fidelity
    host_seed: int | None
    limits: Limits
    faults: Faults
    on_change: Callable[[dict[str, Any]], None]
