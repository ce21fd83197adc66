"""Warnings about configurations that AWS accepts but that cost money or time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import unlisted_values, unlisted_warning
from cdk_sagemaker_training.facts.images import gpu
from cdk_sagemaker_training.facts.instance_facts import InstanceFacts, family, instance_facts, smallest_with
from cdk_sagemaker_training.facts.service_model import training_instance_types
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.props.prop import kind
from cdk_sagemaker_training.props.prop_types import Value


@kind("Advice('team:slow', 'Use a larger machine.')")
@dataclass(frozen=True)
class Advice(Value):
    """A warning about a configuration that AWS accepts but that costs money or time; added at synthesis.

    Args:
        id: Id of the warning, which ``Annotations.acknowledge_warning`` suppresses.
        text: Text of the warning.
    """

    id: str
    text: str


def advice(id: str, text: str) -> tuple[Advice, ...]:
    """Return a warning.

    Args:
        id: Id of the warning without the library's prefix.
        text: Text of the warning.

    Returns:
        A tuple with the one warning, to be joined with others.
    """
    return (Advice(f"cdk-sagemaker-training:{id}", text),)


def unlisted_advice(value: Any) -> Iterator[Advice]:
    """Warn of each ``unlisted`` value within ``value``, such as a request."""
    for found in unlisted_values(value):
        yield Advice(*unlisted_warning(found))


def scale_up_advice(group: InstanceGroup) -> tuple[Advice, ...]:
    """Warn where one larger machine of the family has at least as many accelerators as the group's machines together.

    "Scale up before scaling out": within a machine gradients go over its own links, between machines over the network (AWS's
    page "Scaling training"; "SageMaker Training Compiler Best Practices and Considerations": one ml.p3dn.24xlarge is faster than
    eight ml.p3.2xlarge).
    """
    facts = instance_facts(group.instance_type)
    if facts is None or not facts.devices or is_unresolved(group.instance_count) or group.instance_count == 1:
        return ()
    together = facts.devices * group.instance_count
    table = _sizes_of(family(group.instance_type))
    larger = [(devices, name) for name, devices in table.items() if devices >= together]
    if not larger:
        return ()
    _, name = min(larger, key=lambda size: size[0])
    sizes = ", ".join(f"{size} {devices}" for size, devices in table.items())
    return advice(
        "scale-up-first",
        f"instance_count={group.instance_count} of {group.instance_type} has {together} accelerators on "
        f"{group.instance_count} machines, where one {name} has {table[name]}: a larger machine trains faster than several "
        f"small ones, since gradients stay inside it. Accelerators by size: {sizes}",
    )


def efa_advice(group: InstanceGroup) -> tuple[Advice, ...]:
    """Warn of several machines with accelerators but without an Elastic Fabric Adapter."""
    facts = instance_facts(group.instance_type)
    if facts is None or not facts.devices or is_unresolved(group.instance_count) or group.instance_count == 1:
        return ()
    if facts.efa_interfaces is None or facts.efa_interfaces > 0:
        return ()
    device = gpu(facts.name)
    # Not ml.p3dn.24xlarge, which AWS's current containers no longer run on.
    same = smallest_with(group.instance_type, efa=True) if device is None or device.last_cuda is None else None
    instead = same or "ml.p4d.24xlarge"
    return advice(
        "no-efa",
        f"{group.instance_type} has no Elastic Fabric Adapter, so its {group.instance_count} machines exchange "
        f"gradients over TCP at each step{_speed(facts)}: use a type with EFA, like {instead}",
    )


def _speed(facts: InstanceFacts) -> str:
    return "" if facts.network_gbps is None else f", at {facts.network_gbps:g} Gbit/s at most"


def _sizes_of(family_name: str) -> dict[str, int]:
    """The accelerators of each size of a family, fewest first."""
    names = [name for name in training_instance_types() if family(name) == family_name]
    devices = {name: facts.devices for name in names if (facts := instance_facts(name))}
    return dict(sorted(devices.items(), key=lambda size: (size[1], _size_number(size[0]))))


def _size_number(instance_type: str) -> int:
    digits = instance_type.rsplit(".", 1)[-1].removesuffix("xlarge")
    return int(digits) if digits.isdigit() else 0
