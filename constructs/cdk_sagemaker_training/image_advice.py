"""What is legal in an image for a job's machines and yet is likely a mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdk_sagemaker_training.advice import Advice, advice
from cdk_sagemaker_training.containers import repository_in
from cdk_sagemaker_training.instance_facts import InstanceFacts, instance_facts
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import is_unlisted

# How tags of AWS's containers say what they are for, such as 2.6.0-gpu-py312, 2.13-cu133-amzn2023-sagemaker and
# 2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04 (aws/deep-learning-containers, docs/reference/available_images.md).
_FOR: dict[str, re.Pattern[str]] = {
    "neuron": re.compile(r"[:-]neuronx?\b"),
    "gpu": re.compile(r"[:-](gpu|cu\d+)\b"),
    "cpu": re.compile(r"[:-]cpu\b"),
}
_MACHINES = {"neuron": "Trainium", "gpu": "GPUs", "cpu": "no accelerators"}


def image_advice(base: str | None, instance_types: tuple[str, ...], entrypoint: bool) -> Iterator[Advice]:
    """Warns of the image that a job's is built from, or is, where it is not one for training on these machines.

    ``base`` is its `repository:tag`, ``entrypoint`` whether the job has one of its own in place of the image's.
    """
    if base is None or is_unresolved(base) or is_unlisted(base):
        return
    facts = [instance_facts(name) for name in instance_types]
    known = [one for one in facts if one is not None]
    if len(known) == len(facts) and known:
        yield from _accelerator_advice(base, instance_types, known)
    if not entrypoint:
        yield from _toolkit_advice(base)


def _accelerator_advice(base: str, instance_types: tuple[str, ...], facts: list[InstanceFacts]) -> Iterator[Advice]:
    """Of several groups one with what the image is for is enough: the others, such as those that read data, share the image."""
    image_for = next((kind for kind, pattern in _FOR.items() if pattern.search(base)), None)
    kinds = {one.kind for one in facts}
    if image_for is None or image_for in kinds or (image_for == "cpu" and kinds == {None}):
        return
    name = next(name for name, one in zip(instance_types, facts, strict=True) if image_for != "cpu" or one.kind)
    one = facts[instance_types.index(name)]
    has = f"{one.devices} {one.name}" if one.kind else "no accelerator"
    idle = "which are billed and not used" if one.kind else "so that it trains on processors, if at all"
    yield from advice(
        "image-for-other-machines",
        f"image {base!r} is for machines with {_MACHINES[image_for]}, and {name!r} has {has}, {idle}: take an image "
        f"{_example(one)}, or machines with {_MACHINES[image_for]}.",
    )


def _example(facts: InstanceFacts) -> str:
    tag = {"gpu": "whose tag has 'gpu' or 'cu'", "neuron": "whose tag has 'neuronx'", None: "whose tag has 'cpu'"}
    return tag[facts.kind]


def _toolkit_advice(base: str) -> Iterator[Advice]:
    """The containers for inference and those for EC2 have no `train`, which SageMaker runs.

    That is `docker run IMAGE train` (guide, "How Amazon SageMaker AI Runs Your Training Image"); the tags end with the platform.
    """
    inference = "-inference" in repository_in(base)
    if inference or re.search(r"-(ec2|inference)$", base):
        yield from advice(
            "image-without-toolkit",
            f"image {base!r} is {'for inference' if inference else 'for EC2'} and has no program `train`, which SageMaker runs: "
            "take one for training on SageMaker, like 'pytorch-training:2.6.0-gpu-py312', or say container_entrypoint.",
        )
