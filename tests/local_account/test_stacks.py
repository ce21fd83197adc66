"""What the account's CloudFormation does with templates, over boto3. The CDK CLI uses it in tests/end_to_end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from running_account import Running


def deploy(running: Running, name: str, resources: dict[str, Any], **top: Any) -> dict[str, Any]:
    """Deploy as the CDK CLI does, by a change set; the stack's description."""
    client = running.client("cloudformation")
    template = json.dumps({"Resources": resources, **top})
    try:
        client.describe_stacks(StackName=name)
        kind = "UPDATE"
    except ClientError:
        kind = "CREATE"
    client.create_change_set(StackName=name, ChangeSetName=kind, ChangeSetType=kind, TemplateBody=template)
    client.execute_change_set(StackName=name, ChangeSetName=kind)
    client.get_waiter(f"stack_{kind.lower()}_complete").wait(
        StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
    )
    return dict(client.describe_stacks(StackName=name)["Stacks"][0])


def reasons(running: Running, name: str) -> list[str]:
    events = running.client("cloudformation").describe_stack_events(StackName=name)["StackEvents"]
    return [event["ResourceStatusReason"] for event in events if event.get("ResourceStatusReason")]


ROLE = {
    "Type": "AWS::IAM::Role",
    "Properties": {"RoleName": "StackRole", "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
}


def test_a_stack_is_made_and_says_its_outputs(running: Running) -> None:
    stack = deploy(running, "made", {"Role": ROLE}, Outputs={"Arn": {"Value": {"Fn::GetAtt": ["Role", "Arn"]}}})
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    assert stack["Outputs"] == [{"OutputKey": "Arn", "OutputValue": "arn:aws:iam::123456789012:role/StackRole"}]


def test_a_type_that_nobody_knows_fails_the_deployment_with_type_and_logical_id(running: Running) -> None:
    with pytest.raises((ClientError, WaiterError)) as raised:
        deploy(running, "unknown", {"Robot": {"Type": "AWS::RoboMaker::Robot"}})
    said = str(raised.value) + "".join(reasons(running, "unknown") if isinstance(raised.value, WaiterError) else [])
    assert "AWS::RoboMaker::Robot" in said
    assert "Robot" in said.replace("AWS::RoboMaker::Robot", "")


def test_a_stack_is_updated_in_place(running: Running) -> None:
    deploy(running, "updated", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "mine"}}})
    changed = {"LogGroupName": "mine", "RetentionInDays": 7}
    stack = deploy(running, "updated", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": changed}})
    assert stack["StackStatus"] == "UPDATE_COMPLETE"
    [group] = running.client("logs").describe_log_groups(logGroupNamePrefix="mine")["logGroups"]
    assert group["retentionInDays"] == 7


def test_a_bucket_that_holds_something_is_not_deleted(running: Running) -> None:
    deploy(running, "full", {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full-bucket"}}})
    running.client("s3").put_object(Bucket="full-bucket", Key="a", Body=b"a")
    client = running.client("cloudformation")
    client.delete_stack(StackName="full")
    with pytest.raises(WaiterError, match="DELETE_FAILED"):
        client.get_waiter("stack_delete_complete").wait(StackName="full", WaiterConfig={"Delay": 1, "MaxAttempts": 30})


def test_a_vpc_with_its_subnets_and_security_groups_is_deleted(running: Running) -> None:
    vpcs = running.client("ec2")
    before = [vpc["VpcId"] for vpc in vpcs.describe_vpcs()["Vpcs"]]
    deploy(
        running,
        "network",
        {
            "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}},
            "Subnet": {
                "Type": "AWS::EC2::Subnet",
                "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.1.0.0/24", "AvailabilityZone": "us-east-1a"},
            },
            "Group": {
                "Type": "AWS::EC2::SecurityGroup",
                "Properties": {"VpcId": {"Ref": "Vpc"}, "GroupDescription": "hosts"},
            },
            "Out": {
                "Type": "AWS::EC2::SecurityGroupEgress",
                "Properties": {
                    "GroupId": {"Fn::GetAtt": ["Group", "GroupId"]},
                    "DestinationSecurityGroupId": {"Fn::GetAtt": ["Group", "GroupId"]},
                    "IpProtocol": "-1",
                },
            },
        },
    )
    client = running.client("cloudformation")
    client.delete_stack(StackName="network")
    client.get_waiter("stack_delete_complete").wait(StackName="network", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    assert [vpc["VpcId"] for vpc in vpcs.describe_vpcs()["Vpcs"]] == before
