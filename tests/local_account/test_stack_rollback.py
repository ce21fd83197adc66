"""Operations of stacks that fail: what is rolled back, what stays where that is wanted, and what cannot be deleted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import WAITING, deploy, destroy, ids
from running_account import Running

# Creation of this one fails, after what it depends on.
BAD = {
    "Type": "AWS::Lambda::Function",
    "DependsOn": [],
    "Properties": {
        "Code": {"S3Bucket": "no-such-bucket", "S3Key": "code.zip"},
        "Handler": "index.handler",
        "Role": "arn:aws:iam::123456789012:role/none",
        "Runtime": "python3.13",
    },
}
BUCKET = {"Type": "AWS::S3::Bucket"}


def queue(seconds: int) -> dict[str, Any]:
    return {"Type": "AWS::SQS::Queue", "Properties": {"DelaySeconds": seconds}}


def bad_after(*names: str) -> dict[str, Any]:
    return {**BAD, "DependsOn": list(names)}


class Failing:
    """A stack whose operations fail."""

    def __init__(self, running: Running, name: str) -> None:
        self.running, self.name = running, name
        self.client = running.client("cloudformation")

    def update(self, resources: dict[str, Any], **members: Any) -> None:
        self.client.update_stack(StackName=self.name, TemplateBody=json.dumps({"Resources": resources}), **members)

    def status(self) -> str:
        """The status once it is final."""
        while True:
            [stack] = self.client.describe_stacks(StackName=self.name)["Stacks"]
            if not stack["StackStatus"].endswith("IN_PROGRESS"):
                return str(stack["StackStatus"])
            time.sleep(0.05)

    def delay(self, name: str = "Queue") -> str:
        url = ids(self.running, self.name)[name]
        asked = {"QueueUrl": url, "AttributeNames": ["DelaySeconds"]}
        return str(self.running.client("sqs").get_queue_attributes(**asked)["Attributes"]["DelaySeconds"])


def test_an_update_that_is_not_rolled_back_keeps_what_it_did_and_is_rolled_back_later(running: Running) -> None:
    """API_UpdateStack, DisableRollback; API_RollbackStack. It is what `cdk deploy --no-rollback` and `cdk rollback` do."""
    failing = Failing(running, "kept")
    deploy(running, "kept", {"Queue": queue(1), "Old": queue(1)})
    failing.update({"Queue": queue(2), "New": queue(2), "Bad": bad_after("Queue", "New")}, DisableRollback=True)
    assert failing.status() == "UPDATE_FAILED"
    assert {*ids(running, "kept")} == {"Queue", "New", "Old"}
    assert failing.delay() == "2"
    statuses = failing.client.describe_stack_resources(StackName="kept")["StackResources"]
    assert {one["LogicalResourceId"]: one["ResourceStatus"] for one in statuses} == {
        "Queue": "UPDATE_COMPLETE",
        "New": "CREATE_COMPLETE",
        "Old": "CREATE_COMPLETE",
    }
    failing.client.rollback_stack(StackName="kept")
    assert failing.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert {*ids(running, "kept")} == {"Queue", "Old"}
    assert failing.delay() == "1"


def test_the_next_update_does_what_the_failed_one_did_not(running: Running) -> None:
    failing = Failing(running, "again")
    deploy(running, "again", {"Queue": queue(1), "Late": queue(1), "Old": queue(1)})
    late = {**queue(3), "DependsOn": ["Bad"]}
    failing.update({"Queue": queue(2), "Bad": bad_after("Queue"), "Late": late}, DisableRollback=True)
    assert failing.status() == "UPDATE_FAILED"
    assert failing.delay("Late") == "1"
    failing.update({"Queue": queue(2), "Bad": queue(1), "Late": late})
    assert failing.status() == "UPDATE_COMPLETE"
    assert {*ids(running, "again")} == {"Queue", "Bad", "Late"}
    assert (failing.delay(), failing.delay("Late")) == ("2", "3")


def test_a_creation_that_is_not_rolled_back_keeps_what_it_made(running: Running) -> None:
    """API_CreateStack, OnFailure and DisableRollback"""
    failing = Failing(running, "half")
    template = json.dumps({"Resources": {"Queue": queue(1), "Bad": bad_after("Queue")}})
    failing.client.create_stack(StackName="half", TemplateBody=template, OnFailure="DO_NOTHING")
    assert failing.status() == "CREATE_FAILED"
    assert failing.delay() == "1"
    failing.client.rollback_stack(StackName="half")
    assert failing.status() == "ROLLBACK_COMPLETE"
    assert ids(running, "half") == {}
    with pytest.raises(ClientError, match="is in ROLLBACK_COMPLETE state and can not be updated"):
        failing.update({"Queue": queue(1)})
    destroy(running, "half")


def test_what_an_update_replaced_comes_back_with_what_it_holds(running: Running) -> None:
    """ "Update behaviors of stack resources", Replacement: the former is deleted once the update can no longer fail."""
    failing, s3 = Failing(running, "restored"), running.client("s3")
    template = {"Data": BUCKET, "Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": {"Ref": "Data"}}}}
    deploy(running, "restored", template)
    bucket = ids(running, "restored")["Data"]
    s3.put_object(Bucket=bucket, Key="model", Body=b"weights")
    renamed = {**template, "Data": {**BUCKET, "Properties": {"BucketName": "another-name"}}}
    failing.update({**renamed, "Bad": bad_after("Topic")})
    assert failing.status() == "UPDATE_ROLLBACK_COMPLETE"
    assert ids(running, "restored")["Data"] == bucket
    assert s3.get_object(Bucket=bucket, Key="model")["Body"].read() == b"weights"
    topic = running.client("sns").get_topic_attributes(TopicArn=ids(running, "restored")["Topic"])
    assert topic["Attributes"]["DisplayName"] == bucket
    assert "another-name" not in [one["Name"] for one in s3.list_buckets()["Buckets"]]


def test_another_name_replaces_a_resource(running: Running) -> None:
    """engine/test_replacement.py of LocalStack: test_requires_replacement"""
    named = {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": {"Ref": "Name"}}}
    for name in ("first", "second"):
        deploy(running, "renamed", {"Queue": named}, Parameters={"Name": {"Type": "String", "Default": name}})
    assert ids(running, "renamed")["Queue"].endswith("/second")
    assert not running.client("sqs").list_queues(QueueNamePrefix="first").get("QueueUrls")


def test_a_policy_by_a_condition_keeps_a_resource(running: Running) -> None:
    """engine/test_deletion_policy.py of LocalStack: test_deletion_policy_with_retain"""
    policy = {"Fn::If": ["Kept", "Retain", "Delete"]}
    deploy(
        running,
        "by-condition",
        {"Kept": {**BUCKET, "DeletionPolicy": policy}, "Gone": BUCKET},
        Conditions={"Kept": {"Fn::Equals": [{"Ref": "AWS::Region"}, "us-east-1"]}},
    )
    made = ids(running, "by-condition")
    destroy(running, "by-condition")
    buckets = [one["Name"] for one in running.client("s3").list_buckets()["Buckets"]]
    assert (made["Kept"] in buckets, made["Gone"] in buckets) == (True, False)


def test_a_protected_stack_is_deleted_only_once_it_is_not(running: Running) -> None:
    """API_UpdateTerminationProtection, which `termination_protection=True` of a stack has the CDK CLI call."""
    client = running.client("cloudformation")
    deploy(running, "protected", {"Data": BUCKET})
    client.update_termination_protection(StackName="protected", EnableTerminationProtection=True)
    assert client.describe_stacks(StackName="protected")["Stacks"][0]["EnableTerminationProtection"]
    with pytest.raises(
        ClientError, match=r"Stack \[protected\] cannot be deleted while TerminationProtection is enabled"
    ):
        client.delete_stack(StackName="protected")
    client.update_termination_protection(StackName="protected", EnableTerminationProtection=False)
    destroy(running, "protected")


def test_a_stack_is_deleted_without_what_cannot_be(running: Running) -> None:
    """API_DeleteStack, RetainResources"""
    client, s3 = running.client("cloudformation"), running.client("s3")
    deploy(running, "stuck", {"Data": BUCKET, "Queue": queue(1)})
    bucket = ids(running, "stuck")["Data"]
    s3.put_object(Bucket=bucket, Key="model", Body=b"weights")
    with pytest.raises(ClientError, match="RetainResources can only be specified for a stack in DELETE_FAILED state"):
        client.delete_stack(StackName="stuck", RetainResources=["Data"])
    client.delete_stack(StackName="stuck")
    assert Failing(running, "stuck").status() == "DELETE_FAILED"
    client.delete_stack(StackName="stuck", RetainResources=["Data"])
    client.get_waiter("stack_delete_complete").wait(StackName="stuck", WaiterConfig=WAITING)
    assert s3.get_object(Bucket=bucket, Key="model")["Body"].read() == b"weights"
