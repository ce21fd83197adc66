"""Tasks that wait for a worker: activities, task tokens and heartbeats, as LocalStack recorded AWS's answers
(localstack/localstack at 8b9a79f, under tests/aws/services/stepfunctions/v2: activities/, callback/,
test_sfn_api_activities.py)."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_account import Running
from state_machines import Machines

CATCH = [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Caught"}]
GONE = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "tokens")


@pytest.fixture(scope="module")
def queue(machines: Machines) -> str:
    return str(machines.running.client("sqs").create_queue(QueueName="tokens")["QueueUrl"])


def refusal(call: Any, **request: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(**request)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def waiting(queue: str, **more: Any) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {"QueueUrl": queue, "MessageBody.$": "$$.Task.Token"},
        "End": True,
        **more,
    }


def token_of(machines: Machines, queue: str) -> str:
    sqs = machines.running.client("sqs")
    message = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"][0]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    return str(message["Body"])


def activity(machines: Machines, name: str) -> str:
    return str(machines.client.create_activity(name=name)["activityArn"])


def types(machines: Machines, execution: str) -> list[str]:
    events = machines.client.get_execution_history(executionArn=execution)["events"]
    return [it["type"] for it in events if it["type"].startswith(("Activity", "Task"))]


def test_a_worker_succeeds_an_activity(machines: Machines) -> None:
    """test_activities.py::test_activity_task_with_heartbeat, test_activity_task_no_worker_name"""
    arn = activity(machines, "succeeds")
    task = {"Type": "Task", "Resource": arn, "HeartbeatSeconds": 60, "TimeoutSeconds": 600, "End": True}
    execution = machines.start({"Work": task}, {"Value1": "HelloWorld"})
    given = machines.client.get_activity_task(activityArn=arn, workerName="worker")
    assert json.loads(given["input"]) == {"Value1": "HelloWorld"}
    for _ in range(3):
        machines.client.send_task_heartbeat(taskToken=given["taskToken"])
    machines.client.send_task_success(taskToken=given["taskToken"], output='"done"')
    assert machines.ended(execution)["output"] == '"done"'
    assert types(machines, execution) == [
        "TaskStateEntered", "ActivityScheduled", "ActivityStarted", "ActivitySucceeded", "TaskStateExited",
    ]  # fmt: skip
    assert refusal(machines.client.send_task_heartbeat, taskToken=given["taskToken"]) == GONE


def test_a_worker_fails_an_activity(machines: Machines) -> None:
    """test_activities.py::test_activity_task_failure"""
    arn = activity(machines, "fails")
    execution = machines.start({"Work": {"Type": "Task", "Resource": arn, "End": True}})
    token = machines.client.get_activity_task(activityArn=arn)["taskToken"]
    machines.client.send_task_failure(taskToken=token, error="Programmatic Error", cause="{}")
    ended = machines.ended(execution)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "Programmatic Error", "{}")


@pytest.mark.parametrize("limit", [{"TimeoutSeconds": 1}, {"TimeoutSeconds": 60, "HeartbeatSeconds": 1}])
def test_a_worker_that_is_silent_times_out(machines: Machines, limit: dict[str, int]) -> None:
    """test_activities.py::test_activity_task_start_timeout"""
    arn = activity(machines, "silent")
    execution = machines.start({"Work": {"Type": "Task", "Resource": arn, "End": True, **limit}})
    token = machines.client.get_activity_task(activityArn=arn)["taskToken"]
    assert machines.ended(execution)["error"] == "States.Timeout"
    assert types(machines, execution)[-1] == "ActivityTimedOut"
    assert refusal(machines.client.send_task_success, taskToken=token, output="1") == GONE


def test_an_activity_that_does_not_exist_is_refused_by_name(machines: Machines) -> None:
    """test_describe_deleted_activity, test_get_activity_task_deleted, test_get_activity_task_invalid_arn"""
    arn = activity(machines, "deleted")
    assert activity(machines, "deleted") == arn
    assert machines.client.describe_activity(activityArn=arn)["encryptionConfiguration"] == {"type": "AWS_OWNED_KEY"}
    for _ in range(2):
        machines.client.delete_activity(activityArn=arn)
    for call in (machines.client.describe_activity, machines.client.get_activity_task):
        assert refusal(call, activityArn=arn) == ("ActivityDoesNotExist", f"Activity Does Not Exist: '{arn}'")
    refused = refusal(machines.client.get_activity_task, activityArn="none")
    assert refused == ("InvalidArn", "Invalid Arn: 'Invalid ARN prefix: none'")


def test_a_state_with_a_deleted_activity_fails_by_its_name(machines: Machines) -> None:
    """test_activities.py::test_activity_task_on_deleted"""
    arn = activity(machines, "absent")
    machines.client.delete_activity(activityArn=arn)
    ended = machines.ended(machines.start({"Work": {"Type": "Task", "Resource": arn, "End": True}}))
    assert (ended["error"], ended["cause"]) == (
        "States.Runtime",
        "An error occurred while executing the state 'Work' (entered at the event id #2). "
        f"The activity {arn} does not exist.",
    )


def test_a_task_with_a_token_waits_for_its_answer(machines: Machines, queue: str) -> None:
    """test_callback.py::test_sqs_wait_for_task_token, test_multiple_heartbeat_notifications"""
    execution = machines.start({"Wait": waiting(queue, HeartbeatSeconds=60, TimeoutSeconds=600)})
    token = token_of(machines, queue)
    for _ in range(3):
        machines.client.send_task_heartbeat(taskToken=token)
    machines.client.send_task_success(taskToken=token, output='{"a":1}')
    assert json.loads(machines.ended(execution)["output"]) == {"a": 1}
    assert refusal(machines.client.send_task_failure, taskToken=token) == GONE
    refused = refusal(machines.client.send_task_success, taskToken="none", output="1")
    assert refused == ("InvalidToken", "Invalid Token: 'Invalid token'")


def test_a_failure_without_error_and_cause_is_caught_as_nulls(machines: Machines, queue: str) -> None:
    """test_callback.py::test_sqs_failure_in_wait_for_task_tok_no_error_field"""
    states = {"Wait": waiting(queue, Catch=CATCH), "Caught": {"Type": "Pass", "End": True}}
    execution = machines.start(states, {"x": 1})
    machines.client.send_task_failure(taskToken=token_of(machines, queue))
    ended = machines.ended(execution)
    assert json.loads(ended["output"]) == {"x": 1, "error": {"Error": None, "Cause": None}}


def test_each_attempt_has_a_token_of_its_own(machines: Machines, queue: str) -> None:
    """ "a task token is generated" for each call (Wait for a Callback with Task Token); moto's second attempt ends at once."""
    retry = [{"ErrorEquals": ["States.ALL"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    execution = machines.start({"Wait": waiting(queue, Retry=retry)})
    first = token_of(machines, queue)
    machines.client.send_task_failure(taskToken=first, error="Again")
    second = token_of(machines, queue)
    assert first != second
    assert refusal(machines.client.send_task_success, taskToken=first, output="1") == GONE
    machines.client.send_task_success(taskToken=second, output="2")
    assert machines.ended(execution)["output"] == "2"


def test_a_token_is_closed_with_its_execution(machines: Machines, queue: str) -> None:
    """test_sfn_api.py::test_start_execution_idempotent"""
    execution = machines.start({"Wait": waiting(queue)})
    token = token_of(machines, queue)
    machines.client.stop_execution(executionArn=execution)
    assert refusal(machines.client.send_task_success, taskToken=token, output="1") == GONE
    assert machines.ended(execution)["status"] == "ABORTED"


def test_a_worker_that_waits_is_given_the_task_that_comes(machines: Machines) -> None:
    arn = activity(machines, "awaited")
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(machines.client.get_activity_task(activityArn=arn)))
    worker.start()
    execution = machines.start({"Work": {"Type": "Task", "Resource": arn, "End": True}})
    worker.join()
    machines.client.send_task_success(taskToken=found[0]["taskToken"], output="3")
    assert machines.ended(execution)["output"] == "3"
