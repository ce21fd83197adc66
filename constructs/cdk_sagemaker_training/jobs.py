"""Kinds of training job, as values: each says only what sets it apart from the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from cdk_sagemaker_training.advice import Advice, efa_advice, scale_up_advice
from cdk_sagemaker_training.instance_group import InstanceGroup

_MOST_GROUPS = 5  # ResourceConfig.InstanceGroups of the service model
_LONGEST_GROUP_NAME = 64  # InstanceGroupName of the service model


@dataclass(frozen=True)
class JobRequest:
    """What a kind of job decides of one CreateTrainingJob request.

    ``resource_config`` holds ``InstanceType`` and ``InstanceCount``, or ``InstanceGroups``, in the service's own words;
    ``group_names`` lists those groups and is empty for a homogeneous job. ``hyperparameters`` are the ``sagemaker_*`` ones
    that the toolkit in the container reads, encoded as it expects them. ``name_suffix`` tells apart the requests of a kind
    that makes more than one. ``advice`` becomes warnings when the app is synthesized. ``alone_because`` says why the job cannot be
    one group among several; it is empty where it can.
    """

    resource_config: Mapping[str, Any]
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    group_names: tuple[str, ...] = ()
    name_suffix: str = ""
    advice: tuple[Advice, ...] = ()
    alone_because: str = ""


class TrainingJob(Protocol):
    """A kind of job: its requests, in the order in which they are to run."""

    def requests(self) -> Sequence[JobRequest]: ...


class Launcher(Protocol):
    """What starts several processes of one script on each host of the group that trains."""

    @property
    def alone_because(self) -> str:
        """Why it cannot launch in one group among several; empty where it can."""

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        """What tells the toolkit to launch so. Raises ``ValueError`` for machines that it does not launch on."""

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]: ...


@dataclass(frozen=True)
class DataParallelJob:
    """A job whose processes each train on their own share of the data: on one accelerator, one machine of several, or many.

    Without ``launcher`` each host runs the script once, as a plain process: enough for one host with one accelerator, and
    for a script that starts its processes itself. Several machines where one larger machine of the family has as many
    accelerators are warned of, and several machines without EFA.
    """

    group: InstanceGroup
    launcher: Launcher | None = None

    def requests(self) -> Sequence[JobRequest]:
        return [
            JobRequest(
                resource_config={
                    "InstanceType": self.group.instance_type,
                    "InstanceCount": self.group.instance_count,
                },
                hyperparameters=self.launcher.hyperparameters(self.group) if self.launcher else {},
                advice=(
                    *scale_up_advice(self.group),
                    *efa_advice(self.group),
                    *(self.launcher.advice(self.group) if self.launcher else ()),
                ),
                alone_because=self.launcher.alone_because if self.launcher else "",
            )
        ]


@dataclass(frozen=True)
class HeterogeneousJob:
    """A job with other machines beside those that train, such as cheap ones that prepare the data.

    ``train`` is another kind of job, whose machines become the group named ``train_group``; ``groups`` are the others, by
    name. Every host runs the same image and script, which finds its own group in ``SM_CURRENT_INSTANCE_GROUP``; what
    ``train`` launches starts in ``train_group`` only. At most 5 groups in all.
    """

    groups: Mapping[str, InstanceGroup]
    train: TrainingJob
    train_group: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", MappingProxyType(dict(self.groups)))
        if not self.groups:
            raise ValueError(
                "groups must name a group beside the one that trains, like {'data_group': InstanceGroup('ml.c5.xlarge')}, got {}"
            )
        for name in self.groups:
            _check_group_name("groups", name)
        _check_group_name("train_group", self.train_group)
        if self.train_group in self.groups:
            raise ValueError(f"train_group must not be one of groups, like 'dnn_group', got {self.train_group!r}")
        if len(self._names) > _MOST_GROUPS:
            raise ValueError(
                f"groups must be at most {_MOST_GROUPS - 1} beside train_group, {_MOST_GROUPS} in all, "
                f"like {list(self._names[: _MOST_GROUPS - 1])}, got {list(self._names)}"
            )
        for request in self.train.requests():
            reason = "has groups already" if request.group_names else request.alone_because
            if reason:
                raise ValueError(
                    "train must be a job that can be one group of several, like "
                    f"DataParallelJob(InstanceGroup('ml.g5.xlarge')), got {type(self.train).__name__}, which {reason}"
                )

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self.groups, self.train_group)

    def requests(self) -> Sequence[JobRequest]:
        return [self._with_groups(request) for request in self.train.requests()]

    def _with_groups(self, train: JobRequest) -> JobRequest:
        group = InstanceGroup(train.resource_config["InstanceType"], train.resource_config["InstanceCount"])
        return JobRequest(
            resource_config={
                "InstanceGroups": [
                    {
                        "InstanceType": group.instance_type,
                        "InstanceCount": group.instance_count,
                        "InstanceGroupName": name,
                    }
                    for name, group in [*self.groups.items(), (self.train_group, group)]
                ]
            },
            hyperparameters={
                # Without this key the toolkit takes every group for the one that trains, and launches in all of them.
                "sagemaker_distribution_instance_groups": json.dumps([self.train_group]),
                **train.hyperparameters,
            },
            environment=train.environment,
            group_names=self._names,
            name_suffix=train.name_suffix,
            advice=train.advice,
        )


def _check_group_name(prop: str, name: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_GROUP_NAME or "\n" in name:
        raise ValueError(
            f"{prop} must name groups in 1 to {_LONGEST_GROUP_NAME} characters, like 'data_group', got {name!r}"
        )
