"""Where permissions are enforced, topics and rules reach what lets them, and a state machine may fail to put events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from running_account import Running
from state_machines import Machines
from test_alarms import until

from sagemaker_local_account.account import LocalAccount


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Running(account)


def queue(running: Running, name: str, service: str = "") -> tuple[str, str]:
    """A queue's URL and ARN, with a policy that lets a service send to it."""
    client = running.client("sqs")
    url = client.create_queue(QueueName=name)["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    if service:
        statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sqs:SendMessage", "Resource": arn}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    return url, arn


def arrived(running: Running, url: str) -> list[Any]:
    return list(running.client("sqs").receive_message(QueueUrl=url).get("Messages", []))


def log(running: Running) -> str:
    return (running.account.state / "account.log").read_text()


def test_a_topic_reaches_only_a_queue_whose_policy_lets_it(enforcing: Running) -> None:
    topics = enforcing.client("sns")
    topic = topics.create_topic(Name="mine")["TopicArn"]
    closed, closed_arn = queue(enforcing, "closed-to-sns")
    opened, opened_arn = queue(enforcing, "open-to-sns", "sns.amazonaws.com")
    for arn in (closed_arn, opened_arn):
        topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    topics.publish(TopicArn=topic, Message="hello")
    until(lambda: arrived(enforcing, opened))
    assert arrived(enforcing, closed) == []
    assert f"the policy of {closed_arn} does not allow sns.amazonaws.com the action sqs:SendMessage" in log(enforcing)


def test_what_a_closed_queue_does_not_take_and_the_filter_lets_through_goes_to_a_dead_letter_queue_that_lets_it(
    enforcing: Running,
) -> None:
    topics = enforcing.client("sns")
    topic = topics.create_topic(Name="redriving")["TopicArn"]
    opened, opened_arn = queue(enforcing, "dead-and-open", "sns.amazonaws.com")
    closed, closed_arn = queue(enforcing, "dead-and-closed")
    for dead, kind in ((opened_arn, "kept"), (opened_arn, "held back"), (closed_arn, "kept")):
        _, endpoint = queue(enforcing, f"endpoint-{dead.rpartition(':')[2]}-{kind.replace(' ', '-')}")
        attributes = {
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": dead}),
            "FilterPolicy": json.dumps({"kind": [kind]}),
        }
        topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=endpoint, Attributes=attributes)
    kept = {"kind": {"DataType": "String", "StringValue": "kept"}}
    topics.publish(TopicArn=topic, Message="hello", MessageAttributes=kept)
    [letter] = arrived(enforcing, opened)
    assert json.loads(letter["Body"])["Message"] == "hello"
    assert (arrived(enforcing, opened), arrived(enforcing, closed)) == ([], [])
    assert f"not delivered to the dead-letter queue {closed_arn}" in log(enforcing)


def test_a_rule_reaches_only_a_queue_whose_policy_lets_it(enforcing: Running) -> None:
    rules = enforcing.client("events")
    rules.put_rule(Name="mine", EventPattern=json.dumps({"source": ["mine"]}))
    closed, closed_arn = queue(enforcing, "closed-to-events")
    opened, opened_arn = queue(enforcing, "open-to-events", "events.amazonaws.com")
    rules.put_targets(Rule="mine", Targets=[{"Id": "c", "Arn": closed_arn}, {"Id": "o", "Arn": opened_arn}])
    rules.put_events(Entries=[{"Source": "mine", "DetailType": "test", "Detail": "{}"}])
    until(lambda: arrived(enforcing, opened))
    assert arrived(enforcing, closed) == []
    assert f"the policy of {closed_arn} does not allow events.amazonaws.com the action sqs:SendMessage" in log(
        enforcing
    )


def test_a_state_catches_that_its_machine_may_not_put_events(enforcing: Running) -> None:
    put = {
        "Type": "Task",
        "Resource": "arn:aws:states:::events:putEvents",
        "Parameters": {"Entries": [{"Source": "mine", "DetailType": "test", "Detail": {}}]},
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Caught", "Next": "Over"}],
        "End": True,
    }
    again = {**put, "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Again", "Next": "Over"}]}
    put["Catch"][0]["Next"] = "Again"  # type: ignore[index]
    machines = Machines(enforcing, may_do_all=False)
    caught = machines.output({"Put": put, "Again": again, "Over": {"Type": "Succeed"}})["Caught"]
    assert caught["Error"] == "EventBridge.AmazonEventBridgeException"
    assert "is not authorized to perform: events:PutEvents" in caught["Cause"]
    # It used what is assumed, twice, and says so once.
    assert log(enforcing).count("used what AWS neither documents nor answered on record: events:putEvents") == 1
