"""State machines and rules of a synthesized template, with its intrinsic functions resolved symbolically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from training_jobs.prove.evaluator import check
from training_jobs.prove.values import UnsupportedError

_PSEUDO = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::StackName": "Stack",
    "AWS::URLSuffix": "amazonaws.com",
}


@dataclass(frozen=True)
class Guard:
    """A rule that starts a state machine when executions of others end.

    Attributes:
        rule: The rule's logical id.
        watched: Logical ids of the state machines.
        statuses: With which statuses, as the event has them.
        target: Logical id of the state machine that it starts.
        input_path: What of the event it gets.
    """

    rule: str
    watched: tuple[str, ...]
    statuses: tuple[str, ...]
    target: str
    input_path: str


class Deletion(NamedTuple):
    """What a custom resource of this library does before CloudFormation deletes a state machine.

    Attributes:
        tagged: How the names begin of the jobs that it knows by the tag with their execution; empty where a name has its hash.
        retain: Whether executions and jobs go on.
    """

    tagged: str
    retain: bool


@dataclass(frozen=True)
class App:
    """State machines by logical id, their names, and the rules that start some of them.

    ``starters`` start training jobs, directly or not; a schedule starts ``sweeps``. ``deletions`` are by their state machine,
    ``queues`` the logical ids of AWS Batch's, ``gone_queues`` of those that an update has removed.
    """

    machines: Mapping[str, Mapping[str, Any]]
    names: Mapping[str, str]
    guards: tuple[Guard, ...]
    starters: tuple[str, ...]
    sweeps: tuple[str, ...] = ()
    deletions: Mapping[str, Deletion] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    gone_queues: tuple[str, ...] = ()


def read(source: Path | Mapping[str, Any]) -> App:
    """Read a template, a file of one, or a folder of ``cdk synth``.

    Raises:
        UnsupportedError: There is no template or no state machine that starts training jobs in it.
    """
    templates = [source] if isinstance(source, Mapping) else [_json(path) for path in _files(source)]
    machines: dict[str, Mapping[str, Any]] = {}
    names: dict[str, str] = {}
    resources = [one for template in templates for one in template.get("Resources", {}).items()]
    for name, resource in resources:
        if resource.get("Type") == "AWS::StepFunctions::StateMachine":
            machines[name] = _definition(name, resource["Properties"])
            names[name] = _resolved(resource["Properties"].get("StateMachineName", {"Fn::GetAtt": [name, "Name"]}))
    guards = [one for name, resource in resources for one in _guards(name, resource, names)]
    starters = tuple(name for name in machines if _starts(name, machines, ()))
    if not starters:
        found = ", ".join(machines) or "none"
        raise UnsupportedError(
            f"the app must have a state machine that starts training jobs; its state machines: {found}"
        )
    sweeps = {one for _, resource in resources for one in _sweeps(resource, machines)}
    deletions = dict(one for _, resource in resources for one in _deletions(resource))
    queues = tuple(name for name, resource in resources if resource.get("Type") == "AWS::Batch::JobQueue")
    guarding = tuple(one for one in guards if one.target in machines)
    return App(machines, names, guarding, starters, tuple(sorted(sweeps.difference(starters))), deletions, queues)


def machine_of(text: Any) -> str:
    """The logical id in an ARN that a template refers to, itself where there is none."""
    return str(text).strip("{}").removesuffix(".Arn")


def tasks(program: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """All Task states of a definition, those in branches among them."""
    found = []
    for name, state in program["States"].items():
        if state["Type"] == "Task":
            found.append((name, state))
        for inner in [
            *state.get("Branches", []),
            *(state[one] for one in ("ItemProcessor", "Iterator") if one in state),
        ]:
            found += tasks(inner)
    return found


def readers(program: Mapping[str, Any]) -> list[str]:
    """The names of the states of a definition that read their items."""
    return [name for name, state in program["States"].items() if "ItemReader" in state]


def request_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request of a Task state as its definition has it; empty where an expression makes it."""
    request = state.get("Arguments", state.get("Parameters", {}))
    return request if isinstance(request, Mapping) else {}


def _files(source: Path) -> list[Path]:
    found = sorted(source.rglob("*.template.json")) if source.is_dir() else [source] if source.exists() else []
    if not found:
        raise UnsupportedError(f"PATH must be a folder of `cdk synth` or a template, like cdk.out, got {str(source)!r}")
    return found


def _json(path: Path) -> Mapping[str, Any]:
    try:
        template = json.loads(path.read_text())
    except ValueError as error:
        raise UnsupportedError(f"{path} must be a template in JSON: {error}") from None
    if not isinstance(template, dict) or "Resources" not in template:
        raise UnsupportedError(f"{path} must be a template with Resources")
    return template


def _definition(name: str, properties: Mapping[str, Any]) -> Mapping[str, Any]:
    text = _resolved(properties.get("DefinitionString", properties.get("Definition")))
    try:
        definition = json.loads(text) if isinstance(text, str) else text
    except ValueError as error:
        raise UnsupportedError(f"the definition of {name} must be JSON: {error}") from None
    if not isinstance(definition, dict):
        raise UnsupportedError(f"the definition of {name} must stand in the template, as DefinitionString")
    try:
        check(definition)
    except UnsupportedError as error:
        raise UnsupportedError(f"{name}: {error}") from None
    return definition


def _resolved(value: Any) -> Any:
    """``value`` with its intrinsic functions filled in; what deployment would fill in is named in braces."""
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(function, argument)] = value.items()
        if function == "Ref":
            return _PSEUDO.get(argument, f"{{{argument}}}")
        if function == "Fn::Join":
            return argument[0].join(str(part) for part in _resolved(argument[1]))
        if function == "Fn::Sub" and isinstance(argument, str):
            for name, text in _PSEUDO.items():
                argument = argument.replace(f"${{{name}}}", text)
            return argument
        if function.startswith("Fn::"):
            parts = _resolved(argument)
            return f"{{{'.'.join(map(str, parts)) if isinstance(parts, list) else parts}}}"
    return {key: _resolved(item) for key, item in value.items()}


def _guards(name: str, resource: Mapping[str, Any], names: Mapping[str, str]) -> list[Guard]:
    if resource.get("Type") != "AWS::Events::Rule":
        return []
    properties = _resolved(resource["Properties"])
    pattern = properties.get("EventPattern", {})
    detail = pattern.get("detail", {})
    if properties.get("State", "ENABLED") == "DISABLED":
        return []
    if "aws.states" not in pattern.get("source", []) or "stateMachineArn" not in detail:
        return []
    watched = tuple(machine for one in detail["stateMachineArn"] for machine in _matched(one, names))
    statuses = tuple(detail.get("status", ("ABORTED", "FAILED", "TIMED_OUT", "SUCCEEDED")))
    return [
        Guard(name, watched, statuses, machine_of(target["Arn"]), target.get("InputPath", "$"))
        for target in properties.get("Targets", [])
    ]


def _matched(pattern: Any, names: Mapping[str, str]) -> list[str]:
    """The state machines whose ARN an element of a pattern matches."""
    if isinstance(pattern, str):
        return [machine_of(pattern)]
    if set(pattern) != {"prefix"}:
        raise UnsupportedError(f"a rule must match state machines by their ARN or its prefix, got {pattern}")
    prefix = str(pattern["prefix"]).rpartition(":stateMachine:")[2]
    return [machine for machine, name in names.items() if name.startswith(prefix)]


def _sweeps(resource: Mapping[str, Any], machines: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The state machines that a schedule starts and that stop training jobs and create none."""
    if resource.get("Type") != "AWS::Events::Rule":
        return []
    properties = _resolved(resource["Properties"])
    if "ScheduleExpression" not in properties or properties.get("State", "ENABLED") == "DISABLED":
        return []
    found = [machine_of(target["Arn"]) for target in properties.get("Targets", [])]
    return [one for one in found if one in machines and _calls(machines[one], "stopTrainingJob")]


def _deletions(resource: Mapping[str, Any]) -> list[tuple[str, Deletion]]:
    if resource.get("Type") != "Custom::SageMakerTrainingJobs":
        return []
    properties = _resolved(resource["Properties"])
    of = Deletion(properties.get("TaggedJobNamePrefix", ""), properties.get("Retain") == "true")
    return [(machine_of(properties["StateMachineArn"]), of)]


def _calls(machine: Mapping[str, Any], operation: str) -> bool:
    return any(operation in state["Resource"] for _, state in tasks(machine))


def _starts(name: str, machines: Mapping[str, Mapping[str, Any]], above: tuple[str, ...]) -> bool:
    for _, state in tasks(machines[name]):
        if "createTrainingJob" in state["Resource"] or "submitServiceJob" in state["Resource"]:
            return True
        started = machine_of(request_of(state).get("StateMachineArn")) if "startExecution" in state["Resource"] else ""
        if started in machines and started not in above and _starts(started, machines, (*above, name)):
            return True
    return False
