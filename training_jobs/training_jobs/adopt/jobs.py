"""The kind of job of a request: its machines, and its launcher, compiler or parallelism, by hyperparameters and environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_jobs.adopt.compilers import compiler_of
from training_jobs.adopt.existing import Existing
from training_jobs.adopt.launchers import decoded, launcher_of
from training_jobs.adopt.members import Members
from training_jobs.adopt.parallelism import model_parallel_job
from training_jobs.adopt.python_source import Call
from training_jobs.facts.instance_facts import instance_facts

# The toolkit launches in these groups only (``sagemaker_distribution_instance_groups`` of the SDK, version 2).
_LAUNCHING_GROUPS = "sagemaker_distribution_instance_groups"
_TYPE = "sagemaker_instance_type"


class NoMachinesError(ValueError):
    """A request that names no machines."""


@dataclass(frozen=True)
class Script:
    """What a request says to its script, of which the job's own part is removed.

    Attributes:
        hyperparameters: The request's.
        environment: The request's.
        image: The URI of the image.
        profiled: Whether SageMaker's profiler is on.
    """

    hyperparameters: dict[str, str]
    environment: dict[str, str]
    image: str
    profiled: bool


def job_of(members: Members, existing: Existing, script: Script) -> Call:
    """Return the job as an expression.

    Args:
        members: The request, from which the machines are taken.
        existing: The resources that the stack imports.
        script: What the request says to its script.

    Raises:
        NoMachinesError: The request has no machines.
    """
    groups = members.take("ResourceConfig.InstanceGroups") or []
    if groups:
        members.take("ResourceConfig.InstanceCount")  # DescribeTrainingJob may answer 0 beside groups
        return _heterogeneous(members, existing, groups, script)
    group, first = _group(members)
    return _on_group(members, existing, group, first, script, alone=True)


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


def _on_group(
    members: Members, existing: Existing, group: Call, machines: Mapping[str, Any], script: Script, *, alone: bool
) -> Call:
    """The job on a group; what its parallelism, its launcher and its compiler set is removed."""
    texts, of_one_type = script.hyperparameters, group.arguments[:1] == (machines["InstanceType"],)
    if of_one_type and (job := model_parallel_job(members, machines, texts, alone=alone)) is not None:
        return job
    if texts.get(_TYPE) == "null":  # the SDK's text of a job with groups
        texts[_TYPE] = json.dumps(machines["InstanceType"])
        members.differs(
            f"HyperParameters.{_TYPE}", "null", f"sent as {texts[_TYPE]!r}, the type of the group that launches"
        )
    found = launcher_of(machines["InstanceType"], texts, alone=alone)
    launcher = found[0] if found else None
    for name in found[1] if found else ():
        del texts[name]
    compiler = compiler_of(
        machines,
        launcher.function if launcher else "",
        texts,
        script.environment,
        existing,
        image=script.image,
        profiled=script.profiled,
        alone=alone,
    )
    if compiler is None:
        return Call("DataParallelJob", (group,), {"launcher": launcher})
    default = compiler == Call("TorchCompile", (), dict.fromkeys(compiler.keywords))
    return Call("CompiledJob", (group,), {"launcher": launcher, "compiler": None if default else compiler})


def _heterogeneous(members: Members, existing: Existing, groups: list[dict[str, Any]], script: Script) -> Call:
    by_name = {it["InstanceGroupName"]: it for it in groups}
    text = script.hyperparameters.pop(_LAUNCHING_GROUPS, None)
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
            "train": _on_group(members, existing, group, machines, script, alone=False),
            "train_group": train_group,
            "order": None if order == [*others, train_group] else order,
        },
    )
