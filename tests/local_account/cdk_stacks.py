"""Stacks of a running account, deployed as the CDK CLI does it."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import ClientError
from running_account import Running

WAITING = {"Delay": 0.1, "MaxAttempts": 3_000}  # seconds between two looks, and looks
_TRUST = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
_CODE = """
import cfnresponse, subprocess
def handler(event, context):
    subprocess.Popen(["sleep", "1000"])
    cfnresponse.send(event, context, "SUCCESS", {})
"""
# Some resources, one of which a function makes, that leaves a process behind.
WITH_A_FUNCTION = {
    "Resources": {
        "Bucket": {"Type": "AWS::S3::Bucket"},
        "FileSystem": {"Type": "AWS::EFS::FileSystem"},
        "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {"Statement": [_TRUST]}}},
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "Code": {"ZipFile": _CODE},
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Runtime": "python3.13",
                "Timeout": 60,
            },
        },
        "Custom": {
            "Type": "Custom::Thing",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}},
        },
    }
}


def deploy(running: Running, name: str, resources: dict[str, Any], **top: Any) -> dict[str, str]:
    """Create a stack, or change one, by a change set; its outputs."""
    client = running.client("cloudformation")
    template = json.dumps({"Resources": resources, **top})
    try:
        client.describe_stacks(StackName=name)
        kind = "UPDATE"
    except ClientError:
        kind = "CREATE"
    names = {"StackName": name, "ChangeSetName": kind}
    client.create_change_set(**names, ChangeSetType=kind, TemplateBody=template, Capabilities=["CAPABILITY_NAMED_IAM"])
    client.execute_change_set(StackName=name, ChangeSetName=kind)
    client.get_waiter(f"stack_{kind.lower()}_complete").wait(StackName=name, WaiterConfig=WAITING)
    [stack] = client.describe_stacks(StackName=name)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def destroy(running: Running, name: str) -> None:
    client = running.client("cloudformation")
    client.delete_stack(StackName=name)
    client.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig=WAITING)


def reasons(running: Running, name: str) -> str:
    """Why a deployment failed, as the stack's events say it."""
    events = running.client("cloudformation").describe_stack_events(StackName=name)["StackEvents"]
    return " ".join(event.get("ResourceStatusReason") or "" for event in events)


def ids(running: Running, name: str) -> dict[str, str]:
    """The physical ids of a stack's resources, by their logical ids."""
    found = running.client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    return {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in found}
