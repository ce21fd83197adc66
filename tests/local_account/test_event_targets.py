"""Whom the rules of the account's EventBridge tell, and what its topics and keys do."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, ids, reasons
from moto.events.models import EventPattern
from running_account import Running
from state_machines import Machines
from test_alarms import until

ENFORCED = False  # test_delivery_permissions.py has the permissions of deliveries
PATTERN = {"source": ["mine"]}


@pytest.fixture(scope="module")
def targets(running: Running) -> Iterator[dict[str, str]]:
    """A stack with a rule for each kind of target; its outputs."""
    resources = {
        "Queue": {"Type": "AWS::SQS::Queue"},
        "OfTopic": {"Type": "AWS::SQS::Queue"},
        "Topic": {"Type": "AWS::SNS::Topic"},
        "Subscription": {
            "Type": "AWS::SNS::Subscription",
            "Properties": {
                "TopicArn": {"Ref": "Topic"},
                "Protocol": "sqs",
                "Endpoint": {"Fn::GetAtt": ["OfTopic", "Arn"]},
                "RawMessageDelivery": True,
            },
        },
        "Logs": {"Type": "AWS::Logs::LogGroup"},
        "Rule": {
            "Type": "AWS::Events::Rule",
            "Properties": {
                "EventPattern": PATTERN,
                "Targets": [
                    {
                        "Id": "queue",
                        "Arn": {"Fn::GetAtt": ["Queue", "Arn"]},
                        "InputTransformer": {
                            "InputPathsMap": {"a": "$.detail.a"},
                            "InputTemplate": '{"number": <a>, "text": "it is <a>"}',
                        },
                    },
                    {"Id": "topic", "Arn": {"Ref": "Topic"}, "InputPath": "$.detail"},
                    {"Id": "logs", "Arn": {"Fn::GetAtt": ["Logs", "Arn"]}},
                ],
            },
        },
    }
    yield deploy(
        running,
        "targets",
        resources,
        Outputs={name: {"Value": {"Ref": name}} for name in ("Queue", "OfTopic", "Topic", "Logs", "Rule")},
    )
    destroy(running, "targets")


def taken(running: Running, url: str) -> str:
    client = running.client("sqs")
    messages = until(lambda: client.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages"))
    client.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
    return str(messages[0]["Body"])


def tell(running: Running, detail: dict[str, Any], source: str = "mine") -> None:
    event = {"Source": source, "DetailType": "test", "Detail": json.dumps(detail)}
    running.client("events").put_events(Entries=[event])


def test_an_event_reaches_queue_topic_and_log_group_as_each_wants_it(running: Running, targets: dict[str, str]) -> None:
    tell(running, {"a": 1})
    assert json.loads(taken(running, targets["Queue"])) == {"number": 1, "text": "it is 1"}
    assert json.loads(taken(running, targets["OfTopic"])) == {"a": 1}
    logs = running.client("logs")
    [event] = until(lambda: logs.filter_log_events(logGroupName=targets["Logs"])["events"])
    assert json.loads(event["message"])["detail"] == {"a": 1}


def test_an_event_that_cannot_be_delivered_goes_to_the_dead_letter_queue(
    running: Running, targets: dict[str, str]
) -> None:
    rules = running.client("events")
    arn = running.client("sqs").get_queue_attributes(QueueUrl=targets["Queue"], AttributeNames=["QueueArn"])
    rules.put_rule(Name="lost", EventPattern=json.dumps({"source": ["lost"]}))
    target = {
        "Id": "gone",
        "Arn": "arn:aws:sqs:us-east-1:123456789012:no-such-queue",
        "DeadLetterConfig": {"Arn": arn["Attributes"]["QueueArn"]},
    }
    rules.put_targets(Rule="lost", Targets=[target])
    tell(running, {"a": 2}, source="lost")
    assert json.loads(taken(running, targets["Queue"]))["detail"] == {"a": 2}


def test_a_target_that_nothing_is_delivered_to_fails_the_deployment_and_is_named(running: Running) -> None:
    stream = "arn:aws:kinesis:us-east-1:123456789012:stream/mine"
    rule = {"EventPattern": PATTERN, "Targets": [{"Id": "stream", "Arn": stream}]}
    with pytest.raises((ClientError, WaiterError)):
        deploy(running, "kinesis", {"Rule": {"Type": "AWS::Events::Rule", "Properties": rule}})
    assert stream in reasons(running, "kinesis")
    assert "Rule" in reasons(running, "kinesis")
    assert running.client("events").list_rules(NamePrefix="kinesis-")["Rules"] == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"InputPath": "$.detail", "InputTransformer": {"InputTemplate": "{}"}},
            "Only one of Input, InputPath, or InputTransformer must be provided for target it.",
        ),
        (
            {"InputTransformer": {"InputPathsMap": {"a": "$.detail"}, "InputTemplate": '{"n": <b>}'}},
            "InputTemplate for target it contains invalid placeholder b.",
        ),
        (
            {"Id": "!@#$"},
            "1 validation error detected: Value '!@#$' at 'targets.1.member.id' failed to satisfy constraint: Member must "
            "satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+",
        ),
        (
            {"Id": "a" * 65},
            f"1 validation error detected: Value '{'a' * 65}' at 'targets.1.member.id' failed to satisfy constraint: Member must "
            "have length less than or equal to 64",
        ),
    ],
)
def test_a_target_that_aws_refuses_is_refused_with_its_message(
    running: Running, targets: dict[str, str], members: dict[str, Any], message: str
) -> None:
    """test_put_event_input_path_and_input_transformer, test_put_events_with_input_transformer_missing_keys,
    test_put_target_id_validation"""
    with pytest.raises(ClientError) as refused:
        running.client("events").put_targets(
            Rule=targets["Rule"], Targets=[{"Id": "it", "Arn": targets["Topic"], **members}]
        )
    assert refused.value.response["Error"] == {"Code": "ValidationException", "Message": message}


def test_a_rule_has_at_most_five_targets_and_a_name_of_few_characters(
    running: Running, targets: dict[str, str]
) -> None:
    """test_add_exceed_fife_targets_per_rule"""
    rules = running.client("events")
    many = [{"Id": f"more-{n}", "Arn": targets["Topic"]} for n in range(3)]
    with pytest.raises(ClientError) as refused:
        rules.put_targets(Rule=targets["Rule"], Targets=many)
    assert refused.value.response["Error"] == {
        "Code": "LimitExceededException",
        "Message": "The requested resource exceeds the maximum number allowed.",
    }
    assert len(rules.list_targets_by_rule(Rule=targets["Rule"])["Targets"]) == 3
    with pytest.raises(ClientError, match="Value 'a b' at 'name' failed to satisfy constraint"):
        rules.put_rule(Name="a b", EventPattern=json.dumps(PATTERN))


def test_rules_that_fail_or_start_their_own_cause_fail_neither_executions_nor_other_rules(
    running: Running, targets: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, rules = Machines(running, "caller"), running.client("events")
    machine = machines.create({"Only": {"Type": "Succeed"}})
    pattern = json.dumps({"source": ["aws.states"], "detail": {"status": ["SUCCEEDED"], "stateMachineArn": [machine]}})
    url = running.client("sqs").create_queue(QueueName="of-the-good-rule")["QueueUrl"]
    queue = running.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    role = running.role("OfRules", "events.amazonaws.com")
    endless = {"Id": "endless", "Arn": machine, "RoleArn": role, "Input": "{}"}
    not_json = {"Id": "text", "Arn": machine, "RoleArn": role, "InputTransformer": {"InputTemplate": "no JSON"}}
    for name, targeted in {
        "a-defective": {"Id": "it", "Arn": targets["Topic"]},
        "b-endless": endless,
        "c-not-json": not_json,
        "d-good": {"Id": "queue", "Arn": queue["Attributes"]["QueueArn"], "Input": '"delivered"'},
    }.items():
        rules.put_rule(Name=name, EventPattern=pattern)
        rules.put_targets(Rule=name, Targets=[targeted])
    matches = EventPattern.matches_event
    defects: Queue[bool] = Queue()

    def defective(self: EventPattern, event: Any) -> bool:
        if defects.empty() and event["source"] == "aws.states":
            defects.put(True)
            raise RuntimeError("a defect of the matcher")
        return matches(self, event)

    monkeypatch.setattr(EventPattern, "matches_event", defective)
    execution = machines.client.start_execution(stateMachineArn=machine)["executionArn"]
    assert machines.ended(execution)["status"] == "SUCCEEDED"
    assert taken(running, url) == '"delivered"'
    for name in ("b-endless", "a-defective", "c-not-json", "d-good"):
        rules.disable_rule(Name=name)
    assert defects.get_nowait()


def test_the_custom_resource_of_a_log_group_target_makes_its_policy(running: Running) -> None:
    def call(action: str, **parameters: str) -> str:
        parameters = {"policyName": "OfRules", **parameters}
        said = {"service": "CloudWatchLogs", "action": action, "parameters": parameters}
        return json.dumps({**said, "physicalResourceId": {"id": "mine"}})

    properties = {
        "Create": call("putResourcePolicy", policyDocument="{}"),
        "Update": call("putResourcePolicy", policyDocument="{}"),
        "Delete": call("deleteResourcePolicy"),
    }
    deploy(running, "policy", {"It": {"Type": "Custom::CloudwatchLogResourcePolicy", "Properties": properties}})
    logs = running.client("logs")
    assert [found["policyName"] for found in logs.describe_resource_policies()["resourcePolicies"]] == ["OfRules"]
    destroy(running, "policy")
    assert logs.describe_resource_policies()["resourcePolicies"] == []


def test_a_changed_rule_has_its_new_pattern_and_targets_and_its_name(running: Running, targets: dict[str, str]) -> None:
    def rule(**properties: Any) -> dict[str, Any]:
        return {"Rule": {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": PATTERN, **properties}}}

    deploy(running, "changing", rule(Targets=[{"Id": "topic", "Arn": targets["Topic"]}]))
    name = ids(running, "changing")["Rule"]
    deploy(running, "changing", rule(EventPattern={"source": ["yours"]}, Targets=[]))
    events = running.client("events")
    assert ids(running, "changing")["Rule"] == name
    assert json.loads(events.describe_rule(Name=name)["EventPattern"]) == {"source": ["yours"]}
    assert events.list_targets_by_rule(Rule=name)["Targets"] == []
    destroy(running, "changing")
    with pytest.raises(ClientError, match="ResourceNotFound"):
        events.describe_rule(Name=name)


@pytest.fixture
def endpoint() -> Iterator[tuple[str, Callable[[], tuple[dict[str, str], bytes]]]]:
    """An HTTP endpoint of this machine, and what takes its next request."""
    requests: Queue[tuple[dict[str, str], bytes]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.put((dict(self.headers), body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", lambda: requests.get(timeout=30)
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_http_endpoint_of_this_machine_gets_a_topics_messages(running: Running, endpoint: Any) -> None:
    url, take = endpoint
    topics = running.client("sns")
    topic = topics.create_topic(Name="web")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="http", Endpoint=url)
    topics.publish(TopicArn=topic, Message="hello")
    headers, body = take()
    assert headers["x-amz-sns-topic-arn"] == topic
    assert json.loads(body)["Message"] == "hello"


@pytest.mark.parametrize(
    ("protocol", "to"), [("email", "me@example.com"), ("sms", "+15550100000"), ("https", "https://example.com/")]
)
def test_what_would_leave_this_machine_is_noted_in_the_log_and_not_delivered(
    running: Running, protocol: str, to: str
) -> None:
    topics = running.client("sns")
    topic = topics.create_topic(Name=f"away-{protocol}")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol=protocol, Endpoint=to)
    topics.publish(TopicArn=topic, Message="hello")
    log = (running.account.state / "account.log").read_text()
    assert f"not delivered to {to}: the account does not send" in log


def test_a_subscription_to_what_the_account_does_not_have_is_refused(running: Running) -> None:
    topics = running.client("sns")
    topic = topics.create_topic(Name="refusing")["TopicArn"]
    with pytest.raises(ClientError, match="'firehose'"):
        topics.subscribe(
            TopicArn=topic, Protocol="firehose", Endpoint="arn:aws:firehose:us-east-1:123456789012:stream/f"
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Message": ""}, "Empty message"),
        ({"Message": "hello", "Subject": ""}, "Subject"),
        ({"Message": "a" * 262_145}, "Message too long"),
        (
            {
                "Message": "a" * 262_135,  # and 10 bytes of an attribute
                "MessageAttributes": {"one": {"DataType": "String", "StringValue": "1"}},
            },
            "Message too long",
        ),
        ({"Message": "{", "MessageStructure": "json"}, "Message Structure - JSON message body failed to parse"),
        (
            {"Message": '{"sqs": "a"}', "MessageStructure": "json"},
            "Message Structure - No default entry in JSON message body",
        ),
        (
            {"Message": '{"default": 1}', "MessageStructure": "json"},
            "Message Structure - No default entry in JSON message body",
        ),
    ],
)
def test_a_message_that_sns_refuses_is_refused_with_its_words(running: Running, given: Any, message: str) -> None:
    topics = running.client("sns")
    topic = topics.create_topic(Name="refusing")["TopicArn"]
    with pytest.raises(ClientError) as refused:
        topics.publish(TopicArn=topic, **given)
    error = refused.value.response["Error"]
    assert (error["Code"], error["Message"]) == ("InvalidParameter", f"Invalid parameter: {message}")


@pytest.mark.parametrize("detail", ["NotJSON", "[]", "{{}", '"NotJSON"', "1", "[" * 20_000])
def test_a_detail_that_is_no_object_is_refused_as_malformed(running: Running, detail: str) -> None:
    entry = {"Source": "none", "DetailType": "test"}
    answer = running.client("events").put_events(Entries=[{**entry, "Detail": detail}, {**entry, "Detail": "{}"}])
    assert answer["Entries"][0] == {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
    assert (answer["FailedEntryCount"], [*answer["Entries"][1]]) == (1, ["EventId"])


def test_events_of_a_mebibyte_are_refused_and_of_a_byte_less_are_not(running: Running) -> None:
    put = running.client("events").put_events
    entry = {"Source": "none", "DetailType": "test", "Time": "2026-11-28T00:00:00Z", "Resources": ["arn"]}
    least = 2**20 - len("nonetestarn") - 14 - len('{"a": ""}')
    entries = [{**entry, "Detail": json.dumps({"a": "a" * (least + more)})} for more in (-1, 0)]
    assert put(Entries=entries[:1])["FailedEntryCount"] == 0
    with pytest.raises(ClientError, match="Total size of the entries in the request is over the limit"):
        put(Entries=entries[1:])


def test_an_event_for_a_bus_that_does_not_exist_is_ignored(running: Running) -> None:
    entry = {"Source": "none", "DetailType": "test", "Detail": "{}", "EventBusName": "nowhere"}
    answer = running.client("events").put_events(Entries=[entry])
    assert (answer["FailedEntryCount"], [*answer["Entries"][0]]) == (0, ["EventId"])


def test_a_subscription_that_fails_does_not_keep_messages_from_the_others(
    running: Running, targets: dict[str, str]
) -> None:
    topics = running.client("sns")
    topic = topics.create_topic(Name="partly")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint="arn:aws:sqs:us-east-1:123456789012:no-such-queue")
    arn = running.client("sqs").get_queue_attributes(QueueUrl=targets["Queue"], AttributeNames=["QueueArn"])
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["Attributes"]["QueueArn"])
    topics.publish(TopicArn=topic, Message="hello")
    assert json.loads(taken(running, targets["Queue"]))["Message"] == "hello"


NO_QUEUE = "arn:aws:sqs:us-east-1:123456789012:no-such-queue"
NO_FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:no-such-function"
# Of test_redrive_policy_sqs_queue_subscription in LocalStack's tests of SNS, whose answers were recorded on AWS.
ATTRIBUTES = {
    "attr1": {"DataType": "Number", "StringValue": "111"},
    "attr2": {"DataType": "Binary", "BinaryValue": b"\x02\x03\x04"},
}
IN_THE_BODY = {"attr1": {"Type": "Number", "Value": "111"}, "attr2": {"Type": "Binary", "Value": "AgME"}}


class Dead:
    """A topic with a subscription that cannot deliver, and its dead-letter queue."""

    def __init__(self, running: Running, protocol: str, endpoint: str, **attributes: str) -> None:
        self.topics, self.queues = running.client("sns"), running.client("sqs")
        name = f"dead-{uuid.uuid4().hex}"
        self.topic = self.topics.create_topic(Name=name)["TopicArn"]
        self.url = self.queues.create_queue(QueueName=name)["QueueUrl"]
        redrive = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:123456789012:{name}"})}
        self.topics.subscribe(
            TopicArn=self.topic, Protocol=protocol, Endpoint=endpoint, Attributes={**redrive, **attributes}
        )

    def letters(self, message: str, **given: Any) -> list[Any]:
        self.topics.publish(TopicArn=self.topic, Message=message, **given)
        answer = self.queues.receive_message(QueueUrl=self.url, MessageAttributeNames=["All"], MaxNumberOfMessages=10)
        return answer.get("Messages", [])


@pytest.mark.parametrize(("protocol", "endpoint"), [("sqs", NO_QUEUE), ("lambda", NO_FUNCTION)])
def test_a_message_that_cannot_be_delivered_goes_to_the_subscriptions_dead_letter_queue(
    running: Running, protocol: str, endpoint: str
) -> None:
    [letter] = Dead(running, protocol, endpoint).letters("hello", MessageAttributes=ATTRIBUTES)
    body = json.loads(letter["Body"])
    assert (body["Type"], body["Message"], body["MessageAttributes"]) == ("Notification", "hello", IN_THE_BODY)


def test_a_raw_message_is_raw_in_the_dead_letter_queue_too(running: Running) -> None:
    [letter] = Dead(running, "sqs", NO_QUEUE, RawMessageDelivery="true").letters("hello", MessageAttributes=ATTRIBUTES)
    assert (letter["Body"], letter["MessageAttributes"]) == ("hello", ATTRIBUTES)


def test_of_a_message_with_a_text_for_each_protocol_the_dead_letter_has_that_of_the_subscription(
    running: Running,
) -> None:
    texts = json.dumps({"default": "for all", "lambda": "for functions", "sqs": "for queues"})
    [letter] = Dead(running, "lambda", NO_FUNCTION).letters(texts, MessageStructure="json")
    assert json.loads(letter["Body"])["Message"] == "for functions"


def test_the_filter_of_a_message_is_not_asked_again_of_its_dead_letter(running: Running) -> None:
    by_body = {"FilterPolicyScope": "MessageBody", "FilterPolicy": json.dumps({"default": ["for all"]})}
    texts = json.dumps({"default": "for all", "lambda": "for functions"})
    [letter] = Dead(running, "lambda", NO_FUNCTION, **by_body).letters(texts, MessageStructure="json")
    assert json.loads(letter["Body"])["Message"] == "for functions"


def test_a_message_that_the_filter_holds_back_is_no_dead_letter(running: Running) -> None:
    dead = Dead(running, "sqs", NO_QUEUE, FilterPolicy=json.dumps({"attr1": [{"numeric": [">", 200]}]}))
    assert dead.letters("hello", MessageAttributes=ATTRIBUTES) == []


def test_a_raw_message_with_a_binary_attribute_reaches_a_queue(running: Running, targets: dict[str, str]) -> None:
    topics, queues = running.client("sns"), running.client("sqs")
    topic = topics.create_topic(Name="raw-binary")["TopicArn"]
    arn = queues.get_queue_attributes(QueueUrl=targets["Queue"], AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
    topics.publish(TopicArn=topic, Message="hello", MessageAttributes=ATTRIBUTES)
    [message] = queues.receive_message(QueueUrl=targets["Queue"], MessageAttributeNames=["All"], WaitTimeSeconds=20)[
        "Messages"
    ]
    assert (message["Body"], message["MessageAttributes"]) == ("hello", ATTRIBUTES)
