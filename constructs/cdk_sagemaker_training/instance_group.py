"""Machines of one type, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from cdk_sagemaker_training.instance_types import check_training_instance_type
from cdk_sagemaker_training.tokens import is_unresolved


@dataclass(frozen=True)
class InstanceGroup:
    """Machines of one type: ``instance_count`` of ``instance_type``, like ``InstanceGroup("ml.g5.xlarge", 2)``."""

    instance_type: str
    instance_count: int = 1

    def __post_init__(self) -> None:
        check_training_instance_type(self.instance_type)
        check_count("instance_count", self.instance_count)


def check_count(prop: str, count: int, *, least: int = 1) -> None:
    """Raise ``ValueError`` unless ``count`` is a whole number of at least ``least``; a token is."""
    if is_unresolved(count):
        return
    if isinstance(count, bool) or not isinstance(count, int) or count < least:
        raise ValueError(f"{prop} must be a whole number of at least {least}, like 2, got {count!r}")
