"""What executions write into their history and logs, as LocalStack recorded AWS's answers (localstack/localstack at 8b9a79f,
under tests/aws/services/stepfunctions/v2; each test names its recording)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.config import Config
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


@pytest.mark.parametrize("language", ["JSONPath", "JSONata"])
@pytest.mark.parametrize(("given", "shown"), [(True, "true"), (None, "null"), ("a", '"a"'), ({"a": 1}, '{"a":1}')])
def test_a_map_of_no_list_fails_with_its_value(machines: Machines, given: Any, shown: str, language: str) -> None:
    """scenarios/test_base_scenarios.py::test_map_state_items_input_types"""
    processor = {"StartAt": "Item", "States": {"Item": PASS}}
    state = {"Type": "Map", "QueryLanguage": language, "ItemProcessor": processor, "End": True}
    start = {"Type": "Pass", "OutputPath": "$.items", "Next": "Map"}
    events = run_text(machines, {"Start": start, "Map": state}, json.dumps({"items": given}))
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


def test_a_wait_of_the_most_seconds_runs_until_it_is_stopped(machines: Machines) -> None:
    """The other side of base/test_wait.py::test_timestamp_too_far_in_future_boundary: 68 years"""
    execution = machines.start(
        {"Wait": {"Type": "Wait", "Seconds": 2**31 - 1, "Next": "Done"}, "Done": {"Type": "Succeed"}}
    )
    while machines.client.get_execution_history(executionArn=execution)["events"][-1]["type"] != "WaitStateEntered":
        assert machines.client.describe_execution(executionArn=execution)["status"] == "RUNNING"
    machines.client.stop_execution(executionArn=execution)
    assert machines.ended(execution)["status"] == "ABORTED"
    events = machines.client.get_execution_history(executionArn=execution)["events"]
    assert [it["type"] for it in events] == ["ExecutionStarted", "WaitStateEntered", "ExecutionAborted"]


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


def test_put_events_has_no_metadata(machines: Machines) -> None:
    """services/test_events_task_service.py::TestTaskServiceEvents::test_put_events_base"""
    entries = [{"Detail": {"a": 1}, "DetailType": "type", "Source": "test"}]
    task = {**TASK, "Resource": "arn:aws:states:::events:putEvents", "Parameters": {"Entries": entries}}
    assert sorted(machines.output({"Put": task})) == ["Entries", "FailedEntryCount"]


def test_an_object_is_put_and_read_as_by_java(machines: Machines) -> None:
    """services/test_aws_sdk_task_service.py::test_s3_put_object, test_s3_get_object"""
    s3 = machines.running.client("s3")
    s3.create_bucket(Bucket="data-object")
    place = {"Bucket": "data-object", "Key": "text"}
    put, get = (f"arn:aws:states:::aws-sdk:s3:{name}" for name in ("putObject", "getObject"))
    output = machines.output({"Put": {**TASK, "Resource": put, "Parameters": {**place, "Body": "text data"}}})
    assert (output["ServerSideEncryption"], output["ChecksumType"]) == ("AES256", "FULL_OBJECT")
    assert s3.head_object(**place)["ContentType"] == "text/plain; charset=UTF-8"
    output = machines.output({"Get": {**TASK, "Resource": get, "Parameters": place}})
    assert (output["Body"], output["ServerSideEncryption"]) == ('"text data"', "AES256")
    assert not [name for name in output if name.startswith("Checksum")]


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


TASK = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:listQueues", "End": True}


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (
            {**TASK, "TimeoutSecondsPath": "$.none"},
            "Invalid path '$.none' : No results for path: $['none']",
        ),
        ({**PASS, "InputPath": "$.no.such.path"}, "Invalid path '$.no.such.path' : Missing property in path $['no']"),
        ({**PASS, "InputPath": "$.is.none"}, "Invalid path '$.is.none' : No results for path: $['is']['none']"),
    ],
)
def test_a_path_that_is_not_there_ends_the_execution_with_one_event(
    machines: Machines, state: dict[str, Any], cause: str
) -> None:
    """scenarios/test_base_scenarios.py::test_invalid_jsonpath, test_catch_states_runtime"""
    events = run_text(machines, {"task": state}, '{"is": {}}')
    assert [it["type"] for it in events[2:]] == ["ExecutionFailed"]
    assert events[2]["executionFailedEventDetails"] == {
        "cause": f"{AT} 'task' (entered at the event id #2). {cause}",
        "error": "States.Runtime",
    }


def test_a_time_in_jsonata_that_is_none_is_an_error_of_its_evaluation(machines: Machines) -> None:
    """scenarios/test_base_scenarios.py::test_wait_timestamp_jsonata[NO_T]"""
    wait = {"Type": "Wait", "QueryLanguage": "JSONata", "Timestamp": "{% $states.input.at %}", "End": True}
    events = run_text(machines, {"WaitState": wait}, '{"at": "2016-12-05 21:29:29Z"}')
    assert [(it["type"], it["previousEventId"]) for it in events[2:]] == [
        ("EvaluationFailed", 2),
        ("ExecutionFailed", 3),
    ]
    assert events[-1]["executionFailedEventDetails"] == {
        "cause": f"{AT} 'WaitState' (entered at the event id #2). The Timestamp field cannot be parsed as an ISO-8601 extended "
        "offset date-time format string: 2016-12-05 21:29:29Z",
        "error": "States.QueryEvaluationError",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "not some json",
            "Unrecognized token 'not': was expecting (JSON String, Number, Array, Object or token 'null', 'true' or 'false')",
        ),
        ("{'not': 'json'", "Unexpected character (''' (code 39)): was expecting double-quote to start field name"),
        ("", "Invalid execution input."),
    ],
)
def test_an_input_that_is_no_json_is_refused_in_the_words_of_aws(machines: Machines, text: str, message: str) -> None:
    """test_sfn_api.py::test_invalid_start_execution_input"""
    with pytest.raises(machines.client.exceptions.InvalidExecutionInput) as refused:
        machines.client.start_execution(stateMachineArn=machines.create({"Only": PASS}), input=text)
    assert refused.value.response["Error"]["Message"] == f"Invalid State Machine Execution Input: '{message}'"


def test_a_task_that_fails_a_branch_is_aborted_after_it(machines: Machines) -> None:
    """callback/test_callback.py::test_sqs_failure_in_wait_for_task_tok_no_error_field[SQS_PARALLEL_WAIT_FOR_TASK_TOKEN]"""
    task = {**TASK, "Resource": "arn:aws:states:::aws-sdk:s3:listObjectsV2", "Parameters": {"Bucket": "no-such-bucket"}}
    branch = {"StartAt": "List", "States": {"List": task}}
    events = run_text(machines, {"Both": {"Type": "Parallel", "Branches": [branch], "End": True}}, "{}")
    assert [(it["type"], it["previousEventId"]) for it in events[6:]] == [
        ("TaskFailed", 6), ("TaskStateAborted", 7), ("ParallelStateFailed", 7), ("ExecutionFailed", 9),
    ]  # fmt: skip


def test_a_result_that_is_too_long_is_caught_by_all(machines: Machines) -> None:
    """error_handling/test_states_errors.py::test_service_task_lambada_catch_state_all_data_limit_exceeded_on_large_utf8_response"""
    s3 = machines.running.client("s3")
    s3.create_bucket(Bucket="data-limit")
    s3.put_object(Bucket="data-limit", Key="long", Body=b"a" * 2**18)
    parameters = {"Bucket": "data-limit", "Key": "long"}
    resource = "arn:aws:states:::aws-sdk:s3:getObject"
    caught = {"ErrorEquals": ["States.ALL"], "Next": "Caught"}
    states = {"Get": {**TASK, "Resource": resource, "Parameters": parameters, "Catch": [caught]}, "Caught": PASS}
    assert machines.output(states)["Error"] == "States.DataLimitExceeded"


def test_a_cause_within_a_branch_names_the_state_that_failed_alone(machines: Machines) -> None:
    branch = {"StartAt": "Inner", "States": {"Inner": {**PASS, "InputPath": "$.none"}}}
    events = run_text(machines, {"Both": {"Type": "Parallel", "Branches": [branch], "End": True}}, "{}")
    assert events[-1]["executionFailedEventDetails"]["cause"] == (
        f"{AT} 'Inner' (entered at the event id #4). Invalid path '$.none' : No results for path: $['none']"
    )


@pytest.mark.parametrize(
    ("resource", "error", "cause"),
    [
        (
            "dynamodb:putItem",
            "DynamoDB.AmazonDynamoDBException",
            "(Service: AmazonDynamoDBv2; Status Code: 400; Error Code: ",
        ),
        (
            "aws-sdk:dynamodb:putItem",
            "DynamoDb.DynamoDbException",
            "(Service: DynamoDb, Status Code: 400, Request ID: ",
        ),
    ],
)
def test_a_member_that_dynamodb_misses_is_named(machines: Machines, resource: str, error: str, cause: str) -> None:
    """error_handling/: test_task_service_dynamodb.py::test_invalid_param, test_aws_sdk.py::test_dynamodb_invalid_param"""
    task = {
        "Type": "Task",
        "Resource": f"arn:aws:states:::{resource}",
        "Parameters": {"TableName": "table"},
        "End": True,
    }
    ended = machines.ended(machines.start({"Put": task}))
    assert ended["error"] == error
    refused = "1 validation error detected: Value null at 'item' failed to satisfy constraint: Member must not be null "
    assert ended["cause"].startswith(refused + cause)


def test_the_capacity_that_an_update_consumed_is_in_the_output_on_request(machines: Machines) -> None:
    """services/test_aws_sdk_task_service.py::test_dynamodb_put_update_get_item"""
    key = [{"AttributeName": "id", "KeyType": "HASH"}]
    machines.running.client("dynamodb").create_table(
        TableName="capacity",
        KeySchema=key,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    resource = "arn:aws:states:::aws-sdk:dynamodb:updateItem"
    for more, found in (({}, False), ({"ReturnConsumedCapacity": "TOTAL"}, True)):
        change = {"UpdateExpression": "SET it = :it", "ExpressionAttributeValues": {":it": {"S": "2"}}}
        parameters = {"TableName": "capacity", "Key": {"id": {"S": "1"}}, **change, **more}
        output = machines.output({"Update": {**TASK, "Resource": resource, "Parameters": parameters}})
        assert ("ConsumedCapacity" in output) == found


def test_a_map_tolerates_a_count_in_jsonata(machines: Machines) -> None:
    """test_state/test_test_state_scenarios.py::test_base_map_state_inspect[TOLERATED_FAILURE_COUNT-DEBUG]"""
    state = {
        "Type": "Map",
        "QueryLanguage": "JSONata",
        "Items": [1, 2, 3],
        "ToleratedFailureCount": "{% $variable := 1 %}",
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": "Item",
            "States": {"Item": PASS},
        },
        "End": True,
    }
    client = machines.running.client("stepfunctions", config=Config(inject_host_prefix=False))
    tested = client.test_state(
        definition=json.dumps(state), roleArn=machines.role, inspectionLevel="DEBUG", mock={"result": "[1, 1, 1]"}
    )
    assert tested["inspectionData"]["toleratedFailureCount"] == 1


def test_the_results_of_a_map_run_are_written(machines: Machines) -> None:
    """test_sfn_api_map_run.py::TestSnfApiMapRun::test_list_map_runs_and_describe_map_run"""
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
        "StartAt": "Item",
        "States": {"Item": PASS},
    }
    execution = machines.start({"Map": {"Type": "Map", "ItemProcessor": processor, "End": True}}, ["Hello", "World"])
    machines.ended(execution)
    run = machines.client.list_map_runs(executionArn=execution)["mapRuns"][0]["mapRunArn"]
    described = machines.client.describe_map_run(mapRunArn=run)
    for counts in (described["itemCounts"], described["executionCounts"]):
        assert {name: it for name, it in counts.items() if it} == {"resultsWritten": 2, "succeeded": 2, "total": 2}


@pytest.mark.parametrize(
    "time", ["2016-12-05 21:29:29Z", "2016-12-05T21:29:29", "12-05-2016T25:29:29Z", "{% $now() %}"]
)
def test_a_literal_time_is_checked_at_creation(machines: Machines, time: str) -> None:
    """scenarios/test_base_scenarios.py::test_wait_timestamp_invalid"""
    with pytest.raises(machines.client.exceptions.InvalidDefinition) as refused:
        machines.create({"WaitUntil": {"Type": "Wait", "Timestamp": time, "End": True}})
    assert refused.value.response["Error"]["Message"] == (
        "Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: String does not match RFC3339 timestamp at "
        "/States/WaitUntil/Timestamp'"
    )


def test_a_path_finds_a_name_with_escapes(machines: Machines) -> None:
    """scenarios/test_base_scenarios.py::test_escape_sequence_parsing[ESCAPE_SEQUENCES_JSONPATH]"""
    states = {"Only": {**PASS, "Parameters": {"value.$": '$[\'Test\\""Name"\']'}}}
    assert machines.output(states, {'Test\\""Name"': 'Value"\\'}) == {"value": 'Value"\\'}


def test_an_event_that_is_refused_fails_its_task(machines: Machines) -> None:
    """services/test_events_task_service.py::TestTaskServiceEvents::test_put_events_malformed_detail"""
    entries = [{"Detail": "no json", "DetailType": "type", "Source": "test"}]
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::events:putEvents",
        "Parameters": {"Entries": entries},
        "End": True,
    }
    ended = machines.ended(machines.start({"Put": task}))
    assert ended["error"] == "EventBridge.FailedEntry"
    entry = {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
    assert json.loads(ended["cause"]) == {"Entries": [entry], "FailedEntryCount": 1}
