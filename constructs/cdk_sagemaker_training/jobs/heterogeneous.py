"""``HeterogeneousJob``: a job on several instance groups."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.kinds import JobRequest, TrainingJob
from cdk_sagemaker_training.jobs.ray import check_group_names
from cdk_sagemaker_training.props.prop_types import check_fields

_MOST_GROUPS = 5  # ResourceConfig.InstanceGroups of the service model
_LONGEST_GROUP_NAME = 64  # InstanceGroupName of the service model


@dataclass(frozen=True)
class HeterogeneousJob:
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

    groups: Mapping[str, InstanceGroup]
    train: TrainingJob
    train_group: str
    order: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))
        for name, group in self.groups.items():
            _check_group_name("groups", name)
            if getattr(group, "preferences", ()):
                raise ValueError(
                    "groups must have one type each, since InstancePreferences apply to a whole job only, like "
                    f"InstanceGroup({group.instance_type!r}), got {len(group.preferences)} types for {name!r}"
                )
        _check_group_name("train_group", self.train_group)
        if self.train_group in self.groups:
            raise ValueError(f"train_group must not be one of groups, like 'dnn_group', got {self.train_group!r}")
        self._check_order()
        if len(self._names) > _MOST_GROUPS:
            raise ValueError(
                f"groups must be at most {_MOST_GROUPS - 1} beside train_group, {_MOST_GROUPS} in all, "
                f"like {list(self._names[: _MOST_GROUPS - 1])}, got {list(self._names)}"
            )
        for request in self.train.requests():
            check_group_names(request.hyperparameters, self._names)
            if request.alone_because:
                raise ValueError(
                    "train must be a job that can run in one of several groups, like "
                    f"DataParallelJob(InstanceGroup('ml.g5.xlarge')), got {self.train!r}: {request.alone_because}"
                )
        if any(request.group_names for request in self.train.requests()):
            raise ValueError(
                "train must be a job on one group, like DataParallelJob(InstanceGroup('ml.g5.xlarge')), "
                f"got {type(self.train).__name__}"
            )

    def _check_order(self) -> None:
        if self.order is None:
            return
        listed = isinstance(self.order, Sequence) and not isinstance(self.order, str)
        order = tuple(self.order) if listed else ()
        if sorted(map(str, order)) != sorted((*self.groups, self.train_group)):
            example = [self.train_group, *self.groups]
            raise ValueError(f"order must list each group of the job once, like {example}, got {self.order!r}")
        object.__setattr__(self, "order", order)

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
        )


def _check_group_name(prop: str, name: str) -> None:
    if not 1 <= len(name) <= _LONGEST_GROUP_NAME or "\n" in name:
        raise ValueError(
            f"{prop} must have names of 1 to {_LONGEST_GROUP_NAME} characters, like 'data_group', got {name!r}"
        )
