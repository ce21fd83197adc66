"""What an instance type has that decides how a job runs on it: processors, memory, disks, network and accelerators."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import is_unlisted


@dataclass(frozen=True)
class InstanceFacts:
    """The accelerators of an instance type, ``kind`` None where it has none, its EFA interfaces, and the machine around them.

    ``memory_gib`` is that of one device. ``processes`` is how many processes SageMaker's toolkit starts on a host for them: one
    for each GPU, one for each core of Trainium as the Neuron runtime numbers them; 1 where there is no device.
    ``efa_interfaces`` is None where the number is not known, 0 where the type has no Elastic Fabric Adapter.

    Of the machine, each None where it is not known: ``vcpus``, ``host_memory_gib``, ``local_storage_gb`` of disks of its own (0
    where it has a volume only), and ``network_gbps``, the most that its network carries.
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
    """The facts of a type like ``"ml.g5.xlarge"``, from ``instances.json``; None where nothing is known.

    That is so of a token, of a type that is not in the file, and of one that is ``unlisted``: rules on facts pass these by.
    """
    if is_unresolved(instance_type) or is_unlisted(instance_type):
        return None
    return _all().get(instance_type)


def family(instance_type: str) -> str:
    """The family of a type: ``"g5"`` of ``"ml.g5.xlarge"``, the name by which AWS supports or refuses types."""
    return instance_type.removeprefix("ml.").split(".")[0]


def smallest_with(instance_type: str, *, devices: int = 1, efa: bool = False) -> str | None:
    """The smallest type with at least ``devices`` of the accelerators that ``instance_type`` has, None where there is none.

    ``efa`` leaves out types without an Elastic Fabric Adapter.
    """
    name = _all()[instance_type].name
    enough = {
        other: facts
        for other, facts in _all().items()
        if facts.name == name and facts.devices >= devices and (facts.efa_interfaces or not efa)
    }
    return min(enough, key=lambda other: enough[other].devices, default=None)


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
