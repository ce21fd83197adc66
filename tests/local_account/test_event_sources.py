"""Event source mappings: a function gets the messages of a queue, which are deleted once it has handled them."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, ids, reasons
from running_account import Running

from sagemaker_local_account.aws.awslambda import arns, event_sources

# Sends what it got to another queue; a record whose body has "fails" fails, all of them where it has "raises".
CODE = """
import boto3, json, os
def handler(event, context):
    sqs = boto3.client("sqs")
    sqs.send_message(QueueUrl=os.environ["SEEN"], MessageBody=json.dumps(event["Records"]))
    bodies = {it["messageId"]: it["body"] for it in event["Records"]}
    if any("raises" in body for body in bodies.values()):
        raise ValueError("raises")
    answer = os.environ.get("ANSWER")
    if answer is not None:
        return json.loads(answer)
    return {"batchItemFailures": [{"itemIdentifier": id} for id, body in bodies.items() if "fails" in body]}
"""


def allowed(actions: list[str]) -> dict[str, Any]:
    """A role's policy as `queue.grant_consume_messages` makes it, with the queue that the function writes to."""
    queue = {"Fn::GetAtt": ["Queue", "Arn"]}
    statements = [
        {"Effect": "Allow", "Action": actions, "Resource": queue},
        {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": {"Fn::GetAtt": ["Seen", "Arn"]}},
    ]
    return {"PolicyName": "It", "PolicyDocument": {"Version": "2012-10-17", "Statement": statements}}


CONSUME = [
    *("sqs:ReceiveMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl"),
    *("sqs:DeleteMessage", "sqs:GetQueueAttributes"),
]


def parts(
    *,
    actions: list[str] = CONSUME,
    variables: dict[str, str] | None = None,
    queue: dict[str, Any] | None = None,
    timeout: int = 20,
    **mapping: Any,
) -> dict[str, Any]:
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
        "Policies": [allowed(actions)],
    }
    function = {
        "Code": {"ZipFile": CODE},
        "Environment": {"Variables": {"SEEN": {"Ref": "Seen"}, **(variables or {})}},
        "Handler": "index.handler",
        "Role": {"Fn::GetAtt": ["Role", "Arn"]},
        "Runtime": "python3.13",
        "Timeout": timeout,
    }
    source = {"EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]}, "FunctionName": {"Ref": "Function"}, **mapping}
    return {
        "Queue": {"Type": "AWS::SQS::Queue", "Properties": queue or {}},
        "Seen": {"Type": "AWS::SQS::Queue", "Properties": {}},
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": function},
        "Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": source},
    }


class Stack:
    """A deployed stack of these parts."""

    def __init__(self, running: Running, name: str, resources: dict[str, Any]) -> None:
        self.running, self.name = running, name
        deploy(running, name, resources)
        self.ids = ids(running, name)
        self.sqs = running.client("sqs")

    def send(self, *bodies: str, **more: Any) -> None:
        entries = [{"Id": str(number), "MessageBody": body, **more} for number, body in enumerate(bodies)]
        self.sqs.send_message_batch(QueueUrl=self.ids["Queue"], Entries=entries)

    def seen(self, records: int) -> list[Any]:
        """The records of the next invocations, until there are so many."""
        found: list[Any] = []
        while len(found) < records:
            got = self.sqs.receive_message(QueueUrl=self.ids["Seen"], WaitTimeSeconds=20).get("Messages", [])
            for message in got:
                found += json.loads(message["Body"])
                self.sqs.delete_message(QueueUrl=self.ids["Seen"], ReceiptHandle=message["ReceiptHandle"])
        return found

    def left(self) -> int:
        """The messages of the queue, whether they can be seen or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.ids["Queue"], AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def until_left(self, number: int) -> None:
        while self.left() != number:
            pass


def test_a_function_gets_the_records_of_messages_which_are_then_gone(running: Running) -> None:
    """The members of a record are those of LocalStack's recorded test_message_body_and_attributes_passed_correctly."""
    stack = Stack(running, "Records", parts())
    attributes = {
        "text": {"DataType": "String", "StringValue": "it"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\x00it"},
    }
    stack.send("the body", MessageAttributes=attributes)
    [record] = stack.seen(1)
    stack.until_left(0)
    lists: dict[str, Any] = {"stringListValues": [], "binaryListValues": []}
    assert record["messageAttributes"] == {
        "text": {"stringValue": "it", **lists, "dataType": "String"},
        "bytes": {"binaryValue": base64.b64encode(b"\x00it").decode(), **lists, "dataType": "Binary"},
    }
    assert set(record["attributes"]) == {
        *("ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"),
    }
    assert (record["body"], record["md5OfBody"]) == ("the body", hashlib.md5(b"the body").hexdigest())
    assert (record["eventSource"], record["awsRegion"]) == ("aws:sqs", "us-east-1")
    assert record["eventSourceARN"].startswith("arn:aws:sqs:us-east-1:123456789012:Records-Queue")
    found = running.client("lambda").get_event_source_mapping(UUID=stack.ids["Mapping"])
    assert (found["State"], found["BatchSize"], found["MaximumBatchingWindowInSeconds"]) == ("Enabled", 10, 0)
    destroy(running, "Records")
    assert running.client("lambda").list_event_source_mappings()["EventSourceMappings"] == []


def test_messages_of_a_function_that_fails_come_again_and_go_to_the_dead_letter_queue(running: Running) -> None:
    """Recorded on AWS: test_redrive_policy_with_failing_lambda."""
    dead = {"Dead": {"Type": "AWS::SQS::Queue", "Properties": {}}}
    redrive = {"deadLetterTargetArn": {"Fn::GetAtt": ["Dead", "Arn"]}, "maxReceiveCount": 2}
    queue = {"RedrivePolicy": redrive, "VisibilityTimeout": 1}
    stack = Stack(running, "Failing", {**parts(queue=queue, timeout=1), **dead})
    stack.send("raises")
    counts = [record["attributes"]["ApproximateReceiveCount"] for record in stack.seen(2)]
    assert counts == ["1", "2"]
    while not (got := stack.sqs.receive_message(QueueUrl=stack.ids["Dead"], WaitTimeSeconds=20).get("Messages")):
        pass
    assert got[0]["Body"] == "raises"
    destroy(running, "Failing")


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ({"batchItemFailures": [{"itemIdentifier": "a"}]}, {"a"}),
        ({"batchItemFailures": []}, set()),
        ({"batchItemFailures": None}, set()),
        ({}, set()),
        (None, set()),
        ({"batchItemFailures": [{"itemIdentifier": ""}]}, {"a", "b"}),
        ({"batchItemFailures": [{"itemIdentifier": None}]}, {"a", "b"}),
        ({"batchItemFailures": [{"id": "a"}]}, {"a", "b"}),
        ({"batchItemFailures": [{"itemIdentifier": "another"}]}, {"a", "b"}),
        ("text", {"a", "b"}),
    ],
)
def test_an_answer_says_which_messages_have_failed(answer: Any, failed: set[str]) -> None:
    """ "Success and failure conditions" of batch item failures."""
    assert event_sources.failures(json.dumps(answer), {"a", "b"}) == failed


def test_a_message_that_the_function_says_has_failed_comes_again_and_the_others_do_not(running: Running) -> None:
    more = {"FunctionResponseTypes": ["ReportBatchItemFailures"], "MaximumBatchingWindowInSeconds": 1, "BatchSize": 2}
    stack = Stack(running, "Reporting", parts(queue={"VisibilityTimeout": 2}, timeout=2, **more))
    stack.send("well", "fails")
    assert len(stack.seen(2)) == 2
    assert [record["body"] for record in stack.seen(1)] == ["fails"]
    destroy(running, "Reporting")


def test_without_its_response_type_the_answer_of_a_function_has_no_meaning(running: Running) -> None:
    stack = Stack(running, "Unasked", parts())
    stack.send("fails")
    stack.seen(1)
    stack.until_left(0)
    destroy(running, "Unasked")


def test_a_batch_has_as_many_messages_as_come_within_its_window(running: Running) -> None:
    stack = Stack(running, "Window", parts(BatchSize=15, MaximumBatchingWindowInSeconds=20))
    for start in (0, 10):
        stack.send(*(str(number) for number in range(start, min(start + 10, 15))))
    first = stack.sqs.receive_message(QueueUrl=stack.ids["Seen"], WaitTimeSeconds=20)["Messages"]
    assert sorted(int(record["body"]) for record in json.loads(first[0]["Body"])) == [*range(15)]
    destroy(running, "Window")


@pytest.mark.parametrize(
    ("pattern", "body", "taken"),
    [
        ({"body": {"kind": ["train"]}}, '{"kind": "train"}', True),
        ({"body": {"kind": ["train"]}}, '{"kind": "test"}', False),
        ({"body": {"kind": ["train"]}}, "train", False),
        ({"body": ["train"]}, "train", True),
        ({"body": ["train"]}, "test", False),
        ({"body": ['{"kind": "train"}']}, '{"kind": "train"}', False),
        ({"body": {"size": [{"numeric": [">", 3]}]}}, '{"size": 4}', True),
        ({"body": {"size": [{"numeric": [">", 3]}]}}, '{"size": 3}', False),
        ({"attributes": {"SenderId": ["me"]}}, "whatever", True),
        ({"attributes": {"SenderId": ["you"]}}, "whatever", False),
    ],
)
def test_a_filter_takes_messages(pattern: Any, body: str, taken: bool) -> None:
    """ "Properly filtering Amazon SQS messages": where one of body and filter is JSON and the other is not, none is taken."""
    filters = event_sources.Filters({"Filters": [{"Pattern": json.dumps(pattern)}]})
    record = {"body": body, "attributes": {"SenderId": "me"}}
    assert filters.take(record) is taken
    another = {"Pattern": json.dumps({"body": {"another": ["one"]}})}
    assert event_sources.Filters({"Filters": [another, {"Pattern": json.dumps(pattern)}]}).take(record) is taken


def test_messages_that_no_filter_takes_are_deleted(running: Running) -> None:
    criteria = {"Filters": [{"Pattern": json.dumps({"body": {"kind": ["train"]}})}]}
    stack = Stack(running, "Filtered", parts(FilterCriteria=criteria))
    stack.send('{"kind": "test"}', '{"kind": "train"}')
    assert [record["body"] for record in stack.seen(1)] == ['{"kind": "train"}']
    stack.until_left(0)
    destroy(running, "Filtered")


def test_a_mapping_that_changes_takes_its_queue_up_as_it_is_now(running: Running) -> None:
    stack = Stack(running, "Changing", parts(Enabled=False))
    stack.send("before")
    assert running.client("lambda").get_event_source_mapping(UUID=stack.ids["Mapping"])["State"] == "Disabled"
    deploy(running, "Changing", parts(Enabled=True, variables={"ANSWER": "{}"}))
    assert ids(running, "Changing")["Mapping"] == stack.ids["Mapping"]
    assert [record["body"] for record in stack.seen(1)] == ["before"]
    stack.until_left(0)
    deploy(running, "Changing", {name: it for name, it in parts().items() if name != "Mapping"})
    stack.send("after")
    [message] = stack.sqs.receive_message(QueueUrl=stack.ids["Queue"], WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "after"
    destroy(running, "Changing")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"actions": ["sqs:ReceiveMessage"]}, "execution role does not have permissions to call DeleteMessage on SQS"),
        ({"actions": ["sqs:SendMessage"]}, "execution role does not have permissions to call ReceiveMessage on SQS"),
        ({"timeout": 60}, "Queue visibility timeout: 30 seconds is less than Function timeout: 60 seconds"),
        ({"BatchSize": 11}, "Maximum batch window in seconds must be greater than 0 if maximum batch size is"),
        ({"FilterCriteria": {"Filters": [{"Pattern": "text"}]}}, "Invalid filter pattern definition."),
        ({"EventSourceArn": "arn:aws:sqs:us-east-1:123456789012:none"}, "AWS.SimpleQueueService.NonExistentQueue"),
        ({"EventSourceArn": "arn:aws:kinesis:us-east-1:123456789012:stream/s"}, "must be that of an SQS queue"),
    ],
)
def test_a_mapping_that_lambda_refuses_fails_its_stack(running: Running, given: dict[str, Any], why: str) -> None:
    with pytest.raises(WaiterError):
        deploy(running, "Refused", parts(**given))
    assert why in reasons(running, "Refused")
    destroy(running, "Refused")


def test_a_queue_has_one_mapping_to_a_function_which_stays_as_it_is_where_its_change_is_refused(
    running: Running,
) -> None:
    stack = Stack(running, "Twice", parts())
    lambda_ = running.client("lambda")
    [found] = lambda_.list_event_source_mappings()["EventSourceMappings"]
    with pytest.raises(ClientError, match=rf"already exists.*with UUID {found['UUID']}") as caught:
        lambda_.create_event_source_mapping(EventSourceArn=found["EventSourceArn"], FunctionName=stack.ids["Function"])
    assert caught.value.response["Error"]["Code"] == "ResourceConflictException"
    with pytest.raises(ClientError, match="Maximum batch window in seconds must be greater than 0"):
        lambda_.update_event_source_mapping(UUID=found["UUID"], BatchSize=11)
    assert lambda_.get_event_source_mapping(UUID=found["UUID"])["BatchSize"] == 10
    destroy(running, "Twice")


ARN = "arn:aws:lambda:us-east-1:123456789012:function:f"


@pytest.mark.parametrize(
    ("name", "arn"),
    [("f", ARN), ("f:live", f"{ARN}:live"), (ARN, ARN), (f"{ARN}:2", f"{ARN}:2"), (f"{ARN}:live", f"{ARN}:live")],
)
@pytest.mark.parametrize("own", [ARN, f"{ARN}:1"])
def test_a_mapping_is_of_the_version_or_alias_of_what_names_its_function(name: str, arn: str, own: str) -> None:
    assert arns.qualified(own, name) == arn
    assert arns.unqualified(arn) == ARN
