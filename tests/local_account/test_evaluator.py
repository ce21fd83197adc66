"""The evaluator of ``training-jobs prove`` beside the account's Step Functions, on state machines drawn at random.

Two things are not drawn, since the account differs from AWS in them: a Choice whose Variable is missing (States.Runtime at AWS,
a rule that does not hold in the account) and an intrinsic function that fails (States.IntrinsicFailure, and States.Runtime in
the account).
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from running_account import Running
from state_machines import Machines

from training_jobs.prove.evaluator import Elapsed, Execution, start, step, wants

FACTS = json.loads((Path(__file__).parent / "recorded" / "executions.json").read_text())["facts"]

GIVEN = {"n": 3, "text": "a-b", "items": [1, "two", {"three": 3}], "deep": {"yes": True, "none": None}}
FORMULAS = (
    "$.n",
    "$.deep",
    "$.items[1]",
    "$.missing",
    "States.Format('{}/{}', $.n, $.text)",
    r"States.Format('\{\"it\'s\":\"{}\"\} \{\} \\\\', $.n)",
    "States.MathAdd($.n, -5)",
    "States.Array($.n, $.deep.none)",
    "States.ArrayGetItem($.items, 2)",
    "States.ArrayLength($.items)",
    "States.ArrayContains($.items, 'two')",
    "States.ArrayRange(1, $.n, 2)",
    "States.ArrayPartition($.items, 2)",
    "States.StringSplit($.text, '-')",
    "States.StringToJson('[1, 2]')",
    "States.JsonToString($.deep)",
    "States.Hash($.text, 'SHA-1')",
    "States.Base64Encode($.text)",
    "States.JsonMerge($.deep, $.deep, false)",
)
# The second of two branches does not fail: which of two errors comes first is left to the account, as at AWS.
PASSES = {"StartAt": "Only", "States": {"Only": {"Type": "Pass", "End": True}}}
RULES = (
    {"Variable": "$.n", "NumericGreaterThan": 2},
    {"Variable": "$.n", "StringEquals": "3"},
    {"Variable": "$.text", "StringMatches": "a*"},
    {"Variable": "$.missing", "IsPresent": True},
    {"Variable": "$.deep.none", "IsNull": True},
    {"Variable": "$.deep.yes", "BooleanEquals": False},
    {"Variable": "$.n", "NumericEqualsPath": "$.n"},
    {"Not": {"Variable": "$.items", "IsString": True}},
    {"And": [{"Variable": "$.n", "IsNumeric": True}, {"Variable": "$.text", "StringLessThan": "b"}]},
)


def drawn(choose: random.Random, depth: int = 0) -> dict[str, Any]:
    """A program of up to five states, each of which leads only to later ones, so that it ends."""
    names = [f"S{at}" for at in range(choose.randint(1, 5))]
    states: dict[str, Any] = {}
    for at, name in enumerate(names):
        later = names[at + 1 :]
        kinds = [
            "Pass",
            "Pass",
            "Pass",
            "Fail",
            *(["Choice", "Choice"] if later else []),
            *(["Parallel", "Map"] if depth < 2 else []),
        ]
        kind = choose.choice(kinds) if later else choose.choice([one for one in kinds if one != "Fail"])
        state: dict[str, Any] = {"Type": kind}
        if kind == "Fail":
            state |= {"Error": "Drawn", "Cause": name}
        elif kind == "Choice":
            state |= {"Choices": [{**choose.choice(RULES), "Next": choose.choice(later)}]}
            state |= {"Default": choose.choice(later)} if choose.random() < 0.8 else {}
        else:
            if kind == "Pass":
                state["Parameters"] = {"it.$": choose.choice(FORMULAS), "fixed": 1}
                state |= {"InputPath": "$.deep"} if choose.random() < 0.1 else {}
            elif kind == "Parallel":
                state["Branches"] = [drawn(choose, depth + 1), *([PASSES] if choose.random() < 0.5 else [])]
            else:
                state |= {"ItemsPath": "$.items", "ItemProcessor": drawn(choose, depth + 1), "MaxConcurrency": 1}
                state["ItemSelector"] = {
                    **{f"{name}.$": f"$.{name}" for name in GIVEN},
                    "i.$": "$$.Map.Item.Index",
                    "v.$": "$$.Map.Item.Value",
                }
            if kind != "Pass":
                caught = {
                    "ErrorEquals": ["States.ALL"],
                    "ResultPath": "$.caught",
                    "Next": choose.choice(later or names[-1:]),
                }
                state |= {"Catch": [caught]} if later and choose.random() < 0.5 else {}
                state |= {"ResultSelector": {"all.$": "$"}} if choose.random() < 0.3 else {}
            state["ResultPath"] = choose.choice(["$.result", "$.deep.result", None])
            state |= {"Next": choose.choice(later)} if later else {"End": True}
        states[name] = state
    return reachable({"StartAt": names[0], "States": states})


def drawn_distributed(choose: random.Random) -> dict[str, Any]:
    """A Distributed Map of three items, the last or the last two of which may fail, with tolerances or none."""
    inner = drawn(choose, 2)
    fails = {"Variable": "$.i", "NumericGreaterThan": choose.randint(0, 2), "Next": "Fails"}
    states = {"Fails": {"Type": "Fail", "Error": "Drawn"}, **inner["States"]}
    states["First"] = {"Type": "Choice", "Choices": [fails], "Default": inner["StartAt"]}
    state: dict[str, Any] = {
        "Type": "Map",
        "Label": "Drawn",
        "ItemsPath": "$.items",
        "ItemSelector": {**{f"{name}.$": f"$.{name}" for name in GIVEN}, "i.$": "$$.Map.Item.Index"},
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": "First",
            "States": states,
        },
        "MaxConcurrency": 1,
        "ResultPath": "$.result",
        "End": True,
    }
    for member, most in (("ToleratedFailureCount", 2), ("ToleratedFailurePercentage", 70)):
        # What 0 beside the other says is not known.
        state |= {member: choose.randint(1, most)} if choose.random() < 0.5 else {}
    if choose.random() < 0.3:
        caught = {"ErrorEquals": ["States.ExceedToleratedFailureThreshold"], "ResultPath": "$.caught", "Next": "Caught"}
        return {"StartAt": "Map", "States": {"Map": {**state, "Catch": [caught]}, "Caught": {"Type": "Succeed"}}}
    return {"StartAt": "Map", "States": {"Map": state}}


EXPRESSIONS = (
    "$states.input.n",
    "$states.input.missing",
    "$states.input.items[1]",
    "$count($states.input.items)",
    "$merge([$states.input.deep, {'n': $states.input.n + 1}])",
    "$states.input.items ~> $map(function($it, $at) { $at })",
    "$hash($states.input.text, 'SHA-1')",
    "$partition([1, 2, 3], 2)",
    "$before & '-'",
    "[$states.context.Map.Item.Index]",
    "$number($states.input.text)",
)
CONDITIONS = ("$states.input.n > 2", "$states.input.text = 'a'", "$exists($states.input.missing)", "$states.input.n")


def drawn_in_jsonata(choose: random.Random, depth: int = 0) -> dict[str, Any]:
    """The same in JSONata; each state hands on the whole input, with what it found."""

    def expression(texts: tuple[str, ...]) -> str:
        return f"{{% {choose.choice(texts)} %}}"

    names = [f"S{at}" for at in range(choose.randint(1, 4))]
    states: dict[str, Any] = {}
    for at, name in enumerate(names):
        later = names[at + 1 :]
        kind = choose.choice(
            ["Pass", "Pass", *(["Choice"] if later else []), *(["Parallel", "Map"] if depth < 1 else [])]
        )
        state: dict[str, Any] = {"Type": kind}
        whole = f"{{% $merge([$states.input, {{'found': {choose.choice(EXPRESSIONS)}}}]) %}}"
        if kind == "Choice":
            state["Choices"] = [{"Condition": expression(CONDITIONS), "Next": choose.choice(later), "Output": whole}]
            state |= {"Default": choose.choice(later)} if choose.random() < 0.8 else {}
        else:
            if kind == "Parallel":
                state["Branches"] = [drawn_in_jsonata(choose, depth + 1)]
            elif kind == "Map":
                state |= {"Items": "{% $states.input.items %}", "MaxConcurrency": 1}
                state["ItemSelector"] = {name: f"{{% $states.input.{name} %}}" for name in GIVEN}
                state["ItemSelector"]["v"] = "{% $states.context.Map.Item.Value %}"
                state["ItemProcessor"] = drawn_in_jsonata(choose, depth + 1)
            if kind != "Pass" and later and choose.random() < 0.5:
                caught = "{% $merge([$states.input, {'caught': $states.errorOutput.Error}]) %}"
                state["Catch"] = [{"ErrorEquals": ["States.ALL"], "Output": caught, "Next": choose.choice(later)}]
            # One of an outer scope cannot be assigned in an inner one ("Passing data between states with variables").
            state |= {"Assign": {"inner" if depth else "before": name}} if choose.random() < 0.5 else {}
            state["Output"] = "{% $merge([$states.input, {'all': $states.result}]) %}" if kind != "Pass" else whole
            state |= {"Next": choose.choice(later)} if later else {"End": True}
        states[name] = state
    language = {"QueryLanguage": "JSONata"} if depth == 0 else {}
    return reachable({"StartAt": names[0], "States": states, **language})


def reachable(program: dict[str, Any]) -> dict[str, Any]:
    """Without the states that nothing leads to, which AWS refuses."""
    states, kept, waiting = program["States"], {}, [program["StartAt"]]
    while waiting:
        name = waiting.pop()
        state = kept[name] = states[name]
        targets = [
            state.get("Next"),
            state.get("Default"),
            *(one["Next"] for one in [*state.get("Choices", []), *state.get("Catch", [])]),
        ]
        waiting += [one for one in targets if one and one not in kept]
    ends = any("End" in one or one["Type"] == "Fail" for one in kept.values())
    assert ends, program
    return {**program, "States": kept}


def evaluated(definition: dict[str, Any], given: Any = GIVEN) -> Execution:
    execution = start(definition, given, {"Execution": {"Id": "id"}})
    while waits := wants(execution):
        execution = step(execution, Elapsed(waits[0].at))
    return execution


def compare(machines: Machines, seeds: range, draw: Any = drawn) -> None:
    different = []
    for seed in seeds:
        definition = draw(random.Random(seed))
        ours = evaluated(definition)
        top = {name: value for name, value in definition.items() if name != "States"}
        described = machines.ended(machines.start(definition["States"], GIVEN, **top))
        theirs = (described["status"], json.loads(described.get("output", "null")), described.get("error"))
        mine = (ours.status, ours.top.data if ours.status == "SUCCEEDED" else None, ours.error or None)
        # A caught error's cause is prose, which differs.
        if without_causes(mine) != without_causes(theirs):
            different.append((seed, json.dumps(definition), mine, theirs))
    assert not different, f"{len(different)} of {len(seeds)}: {different[0]}"


def without_causes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_causes(item) for name, item in value.items() if name != "Cause"}
    return [without_causes(item) for item in value] if isinstance(value, list | tuple) else value


def test_executions_end_as_they_were_recorded_to_end_on_aws() -> None:
    """The histories of LocalStack's tests were compared at once; docs/prove.md."""
    different = []
    for fact in FACTS:
        execution = evaluated(fact["definition"], fact.get("input", {}))
        end = {"error": execution.error, "cause": execution.cause, "output": execution.top.data}
        told = {name: end[name] for name in fact["end"]}
        status = "SUCCEEDED" if "output" in fact["end"] else "FAILED"
        # A caught error's cause is prose, which differs.
        if (execution.status, without_causes(told)) != (status, without_causes(fact["end"])):
            different.append((fact["recorded"], execution.status, told, fact["end"]))
    assert different == []


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "drawn")


def test_escaped_braces_are_no_place_and_a_text_that_comes_by_a_path_has_no_escapes(machines: Machines) -> None:
    kept = {"Type": "Pass", "Parameters": {"it.$": r"States.Array('\{\} it\'s')", "n": 3}, "Next": "Formatted"}
    texts = {"by_path.$": "States.Format($.it[0], $.n)", "escaped.$": r"States.Format('\{\} {}', $.n)"}
    formatted = {"Type": "Pass", "Parameters": texts, "End": True}
    states = {"Kept": kept, "Formatted": formatted}
    described = machines.ended(machines.start(states, GIVEN, StartAt="Kept"))
    expected = {"by_path": "3 it's", "escaped": "{} 3"}
    assert json.loads(described["output"]) == expected
    assert evaluated({"StartAt": "Kept", "States": states}).top.data == expected


@pytest.mark.soak  # twenty with Distributed Maps run with each change
def test_forty_drawn_machines_end_as_in_the_account(machines: Machines) -> None:
    compare(machines, range(40))


def test_fifteen_drawn_machines_in_jsonata_end_as_in_the_account(machines: Machines) -> None:
    compare(machines, range(15), drawn_in_jsonata)


def test_twenty_drawn_distributed_maps_end_as_in_the_account(machines: Machines) -> None:
    compare(machines, range(20), drawn_distributed)


@pytest.mark.soak
def test_two_hundred_drawn_distributed_maps_end_as_in_the_account(machines: Machines) -> None:
    compare(machines, range(20, 220), drawn_distributed)


@pytest.mark.soak
def test_three_hundred_drawn_machines_in_jsonata_end_as_in_the_account(machines: Machines) -> None:
    compare(machines, range(15, 315), drawn_in_jsonata)


@pytest.mark.soak
def test_two_thousand_drawn_machines_end_as_in_the_account(machines: Machines) -> None:
    compare(machines, range(40, 2_040))
