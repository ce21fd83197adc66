"""What executions write into their history and logs, as LocalStack recorded AWS's answers (localstack/localstack at 8b9a79f,
under tests/aws/services/stepfunctions/v2; each test names its recording)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from running_account import Running
from state_machines import AN_ERROR_RATHER_THAN_A_HANG, Machines

PASS = {"Type": "Pass", "End": True}
AT = "An error occurred while executing the state"


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "data")


def history(machines: Machines, execution: str) -> list[dict[str, Any]]:
    machines.ended(execution)
    events: list[dict[str, Any]] = machines.client.get_execution_history(executionArn=execution)["events"]
    return events


def run_text(machines: Machines, states: dict[str, Any], text: str) -> list[dict[str, Any]]:
    started = machines.client.start_execution(stateMachineArn=machines.create(states), input=text)
    return history(machines, started["executionArn"])


def test_an_input_is_in_the_history_as_it_was_written(machines: Machines) -> None:
    """scenarios/test_base_scenarios.py::test_parallel_state_nested"""
    branch = {"StartAt": "Inner", "States": {"Inner": PASS}}
    text = "[[1, 2, 3], [4, 5, 6]]"
    events = run_text(machines, {"Both": {"Type": "Parallel", "Branches": [branch], "End": True}}, text)
    entered = [it["stateEnteredEventDetails"]["input"] for it in events if "stateEnteredEventDetails" in it]
    assert entered == [text, text]
    assert events[0]["executionStartedEventDetails"]["input"] == text
    assert events[-1]["executionSucceededEventDetails"]["output"] == f"[{text}]"


def test_what_a_state_changes_is_written_without_blanks(machines: Machines) -> None:
    events = run_text(machines, {"Set": {**PASS, "Result": 1, "ResultPath": "$.b"}}, '{"a": [1,  2]}')
    assert events[1]["stateEnteredEventDetails"]["input"] == '{"a": [1,  2]}'
    assert events[2]["stateExitedEventDetails"]["output"] == '{"a":[1,2],"b":1}'


@pytest.mark.parametrize("member", ["Result", "Parameters", "Assign"])
def test_a_literal_is_the_text_that_json_says(machines: Machines, member: str) -> None:
    """assign/test_assign_reference_variables.py::test_reference_assign[BASE_REFERENCE_IN_INTRINSIC_FUNCTION]"""
    literal = {"text": '{"key":"value"}\n\\ é \U0001f600'}
    states = {"Say": {"Type": "Pass", member: literal, "Next": "Last"}, "Last": PASS}
    if member == "Assign":
        states["Last"] = {**PASS, "Parameters": {"text.$": "$text"}}
    assert machines.output(states) == literal


@pytest.mark.parametrize(("given", "shown"), [(True, "true"), (None, "null"), ("a", '"a"'), ({"a": 1}, '{"a":1}')])
def test_a_map_of_no_list_fails_with_its_value(machines: Machines, given: Any, shown: str) -> None:
    """scenarios/test_base_scenarios.py::test_map_state_items_input_types"""
    processor = {"StartAt": "Item", "States": {"Item": PASS}}
    state = {"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": processor, "End": True}
    events = run_text(machines, {"Start": {"Type": "Pass", "Next": "Map"}, "Map": state}, json.dumps({"items": given}))
    cause = f"{AT} 'Map' (entered at the event id #4). Map state input must be an array but was: {shown}"
    assert events[4]["evaluationFailedEventDetails"]["cause"] == cause
    assert events[-1]["executionFailedEventDetails"] == {"cause": cause, "error": "States.QueryEvaluationError"}
    assert [(it["type"], it["previousEventId"]) for it in events[3:]] == [
        ("MapStateEntered", 3), ("EvaluationFailed", 3), ("MapStateFailed", 5), ("ExecutionFailed", 6),
    ]  # fmt: skip


def test_a_wait_of_more_than_32_bits_of_seconds_fails(machines: Machines) -> None:
    """base/test_wait.py::test_timestamp_too_far_in_future_boundary"""
    ended = machines.ended(machines.start({"Wait": {"Type": "Wait", "Seconds": 2**31, "End": True}}))
    assert ended["cause"] == f"{AT} 'Wait' (entered at the event id #2). Wait state delay is too long."


def test_an_optimized_integration_has_the_metadata_of_its_response(machines: Machines) -> None:
    """services/test_sqs_task_service.py::test_send_message; an `aws-sdk` task has none"""
    queue = machines.running.client("sqs").create_queue(QueueName="data")["QueueUrl"]
    task = {"Type": "Task", "Parameters": {"QueueUrl": queue, "MessageBody": "text"}, "End": True}
    output = machines.output({"Send": {**task, "Resource": "arn:aws:states:::sqs:sendMessage"}})
    headers = output["SdkHttpMetadata"]["HttpHeaders"]
    assert headers == {
        "Content-Length": "106",
        "Content-Type": "application/x-amz-json-1.0",
        "Date": headers["Date"],
        "connection": "keep-alive",
        "x-amzn-RequestId": output["SdkResponseMetadata"]["RequestId"],
    }
    assert output["SdkHttpMetadata"]["AllHttpHeaders"] == {name: [it] for name, it in headers.items()}
    assert output["SdkHttpMetadata"]["HttpStatusCode"] == 200
    output = machines.output({"Send": {**task, "Resource": "arn:aws:states:::aws-sdk:sqs:sendMessage"}})
    assert sorted(output) == ["MD5OfMessageBody", "MessageId"]


def test_a_cause_of_s3_has_both_its_ids(machines: Machines) -> None:
    """error_handling/test_aws_sdk.py::test_no_such_bucket"""
    resource = "arn:aws:states:::aws-sdk:s3:listObjectsV2"
    task = {"Type": "Task", "Resource": resource, "Parameters": {"Bucket": "no-such-bucket"}, "End": True}
    ended = machines.ended(machines.start({"List": task}))
    assert ended["error"] == "S3.NoSuchBucketException"
    assert ", Extended Request ID: " in ended["cause"]


def logged(machines: Machines, group: str, count: int) -> list[dict[str, Any]]:
    """The lines of the streams of executions, once there are so many."""
    logs = machines.running.client("logs")
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while True:
        found = logs.filter_log_events(logGroupName=group, logStreamNamePrefix="states/")["events"]
        if len(found) >= count:
            return [json.loads(it["message"]) for it in found]
        assert time.monotonic() < limit, found
        time.sleep(0.05)


def logging_machine(machines: Machines, name: str, states: dict[str, Any], level: str, **more: Any) -> tuple[str, str]:
    logs = machines.running.client("logs")
    logs.create_log_group(logGroupName=name)
    arn = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"][0]["arn"]
    created = machines.client.create_state_machine(
        name=name,
        definition=json.dumps({"StartAt": next(iter(states)), "States": states}),
        roleArn=machines.role,
        loggingConfiguration={
            "level": level,
            "includeExecutionData": more.pop("data", True),
            "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": arn}}],
        },
        **more,
    )
    return created["stateMachineArn"], name


FAIL = {"Fail": {"Type": "Fail", "Error": "SomeFailure", "Cause": "because"}}


@pytest.mark.parametrize(("level", "ids"), [("ALL", ["1", "2", "3"]), ("ERROR", ["2", "3"]), ("FATAL", ["3"])])
def test_events_are_logged_by_level(machines: Machines, level: str, ids: list[str]) -> None:
    """logs/test_logs.py::test_base, test_partial_log_levels"""
    arn, group = logging_machine(machines, f"level-{level}", FAIL, level, data=False)
    execution = machines.client.start_execution(stateMachineArn=arn)["executionArn"]
    lines = logged(machines, group, len(ids))
    assert [it["id"] for it in lines] == ids
    assert int(lines[-1].pop("event_timestamp")) > 0
    assert lines[-1] == {
        "id": "3",
        "type": "ExecutionFailed",
        "details": {"cause": "because", "error": "SomeFailure"},
        "previous_event_id": "2",
        "execution_arn": execution,
        "redrive_count": "0",
    }
    assert all("input" not in it["details"] for it in lines)


def test_an_asynchronous_express_execution_is_in_its_log_alone(machines: Machines) -> None:
    """express/test_express_async.py::test_base, test_sfn_api_express.py::test_start_async_describe_history_execution"""
    arn, group = logging_machine(machines, "express-logged", {"Only": PASS}, "ALL", type="EXPRESS")
    execution = machines.client.start_execution(stateMachineArn=arn, input='{"a": 1}')["executionArn"]
    lines = logged(machines, group, 4)
    assert {it["execution_arn"] for it in lines} == {execution}
    assert lines[-1]["details"]["output"] == '{"a": 1}'
    for call in ("describe_execution", "get_execution_history", "stop_execution"):
        with pytest.raises(
            machines.client.exceptions.InvalidArn, match="Resource type not valid in this context: express"
        ):
            getattr(machines.client, call)(executionArn=execution)


def test_a_log_group_exists_when_it_is_named(machines: Machines) -> None:
    """test_sfn_api_logs.py::test_deleted_log_group"""
    arn = f"arn:aws:logs:us-east-1:{machines.role.split(':')[4]}:log-group:gone:*"
    with pytest.raises(machines.client.exceptions.InvalidLoggingConfiguration, match="Log Destination not found"):
        machines.client.create_state_machine(
            name="gone",
            definition=json.dumps({"StartAt": "Only", "States": {"Only": PASS}}),
            roleArn=machines.role,
            loggingConfiguration={
                "level": "ALL",
                "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": arn}}],
            },
        )


def test_credentials_have_a_role(machines: Machines) -> None:
    """credentials/test_credentials_base.py::test_invalid_credentials_field"""
    task = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "Credentials": {}, "End": True}
    with pytest.raises(machines.client.exceptions.InvalidDefinition) as refused:
        machines.create({"State0": task})
    assert refused.value.response["Error"]["Message"] == (
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: The field 'RoleArn' is required but was missing at "
        "/States/State0/Credentials'"
    )


def test_a_state_in_a_map_in_jsonata_may_be_in_jsonpath(machines: Machines) -> None:
    """test_sfn_api_validation.py::test_validate_state_machine_definition_type_standard[VALID_QUERY_LANGUAGE_PASS]"""
    item = {**PASS, "QueryLanguage": "JSONPath", "Parameters": {"it.$": "$"}}
    mapping = {
        "Type": "Map",
        "QueryLanguage": "JSONata",
        "Items": "{% $states.input.items %}",
        "ItemProcessor": {"StartAt": "Item", "States": {"Item": item}},
        "End": True,
    }
    assert machines.output({"Map": mapping}, {"items": [1, 2]}) == [{"it": 1}, {"it": 2}]
