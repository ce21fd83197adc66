"""TestState: one state with an input, a mock, and what its fields make of the input.

The answers are AWS's as LocalStack recorded them (localstack/localstack at 8b9a79f, under
tests/aws/services/stepfunctions/v2/test_state, by the names of its tests).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from running_account import Running

INVOKE = "arn:aws:states:::lambda:invoke"
MOCKED = {"error": "MockException", "cause": "Mock the cause of the error."}
TASK = {
    "Type": "Task",
    "QueryLanguage": "JSONata",
    "Resource": INVOKE,
    "Arguments": {"FunctionName": "foo", "Payload": "bar"},
    "End": True,
}
MAP = {
    "Type": "Map",
    "QueryLanguage": "JSONata",
    "Items": "{% $states.input.Values %}",
    "ItemProcessor": {"StartAt": "Inner", "States": {"Inner": TASK}},
    "End": True,
}
PARALLEL = {
    "Type": "Parallel",
    "Branches": [{"StartAt": name, "States": {name: {"Type": "Pass", "End": True}}} for name in "AB"],
    "End": True,
}
PASS = {"Type": "Pass", "End": True}


@pytest.fixture(scope="module")
def client(running: Running) -> Any:
    return running.client("stepfunctions", config=Config(inject_host_prefix=False))


def answer_of(client: Any, state: dict[str, Any], given: Any = None, **request: Any) -> dict[str, Any]:
    answer = client.test_state(
        definition=json.dumps(state),
        input=json.dumps({} if given is None else given),
        inspectionLevel=request.pop("inspectionLevel", "DEBUG"),
        **request,
    )
    answer.pop("ResponseMetadata")
    if "output" in answer:
        answer["output"] = json.loads(answer["output"])
    for name, value in answer.get("inspectionData", {}).items():
        if isinstance(value, str):
            answer["inspectionData"][name] = json.loads(value)
    return dict(answer)


def refusal(client: Any, state: dict[str, Any], **request: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        answer_of(client, state, **request)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def result(value: Any, **further: Any) -> dict[str, Any]:
    return {"result": json.dumps(value), **further}


def test_a_pass_state_shows_what_each_field_makes_of_its_input(client: Any) -> None:
    """test_test_state_scenarios.py::test_base_inspection_level_debug[IO_PASS_STATE]"""
    given = {"initialData": {"fieldFromInput": "value", "otherField": "other"}, "unrelatedData": 1}
    state = {
        **PASS,
        "InputPath": "$.initialData",
        "Parameters": {"staticValue": "some value", "inputValue.$": "$.fieldFromInput"},
        "ResultPath": "$.modifiedData",
    }
    made = {"staticValue": "some value", "inputValue": "value"}
    assert answer_of(client, state, given) == {
        "status": "SUCCEEDED",
        "output": {**given, "modifiedData": made},
        "inspectionData": {
            "input": given,
            "afterInputPath": given["initialData"],
            "afterParameters": made,
            "afterResultSelector": made,
            "afterResultPath": {**given, "modifiedData": made},
        },
    }
    assert "inspectionData" not in answer_of(client, state, given, inspectionLevel="INFO")


def test_a_choice_names_the_next_state_and_a_fail_its_error(client: Any) -> None:
    """test_base_inspection_level_info[BASE_CHOICE_STATE], [BASE_FAIL_STATE]"""
    choice = {"Type": "Choice", "Choices": [{"Variable": "$.value", "NumericEquals": 22, "Next": "ValueInTwenties"}]}
    assert answer_of(client, choice, {"value": 22}, inspectionLevel="INFO") == {
        "status": "SUCCEEDED",
        "nextState": "ValueInTwenties",
        "output": {"value": 22},
    }
    fail = {"Type": "Fail", "Error": "SomeFailure", "Cause": "why"}
    assert answer_of(client, fail, inspectionLevel="INFO") == {
        "status": "FAILED",
        "error": "SomeFailure",
        "cause": "why",
    }


def test_a_state_is_found_in_a_state_machine_by_its_name(client: Any) -> None:
    """test_test_state_machine_scenarios.py::test_base_state_name_multi_state, test_base_state_name_validation_failures"""
    machine = {"StartAt": "State0", "States": {"State0": {"Type": "Pass", "Next": "State1"}, "State1": MAP}}
    found = answer_of(client, machine, {"a": 1}, stateName="State0", inspectionLevel="INFO")
    assert found == {"status": "SUCCEEDED", "nextState": "State1", "output": {"a": 1}}
    inner = answer_of(client, machine, stateName="Inner", mock=result({"a": 1}), inspectionLevel="INFO")
    assert inner == {"status": "SUCCEEDED", "output": {"a": 1}}
    assert refusal(client, machine, stateName="none") == ("ValidationException", "State not found in definition")


def test_a_mocked_error_is_caught(client: Any) -> None:
    """test_test_state_scenarios.py::test_state_task_catch_error[DEBUG]"""
    catch = [
        {"ErrorEquals": ["Other"], "Next": "Other"},
        {"ErrorEquals": ["MockException"], "Output": "{% $states %}", "Next": "Handle"},
    ]
    answer = answer_of(client, {**TASK, "Catch": catch}, {"a": 1}, mock={"errorOutput": MOCKED})
    assert (answer["status"], answer["nextState"]) == ("CAUGHT_ERROR", "Handle")
    assert (answer["error"], answer["cause"]) == (MOCKED["error"], MOCKED["cause"])
    assert answer["inspectionData"] == {
        "input": {"a": 1},
        "afterArguments": {"FunctionName": "foo", "Payload": "bar"},
        "errorDetails": {"catchIndex": 1},
    }
    assert answer["output"]["errorOutput"] == {"Error": MOCKED["error"], "Cause": MOCKED["cause"]}
    assert "result" not in answer["output"]


def test_a_retrier_has_its_turn_until_its_attempts_are_over(client: Any) -> None:
    """test_state_configuration.py::test_state_configuration_retrier_retry_count"""
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 2, "BackoffRate": 2, "MaxAttempts": 4}]
    state = {**TASK, "Retry": retry}
    answer = answer_of(client, state, mock={"errorOutput": MOCKED}, stateConfiguration={"retrierRetryCount": 3})
    assert answer["status"] == "RETRIABLE"
    assert answer["inspectionData"]["errorDetails"] == {"retryIndex": 0, "retryBackoffIntervalSeconds": 16}
    answer = answer_of(client, state, mock={"errorOutput": MOCKED}, stateConfiguration={"retrierRetryCount": 4})
    assert answer["status"] == "FAILED"
    assert answer["inspectionData"]["errorDetails"] == {"retryIndex": 0}


def test_failed_iterations_beyond_the_tolerance_fail_a_map(client: Any) -> None:
    """test_state_configuration.py::test_map_state_failure_count"""
    given, mock = {"Values": [1, 2, 3]}, result([1, 1, 1])
    state = {**MAP, "ToleratedFailureCount": 1}
    answer = answer_of(client, state, given, mock=mock, stateConfiguration={"mapIterationFailureCount": 1})
    assert (answer["status"], answer["output"]) == ("SUCCEEDED", [1, 1, 1])
    assert answer["inspectionData"] == {"input": given, "maxConcurrency": 0, "toleratedFailureCount": 1}
    answer = answer_of(client, state, given, mock=mock, stateConfiguration={"mapIterationFailureCount": 2})
    assert (answer["status"], answer["error"], answer["cause"]) == (
        "FAILED",
        "States.ExceedToleratedFailureThreshold",
        "The specified tolerated failure threshold was exceeded",
    )


@pytest.mark.parametrize(
    ("state", "request_", "message"),
    [
        (PASS, {"mock": result(1)}, "State type 'Pass' is not supported when a mock is specified"),
        (
            TASK,
            {"mock": {**result(1), "errorOutput": MOCKED}},
            "A test mock should have only one of the following fields: [result, errorOutput].",
        ),
        (
            TASK,
            {"mock": result(1), "revealSecrets": True},
            "TestState does not support RevealSecrets when a mock is specified.",
        ),
        (MAP, {"mock": result({})}, "Mocked result must be an array."),
        (
            PARALLEL,
            {"mock": result([1])},
            "Mocked result must contain the same number of items as number of Parallel branches.",
        ),
        (
            MAP,
            {"stateConfiguration": {"mapIterationFailureCount": 1}},
            "TestState does not support MapIterationFailureCount when a mock is not specified.",
        ),
        (
            MAP,
            {"mock": result([1]), "stateConfiguration": {"mapIterationFailureCount": 2}},
            "Map iteration failure count must be less than or equal to the number of Map iterations",
        ),
        (TASK, {"mock": {"result": "{"}}, "Mocked result must be valid JSON"),
        (TASK, {}, "RoleArn must be specified when testing a Task state"),
        (
            TASK,
            {"mock": result({}), "context": '{"Map": {}}'},
            "Invalid Context object provided: 'Map' field is not supported when mocking a Context object",
        ),
        (
            TASK,
            {"mock": result({}), "context": '{"Execution": {"Id": 1}}'},
            "Invalid Context object provided: Execution.Id must be a string",
        ),
        (
            TASK,
            {"mock": result({}), "context": '{"Pokedex": {}}'},
            "Invalid Context object provided: Field 'Pokedex' is not allowed",
        ),
    ],
)
def test_a_call_is_refused_in_the_words_of_aws(
    client: Any, state: dict[str, Any], request_: dict[str, Any], message: str
) -> None:
    """test_state_mock_validation.py, test_state_context_object.py"""
    assert refusal(client, state, **request_) == ("ValidationException", message)


@pytest.mark.parametrize("state", [MAP, PARALLEL])
def test_a_map_or_a_parallel_needs_a_mock(client: Any, state: dict[str, Any]) -> None:
    """test_state_mock_validation.py::test_state_type_requires_mock"""
    assert refusal(client, state) == (
        "InvalidDefinition",
        "TestState API does not support Map or Parallel states. Supported state types include: [Task, Wait, Pass, Succeed, "
        "Fail, Choice]",
    )


@pytest.mark.parametrize(
    ("resource", "mocked", "problem"),
    [
        ("states:startExecution", {}, "Required field 'ExecutionArn' is missing"),
        ("states:startExecution", {"executionArn": "a"}, "Required field 'ExecutionArn' is missing"),
        ("states:startExecution", {"ExecutionArn": "a", "StartDate": 1}, "Field 'StartDate' must be a string"),
        ("events:putEvents", {"Entries": {}}, "Field 'Entries' must be an array"),
        ("events:putEvents", {"Entries": [{"EventId": "a"}, {"EventId": []}]}, "Field 'EventId' must be a string"),
        ("lambda:invoke", {"StatusCode": "200"}, "Field 'StatusCode' must be a number"),
        ("aws-sdk:s3:getObject", {"StorageClass": "none"}, "Field 'StorageClass' is not an expected value"),
        ("aws-sdk:kms:encrypt", {"CiphertextBlob": ""}, "Field 'CiphertextBlob' is smaller than the minimum length"),
        (
            "aws-sdk:lambda:getFunction",
            {"Configuration": {"MemorySize": 1}},
            "Field 'MemorySize' is less than the minimum value",
        ),
    ],
)
def test_a_mocked_result_is_one_of_the_service(client: Any, resource: str, mocked: Any, problem: str) -> None:
    """test_field_validation_mode.py, test_field_validation_mode_none.py"""
    state = {**TASK, "Resource": f"arn:aws:states:::{resource}"}
    refused = refusal(client, state, mock=result(mocked))
    assert refused == ("ValidationException", f"Mock result schema validation error: {problem}")
    answer = answer_of(client, state, mock=result(mocked, fieldValidationMode="NONE"), inspectionLevel="INFO")
    assert answer == {"status": "SUCCEEDED", "output": mocked}


def test_a_present_field_is_checked_and_a_missing_one_is_not(client: Any) -> None:
    """test_field_validation_mode_present.py::test_present_mode_sfn_task_validation_pass and _fail"""
    state = {**TASK, "Resource": "arn:aws:states:::states:startExecution"}
    answer = answer_of(client, state, mock=result({}, fieldValidationMode="PRESENT"), inspectionLevel="INFO")
    assert answer == {"status": "SUCCEEDED", "output": {}}
    refused = refusal(client, state, mock=result({"ExecutionArn": 1}, fieldValidationMode="PRESENT"))
    assert refused[1] == "Mock result schema validation error: Field 'ExecutionArn' must be a string"


def test_a_given_context_and_variables_are_read(client: Any) -> None:
    """test_state_context_object.py::test_state_task_context_object, test_test_state_scenarios.py::test_state_with_variables"""
    context = json.dumps({"Execution": {"Input": {"message": "test data"}, "Name": "mine"}})
    output = {"of": "{% $states.context.Execution.Input.message %}", "next": "{% $count + 1 %}"}
    answer = answer_of(
        client, {**TASK, "Output": output}, mock=result({}), context=context, variables=json.dumps({"count": 1})
    )
    assert answer["output"] == {"of": "test data", "next": 2}
    assert answer["inspectionData"]["variables"] == {"count": 1}


@pytest.mark.parametrize("given", ["{}", '{"Execution": {}, "State": {}, "StateMachine": {}}'])
def test_a_given_context_has_what_was_given_alone(client: Any, given: str) -> None:
    """test_state_context_object.py::test_state_context_object_edge_cases"""
    state = {
        "Type": "Task",
        "Resource": INVOKE,
        "Parameters": {"FunctionName": "foo", "Payload": "bar"},
        "ResultSelector": {"context.$": "$$", "result.$": "$"},
        "End": True,
    }
    answer = answer_of(client, state, mock=result({"pokemon": "pikachu"}), context=given)
    assert answer["output"] == {"context": json.loads(given), "result": {"pokemon": "pikachu"}}


def test_the_context_of_a_state_of_a_machine_has_no_name_of_its_own(client: Any) -> None:
    """test_test_state_scenarios.py::test_state_with_variables[base_expressions]: "StateName" for the state State0"""
    state = {"Type": "Pass", "Output": "{% $states.context.State.Name %}", "End": True}
    machine = {"QueryLanguage": "JSONata", "StartAt": "State0", "States": {"State0": state}}
    assert answer_of(client, machine, stateName="State0")["output"] == "StateName"


def test_a_map_of_no_list_names_its_path(client: Any) -> None:
    """test_state_context_object.py::TestStateContextObject::test_state_map_context_object[EXECUTION_INPUT]"""
    processor = {"StartAt": "Inner", "States": {"Inner": PASS}}
    state = {"Type": "Map", "ItemsPath": "$.values", "ItemProcessor": processor, "End": True}
    answer = answer_of(client, state, {"values": {"a": 1}}, mock={"result": "[]"})
    assert (answer["error"], answer["cause"]) == ("States.Runtime", 'Reference path "$.values" must point to array.')
