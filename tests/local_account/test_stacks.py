"""What the account's CloudFormation does with templates, over boto3. The CDK CLI uses it in tests/end_to_end."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, WaiterError
from running_account import Running
from stacks import deploy, destroy, reasons

ROLE = {
    "Type": "AWS::IAM::Role",
    "Properties": {"RoleName": "StackRole", "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
}


def test_a_stack_is_made_and_says_its_outputs(running: Running) -> None:
    outputs = deploy(running, "made", {"Role": ROLE}, Outputs={"Arn": {"Value": {"Fn::GetAtt": ["Role", "Arn"]}}})
    assert outputs == {"Arn": "arn:aws:iam::123456789012:role/StackRole"}


def test_a_type_that_nobody_knows_fails_the_deployment_with_type_and_logical_id(running: Running) -> None:
    with pytest.raises((ClientError, WaiterError)) as raised:
        deploy(running, "unknown", {"Robot": {"Type": "AWS::RoboMaker::Robot"}})
    said = str(raised.value) + (reasons(running, "unknown") if isinstance(raised.value, WaiterError) else "")
    assert "AWS::RoboMaker::Robot" in said
    assert "Robot" in said.replace("AWS::RoboMaker::Robot", "")


def test_a_property_that_nothing_is_made_of_is_refused_with_type_and_logical_id(running: Running) -> None:
    bucket = {"Type": "AWS::S3::Bucket", "Properties": {"ObjectLockEnabled": True}}
    with pytest.raises(ClientError, match=r"ObjectLockEnabled of AWS::S3::Bucket \(Locked\)"):
        deploy(running, "unheard", {"Locked": bucket})


def test_a_stack_is_updated_in_place(running: Running) -> None:
    deploy(running, "updated", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "mine"}}})
    changed = {"LogGroupName": "mine", "RetentionInDays": 7}
    deploy(running, "updated", {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": changed}})
    [group] = running.client("logs").describe_log_groups(logGroupNamePrefix="mine")["logGroups"]
    assert group["retentionInDays"] == 7


def test_a_bucket_that_holds_something_is_not_deleted(running: Running) -> None:
    deploy(running, "full", {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "full-bucket"}}})
    running.client("s3").put_object(Bucket="full-bucket", Key="a", Body=b"a")
    with pytest.raises(WaiterError, match="DELETE_FAILED"):
        destroy(running, "full")


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
    destroy(running, "network")
    assert [vpc["VpcId"] for vpc in vpcs.describe_vpcs()["Vpcs"]] == before
