"""Warnings about images that AWS accepts but that are likely a mistake on a job's machines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.facts.instance_facts import InstanceFacts, instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from training_jobs.facts.bases import lacks_train

# What the tags of AWS's containers contain by kind of machine, such as 2.6.0-gpu-py312, 2.13-cu133-amzn2023-sagemaker and
# 2.9.0-neuronx-py312-sdk2.29.1-ubuntu24.04 (aws/deep-learning-containers, docs/reference/available_images.md).
_FOR: dict[str, re.Pattern[str]] = {
    "neuron": re.compile(r"[:-]neuronx?\b"),
    "gpu": re.compile(r"[:-](gpu|cu\d+)\b"),
    "cpu": re.compile(r"[:-]cpu\b"),
}
_MACHINES = {"neuron": "Trainium", "gpu": "GPUs", "cpu": "no accelerators"}


def image_advice(base: str | None, instance_types: tuple[str, ...], entrypoint: bool) -> Iterator[Advice]:
    """Warn if an image is not made for training on a job's machines.

    Args:
        base: `repository:tag` of the image or of its base image; None if unknown, which skips the checks.
        instance_types: The types of the job's machines.
        entrypoint: Whether the job replaces the image's entry point.
    """
    if base is None or is_unresolved(base) or is_unlisted(base):
        return
    facts = [instance_facts(name) for name in instance_types]
    known = [fact for fact in facts if fact is not None]
    if len(known) == len(facts) and known:
        yield from _accelerator_advice(base, instance_types, known)
    if not entrypoint:
        yield from _toolkit_advice(base)


def accelerator_of(base: str) -> str | None:
    """Return what machines an image is for by its tag: ``"neuron"``, ``"gpu"``, ``"cpu"``, or None if the tag does not say.

    Args:
        base: `repository:tag` of the image or of its base image.
    """
    return next((kind for kind, pattern in _FOR.items() if pattern.search(base)), None)


def _accelerator_advice(base: str, instance_types: tuple[str, ...], facts: list[InstanceFacts]) -> Iterator[Advice]:
    """Warn if none of the groups has the accelerators that the image is for; all groups share the image."""
    image_for = accelerator_of(base)
    kinds = {fact.kind for fact in facts}
    if image_for is None or image_for in kinds or (image_for == "cpu" and kinds == {None}):
        return
    name = next(name for name, fact in zip(instance_types, facts, strict=True) if image_for != "cpu" or fact.kind)
    fact = facts[instance_types.index(name)]
    has = f"{fact.devices} {fact.name}" if fact.kind else "no accelerator"
    idle = "which are billed and not used" if fact.kind else "so that it trains on CPUs, if at all"
    yield from advice(
        "image-for-other-machines",
        f"image {base!r} is for machines with {_MACHINES[image_for]}, and {name!r} has {has}, {idle}: use an image "
        f"{_example(fact)}, or machines with {_MACHINES[image_for]}.",
    )


def _example(facts: InstanceFacts) -> str:
    tag = {"gpu": "whose tag has 'gpu' or 'cu'", "neuron": "whose tag has 'neuronx'", None: "whose tag has 'cpu'"}
    return tag[facts.kind]


def _toolkit_advice(base: str) -> Iterator[Advice]:
    """Warn of containers for inference and for EC2, which have no `train`, the program that SageMaker runs.

    SageMaker runs `docker run IMAGE train` (guide, "How Amazon SageMaker AI Runs Your Training Image").
    """
    if kind := lacks_train(base):
        yield from advice(
            "image-without-toolkit",
            f"image {base!r} is {kind} and has no program `train`, which SageMaker runs: "
            "use one for training on SageMaker, like 'pytorch-training:2.6.0-gpu-py312', or set container_entrypoint.",
        )
