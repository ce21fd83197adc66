"""Processors, memory, disks, network and accelerators of each instance type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted


@dataclass(frozen=True)
class InstanceFacts:
    """Accelerators, EFA interfaces, processors, memory, disks and network of an instance type.

    Attributes:
        kind: Kind of the accelerators; None if there are none.
        name: Name of the accelerators.
        devices: Number of accelerators.
        memory_gib: Memory of one accelerator, in GiB.
        processes: Number of processes that SageMaker's toolkit starts on a host: one for each GPU, one for each Trainium core
            as the Neuron runtime counts them, 1 without accelerators.
        efa_interfaces: Number of EFA interfaces; 0 without EFA, None if unknown.
        vcpus: Number of vCPUs; None if unknown.
        host_memory_gib: Memory of the host, in GiB; None if unknown.
        local_storage_gb: Size of the local NVMe disks, in GB; 0 without, None if unknown.
        network_gbps: Maximum network bandwidth, in Gbit/s; None if unknown.
    """

    kind: Literal["gpu", "neuron"] | None = None
    name: str = ""
    devices: int = 0
    memory_gib: float = 0
    processes: int = 1
    efa_interfaces: int | None = 0
    vcpus: int | None = None
    host_memory_gib: float | None = None
    local_storage_gb: int | None = None
    network_gbps: float | None = None


def instance_facts(instance_type: str) -> InstanceFacts | None:
    """Return the facts of an instance type from ``instances.json``, which names its sources.

    Args:
        instance_type: A type like ``"ml.g5.xlarge"``.

    Returns:
        The facts, or None for a token, an ``unlisted`` type and one that is not in the file; rules on facts skip these.
    """
    if is_unresolved(instance_type) or is_unlisted(instance_type):
        return None
    return _all().get(instance_type)


def family(instance_type: str) -> str:
    """Return the family of a type, like ``"g5"`` of ``"ml.g5.xlarge"``."""
    return instance_type.removeprefix("ml.").split(".")[0]


def processor(instance_type: str) -> Literal["x86_64", "arm64"]:
    """Return the architecture of a type's processors, for which its images are built.

    Of the types for training only those of GB200 have Arm processors, NVIDIA Grace (EC2's page "Amazon EC2 P6 instances").
    """
    return "arm64" if family(instance_type).startswith("p6e-gb") else "x86_64"


def smallest_with(instance_type: str, *, devices: int = 1, efa: bool = False) -> str | None:
    """Return the smallest type with the accelerators of another type.

    Args:
        instance_type: A type that has facts.
        devices: Minimum number of accelerators.
        efa: Whether the type must have an Elastic Fabric Adapter.

    Returns:
        The type, or None if there is none.
    """
    name = _all()[instance_type].name
    enough = {
        other: facts
        for other, facts in _all().items()
        if facts.name == name and facts.devices >= devices and (facts.efa_interfaces or not efa)
    }
    return min(enough, key=lambda other: enough[other].devices, default=None)


def next_with_more_vcpus(instance_type: str) -> str | None:
    """Return the smallest type of the same family with as many accelerators and more vCPUs; None if there is none.

    Args:
        instance_type: A type that has facts.
    """
    facts_of_type = _all()[instance_type]
    larger = {
        other: facts.vcpus
        for other, facts in _all().items()
        if family(other) == family(instance_type)
        and (facts.name, facts.devices) == (facts_of_type.name, facts_of_type.devices)
        and (facts.vcpus or 0) > (facts_of_type.vcpus or 0)
    }
    return min(larger, key=lambda other: larger[other] or 0, default=None)


def accelerator_names() -> list[str]:
    """Return the names of all accelerators, like ``"NVIDIA A100"``."""
    return sorted({facts.name for facts in _all().values() if facts.name})


@cache
def _all() -> dict[str, InstanceFacts]:
    content = json.loads((Path(__file__).parent / "instances.json").read_text())
    accelerators = {
        name: (kind or None, device, count, memory, count * processes or 1, efa)
        for name, (kind, device, count, memory, processes, efa) in content["types"].items()
    }
    return {
        name: InstanceFacts(*accelerators.get(name, (None, "", 0, 0, 1, 0)), *machine)
        for name, machine in content["machines"].items()
    }
