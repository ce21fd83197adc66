"""What the evaluator of state machines does on each event, as the Amazon States Language has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from training_jobs.prove.evaluator import Answered, Call, Elapsed, Ended, Execution, Failed, Timer, start, step, wants
from training_jobs.prove.values import FUNCTIONS, UnsupportedError

CONTEXT = {"Execution": {"Id": "an-id", "Name": "a-name"}}


def started(given: Any = None, **states: dict[str, Any]) -> Execution:
    definition = {"StartAt": next(iter(states)), "States": states}
    return start(definition, given if given is not None else {}, CONTEXT)


def task(**members: Any) -> dict[str, Any]:
    return {"Type": "Task", "Resource": "a", "Parameters": {"x": 1}, "End": True, **members}


PASS = {"Type": "Pass", "End": True}
CATCH = [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.e", "Next": "After"}]


def test_states_that_wait_for_nothing_are_run_at_once() -> None:
    rule = {"Variable": "$.n", "NumericGreaterThan": 1, "Next": "Large"}
    choice = {"Type": "Choice", "Choices": [rule], "Default": "Small"}
    add = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)"}, "Next": "Which"}
    ended = started({"n": 1}, Add=add, Which=choice, Large={"Type": "Succeed"}, Small={"Type": "Fail"})
    assert (ended.status, ended.top.data, ended.state) == ("SUCCEEDED", {"n": 2}, "Large")


def test_a_task_waits_for_its_call_and_puts_the_result_at_its_path() -> None:
    waiting = started({"a": 1}, Only=task(ResultPath="$.b.c"))
    assert wants(waiting) == [Call((), "Only", "a", {"x": 1}, 0)]
    ended = step(waiting, Answered((), {"d": 2}))
    assert (ended.status, ended.top.data) == ("SUCCEEDED", {"a": 1, "b": {"c": {"d": 2}}})


def test_an_execution_is_data_that_a_step_does_not_change() -> None:
    waiting = started({"a": {"b": 1}}, Only=task(ResultPath="$.a.c"))
    before = repr(waiting)
    assert step(waiting, Answered((), 1)) == step(waiting, Answered((), 1))
    assert repr(waiting) == before


def test_a_retrier_waits_longer_each_time_and_then_a_catch_takes_the_error() -> None:
    retry = [{"ErrorEquals": ["E"], "IntervalSeconds": 2, "BackoffRate": 3, "MaxAttempts": 2, "MaxDelaySeconds": 5}]
    waiting = started({"a": 1}, Only=task(Retry=retry, Catch=CATCH), After=PASS)
    seconds = []
    for _ in range(2):
        waiting = step(waiting, Failed((), "E", "why"))
        [timer] = wants(waiting)
        assert isinstance(timer, Timer)
        seconds.append(timer.seconds)
        waiting = step(waiting, Elapsed(()))
    assert seconds == [2, 5]
    ended = step(waiting, Failed((), "E", "why"))
    assert ended.top.data == {"a": 1, "e": {"Error": "E", "Cause": "why"}}


def test_a_call_that_fails_for_as_long_as_its_retrier_lasts_is_caught_at_once() -> None:
    waiting = started(Only=task(Retry=[{"ErrorEquals": ["States.ALL"], "MaxAttempts": 9}], Catch=CATCH), After=PASS)
    assert step(waiting, Failed((), "E", "", lasting=True)).state == "After"


@pytest.mark.parametrize("name", ["States.ALL", "States.TaskFailed"])
def test_an_error_of_the_definition_itself_is_not_caught(name: str) -> None:
    catch = [{"ErrorEquals": [name], "Next": "After"}]
    ended = started({}, Only=task(Parameters={"x.$": "$.missing"}, Catch=catch), After=PASS)
    assert (ended.status, ended.error) == ("FAILED", "States.Runtime")


def test_an_error_that_nothing_names_fails_the_execution() -> None:
    ended = step(
        started(Only=task(Catch=[{"ErrorEquals": ["Other"], "Next": "After"}]), After=PASS), Failed((), "E", "why")
    )
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "E", "why")


def test_branches_each_wait_and_their_results_are_joined_in_order() -> None:
    branches = [
        {"StartAt": "A", "States": {"A": task()}},
        {"StartAt": "B", "States": {"B": {"Type": "Wait", "Seconds": 3, "End": True}}},
    ]
    waiting = started({"n": 1}, Both={"Type": "Parallel", "Branches": branches, "End": True})
    assert [(type(one), one.at) for one in wants(waiting)] == [(Call, (0,)), (Timer, (1,))]
    waiting = step(step(waiting, Elapsed((1,))), Answered((0,), "a"))
    assert (waiting.status, waiting.top.data) == ("SUCCEEDED", ["a", {"n": 1}])


def test_a_branch_that_fails_ends_the_others_and_is_caught() -> None:
    branches = [{"StartAt": "A", "States": {"A": task()}}, {"StartAt": "B", "States": {"B": task()}}]
    waiting = started({}, Both={"Type": "Parallel", "Branches": branches, "Catch": CATCH, "End": True}, After=task())
    assert [one.state for one in wants(step(waiting, Failed((1,), "E", "why")))] == ["After"]


def test_a_map_gives_each_item_its_own_context() -> None:
    item = task(Parameters={"i.$": "$$.Map.Item.Index", "v.$": "$"})
    mapped = {
        "Type": "Map",
        "ItemsPath": "$.all",
        "ItemProcessor": {"StartAt": "A", "States": {"A": item}},
        "End": True,
    }
    assert [one.parameters for one in wants(started({"all": ["a", "b"]}, Each=mapped)) if isinstance(one, Call)] == [
        {"i": 0, "v": "a"},
        {"i": 1, "v": "b"},
    ]


def test_a_loop_that_waits_for_nothing_fails_the_execution() -> None:
    assert started({}, A={"Type": "Pass", "Next": "B"}, B={"Type": "Pass", "Next": "A"}).error == "States.Runtime"


def test_an_execution_that_was_stopped_does_not_go_on() -> None:
    stopped = step(started(Only=task()), Ended("ABORTED"))
    assert (stopped.status, wants(stopped), step(stopped, Answered((), 1))) == ("ABORTED", [], stopped)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("States.Format('{}-{}', $.n, 'it\\'s')", "2-it's"),
        ("States.MathAdd($.n, States.StringToJson(States.Format('-{}', 3)))", -1),
        ("States.ArrayGetItem($.items, States.MathAdd(0, 1))", "b"),
        ("States.ArrayRange(1, 5, 2)", [1, 3, 5]),
        ("States.Hash('text', 'MD5')", "1cb251ec0d568de6a929b520c4aed8d1"),
        ("$.items[1:]", ["b", "c"]),
        ("$$.Execution.Name", "a-name"),
    ],
)
def test_a_formula_has_the_value_that_aws_documents(formula: str, value: Any) -> None:
    given = {"n": 2, "items": ["a", "b", "c"]}
    assert started(given, A={"Type": "Pass", "Parameters": {"it.$": formula}, "End": True}).top.data == {"it": value}


def test_all_of_awss_intrinsic_functions_are_known() -> None:
    assert len(FUNCTIONS) == 18  # "Intrinsic functions for JSONPath states in Step Functions"


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ({"StartAt": "B", "States": {"A": PASS}}, "StartAt must name one of States, got 'B'"),
        ({"StartAt": "A", "States": {"A": {"Type": "Nap"}}}, "the Type of the state 'A' must be one of .*, got 'Nap'"),
        (
            {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}}},
            "Next of the state 'A' must name a state, got 'B'",
        ),
        (
            {"QueryLanguage": "JMESPath", "StartAt": "A", "States": {"A": PASS}},
            r"QueryLanguage must be one of \('JSONPath', 'JSONata'\), got 'JMESPath'",
        ),
    ],
)
def test_a_definition_that_is_not_known_is_refused_by_name(definition: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        start(json.loads(json.dumps(definition)), {}, CONTEXT)
