"""What a bucket tells, to whom, and which notifications S3 refuses.

The events are those that LocalStack recorded on AWS, tests/aws/services/s3/test_s3_notifications_*.py, but for what differs from
one account to the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import deploy, destroy
from running_account import Running
from test_alarms import until
from test_delivery_permissions import log, queue

ALL = ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*", "s3:ObjectAcl:Put"]
EVERYONE = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
TRUST = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
CODE = "def handler(event, context): print('told', event['Records'][0]['s3']['object']['key'])"


def notify(running: Running, bucket: str, *queues: dict[str, Any], **more: Any) -> None:
    running.client("s3").put_bucket_notification_configuration(
        Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [*queues], **more}
    )


def refusal(running: Running, bucket: str, *queues: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ClientError) as refused:
        notify(running, bucket, *queues, **more)
    assert refused.value.response["Error"]["Code"] == "InvalidArgument"
    return str(refused.value.response["Error"]["Message"])


def taken(running: Running, url: str, number: int, of: Callable[[Any], list[Any]]) -> list[dict[str, Any]]:
    """That many events, of which a message has those that ``of`` finds in its body."""
    client = running.client("sqs")
    events: list[dict[str, Any]] = []

    def take() -> bool:
        for message in client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            events.extend(of(json.loads(message["Body"])))
        return len(events) >= number

    until(take)
    assert len(events) == number
    return events


def told(running: Running, url: str, number: int) -> list[dict[str, Any]]:
    """The records of that many events, in their order; the message of a new configuration is none."""
    records = taken(running, url, number, lambda body: body.get("Records", []))
    return sorted(records, key=lambda record: str(record["eventTime"]))


@pytest.fixture(scope="module")
def watched(running: Running) -> tuple[str, Callable[[int], list[dict[str, Any]]]]:
    """A bucket, and what takes the events that it tells a queue."""
    running.client("s3").create_bucket(Bucket="watched")
    url, arn = queue(running, "watching", "s3.amazonaws.com")
    notify(running, "watched", {"Id": "all", "QueueArn": arn, "Events": ALL})
    return "watched", lambda number: told(running, url, number)


def test_a_new_object_is_one_event_whatever_it_has(running: Running, watched: Any) -> None:
    bucket, take = watched
    running.client("s3").put_object(Bucket=bucket, Key="a b/c@d.txt", Body=b"something", Tagging="of=mine")
    [record] = take(1)
    assert record.keys() == {
        "awsRegion", "eventName", "eventSource", "eventTime", "eventVersion", "requestParameters", "responseElements", "s3",
        "userIdentity",
    }  # fmt: skip
    assert (record["eventName"], record["eventVersion"]) == ("ObjectCreated:Put", "2.1")
    assert record["s3"]["configurationId"] == "all"
    described = record["s3"]["object"]
    assert described.pop("sequencer")
    assert described == {"key": "a+b/c%40d.txt", "size": 9, "eTag": "437b930db84b8079c2dd804a71936b5f"}


def test_each_way_to_change_an_object_is_an_event_of_its_own(running: Running, watched: Any) -> None:
    bucket, take = watched
    s3 = running.client("s3")
    s3.put_object(Bucket=bucket, Key="one", Body=b"something")
    s3.copy_object(Bucket=bucket, Key="two", CopySource=f"{bucket}/one")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="three")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="three", UploadId=upload, PartNumber=1, Body=b"part")
    parts = {"Parts": [{"ETag": part["ETag"], "PartNumber": 1}]}
    s3.complete_multipart_upload(Bucket=bucket, Key="three", UploadId=upload, MultipartUpload=parts)
    tags = {"TagSet": [{"Key": "of", "Value": "mine"}]}
    s3.put_object_tagging(Bucket=bucket, Key="one", Tagging=tags)
    s3.delete_object_tagging(Bucket=bucket, Key="one")
    s3.put_object_acl(Bucket=bucket, Key="one", ACL="private")  # as it is already
    s3.put_object_acl(Bucket=bucket, Key="one", ACL="public-read")
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "two"}, {"Key": "never"}]})
    records = take(8)
    assert [record["eventName"] for record in records] == [
        "ObjectCreated:Put",
        "ObjectCreated:Copy",
        "ObjectCreated:CompleteMultipartUpload",
        "ObjectTagging:Put",
        "ObjectTagging:Delete",
        "ObjectAcl:Put",
        "ObjectRemoved:Delete",
        "ObjectRemoved:Delete",  # also of what there never was
    ]
    described = [(record["eventVersion"], record["s3"]["object"].keys()) for record in records[2:]]
    assert described[0] == ("2.1", {"key", "size", "eTag", "sequencer"})
    assert described[1:4] == [("2.3", {"key", "eTag"})] * 3
    assert described[4:] == [("2.1", {"key", "sequencer"})] * 2


def test_versions_and_delete_markers_are_told_apart(running: Running) -> None:
    s3 = running.client("s3")
    s3.create_bucket(Bucket="versions")
    s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
    url, arn = queue(running, "of-versions", "s3.amazonaws.com")
    notify(running, "versions", {"QueueArn": arn, "Events": ALL})
    first = s3.put_object(Bucket="versions", Key="one", Body=b"1")["VersionId"]
    marker = s3.delete_object(Bucket="versions", Key="one")["VersionId"]
    s3.delete_object(Bucket="versions", Key="one", VersionId=first)
    assert s3.delete_object(Bucket="versions", Key="one", VersionId=marker)["DeleteMarker"]
    found = [(record["eventName"], record["s3"]["object"]["versionId"]) for record in told(running, url, 4)]
    assert found == [
        ("ObjectCreated:Put", first),
        ("ObjectRemoved:DeleteMarkerCreated", marker),
        ("ObjectRemoved:Delete", first),
        ("ObjectRemoved:Delete", marker),
    ]


def test_a_filter_lets_keys_through_by_prefix_and_suffix_in_any_case_of_their_names(running: Running) -> None:
    s3 = running.client("s3")
    s3.create_bucket(Bucket="filtered")
    url, arn = queue(running, "of-filtered", "s3.amazonaws.com")
    rules = [{"Name": "PREFIX", "Value": "data/"}, {"Name": "suffix", "Value": ".csv"}]
    one = {"QueueArn": arn, "Events": ["s3:ObjectCreated:Put"], "Filter": {"Key": {"FilterRules": rules}}}
    notify(running, "filtered", one)
    for key in ("data/a.txt", "a.csv", "data/a.csv"):
        s3.put_object(Bucket="filtered", Key=key, Body=b"")
    assert [record["s3"]["object"]["key"] for record in told(running, url, 1)] == ["data/a.csv"]
    [kept] = s3.get_bucket_notification_configuration(Bucket="filtered")["QueueConfigurations"]
    assert [rule["Name"] for rule in kept["Filter"]["Key"]["FilterRules"]] == ["Prefix", "Suffix"]


def test_eventbridge_gets_an_event_on_its_default_bus_alone(running: Running) -> None:
    s3, rules = running.client("s3"), running.client("events")
    s3.create_bucket(Bucket="bridged")
    notify(running, "bridged", EventBridgeConfiguration={})
    assert s3.get_bucket_notification_configuration(Bucket="bridged")["EventBridgeConfiguration"] == {}
    url, arn = queue(running, "of-bridged", "events.amazonaws.com")
    rules.create_event_bus(Name="other")
    pattern = json.dumps({"source": ["aws.s3"], "detail": {"bucket": {"name": ["bridged"]}}})
    for bus in ("default", "other"):
        rules.put_rule(Name="arrived", EventBusName=bus, EventPattern=pattern)
        rules.put_targets(Rule="arrived", EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
    s3.put_object(Bucket="bridged", Key="a b", Body=b"something")
    s3.delete_object(Bucket="bridged", Key="a b")
    events = taken(running, url, 2, lambda body: [body])
    created, deleted = sorted(events, key=lambda event: str(event["detail-type"]))
    assert created["resources"] == ["arn:aws:s3:::bridged"]
    detail = created["detail"]
    assert (created["detail-type"], detail["reason"]) == ("Object Created", "PutObject")
    assert detail["object"].pop("sequencer")
    assert detail["object"] == {"key": "a b", "size": 9, "etag": "437b930db84b8079c2dd804a71936b5f"}
    assert (deleted["detail-type"], deleted["detail"]["deletion-type"]) == ("Object Deleted", "Permanently Deleted")
    assert deleted["detail"]["object"].keys() == {"key", "sequencer"}


def test_an_event_is_the_same_on_the_bus_that_a_rule_puts_it_on(running: Running) -> None:
    """LocalStack's test_put_events_to_default_eventbus_for_custom_eventbus."""
    s3, rules = running.client("s3"), running.client("events")
    s3.create_bucket(Bucket="forwarded")
    notify(running, "forwarded", EventBridgeConfiguration={})
    bus = rules.create_event_bus(Name="second")["EventBusArn"]
    url, arn = queue(running, "of-forwarded", "events.amazonaws.com")
    pattern = json.dumps({"source": ["aws.s3"], "detail": {"bucket": {"name": ["forwarded"]}}})
    rules.put_rule(Name="forward", EventPattern=pattern)
    rules.put_rule(Name="second", EventBusName="second", EventPattern=pattern)
    rules.put_targets(Rule="second", EventBusName="second", Targets=[{"Id": "queue", "Arn": arn}])
    for name, may in (("may-not-forward", False), ("may-forward", True)):
        role = running.role(name, "events.amazonaws.com", may_do_all=may)
        rules.put_targets(Rule="forward", Targets=[{"Id": "bus", "Arn": bus, "RoleArn": role}])
        s3.put_object(Bucket="forwarded", Key=name, Body=b"")
        if not may:
            until(lambda: "is not authorized to perform: events:PutEvents" in log(running))
    [message] = until(lambda: running.client("sqs").receive_message(QueueUrl=url).get("Messages"))
    event = json.loads(message["Body"])
    assert (event["resources"], event["detail"]["object"]["key"]) == (["arn:aws:s3:::forwarded"], "may-forward")


def test_a_destination_that_s3_cannot_reach_is_refused_unless_that_is_skipped(running: Running) -> None:
    s3 = running.client("s3")
    s3.create_bucket(Bucket="unreached")
    closed, closed_arn = queue(running, "closed-to-s3")
    nowhere = closed_arn.replace("closed-to-s3", "nowhere")
    for arn in (closed_arn, nowhere):
        text = refusal(running, "unreached", {"QueueArn": arn, "Events": ALL})
        assert text == "Unable to validate the following destination configurations"
        assert f"bucket unreached: its notifications are refused: {arn}: " in log(running)
    assert refusal(running, "unreached", {"QueueArn": "nowhere", "Events": ALL}) == "The ARN could not be parsed"
    elsewhere = closed_arn.replace("us-east-1", "eu-west-1")
    assert "region is not valid for the bucket" in refusal(running, "unreached", {"QueueArn": elsewhere, "Events": ALL})
    fifo = running.client("sqs").create_queue(QueueName="ordered.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    fifo_arn = closed_arn.replace("closed-to-s3", fifo.rpartition("/")[2])
    assert refusal(running, "unreached", {"QueueArn": fifo_arn, "Events": ALL}).startswith("Unable to validate")
    function = {
        "LambdaFunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:nowhere",
        "Events": ["s3:ObjectCreated:*"],
    }
    assert refusal(running, "unreached", LambdaFunctionConfigurations=[function]).startswith("Unable to validate")
    assert "QueueConfigurations" not in s3.get_bucket_notification_configuration(Bucket="unreached")
    s3.put_bucket_notification_configuration(
        Bucket="unreached",
        NotificationConfiguration={"QueueConfigurations": [{"QueueArn": closed_arn, "Events": ALL}]},
        SkipDestinationValidation=True,
    )
    s3.put_object(Bucket="unreached", Key="one", Body=b"")
    until(lambda: f"bucket unreached: event not delivered to {closed_arn}" in log(running))
    assert "Messages" not in running.client("sqs").receive_message(QueueUrl=closed)


def test_a_queue_that_allows_everyone_for_a_bucket_allows_that_bucket(running: Running) -> None:
    running.client("s3").create_bucket(Bucket="everyones")
    running.client("s3").create_bucket(Bucket="another")
    url, arn = queue(running, "everyones")
    statement = {**EVERYONE, "Condition": {"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::everyones"}}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    running.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    notify(running, "everyones", {"QueueArn": arn, "Events": ALL})
    assert refusal(running, "another", {"QueueArn": arn, "Events": ALL}).startswith("Unable to validate")


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({}, {}, "Configurations overlap. Configurations on the same bucket cannot share a common event type."),
        (
            {"Prefix": "a/"},
            {"Prefix": "a/b/"},
            "Configuration is ambiguously defined. Cannot have overlapping suffixes",
        ),
        ({"Suffix": ".gz"}, {}, "Configuration is ambiguously defined. Cannot have overlapping suffixes"),
        ({"Prefix": "a/"}, {"Prefix": "b/"}, ""),
        ({"Suffix": ".gz"}, {"Suffix": ".csv"}, ""),
    ],
)
def test_notifications_of_one_event_and_one_key_are_refused(
    running: Running, one: dict[str, str], other: dict[str, str], message: str
) -> None:
    """minio/minio issue 2472, aws-solutions/aws-waf-security-automations issue 49."""
    s3 = running.client("s3")
    if not any(bucket["Name"] == "overlapping" for bucket in s3.list_buckets()["Buckets"]):
        s3.create_bucket(Bucket="overlapping")
    _, arn = queue(running, "of-overlapping", "s3.amazonaws.com")
    given = []
    for events, filters in (("s3:ObjectCreated:*", one), ("s3:ObjectCreated:Put", other)):
        rules = [{"Name": name, "Value": value} for name, value in filters.items()]
        given.append({"QueueArn": arn, "Events": [events], "Filter": {"Key": {"FilterRules": rules}}})
    if message:
        assert refusal(running, "overlapping", *given).startswith(message)
    else:
        notify(running, "overlapping", *given)


def function_arn(running: Running, name: str) -> str:
    return str(running.client("lambda").get_function(FunctionName=name)["Configuration"]["FunctionArn"])


def test_a_stack_has_a_function_told_whose_log_group_is_made_with_its_first_line(running: Running) -> None:
    resources: dict[str, Any] = {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [TRUST]},
                "ManagedPolicyArns": ["arn:aws:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"],
            },
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Code": {"ZipFile": CODE},
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Runtime": "python3.13",
            },
        },
        "Permission": {
            "Type": "AWS::Lambda::Permission",
            "Properties": {
                "Action": "lambda:InvokeFunction",
                "FunctionName": {"Ref": "Function"},
                "Principal": "s3.amazonaws.com",
            },
        },
        "Bucket": {
            "Type": "AWS::S3::Bucket",
            "DependsOn": "Permission",
            "Properties": {
                "NotificationConfiguration": {
                    "EventBridgeConfiguration": {"EventBridgeEnabled": True},
                    "LambdaConfigurations": [
                        {
                            "Event": "s3:ObjectCreated:*",
                            "Filter": {"S3Key": {"Rules": [{"Name": "prefix", "Value": "data/"}]}},
                            "Function": {"Fn::GetAtt": ["Function", "Arn"]},
                        }
                    ],
                }
            },
        },
    }
    outputs = {name: {"Value": {"Ref": name}} for name in ("Bucket", "Function")}
    made = deploy(running, "told", resources, Outputs=outputs)
    s3, logs, group = running.client("s3"), running.client("logs"), f"/aws/lambda/{made['Function']}"
    for key in ("elsewhere", "data/one"):
        s3.put_object(Bucket=made["Bucket"], Key=key, Body=b"")

    def printed() -> list[str]:
        try:
            return [event["message"] for event in logs.filter_log_events(logGroupName=group)["events"]]
        except logs.exceptions.ResourceNotFoundException:
            return []

    assert until(printed) == ["told data/one"]
    s3.delete_object(Bucket=made["Bucket"], Key="elsewhere")
    s3.delete_object(Bucket=made["Bucket"], Key="data/one")
    resources["Bucket"]["Properties"] = {}
    deploy(running, "told", resources, Outputs=outputs)
    kept = s3.get_bucket_notification_configuration(Bucket=made["Bucket"])
    assert kept.keys() == {"ResponseMetadata"}
    topics = running.client("sns")
    topic = topics.create_topic(Name="of-functions")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=function_arn(running, made["Function"]))
    topics.publish(TopicArn=topic, Message="hello")
    until(lambda: "does not allow sns.amazonaws.com the action lambda:InvokeFunction" in log(running))
    destroy(running, "told")
