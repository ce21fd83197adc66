"""Instance types for training jobs, and which of them have local disks."""

from __future__ import annotations

import difflib
import re
from functools import cache

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, is_unlisted
from cdk_sagemaker_training.facts.instance_facts import family, instance_facts
from cdk_sagemaker_training.facts.service_model import instance_sizes, training_instance_types

_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_TRAINING_TYPE = re.compile(r"ml\.([a-z]+)(\d+)([a-z]*(?:-[a-z0-9]+)?)\.([a-z0-9]+)")
_MOST_GENERATIONS_AHEAD = 2
_MOST_GENERATIONS_BEHIND = 1  # of a family to which AWS adds a size


def check_training_instance_type(instance_type: str, prop: str = "instance_type") -> None:
    """Check that an instance type is one for training jobs.

    The list is botocore's service model (TrainingInstanceType); types that look newer than it pass, see ``is_newer``. Types for
    inference and notebooks only, such as Graviton's, are errors.

    Args:
        instance_type: The type; a token and an ``unlisted`` type pass.
        prop: Name of the prop, for the message.
    """
    if is_unresolved(instance_type) or is_unlisted(instance_type) or instance_type in training_instance_types():
        return
    if not isinstance(instance_type, str) or not instance_type.startswith("ml."):
        example = "ml.g5.xlarge"
        if isinstance(instance_type, str) and _EC2_TYPE.fullmatch(instance_type):
            example = f"ml.{instance_type}" if f"ml.{instance_type}" in training_instance_types() else example
        raise must(prop, "be a SageMaker training type", repr(example), repr(instance_type))
    if not is_newer(instance_type):
        rule = "be a type that SageMaker trains on"
        check_listed("training-types", instance_type, False, prop, rule, repr(nearest(instance_type)))


def nearest(instance_type: str) -> str:
    """Return the type in the service model whose spelling is closest to ``instance_type``."""
    near = difflib.get_close_matches(instance_type, sorted(training_instance_types()), n=1)
    return near[0] if near else "ml.g5.xlarge"


def is_newer(instance_type: str) -> bool:
    """Return whether a type that the service model lacks looks like a newer type rather than a misspelled one.

    That is: up to 2 generations above the newest of a known series (``ml.p7.48xlarge``, where ``ml.p6-b200.48xlarge`` is
    known), another chip of the newest generation (``ml.p6-b400.48xlarge``), or another size of a known family of the newest or
    the last generation, as ``ml.p5.4xlarge`` was added two years after ``ml.p5.48xlarge``, which ``ml.g5.3xlarge`` is not; all
    of a size that another type in the service model has, which ``ml.p5.49xlarge`` is not.
    """
    if is_unresolved(instance_type) or is_unlisted(instance_type) or instance_type in training_instance_types():
        return False
    parts = _TRAINING_TYPE.fullmatch(instance_type)
    if parts is None or parts[1] not in _newest_generations() or parts[4] not in instance_sizes():
        return False
    ahead = int(parts[2]) - _newest_generations()[parts[1]]
    if family(instance_type) in _families():
        return ahead >= -_MOST_GENERATIONS_BEHIND
    return 0 < ahead <= _MOST_GENERATIONS_AHEAD or (ahead == 0 and "-" in parts[3] and _has_chips(parts[1] + parts[2]))


def has_local_storage(instance_type: str) -> bool:
    """Return whether a type has NVMe disks, which SageMaker uses instead of a volume; False if the type has no facts."""
    facts = instance_facts(instance_type)
    return facts is not None and bool(facts.local_storage_gb)


@cache
def _families() -> frozenset[str]:
    return frozenset(map(family, training_instance_types()))


@cache
def _newest_generations() -> dict[str, int]:
    """The newest generation of each series, like 6 of ``p``."""
    newest: dict[str, int] = {}
    for name in training_instance_types():
        parts = _TRAINING_TYPE.fullmatch(name)
        if parts is not None:
            newest[parts[1]] = max(int(parts[2]), newest.get(parts[1], 0))
    return newest


def _has_chips(generation: str) -> bool:
    """Whether a generation's types are named after their chips, as P6's are; ``ml.c8i-flex`` names none."""
    return any(re.fullmatch(rf"ml\.{generation}[a-z]*-[a-z]+\d+\..*", name) for name in training_instance_types())
