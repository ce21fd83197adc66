"""Asynchronous invocations of functions: attempts, dead-letter queues and destinations, by the account's clock."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import WaiterError
from cdk_stacks import deploy, destroy, ids, reasons
from running_account import Running

# Says that it was called, and fails where it is told to.
CODE = """
import boto3, json, os
def handler(event, context):
    said = json.dumps([context.aws_request_id, event])
    boto3.client("sqs").send_message(QueueUrl=os.environ["CALLED"], MessageBody=said)
    if event.get("fails"):
        raise ValueError("it fails")
    return {"well": True}
"""


def att(name: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [name, "Arn"]}


def parts(
    config: dict[str, Any] | None = None, *, sends_to: list[str] | None = None, **function: Any
) -> dict[str, Any]:
    """A function that says on the queue Called that it was called; it may send to these queues."""
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    queues = [att(name) for name in sends_to or ("Called", "Results")]
    statement = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": queues}
    events = {"Effect": "Allow", "Action": "events:PutEvents", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [statement, events]}
    properties = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        "Policies": [{"PolicyName": "It", "PolicyDocument": policy}],
    }
    made: dict[str, Any] = {
        "Called": {"Type": "AWS::SQS::Queue"},
        "Results": {"Type": "AWS::SQS::Queue"},
        "Role": {"Type": "AWS::IAM::Role", "Properties": properties},
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Code": {"ZipFile": CODE},
                "Environment": {"Variables": {"CALLED": {"Ref": "Called"}}},
                "Handler": "index.handler",
                "Role": att("Role"),
                "Runtime": "python3.13",
                "Timeout": 60,
                **function,
            },
        },
    }
    if config is not None:
        given = {"FunctionName": {"Ref": "Function"}, "Qualifier": "$LATEST", **config}
        made["Config"] = {"Type": "AWS::Lambda::EventInvokeConfig", "Properties": given}
    return made


class Stack:
    """A deployed stack of these parts."""

    def __init__(self, running: Running, name: str, resources: dict[str, Any]) -> None:
        self.running = running
        deploy(running, name, resources)
        self.ids = ids(running, name)

    def invoke(self, **event: Any) -> None:
        answer = self.running.client("lambda").invoke(
            FunctionName=self.ids["Function"], InvocationType="Event", Payload=json.dumps(event)
        )
        assert (answer["StatusCode"], answer["Payload"].read()) == (202, b"")

    def next(self, queue: str) -> dict[str, Any]:
        """The next message of a queue."""
        client = self.running.client("sqs")
        while True:
            for message in client.receive_message(
                QueueUrl=self.ids[queue], WaitTimeSeconds=20, MessageAttributeNames=["All"]
            ).get("Messages", []):
                client.delete_message(QueueUrl=self.ids[queue], ReceiptHandle=message["ReceiptHandle"])
                return {"Attributes": message.get("MessageAttributes"), "Body": json.loads(message["Body"])}

    def is_empty(self, queue: str) -> bool:
        got = self.running.client("sqs").receive_message(QueueUrl=self.ids[queue])
        return not got.get("Messages")

    def waits(self) -> None:
        """Until the function's thread waits for its next attempt, of which the account has no event."""
        time.sleep(0.5)


BOTH = {"DestinationConfig": {where: {"Destination": att("Results")} for where in ("OnSuccess", "OnFailure")}}


def test_a_function_that_fails_is_invoked_three_times_and_then_its_event_goes_to_the_dead_letter_queue(
    running: Running,
) -> None:
    """Recorded on AWS: test_sqs_queue_as_lambda_dead_letter_queue; a minute and two between the attempts."""
    stack = Stack(running, "Dead", parts(DeadLetterConfig={"TargetArn": att("Results")}))
    about = running.client("lambda").get_function_configuration(FunctionName=stack.ids["Function"])
    assert about["DeadLetterConfig"]["TargetArn"].rpartition(":")[2] == stack.ids["Results"].rpartition("/")[2]
    stack.invoke(fails=1)
    request, event = stack.next("Called")["Body"]
    stack.waits()
    running.account.clock.advance(40)  # the clock goes on besides
    stack.waits()
    assert stack.is_empty("Called")
    for seconds in (21, 121):
        running.account.clock.advance(seconds)
        assert stack.next("Called")["Body"] == [request, event]
        stack.waits()
    dead = stack.next("Results")
    assert dead["Body"] == {"fails": 1}
    assert {name: it["StringValue"] for name, it in dead["Attributes"].items()} == {
        "RequestID": request,
        "ErrorCode": "200",
        "ErrorMessage": "it fails",
    }
    assert dead["Attributes"]["ErrorCode"]["DataType"] == "Number"
    destroy(running, "Dead")


def test_the_result_of_a_function_goes_to_its_destination(running: Running) -> None:
    """Recorded on AWS: test_assess_lambda_destination_invocation."""
    stack = Stack(running, "Results", parts({**BOTH, "MaximumRetryAttempts": 0}))
    stack.invoke(number=1)
    request, _ = stack.next("Called")["Body"]
    arn = running.client("lambda").get_function_configuration(FunctionName=stack.ids["Function"])["FunctionArn"]
    result = stack.next("Results")["Body"]
    assert result.pop("timestamp")
    context = {"requestId": request, "functionArn": f"{arn}:$LATEST", "approximateInvokeCount": 1}
    assert result == {
        "version": "1.0",
        "requestContext": {**context, "condition": "Success"},
        "requestPayload": {"number": 1},
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST"},
        "responsePayload": {"well": True},
    }
    stack.invoke(fails=1)
    result = stack.next("Results")["Body"]
    assert (result["requestContext"]["condition"], result["requestContext"]["approximateInvokeCount"]) == (
        "RetriesExhausted",
        1,
    )
    assert result["responseContext"] == {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"}
    assert result["responsePayload"]["errorMessage"] == "it fails"
    destroy(running, "Results")


def test_an_event_that_would_be_too_old_is_not_tried_again(running: Running) -> None:
    """Recorded on AWS: test_maxeventage."""
    stack = Stack(running, "Old", parts({**BOTH, "MaximumEventAgeInSeconds": 60}))
    stack.invoke(fails=1)
    result = stack.next("Results")["Body"]
    assert (result["requestContext"]["condition"], result["requestContext"]["approximateInvokeCount"]) == (
        "EventAgeExceeded",
        1,
    )
    destroy(running, "Old")


def test_a_result_goes_to_a_bus_as_an_event(running: Running) -> None:
    """Recorded on AWS: test_invoke_lambda_eventbridge."""
    bus = "arn:aws:events:us-east-1:123456789012:event-bus/default"
    config = {"DestinationConfig": {"OnSuccess": {"Destination": bus}}, "MaximumRetryAttempts": 0}
    rule = {
        "EventPattern": {"source": ["lambda"], "detail-type": ["Lambda Function Invocation Result - Success"]},
        "Targets": [{"Id": "It", "Arn": att("Results")}],
    }
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",
    }
    policy = {"Queues": [{"Ref": "Results"}], "PolicyDocument": {"Version": "2012-10-17", "Statement": [allowed]}}
    more = {
        "Rule": {"Type": "AWS::Events::Rule", "Properties": rule},
        "Policy": {"Type": "AWS::SQS::QueuePolicy", "Properties": policy},
    }
    stack = Stack(running, "Bus", {**parts(config), **more})
    stack.invoke(number=2)
    event = stack.next("Results")["Body"]
    assert event["detail"]["requestPayload"] == {"number": 2}
    assert event["resources"][0] == bus
    assert event["resources"][1].endswith(f"{stack.ids['Function']}:$LATEST")
    destroy(running, "Bus")


def test_a_rules_function_that_fails_is_invoked_again(running: Running) -> None:
    rule = {
        "EventPattern": {"source": ["mine"]},
        "Targets": [{"Id": "It", "Arn": att("Function"), "Input": '{"fails": 1}'}],
    }
    permission = {
        "FunctionName": {"Ref": "Function"},
        "Action": "lambda:InvokeFunction",
        "Principal": "events.amazonaws.com",
    }
    more = {
        "Rule": {"Type": "AWS::Events::Rule", "Properties": rule},
        "Permission": {"Type": "AWS::Lambda::Permission", "Properties": permission},
    }
    stack = Stack(running, "Rule", {**parts({**BOTH, "MaximumRetryAttempts": 1}), **more})
    running.client("events").put_events(Entries=[{"Source": "mine", "DetailType": "it", "Detail": "{}"}])
    first = stack.next("Called")["Body"]
    stack.waits()
    running.account.clock.advance(61)
    assert stack.next("Called")["Body"] == first
    assert stack.next("Results")["Body"]["requestContext"]["approximateInvokeCount"] == 2
    destroy(running, "Rule")


def test_the_last_configuration_that_is_put_holds(running: Running) -> None:
    stack = Stack(running, "Put", parts())
    lambda_ = running.client("lambda")
    for attempts in (2, 0):
        lambda_.put_function_event_invoke_config(FunctionName=stack.ids["Function"], MaximumRetryAttempts=attempts)
    found = lambda_.get_function_event_invoke_config(FunctionName=stack.ids["Function"])
    assert found["MaximumRetryAttempts"] == 0
    assert found["FunctionArn"].endswith(":$LATEST")
    target = running.client("sqs").get_queue_attributes(QueueUrl=stack.ids["Results"], AttributeNames=["QueueArn"])
    arn = target["Attributes"]["QueueArn"]
    lambda_.update_function_configuration(FunctionName=stack.ids["Function"], DeadLetterConfig={"TargetArn": arn})
    stack.invoke(fails=1)
    assert stack.next("Results")["Body"] == {"fails": 1}
    destroy(running, "Put")


def test_a_dead_letter_queue_that_the_role_may_not_send_to_fails_the_function(running: Running) -> None:
    with pytest.raises(WaiterError):
        deploy(running, "Denied", parts(sends_to=["Called"], DeadLetterConfig={"TargetArn": att("Results")}))
    assert "does not have permissions to call SendMessage on SQS" in reasons(running, "Denied")
    destroy(running, "Denied")
