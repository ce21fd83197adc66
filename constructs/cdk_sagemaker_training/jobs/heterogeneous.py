"""``HeterogeneousJob``: a job on several instance groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.kinds import JobRequest, TrainingJob
from cdk_sagemaker_training.jobs.ray import check_group_names
from cdk_sagemaker_training.props.prop import NAMED, Prop
from cdk_sagemaker_training.props.prop_types import Value, check_fields

_MOST_GROUPS = 5  # ResourceConfig.InstanceGroups of the service model
_LONGEST_GROUP_NAME = 64  # InstanceGroupName of the service model
_EXAMPLE = "DataParallelJob(InstanceGroup('ml.g5.xlarge'))"


@dataclass(frozen=True)
class HeterogeneousJob(Value):
    """A job on several instance groups, such as CPU machines that preprocess data for the GPU machines that train.

    Every host runs the same image and script, which finds the name of its own group in ``SM_CURRENT_INSTANCE_GROUP``. The
    launcher of ``train`` starts in ``train_group`` only.

    Args:
        groups: The groups that do not train, by name; at most 4, may be empty.
        train: The job of the group that trains.
        train_group: Name of the group that trains.
        order: Names of all groups in the order of the request's InstanceGroups; by default ``train_group`` is last. SageMaker
            numbers hosts in an order of its own ("Train Using a Heterogeneous Cluster"), so scripts must read host names from
            the resource configuration.

    Raises:
        ValueError: There are more than 5 groups, a name is invalid or used twice, or ``train`` excludes instance groups.
    """

    groups: Annotated[
        Mapping[str, InstanceGroup], Prop(known=NAMED, example="{'data_group': InstanceGroup('ml.c5.xlarge')}")
    ]
    train: TrainingJob
    train_group: Annotated[str, Prop(known=NAMED, example="'dnn_group'")]
    order: Annotated[Sequence[str] | None, Prop(known=NAMED, example="['data_group', 'dnn_group']")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))
        for name, group in self.groups.items():
            _check_group_name("groups", name)
            if getattr(group, "preferences", ()):
                rule = "have one type each, since InstancePreferences apply to a whole job only"
                got = f"{len(group.preferences)} types for {name!r}"
                raise must("groups", rule, f"InstanceGroup({group.instance_type!r})", got)
        _check_group_name("train_group", self.train_group)
        if self.train_group in self.groups:
            raise must("train_group", "not be one of groups", "'dnn_group'", repr(self.train_group))
        self._check_order()
        if len(self._names) > _MOST_GROUPS:
            rule = f"be at most {_MOST_GROUPS - 1} beside train_group, {_MOST_GROUPS} in all"
            raise must("groups", rule, f"{list(self._names[: _MOST_GROUPS - 1])}", f"{list(self._names)}")
        for request in self.train.requests():
            check_group_names(request.hyperparameters, self._names)
            if request.alone_because:
                rule = "be a job that can run in one of several groups"
                raise must("train", rule, _EXAMPLE, f"{self.train!r}: {request.alone_because}")
        if any(request.group_names for request in self.train.requests()):
            raise must("train", "be a job on one group", _EXAMPLE, type(self.train).__name__)

    def _check_order(self) -> None:
        if self.order is None:
            return
        if sorted(self.order) != sorted((*self.groups, self.train_group)):
            example = f"{[self.train_group, *self.groups]}"
            raise must("order", "list each group of the job once", example, repr(self.order))
        object.__setattr__(self, "order", tuple(self.order))

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(self.order or (*self.groups, self.train_group))

    def requests(self) -> Sequence[JobRequest]:
        """Return the job's requests in the order in which they run."""
        return [self._with_groups(request) for request in self.train.requests()]

    def _with_groups(self, train: JobRequest) -> JobRequest:
        machines = InstanceGroup(train.resource_config["InstanceType"], train.resource_config["InstanceCount"])
        groups = {**self.groups, self.train_group: machines}
        return replace(
            train,
            resource_config={
                "InstanceGroups": [
                    {
                        "InstanceType": groups[name].instance_type,
                        "InstanceCount": groups[name].instance_count,
                        "InstanceGroupName": name,
                    }
                    for name in self._names
                ]
            },
            hyperparameters={
                # Without this key the toolkit launches in all groups.
                "sagemaker_distribution_instance_groups": json.dumps([self.train_group]),
                **train.hyperparameters,
            },
            group_names=self._names,
            advice=(*train.advice, *self._advice(machines)),
        )

    def _advice(self, machines: InstanceGroup) -> tuple[Advice, ...]:
        """Warn of accelerators that only groups beside the one that trains have."""
        facts = instance_facts(machines.instance_type)
        if facts is None or facts.devices != 0:
            return ()
        for name, group in self.groups.items():
            other = instance_facts(group.instance_type)
            if other is not None and other.devices:
                return advice(
                    "accelerators-beside-training",
                    f"groups[{name!r}] of {group.instance_type} has accelerators, and train_group {self.train_group!r} of "
                    f"{machines.instance_type}, which trains, has none: give each the other's machines.",
                )
        return ()


def _check_group_name(prop: str, name: str) -> None:
    if not 1 <= len(name) <= _LONGEST_GROUP_NAME or "\n" in name:
        raise must(prop, f"have names of 1 to {_LONGEST_GROUP_NAME} characters", "'data_group'", repr(name))
