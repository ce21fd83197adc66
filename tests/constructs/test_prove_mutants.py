"""What ``training-jobs prove`` says of mutants of the default workflow and its guard, each a careful person's mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from stacks import UserStack

from training_jobs.prove.explorer import prove

Template = dict[str, Any]
Change = Callable[[Template], None]
# Stands for a token in the text of a definition.
TOKEN = "token-{}-of-the-template"


@cache
def default() -> Template:
    stack = UserStack()
    stack.workflow()
    return stack.template()


@cache
def unguarded() -> Template:
    """Without the schedule that stops what all else left running, so that what all else does is seen."""
    template = deepcopy(default())
    [rule] = [id for id, one in template["Resources"].items() if "ScheduleExpression" in one.get("Properties", {})]
    del template["Resources"][rule]
    return template


def resource(template: Template, kind: str, part: str) -> dict[str, Any]:
    [found] = [one for id, one in template["Resources"].items() if one["Type"] == kind and id.startswith(part)]
    return found["Properties"]


def states(part: str, change: Callable[[dict[str, Any]], None]) -> Change:
    """A change of the states of a state machine, by the beginning of its logical id."""

    def changed(template: Template) -> None:
        properties = resource(template, "AWS::StepFunctions::StateMachine", part)
        parts = properties["DefinitionString"]["Fn::Join"][1]
        tokens = [one for one in parts if not isinstance(one, str)]
        numbers = iter(range(len(tokens)))
        text = "".join(one if isinstance(one, str) else TOKEN.format(next(numbers)) for one in parts)
        definition = json.loads(text)
        change(definition["States"])
        pieces = re.split(TOKEN.format(r"(\d+)"), json.dumps(definition))
        joined = [tokens[int(one)] if place % 2 else one for place, one in enumerate(pieces)]
        properties["DefinitionString"] = {"Fn::Join": ["", joined]}

    return changed


def of_workflow(change: Callable[[dict[str, Any]], None]) -> Change:
    return states("TrainingStateMachine", change)


def of_stopper(change: Callable[[dict[str, Any]], None]) -> Change:
    return states("SageMakerTrainingJobsGuardStopper", change)


def rule(change: Callable[[dict[str, Any]], None]) -> Change:
    return lambda template: change(resource(template, "AWS::Events::Rule", "SageMakerTrainingJobsGuardRule"))


def sets(state: str, **members: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found[state].update(members)


def lacks(state: str, *members: str) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        for member in members:
            del found[state][member]

    return change


def leads(state: str, status: str, following: str | None) -> Callable[[dict[str, Any]], None]:
    """Another transition of a Choice for a status; None for none."""

    def change(found: dict[str, Any]) -> None:
        choices = found[state]["Choices"]
        [choice] = [one for one in choices if one.get("StringEquals") == status]
        if following is None:
            choices.remove(choice)
        else:
            choice["Next"] = following

    return change


def without_status(status: str) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["EventPattern"]["detail"]["status"].remove(status)


def machine_of_workflow() -> str:
    machines = [id for id, one in default()["Resources"].items() if one["Type"] == "AWS::StepFunctions::StateMachine"]
    [found] = [id for id in machines if id.startswith("Training")]
    return found


def targets_what_it_watches(found: dict[str, Any]) -> None:
    found["Targets"][0]["Arn"] = {"Ref": machine_of_workflow()}


def lists_others(found: dict[str, Any]) -> None:
    found["List"]["Parameters"]["NameContains.$"] = "States.Hash($.name, 'MD5')"


def not_waited_for(found: dict[str, Any]) -> None:
    found["Create"] |= {"Resource": found["Create"]["Resource"].removesuffix(".sync"), "Next": "Completed"}


def named_anew(found: dict[str, Any]) -> None:
    name = found["Create"]["Parameters"]["TrainingJobName.$"]
    found["Create"]["Parameters"]["TrainingJobName.$"] = f"States.Format('{{}}-{{}}', {name}, $.Training.Repeated)"


# The mutant, faults, and a property that it breaks, which the workflow with as many faults keeps, both without the schedule.
MUTANTS: tuple[tuple[str, Change, int, str], ...] = (
    ("a rule without ABORTED", rule(without_status("ABORTED")), 0, "left-running"),
    ("a rule without TIMED_OUT", rule(without_status("TIMED_OUT")), 0, "left-running"),
    ("a rule that is disabled", rule(lambda found: found.update(State="DISABLED")), 0, "left-running"),
    ("a rule of another source", rule(sets("EventPattern", source=["aws.sagemaker"])), 0, "left-running"),
    ("a rule whose target is the workflow", rule(targets_what_it_watches), 0, "left-running"),
    ("a stopper that looks once", of_stopper(sets("HasLookedTwice", Default="Done")), 0, "left-running"),
    ("a stopper that takes each execution for redriven", of_stopper(sets("WasRedriven", Default="Done")), 0, "left-running"),
    ("a stopper that stops nothing", of_stopper(sets("IsAny", Choices=[
        {"Variable": "$.Listed.Jobs[0]", "IsPresent": True, "Next": "StopEach"}])), 0, "left-running"),
    ("a stopper of another hash", of_stopper(lists_others), 0, "left-running"),
    ("a rule of other machines", rule(sets("EventPattern", detail={"stateMachineArn": [{"prefix": "arn:other"}],
        "status": ["ABORTED", "FAILED", "TIMED_OUT"]}, source=["aws.states"])), 0, "left-running"),
    ("a stopper that takes each for over", of_stopper(sets("IsOver", Default="Done")), 0, "left-running"),
    ("a failed job is a success", of_workflow(leads("IsOver", "Failed", "Completed")), 0, "false-success"),
    ("a job that is not waited for", of_workflow(not_waited_for), 0, "false-success"),
    ("a job that completed is waited for", of_workflow(leads("IsOver", "Completed", "Wait")), 0, "no-end"),
    ("an end without its error", of_workflow(lacks("Failed", "Error")), 0, "lost-cause"),
    ("no Catch of Create", of_workflow(lacks("Create", "Catch")), 1, "one-failed-call"),
    ("a refused Create is not repeated", of_workflow(sets("IsRefused", Default="Error")), 1, "one-failed-call"),
    ("another name for a repeated Create", of_workflow(named_anew), 1, "two-at-once"),
)  # fmt: skip


def broken(template: Template, faults: int) -> set[str]:
    proofs = prove(template, faults=faults, most_states=20_000)
    [proof] = [one for one in proofs if one.machine.startswith("TrainingStateMachine")]
    return {one.property for one in proof.violations}


@cache
def broken_by_default(faults: int) -> set[str]:
    return broken(unguarded(), faults)


@pytest.mark.parametrize(
    ("change", "faults", "property"),
    # A second of a processor with a fault, and more.
    [pytest.param(*one[1:], id=one[0], marks=[pytest.mark.soak] * (one[2] > 0)) for one in MUTANTS],
)
def test_a_mutant_of_the_default_workflow_breaks_a_property(change: Change, faults: int, property: str) -> None:
    mutant = deepcopy(unguarded())
    change(mutant)
    assert property in broken(mutant, faults) - broken_by_default(faults)
