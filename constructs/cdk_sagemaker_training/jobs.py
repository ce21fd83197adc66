"""Kinds of training job, as values: each says only what sets it apart from the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Protocol

from cdk_sagemaker_training.advice import Advice as Advice
from cdk_sagemaker_training.advice import efa_advice, scale_up_advice
from cdk_sagemaker_training.data import S3Prefix
from cdk_sagemaker_training.instance_group import InstanceGroup as InstanceGroup
from cdk_sagemaker_training.instance_group import InstancePreference as InstancePreference
from cdk_sagemaker_training.prop_types import check_fields

_MOST_GROUPS = 5  # ResourceConfig.InstanceGroups of the service model
_LONGEST_GROUP_NAME = 64  # InstanceGroupName of the service model


@dataclass(frozen=True)
class JobRequest:
    """What a kind of job decides of one CreateTrainingJob request.

    - ``resource_config`` holds ``InstanceType`` and ``InstanceCount``, ``InstancePreferences``, or ``InstanceGroups``, in the
      service's own words;
      ``group_names`` lists those groups and is empty for a homogeneous job. ``alone_because`` says why the machines can be
      no group of a heterogeneous job; it is empty where they can.
    - ``hyperparameters`` are the ``sagemaker_*`` ones that the toolkit in the container reads, encoded as it expects them;
      ``overrides`` are other values of the user's own ones, ``profiler_config`` the service's member of that name.
    - ``images`` are the containers of AWS's, as patterns of ``repository:tag`` (fnmatch), one of which the job's image must
      be or be built from; any image will do where there is none.
    - ``storage`` is where in S3 the script itself reads and writes; ``kept`` lists directories that are to lie among the
      checkpoints, so that a job that starts again has them; ``checkpoints`` False makes a job without any.
    - ``name_suffix`` is a word that tells apart the requests of a kind that makes more than one, each by another letter at
      its beginning. ``advice`` becomes warnings.
    """

    resource_config: Mapping[str, Any]
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    group_names: tuple[str, ...] = ()
    name_suffix: str = ""
    alone_because: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    profiler_config: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    storage: tuple[S3Prefix, ...] = ()
    kept: tuple[str, ...] = ()
    checkpoints: bool = True
    advice: tuple[Advice, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)


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


class Compiler(Protocol):
    """What hands the training step to a compiler: makes the requests of the compiled job from that of the plain one.

    It adds its environment, hyperparameters and advice, may put a request before that prepares, and raises ``ValueError``
    for machines and launchers that it does not compile for. A kind of job that takes ``compiler=`` ends with ``compiled``.
    """

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]: ...


def compiled(request: JobRequest, compiler: Compiler | None) -> Sequence[JobRequest]:
    """The requests of a job whose step ``compiler`` compiles, or ``request`` itself without one."""
    requests = [request] if compiler is None else compiler.compiled(request)
    for one in requests:
        if "sagemaker_pytorch_xla_multi_worker_enabled" in one.hyperparameters and (
            "sagemaker_training_compiler_enabled" not in one.hyperparameters
        ):
            raise ValueError(
                "launcher must be one that starts in the containers of this job, like Torchrun(): PyTorchXla is only in those of "
                f"compiler=TrainingCompiler(), got compiler={compiler!r}"
            )
    return requests


@dataclass(frozen=True)
class DataParallelJob:
    """A job whose processes each train on their own share of the data: on one accelerator, one machine of several, or many.

    Without ``launcher`` each host runs the script once, as a plain process: enough for one host with one accelerator, and
    for a script that starts its processes itself. ``compiler`` is what compiles its step. Several machines where one larger
    machine of the family has as many accelerators are warned of, and several machines without EFA.
    """

    group: InstanceGroup
    launcher: Launcher | None = None
    compiler: Compiler | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self.requests()

    def requests(self) -> Sequence[JobRequest]:
        return on_each_type(self.group, self._requests_on)

    def _requests_on(self, group: InstanceGroup) -> Sequence[JobRequest]:
        request = launched(group, self.launcher)
        advice = (*scale_up_advice(group), *efa_advice(group), *request.advice)
        return compiled(replace(request, advice=advice), self.compiler)


def on_each_type(
    group: InstanceGroup, requests_on: Callable[[InstanceGroup], Sequence[JobRequest]]
) -> Sequence[JobRequest]:
    """The requests of a job on a group, which on each of several types must be the same but for the machines."""
    if not group.preferences:
        return requests_on(group)
    of_types = [requests_on(one) for one in group.alternatives]
    return [_merged(group, of_one) for of_one in zip(*of_types, strict=True)]


def _merged(group: InstanceGroup, requests: Sequence[JobRequest]) -> JobRequest:
    first, *others = requests
    for name, other in zip([one.instance_type for one in group.preferences[1:]], others, strict=True):
        for member in fields(JobRequest):
            one, its = getattr(first, member.name), getattr(other, member.name)
            if member.name not in ("resource_config", "advice") and one != its:
                raise ValueError(
                    "instance_type must list types on which the job is the same, like ['ml.p5.48xlarge', 'ml.p5e.48xlarge'], or "
                    f"be one type, got {group.instance_type!r} with {member.name} {one!r} beside {name!r} with {its!r}"
                )
    return replace(
        first,
        resource_config=group.resource_config(),
        advice=tuple(dict.fromkeys(advice for request in requests for advice in request.advice)),
        alone_because="SageMaker chooses its machines among several types (InstancePreferences), which excludes groups",
    )


def launched(group: InstanceGroup, launcher: Launcher | None) -> JobRequest:
    """The request of a job on machines of one type, with what starts its processes."""
    machines = group.resource_config()
    if launcher is None:
        return JobRequest(resource_config=machines)
    return JobRequest(
        resource_config=machines,
        hyperparameters=launcher.hyperparameters(group),
        alone_because=launcher.alone_because,
        advice=launcher.advice(group),
    )


@dataclass(frozen=True)
class HeterogeneousJob:
    """A job with other machines beside those that train, such as cheap ones that prepare the data.

    ``train`` is another kind of job, whose machines become the group named ``train_group``; ``groups`` are the others, by
    name. Every host runs the same image and script, which finds its own group in ``SM_CURRENT_INSTANCE_GROUP``; what
    ``train`` launches starts in ``train_group`` only. At most 5 groups in all; with ``groups={}`` there is the one.

    ``order`` lists the names of all groups in the order of the request's InstanceGroups, by default ``train_group`` last.
    SageMaker numbers hosts in an order of its own ("Train Using a Heterogeneous Cluster"): read names from the job's
    resource configuration, never from this order.
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
                    "groups must be of one type each, since SageMaker chooses among types for a whole job only, like "
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
            if request.alone_because:
                raise ValueError(
                    "train must be a job whose machines can be a group beside others, like "
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
                # Without this key the toolkit takes every group for the one that trains, and launches in all of them.
                "sagemaker_distribution_instance_groups": json.dumps([self.train_group]),
                **train.hyperparameters,
            },
            group_names=self._names,
        )


def _check_group_name(prop: str, name: str) -> None:
    if not 1 <= len(name) <= _LONGEST_GROUP_NAME or "\n" in name:
        raise ValueError(
            f"{prop} must name groups in 1 to {_LONGEST_GROUP_NAME} characters, like 'data_group', got {name!r}"
        )
