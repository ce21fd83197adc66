"""The kind of job of a request: its machines, and the launcher that its hyperparameters configure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.adopt.members import Members
from cdk_sagemaker_training.adopt.python_source import Call
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup
from cdk_sagemaker_training.jobs.kinds import Launcher
from cdk_sagemaker_training.jobs.launchers import Mpi, MultiWorkerMirrored, ParameterServer, PyTorchDdp, SmDdp, Torchrun

# The toolkit launches in these groups only (``sagemaker_distribution_instance_groups`` of the SDK, version 2).
_LAUNCHING_GROUPS = "sagemaker_distribution_instance_groups"


class NoMachinesError(ValueError):
    """A request that names no machines."""


def decoded(text: str) -> Any:
    """Return a hyperparameter as SageMaker's toolkit reads it.

    Args:
        text: The request's.
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def job_of(members: Members, hyperparameters: dict[str, str]) -> Call:
    """Return the job as an expression.

    Args:
        members: The request, from which the machines are taken.
        hyperparameters: Those of the request, from which those of the job are removed.

    Raises:
        NoMachinesError: The request has no machines.
    """
    groups = members.take("ResourceConfig.InstanceGroups") or []
    if groups:
        members.take("ResourceConfig.InstanceCount")  # DescribeTrainingJob may answer 0 beside groups
        return _heterogeneous(members, groups, hyperparameters)
    group, first = _group(members)
    return _on_group(group, first, hyperparameters, alone=True)


def _group(members: Members) -> tuple[Call, dict[str, Any]]:
    """The expression of the machines, and the first type with its count."""
    type_, count = members.take("ResourceConfig.InstanceType"), members.take("ResourceConfig.InstanceCount")
    preferences = members.parts("ResourceConfig.InstancePreferences", "InstanceType")
    if not preferences:
        if type_ is None:
            raise NoMachinesError("its request has no machines (ResourceConfig): serverless jobs are not supported")
        return _machines(type_, count or 1), {"InstanceType": type_, "InstanceCount": count or 1}
    listed: list[Any] = []
    first: dict[str, Any] = {}
    for one in preferences:
        name, its_count, plans = (one.take(it) for it in ("InstanceType", "InstanceCount", "TrainingPlanArns"))
        first = first or {"InstanceType": name, "InstanceCount": its_count or count or 1}
        for plan in (plans or [])[1:]:
            one.differs("TrainingPlanArns", plan, "an InstancePreference has one training plan: left out")
        keywords = {"instance_count": its_count, "training_plan": plans[0] if plans else None}
        plain = its_count is None and not plans
        listed.append(_type(name) if plain else Call("InstancePreference", (_type(name),), keywords))
        one.finish()
    return Call("InstanceGroup", (listed, count) if count else (listed,)), first


def _machines(type_: str, count: int) -> Call:
    return Call("InstanceGroup", (_type(type_),) if count == 1 else (_type(type_), count))


def _type(name: str) -> Any:
    try:
        check_training_instance_type(name)
    except ValueError:
        return Call("unlisted", (name,))
    return name


def _on_group(group: Call, machines: Mapping[str, Any], hyperparameters: dict[str, str], *, alone: bool) -> Call:
    launcher = _launcher(machines, hyperparameters, alone=alone)
    return Call("DataParallelJob", (group,), {"launcher": launcher})


def _heterogeneous(members: Members, groups: list[dict[str, Any]], hyperparameters: dict[str, str]) -> Call:
    by_name = {it["InstanceGroupName"]: it for it in groups}
    text = hyperparameters.pop(_LAUNCHING_GROUPS, None)
    launching = decoded(text) if text is not None else None
    member = f"HyperParameters.{_LAUNCHING_GROUPS}"
    known = [name for name in launching if name in by_name] if isinstance(launching, list) else []
    train_group = known[0] if known else next(reversed(by_name))
    if text is None:
        members.differs(
            member, None, f"HeterogeneousJob adds it with train_group, here the last group, {train_group!r}"
        )
    elif launching != [train_group]:
        members.differs(member, text, f"a HeterogeneousJob launches in one group, here in {train_group!r} only")
    others = {name: it for name, it in by_name.items() if name != train_group}
    machines = by_name[train_group]
    group = _machines(machines["InstanceType"], machines["InstanceCount"])
    order = list(by_name)
    return Call(
        "HeterogeneousJob",
        (),
        {
            "groups": {name: _machines(it["InstanceType"], it["InstanceCount"]) for name, it in others.items()},
            "train": _on_group(group, machines, hyperparameters, alone=False),
            "train_group": train_group,
            "order": None if order == [*others, train_group] else order,
        },
    )


def _launcher(machines: Mapping[str, Any], hyperparameters: dict[str, str], *, alone: bool) -> Call | None:
    """The launcher that sets most of the hyperparameters, which are removed; None where none sets these."""
    try:
        group = InstanceGroup(machines["InstanceType"], machines["InstanceCount"])
    except ValueError:  # a type that this library does not know, on which a launcher's checks say nothing
        return None
    best: tuple[Call, Mapping[str, str]] | None = None
    for call, launcher in _launchers(hyperparameters):
        if launcher.alone_because and not alone:
            continue
        try:
            sets = launcher.hyperparameters(group)
        except ValueError:
            continue
        same = all(name in hyperparameters and decoded(hyperparameters[name]) == decoded(sets[name]) for name in sets)
        if same and (best is None or len(sets) > len(best[1])):
            best = call, sets
    if best is None:
        return None
    for name in best[1]:
        del hyperparameters[name]
    return best[0]


def _launchers(hyperparameters: Mapping[str, str]) -> Iterator[tuple[Call, Launcher]]:
    """Every launcher with the arguments that the hyperparameters have for it."""
    processes = decoded(hyperparameters.get("sagemaker_mpi_num_of_processes_per_host", "null"))
    of_mpi = decoded(hyperparameters.get("sagemaker_mpi_custom_mpi_options", '""'))
    of_smddp = decoded(hyperparameters.get("sagemaker_distributed_dataparallel_custom_mpi_options", '""'))
    candidates: list[tuple[Any, dict[str, Any]]] = [
        (Torchrun, {"processes_per_host": processes}),
        (Mpi, {"processes_per_host": processes, "custom_mpi_options": of_mpi}),
        (SmDdp, {"custom_mpi_options": of_smddp}),
        (SmDdp, {"launch_by": "torchrun"}),
        (PyTorchDdp, {"processes_per_host": processes}),
        (MultiWorkerMirrored, {}),
        (ParameterServer, {}),
    ]
    for make, arguments in candidates:
        given = {name: value for name, value in arguments.items() if value not in (None, "")}
        try:
            yield Call(make.__name__, (), given), make(**given)
        except ValueError:
            continue
