"""What is legal in a job and yet costs money or time."""

from __future__ import annotations

from dataclasses import dataclass

from cdk_sagemaker_training.instance_facts import InstanceFacts, family, instance_facts, smallest_with
from cdk_sagemaker_training.instance_group import InstanceGroup
from cdk_sagemaker_training.prop_types import check_fields
from cdk_sagemaker_training.service_model import training_instance_types
from cdk_sagemaker_training.tokens import is_unresolved


@dataclass(frozen=True)
class Advice:
    """What is legal but costs money or time, told when the app is synthesized; ``id`` is what acknowledges it."""

    id: str
    text: str

    def __post_init__(self) -> None:
        check_fields(self)


def advice(id: str, text: str) -> tuple[Advice, ...]:
    """One piece of advice, by its id within this library."""
    return (Advice(f"cdk-sagemaker-training:{id}", text),)


def scale_up_advice(group: InstanceGroup) -> tuple[Advice, ...]:
    """Tells of a larger size of the family with at least as many accelerators as several machines have together.

    "Scale up before scaling out": within a machine gradients go over its own links, between machines over the network
    (AWS's page "Scaling training"; one ml.p3dn.24xlarge is faster than eight ml.p3.2xlarge, says "SageMaker Training Compiler
    Best Practices and Considerations").
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
        f"small ones, since what they exchange stays inside it. Accelerators by size: {sizes}",
    )


def efa_advice(group: InstanceGroup) -> tuple[Advice, ...]:
    """Tells of several machines with accelerators that have no Elastic Fabric Adapter to exchange gradients over."""
    facts = instance_facts(group.instance_type)
    if facts is None or not facts.devices or is_unresolved(group.instance_count) or group.instance_count == 1:
        return ()
    if facts.efa_interfaces is None or facts.efa_interfaces > 0:
        return ()
    instead = smallest_with(group.instance_type, efa=True) or "ml.p4d.24xlarge"
    return advice(
        "no-efa",
        f"{group.instance_type} has no Elastic Fabric Adapter, so its {group.instance_count} machines exchange what they "
        f"computed over TCP at each step{_speed(facts)}: take a type with EFA, like {instead}",
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
