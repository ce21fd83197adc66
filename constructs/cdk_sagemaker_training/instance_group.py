"""Machines of one type, or of the first of several that there is capacity of, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdk_sagemaker_training.checks import check_text
from cdk_sagemaker_training.instance_types import check_training_instance_type
from cdk_sagemaker_training.prop_types import check_fields, checked
from cdk_sagemaker_training.tokens import is_unresolved

_MOST_PREFERENCES = 5  # ResourceConfig.InstancePreferences of the service model


@dataclass(frozen=True)
class InstancePreference:
    """One of the types that a job may run on: ``instance_count`` of them, where the types need different numbers of machines.

    ``training_plan`` is the ARN of a plan that reserves this type; without one the machines are on demand.
    """

    instance_type: str
    instance_count: int | None = None
    training_plan: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_training_instance_type(self.instance_type)
        if self.instance_count is not None:
            check_count("instance_count", self.instance_count)
        if self.training_plan is not None:
            check_text(
                "training_plan", self.training_plan, "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring"
            )

    def config(self) -> dict[str, Any]:
        """The request's InstancePreference."""
        return {
            "InstanceType": self.instance_type,
            "InstanceCount": self.instance_count,
            "TrainingPlanArns": [self.training_plan] if self.training_plan else [],
        }


@dataclass(frozen=True, init=False)
class InstanceGroup:
    """Machines of one type: ``instance_count`` of ``instance_type``, like ``InstanceGroup("ml.g5.xlarge", 2)``.

    A list of types, like ``InstanceGroup(["ml.p5.48xlarge", "ml.p4d.24xlarge"], 2)``, is in the order of preference: SageMaker
    runs the whole job on the first that it has capacity of (InstancePreferences, 1 to 5). Where each type needs a number of its
    own, or a training plan, they are ``InstancePreference`` values, all with a count or none. Rules hold for each of the types,
    and a job must be the same on all of them. Spot machines, UltraServers and other groups are excluded (API,
    ResourceConfig.InstancePreferences). ``instance_type`` and ``instance_count`` are then those of the first.
    """

    instance_type: str
    instance_count: int
    preferences: tuple[InstancePreference, ...] = field(default=(), repr=False)

    @checked
    def __init__(
        self,
        instance_type: str | Sequence[str | InstancePreference],
        instance_count: int | None = None,
        preferences: Sequence[InstancePreference] = (),
    ) -> None:
        given = preferences if isinstance(instance_type, str) else instance_type
        several = tuple(one if isinstance(one, InstancePreference) else InstancePreference(one) for one in given)
        if several or given is instance_type:
            _check_preferences(several, instance_count)
            instance_type, counts = several[0].instance_type, several[0].instance_count
            instance_count = counts if counts is not None else instance_count
        count = 1 if instance_count is None else instance_count
        check_training_instance_type(instance_type)  # type: ignore[arg-type]
        check_count("instance_count", count)
        object.__setattr__(self, "instance_type", instance_type)
        object.__setattr__(self, "instance_count", count)
        object.__setattr__(self, "preferences", several)

    @property
    def alternatives(self) -> tuple[InstanceGroup, ...]:
        """The group on each of its types alone."""
        return tuple(
            InstanceGroup(one.instance_type, one.instance_count or self.instance_count) for one in self.preferences
        ) or (self,)

    def resource_config(self) -> dict[str, Any]:
        """Its members of the request's ResourceConfig."""
        if not self.preferences:
            return {"InstanceType": self.instance_type, "InstanceCount": self.instance_count}
        each = self.preferences[0].instance_count is not None
        return {
            "InstanceCount": None if each else self.instance_count,
            "InstancePreferences": [one.config() for one in self.preferences],
        }


def check_count(prop: str, count: int, *, least: int = 1) -> None:
    """Raise ``ValueError`` unless ``count`` is a whole number of at least ``least``; a token is."""
    if is_unresolved(count):
        return
    if count < least:
        raise ValueError(f"{prop} must be a whole number of at least {least}, like 2, got {count!r}")


def machines_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Type and count of each group of a ResourceConfig, or of each type that its job may run on."""
    if config.get("InstanceGroups"):
        return list(config["InstanceGroups"])
    count = config.get("InstanceCount")
    preferences = config.get("InstancePreferences", ())
    return [{**one, "InstanceCount": one["InstanceCount"] or count} for one in preferences] or [config]


def _check_preferences(preferences: tuple[InstancePreference, ...], instance_count: int | None) -> None:
    """The rules of InstancePreference in the API: a type once, and a count on every preference, or one for the job."""
    types = [one.instance_type for one in preferences]
    if not 1 <= len(types) <= _MOST_PREFERENCES:
        raise ValueError(
            f"instance_type must be a type or a list of 1 to {_MOST_PREFERENCES}, "
            f"like ['ml.p5.48xlarge', 'ml.p4d.24xlarge'], got {len(types)}"
        )
    for name in types:
        if types.count(name) > 1:
            raise ValueError(
                f"instance_type must list each type once, like ['ml.p5.48xlarge', 'ml.p4d.24xlarge'], got {name!r} twice"
            )
    counts = [one.instance_count for one in preferences]
    said = [count for count in counts if count is not None]
    if said and (len(said) < len(counts) or instance_count not in (None, counts[0])):
        raise ValueError(
            "instance_count must be said of each InstancePreference, or once for the job, like "
            f"InstanceGroup(['ml.p5.48xlarge', 'ml.p4d.24xlarge'], 2), got {counts} with {instance_count!r} for the job"
        )
