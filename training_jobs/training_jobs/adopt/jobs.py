"""The kind of job of a request: its machines, and the launcher that its hyperparameters configure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training_jobs.adopt.launchers import decoded, launcher_of
from training_jobs.adopt.members import Members
from training_jobs.adopt.python_source import Call
from training_jobs.facts.instance_facts import instance_facts

# The toolkit launches in these groups only (``sagemaker_distribution_instance_groups`` of the SDK, version 2).
_LAUNCHING_GROUPS = "sagemaker_distribution_instance_groups"


class NoMachinesError(ValueError):
    """A request that names no machines."""


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
    return Call("unlisted", (name,)) if instance_facts(name) is None else name


def _on_group(group: Call, machines: Mapping[str, Any], hyperparameters: dict[str, str], *, alone: bool) -> Call:
    """The job on a group; the hyperparameters that its launcher sets are removed."""
    found = launcher_of(machines["InstanceType"], hyperparameters, alone=alone)
    for name in found[1] if found else ():
        del hyperparameters[name]
    return Call("DataParallelJob", (group,), {"launcher": found[0] if found else None})


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
