"""The errors that Retry and Catch match, by the names that they have on AWS.

Where a test names a recording, its answer is AWS's as LocalStack recorded it (localstack/localstack at 8b9a79f, under
tests/aws/services/stepfunctions/v2).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError
from running_account import Running
from state_machines import Machines

from sagemaker_local_account.aws.stepfunctions.service_calls import sdk_name
from sagemaker_local_account.core.service_models import service_model
from sagemaker_local_account.faults import LostAnswer, Throttling


@pytest.fixture(scope="module")
def machines(running: Running) -> Machines:
    return Machines(running, "names")


@pytest.fixture(scope="module")
def late(running: Running) -> dict[str, Any]:
    """A state that times out after a second."""
    queue = running.client("sqs").create_queue(QueueName="nobody-answers")["QueueUrl"]
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {"QueueUrl": queue, "MessageBody": {"token.$": "$$.Task.Token"}},
        "TimeoutSeconds": 1,
        "End": True,
    }


def caught(machines: Machines, state: dict[str, Any], error: str) -> str:
    catch = [{"ErrorEquals": [error], "Next": "Caught"}]
    execution = machines.start({"Only": {**state, "Catch": catch}, "Caught": {"Type": "Succeed"}}, {"items": [1, 2]})
    ended = machines.ended(execution)
    assert ended["status"] == "SUCCEEDED", ended
    return str(json.loads(ended["output"])["Error"])


@pytest.mark.parametrize("error", ["States.Timeout", "States.ALL"])
def test_a_timeout_in_a_parallel_or_a_map_is_caught_as_one(
    machines: Machines, late: dict[str, Any], error: str
) -> None:
    branch = {"StartAt": "Late", "States": {"Late": late}}
    parallel = {"Type": "Parallel", "Branches": [branch], "End": True}
    assert caught(machines, parallel, error) == "States.Timeout"
    mapped = {"Type": "Map", "ItemsPath": "$.items", "ItemProcessor": branch, "End": True}
    assert caught(machines, mapped, error) == "States.Timeout"


def test_states_task_failed_does_not_match_a_timeout_in_a_parallel(machines: Machines, late: dict[str, Any]) -> None:
    branch = {"StartAt": "Late", "States": {"Late": late}}
    catch = [{"ErrorEquals": ["States.TaskFailed"], "Next": "Caught"}]
    parallel = {"Type": "Parallel", "Branches": [branch], "Catch": catch, "End": True}
    ended = machines.ended(machines.start({"Only": parallel, "Caught": {"Type": "Succeed"}}))
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Timeout")


CHOICE = {"Type": "Choice", "Choices": [{"Variable": "$.missing", "IsPresent": True, "Next": "Matched"}]}


def test_a_choice_without_a_match_fails_as_no_choice_matched(machines: Machines) -> None:
    states = {"Which": CHOICE, "Matched": {"Type": "Succeed"}}
    assert machines.ended(machines.start(states))["error"] == "States.NoChoiceMatched"
    parallel = {"Type": "Parallel", "Branches": [{"StartAt": "Which", "States": states}], "End": True}
    assert caught(machines, parallel, "States.NoChoiceMatched") == "States.NoChoiceMatched"


def test_a_missing_bucket_is_caught_by_the_name_that_it_has_on_aws(machines: Machines) -> None:
    """services/test_aws_sdk_task_service.py::TestTaskServiceAwsSdk::test_no_such_bucket"""
    head = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:s3:listObjectsV2",
        "Parameters": {"Bucket": "no-such-bucket-here"},
        "End": True,
    }
    assert caught(machines, head, "S3.NoSuchBucketException") == "S3.NoSuchBucketException"


@pytest.mark.parametrize(
    ("service", "name"),
    [
        # services/test_aws_sdk_task_service.py: the errors of test_dynamodb_put_item_no_such_table, test_no_such_bucket,
        # test_invalid_secret_name
        ("dynamodb", "DynamoDb"),
        ("s3", "S3"),
        ("secretsmanager", "SecretsManager"),
        ("stepfunctions", "Sfn"),
        ("logs", "CloudWatchLogs"),
        ("sqs", "Sqs"),
        ("sagemaker", "SageMaker"),
        ("apigateway", "ApiGateway"),
    ],
)
def test_a_service_has_the_name_of_its_client_in_the_sdk_for_java(service: str, name: str) -> None:
    assert sdk_name(service_model(service).service_id) == name


def test_a_lost_answer_is_caught_as_an_exception_of_the_client_and_the_call_has_taken_effect(
    machines: Machines, running: Running
) -> None:
    """The SDK for Java has SdkClientException for a call without an answer; Step Functions puts the service before it."""
    sqs = running.client("sqs")
    queue = sqs.create_queue(QueueName="whose-answer-is-lost")["QueueUrl"]
    send = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:sqs:sendMessage",
        "Parameters": {"QueueUrl": queue, "MessageBody": "sent"},
        "End": True,
    }
    running.account.faults.add(LostAnswer("SendMessage"))
    assert caught(machines, send, "Sqs.SdkClientException") == "Sqs.SdkClientException"
    assert [one["Body"] for one in sqs.receive_message(QueueUrl=queue)["Messages"]] == ["sent"]


def test_an_execution_is_started_whose_start_had_its_answer_lost(machines: Machines, running: Running) -> None:
    nested = machines.create({"Only": {"Type": "Pass", "End": True}})
    start = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {"StateMachineArn": nested, "Name": "nested", "Input": {}},
        "Catch": [{"ErrorEquals": ["StepFunctions.SdkClientException"], "Next": "Caught"}],
        "End": True,
    }
    machine = machines.create({"Only": start, "Caught": {"Type": "Succeed"}})
    running.account.faults.add(LostAnswer("StartExecution", times=2))  # of the call below, and of the state's
    impatient = running.client("stepfunctions", config=Config(retries={"total_max_attempts": 1}))
    with pytest.raises(ConnectionClosedError):
        impatient.start_execution(stateMachineArn=machine)
    [execution] = machines.started(machine, 1)
    assert machines.ended(execution)["status"] == "SUCCEEDED"
    assert [one.rpartition(":")[2] for one in machines.started(nested, 1)] == ["nested"]


def test_an_operation_of_any_service_is_throttled(machines: Machines, running: Running) -> None:
    list_queues = {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:sqs:listQueues", "Parameters": {}, "End": True}
    running.account.faults.add(Throttling("ListQueues"))
    assert caught(machines, list_queues, "Sqs.SqsException") == "Sqs.SqsException"
