"""Groups of machines of one type, or of the first available of several types, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

from cdk_sagemaker_training.core.checks import at_least, not_empty
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.props.prop import IN_INPUT, Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, checked

_EXAMPLE = "['ml.p5.48xlarge', 'ml.p4d.24xlarge']"
_MOST_PREFERENCES = 5  # ResourceConfig.InstancePreferences of the service model
_COUNT = Prop(known=IN_INPUT, rule=at_least(1))
_PLANS = Known("execution", "permissions are then on all training plans of the account and region")


@runtime_checkable
class Ec2InstanceType(Protocol):
    """An instance type as CDK's ``ec2.InstanceType`` has it, such as ``g5.xlarge``; this module does without aws_cdk."""

    def to_string(self) -> str:
        """Return its name, without SageMaker's ``ml.``."""

    def is_burstable(self) -> bool:
        """Return whether it is burstable, which distinguishes it from other classes of CDK's with ``to_string``."""


def _instance_type(prop: str, value: Any, example: str) -> None:
    if isinstance(value, str):
        check_training_instance_type(value, prop)


_TYPE = Prop(known=IN_INPUT, rule=_instance_type, example="'ml.g5.xlarge'")


@kind("InstancePreference('ml.p5.48xlarge', 2)")
@dataclass(frozen=True)
class InstancePreference(Value):
    """One of the instance types that a job may run on (API, InstancePreference).

    Args:
        instance_type: The type, like ``"ml.p5.48xlarge"``.
        instance_count: Number of machines of this type; None for the group's ``instance_count``. Set on all preferences of a
            group or on none.
        training_plan: ARN of a training plan that reserves this type; None for on-demand machines.

    Raises:
        ValueError: SageMaker has no such type for training, or the count is below 1.
    """

    instance_type: Annotated[str, _TYPE]
    instance_count: Annotated[int | None, _COUNT] = None
    training_plan: Annotated[
        str | None,
        Prop(
            known=_PLANS,
            rule=not_empty,
            example="'arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring'",
        ),
    ] = None

    def config(self) -> dict[str, Any]:
        """Return the request's InstancePreference."""
        return {
            "InstanceType": self.instance_type,
            "InstanceCount": self.instance_count,
            "TrainingPlanArns": [self.training_plan] if self.training_plan else [],
        }


@kind("InstanceGroup('ml.g5.xlarge')")
@dataclass(frozen=True, init=False)
class InstanceGroup:
    """Machines of one type, like ``InstanceGroup("ml.g5.xlarge", 2)``, or of the first available type of a list.

    With a list, like ``InstanceGroup(["ml.p5.48xlarge", "ml.p4d.24xlarge"], 2)``, SageMaker runs the whole job on the first type
    that has capacity. All checks are made for each type, and the job's request must be the same on all of them. A list excludes
    spot machines, UltraServers and other groups (API, ResourceConfig.InstancePreferences).

    Attributes:
        instance_type: The type, the first of a list.
        instance_count: Number of machines, that of the first type of a list.
        preferences: The types of a list; empty for a single type.
    """

    instance_type: str
    instance_count: int
    preferences: tuple[InstancePreference, ...] = field(default=(), repr=False)

    @checked
    def __init__(
        self,
        instance_type: Annotated[str | Ec2InstanceType | Sequence[str | Ec2InstanceType | InstancePreference], _TYPE],
        instance_count: Annotated[int | None, _COUNT] = None,
        preferences: Annotated[
            Sequence[InstancePreference], Prop(example="[InstancePreference('ml.p5.48xlarge', 2)]")
        ] = (),
    ) -> None:
        """Create a group of machines.

        Args:
            instance_type: A type like ``"ml.g5.xlarge"`` or ``ec2.InstanceType("g5.xlarge")``, or 1 to 5 types in order of
                preference, each like this or an ``InstancePreference``.
            instance_count: Number of machines, at least 1; 1 by default. Not with counts in the preferences.
            preferences: The preferences of a group that is copied, as ``dataclasses.replace`` passes them.

        Raises:
            ValueError: SageMaker has no such type for training, a type is listed twice, or counts contradict each other.
        """
        if isinstance(instance_type, Ec2InstanceType):
            instance_type = _training_type(instance_type)
            check_training_instance_type(instance_type, "instance_type")
        given = preferences if isinstance(instance_type, str) else instance_type
        several = tuple(
            preference if isinstance(preference, InstancePreference) else InstancePreference(_training_type(preference))
            for preference in given
        )
        if several or given is instance_type:
            _check_preferences(several, instance_count)
            instance_type, counts = several[0].instance_type, several[0].instance_count
            instance_count = counts if counts is not None else instance_count
        object.__setattr__(self, "instance_type", instance_type)
        object.__setattr__(self, "instance_count", 1 if instance_count is None else instance_count)
        object.__setattr__(self, "preferences", several)

    @property
    def alternatives(self) -> tuple[InstanceGroup, ...]:
        """One group for each type of a list; the group itself without a list."""
        return tuple(
            InstanceGroup(preference.instance_type, preference.instance_count or self.instance_count)
            for preference in self.preferences
        ) or (self,)

    def resource_config(self) -> dict[str, Any]:
        """Return the group's members of the request's ResourceConfig."""
        if not self.preferences:
            return {"InstanceType": self.instance_type, "InstanceCount": self.instance_count}
        each = self.preferences[0].instance_count is not None
        return {
            "InstanceCount": None if each else self.instance_count,
            "InstancePreferences": [preference.config() for preference in self.preferences],
        }


def _training_type(instance_type: str | Ec2InstanceType) -> str:
    """SageMaker's name of a type, which is EC2's with ``ml.`` before it ("Amazon SageMaker AI pricing")."""
    if isinstance(instance_type, str):
        return instance_type
    return f"ml.{instance_type.to_string().removeprefix('ml.')}"


def machines_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return InstanceType and InstanceCount of each group of a ResourceConfig, or of each of its InstancePreferences."""
    if config.get("InstanceGroups"):
        return list(config["InstanceGroups"])
    count = config.get("InstanceCount")
    preferences = config.get("InstancePreferences", ())
    return [
        {**preference, "InstanceCount": preference.get("InstanceCount") or count} for preference in preferences
    ] or [config]


def _check_preferences(preferences: tuple[InstancePreference, ...], instance_count: int | None) -> None:
    """Check the API's rules of InstancePreference: each type once, and a count on every preference or one for the job."""
    types = [preference.instance_type for preference in preferences]
    if not 1 <= len(types) <= _MOST_PREFERENCES:
        rule = f"be a type or a list of 1 to {_MOST_PREFERENCES}"
        raise must("instance_type", rule, _EXAMPLE, f"{len(types)}")
    for name in types:
        if types.count(name) > 1:
            raise must("instance_type", "list each type once", _EXAMPLE, f"{name!r} twice")
    counts = [preference.instance_count for preference in preferences]
    known = [count for count in counts if count is not None]
    if known and (len(known) < len(counts) or instance_count not in (None, counts[0])):
        rule, got = (
            "be set on each InstancePreference, or once for the job",
            f"{counts} with {instance_count!r} for the job",
        )
        raise must("instance_count", rule, f"InstanceGroup({_EXAMPLE}, 2)", got)
