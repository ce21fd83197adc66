"""JSONata and variables in the account's state machines.

Where a test names a recording, its answer is AWS's as LocalStack recorded it (localstack/localstack at 8b9a79f, under
tests/aws/services/stepfunctions/v2).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from running_account import Running
from state_machines import Machines

from sagemaker_local_account.aws.stepfunctions import jsonata


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "jsonata")


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    yield
    jsonata.close()


def passing(output: Any) -> dict[str, Any]:
    return {"Only": {"Type": "Pass", "QueryLanguage": "JSONata", "Output": output, "End": True}}


def value(expression: str, **bindings: Any) -> Any:
    return jsonata.evaluate(expression, bindings)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        # intrinsic_functions/test_array_jsonata.py::test_array_partition
        ("$partition([0], 2)", [[0]]),
        ("$partition([0,1,2,3], 3)", [[0, 1, 2], [3]]),
        # test_array_range: one number is not an array, as of every sequence of JSONata
        ("$range(0, 10, 3)", [0, 3, 6, 9]),
        ("$range(1, 9, 9)", 1),
        # test_json_manipulation_jsonata.py::test_parse
        ("$parse('-0')", 0),
        ("$parse('[1, 2, \"HelloWorld\"]')", [1, 2, "HelloWorld"]),
        ('$parse(\'{"Arg1": 1, "Arg2": []}\')', {"Arg1": 1, "Arg2": []}),
        ("$hash('text', 'MD5')", "1cb251ec0d568de6a929b520c4aed8d1"),
        ("$random(7) = $random(7) and $random() < 1", True),
        ("$length($uuid())", 36),
        ("6 / 2", 3),
        ("null", None),
        ("[1..3]", [1, 2, 3]),
        ("{'a': null, 'b': [1, null]}", {"a": None, "b": [1, None]}),
        # JSONata's own suite (jsonata-js/jsonata at 6c7e95f, test/test-suite/groups): function-signatures/case013
        ('λ($arr, $sep)<a<s>s?:s>{$join($arr, $sep)}("a", "-")', "a"),
        # function-sort/case009: what is equal keeps its order
        ("$sort([{'p': 2, 'n': 1}, {'p': 1, 'n': 2}, {'p': 2, 'n': 3}], function($a, $b) {$a.p > $b.p}).n", [2, 1, 3]),
        ("[{'p': 2, 'n': 1}, {'p': 1, 'n': 2}, {'p': 2, 'n': 3}]^(>p).n", [1, 3, 2]),
        # regex/case034
        ("$replace('68F', /(\\d+)F/, function($m) {$string(($number($m.groups[0]) - 32) / 9 * 5) & 'C'})", "20C"),
        ("$match('abc', /(?<x>b)/).groups", ["b"]),
        # function-string/case004 to case006
        ("$string(1e-6) & $string(1e-7) & $string(1e20)", "0.0000011e-7100000000000000000000"),
        ("$string(0.1 + 0.2) & $string([0.1 + 0.2])", "0.3[0.3]"),
        ("$number('-1.5e3') & $number('0x10')", "-150016"),
    ],
)
def test_an_expression_has_the_value_that_it_has_on_aws(expression: str, result: Any) -> None:
    assert value(expression) == result


def test_a_variable_is_bound_as_it_is() -> None:
    awkward = {"text": 'a "quoted" \\ text\n', "nothing": None, "many": [1, 2.5, {"deep": True}]}
    assert value("$given", given=awkward) == awkward


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        # intrinsic_functions/test_math_operations_jsonata.py::test_math_random_seeded
        ("$randomSeeded(3)", "threw an error during evaluation. T1006: Attempted to invoke a non-function"),
        # scenarios/test_base_scenarios.py::test_map_state_items_eval_jsonata_fail[function]
        ("$fn := function($x){$x}", "returned an unsupported result type."),
        # assign/test_assign_reference_variables.py::test_undefined_reference
        ("$doesNotExist", "returned nothing (undefined)."),
    ],
)
def test_an_expression_fails_in_the_words_of_aws(expression: str, error: str) -> None:
    with pytest.raises(jsonata.EvaluationError) as raised:
        value(expression)
    assert str(raised.value) == error


@pytest.mark.parametrize("expression", ["$eval('1')", "1 ?: 2", "null ?? 2"])
def test_what_the_dialect_of_aws_lacks_is_an_error(expression: str) -> None:
    with pytest.raises(jsonata.EvaluationError, match="threw an error during evaluation"):
        value(expression)


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        # JSONata's own suite: function-number/case009 and case012, function-tomillis/case009
        ("$number('Hello world')", "D3030"),
        ("$number('')", "D3030"),
        ("$number('nan')", "D3030"),
        ("$number('1_000')", "D3030"),
        ("$toMillis('2018-02-03 11:15:33')", "D3110"),
    ],
)
def test_a_text_that_is_no_number_or_timestamp_is_an_error(expression: str, code: str) -> None:
    with pytest.raises(jsonata.EvaluationError, match=f"threw an error during evaluation. {code}: "):
        value(expression)


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("($f := function($n){$f($n + 1)}; $f(0))", marks=pytest.mark.soak),
        "($f := function($n){$n & $f($n + 1)}; $f(0))",
        "($f := function($s){$f($s & $s)}; $f('aaaaaaaaaaaaaaaa'))",
        pytest.param("$match('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!', /^(a+)+$/)", marks=pytest.mark.soak),
        "$pad('', 3000000000)",
    ],
)
def test_a_runaway_expression_ends_alone(expression: str) -> None:
    began = time.process_time()
    with pytest.raises(jsonata.EvaluationError, match="threw an error during evaluation"):
        value(expression)
    assert time.process_time() - began < 1
    assert value("1 + 1") == 2


def test_the_error_of_an_expression_names_its_field(machines: Machines) -> None:
    """assign/test_assign_reference_variables.py::test_undefined_reference[BASE_UNDEFINED_OUTPUT_MULTIPLE_STATES]"""
    state = {"Type": "Pass", "QueryLanguage": "JSONata"}
    execution = machines.start(
        {
            "State0": {**state, "Next": "State1"},
            "State1": {**state, "Next": "State2"},
            "State2": {**state, "Output": {"result": "{% $doesNotExist %}"}, "End": True},
        }
    )
    machines.ended(execution)
    failed, ended = machines.client.get_execution_history(executionArn=execution)["events"][-2:]
    cause = (
        "An error occurred while executing the state 'State2' (entered at the event id #6). The JSONata expression "
        "'$doesNotExist' specified for the field 'Output/result' returned nothing (undefined)."
    )
    assert (failed["type"], failed["id"], failed["previousEventId"]) == ("EvaluationFailed", 7, 5)
    assert failed["evaluationFailedEventDetails"] == {
        "cause": cause,
        "error": "States.QueryEvaluationError",
        "location": "Output/result",
        "state": "State2",
    }
    assert (ended["type"], ended["id"], ended["previousEventId"]) == ("ExecutionFailed", 8, 7)
    assert ended["executionFailedEventDetails"] == {"cause": cause, "error": "States.QueryEvaluationError"}


def test_the_error_of_an_argument_can_be_caught_and_is_in_the_history_once(machines: Machines) -> None:
    task = {
        "Type": "Task",
        "QueryLanguage": "JSONata",
        "Resource": "arn:aws:states:::aws-sdk:sagemaker:describeTrainingJob",
        "Arguments": {"TrainingJobName": "{% $doesNotExist %}"},
        "Catch": [
            {
                "ErrorEquals": ["States.QueryEvaluationError"],
                "Output": "{% $states.errorOutput.Error %}",
                "Next": "Caught",
            }
        ],
        "End": True,
    }
    execution = machines.start({"Task": task, "Caught": {"Type": "Succeed"}})
    assert json.loads(machines.ended(execution)["output"]) == "States.QueryEvaluationError"
    events = machines.client.get_execution_history(executionArn=execution)["events"]
    assert [event["type"] for event in events].count("EvaluationFailed") == 1


def test_a_variable_of_jsonata_is_read_by_later_states(machines: Machines) -> None:
    states = {
        "Set": {
            "Type": "Pass",
            "QueryLanguage": "JSONata",
            "Assign": {"job": "{% $states.input.name & '-1' %}", "many": [1, 2]},
            "Next": "Read",
        },
        "Read": {
            "Type": "Pass",
            "Parameters": {"job.$": "$job", "second.$": "$many[1]", "text.$": "States.Format('<{}>', $job)"},
            "End": True,
        },
    }
    assert machines.output(states, {"name": 'a "b"'}) == {"job": 'a "b"-1', "second": 2, "text": '<a "b"-1>'}


def test_a_variable_of_json_path_is_read_by_jsonata(machines: Machines) -> None:
    states = {
        "Set": {"Type": "Pass", "Assign": {"job.$": "$.name", "constant": 1}, "Next": "Read"},
        "Read": {
            "Type": "Pass",
            "QueryLanguage": "JSONata",
            "Output": {"job": "{% $job.first %}", "next": "{% $constant + 1 %}"},
            "End": True,
        },
    }
    assert machines.output(states, {"name": {"first": "a"}}) == {"job": "a", "next": 2}


def test_a_choice_of_jsonata_takes_the_rule_that_is_true(machines: Machines) -> None:
    states = {
        "Which": {
            "Type": "Choice",
            "QueryLanguage": "JSONata",
            "Choices": [
                {"Condition": "{% $states.input.loss > 2 %}", "Next": "High"},
                {"Condition": "{% $states.input.loss <= 2 %}", "Next": "Low"},
            ],
        },
        "High": {"Type": "Pass", "Result": "high", "End": True},
        "Low": {"Type": "Pass", "Result": "low", "End": True},
    }
    assert machines.output(states, {"loss": 1.5}) == "low"


@pytest.mark.soak  # waits for the limit of an expression
def test_an_execution_whose_expression_loops_fails_and_the_next_one_runs(machines: Machines) -> None:
    looping = machines.start(passing("{% ($f := function($n){$f($n + 1)}; $f(0)) %}"))
    assert machines.ended(looping)["error"] == "States.QueryEvaluationError"
    assert machines.output(passing("{% 1 + 1 %}")) == 2
