"""What machines cost a job that trains on several of them."""

from __future__ import annotations

from cdk_sagemaker_training.instance_facts import InstanceFacts, smallest_with
from cdk_sagemaker_training.jobs import Advice, InstanceGroup
from cdk_sagemaker_training.tokens import is_unresolved


def machine_advice(group: InstanceGroup, facts: InstanceFacts | None) -> tuple[Advice, ...]:
    """What to say of a group that trains: nothing of one machine, of machines without accelerators, or where it is not known.

    From AWS's "SageMaker Training Compiler Best Practices and Considerations" (one ml.p3dn.24xlarge is faster than eight
    ml.p3.2xlarge; several machines should have EFA), which holds for any gradient that crosses machines.
    """
    if facts is None or facts.kind is None or is_unresolved(group.instance_count) or group.instance_count == 1:
        return ()
    return (*_one_machine_instead(group, facts), *_no_efa(group, facts))


def _one_machine_instead(group: InstanceGroup, facts: InstanceFacts) -> list[Advice]:
    larger = smallest_with(group.instance_type, devices=group.instance_count)
    if facts.devices > 1 or not larger:
        return []
    return [
        Advice(
            "cdk-sagemaker-training:many-machines-with-one-accelerator",
            f"{group.instance_count} machines of {group.instance_type!r} with one accelerator each talk over the network; "
            f"one {larger!r} has as many and is faster.",
        )
    ]


def _no_efa(group: InstanceGroup, facts: InstanceFacts) -> list[Advice]:
    if facts.efa_interfaces != 0:
        return []
    with_efa = smallest_with(group.instance_type, efa=True) or "ml.p4d.24xlarge"
    return [
        Advice(
            "cdk-sagemaker-training:no-efa",
            f"{group.instance_count} machines of {group.instance_type!r} have no Elastic Fabric Adapter for what crosses them; "
            f"{with_efa!r} has.",
        )
    ]
