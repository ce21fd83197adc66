"""Roles: which documents and sessions IAM and STS refuse, and roles that are made while others are looked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import deploy, destroy, ids
from moto.iam.models import iam_backends
from running_account import Running


def test_a_role_is_found_while_another_is_made(running: Running) -> None:
    """A deployment of four stacks at once failed by "dictionary changed size during iteration"."""
    first = running.role("first-of-two", "lambda.amazonaws.com")
    looked_through = iter(iam_backends["123456789012"]["aws"].get_roles())
    found = [next(looked_through)]
    running.role("second-of-two", "lambda.amazonaws.com")
    assert first in {role.arn for role in [*found, *looked_through]}


def trust(**more: Any) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": {"AWS": "123456789012"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    return json.dumps({"Statement": [{**statement, **more}]})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ('{"Version": "2012-10-17", "Statement": [{"Effect": "Allow",}]}', "This policy contains invalid Json"),
        (trust(Resource="*"), "Has prohibited field Resource"),
        (trust(Action="s3:GetObject"), "Trust Policy statement actions can only be sts:AssumeRole"),
    ],
)
def test_a_role_is_not_made_with_a_trust_policy_that_iam_refuses(running: Running, document: str, message: str) -> None:
    """The first is recorded: LocalStack's test_create_role_with_malformed_assume_role_policy_document."""
    with pytest.raises(ClientError) as refused:
        running.client("iam").create_role(RoleName="refused", AssumeRolePolicyDocument=document)
    error = refused.value.response["Error"]
    assert error["Code"] == "MalformedPolicyDocument"
    assert error["Message"].startswith(message)


def test_a_role_is_made_with_a_trust_policy_without_a_version(running: Running) -> None:
    iam = running.client("iam")
    assert iam.create_role(RoleName="without-a-version", AssumeRolePolicyDocument=trust())["Role"]["Arn"]


@pytest.mark.parametrize("holder", ["role", "user", "group"])
def test_the_name_of_a_managed_policy_is_no_arn(running: Running, holder: str) -> None:
    attach = getattr(running.client("iam"), f"attach_{holder}_policy")
    with pytest.raises(ClientError, match=r"ValidationError.*Invalid ARN:  Could not be parsed!"):
        attach(**{f"{holder.capitalize()}Name": "mine", "PolicyArn": "AmazonS3ReadOnlyAccess"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"RoleArn": "nothing-valid-in-here"}, "nothing-valid-in-here is invalid"),
        ({"RoleArn": "arn:a::::something/test-role"}, "arn:a::::something/test-role is invalid"),
        ({"RoleSessionName": "Session1:2"}, "1 validation error detected: Value 'Session1:2' at 'roleSessionName'"),
        (
            {"Tags": [{"Key": "a", "Value": "1"}, {"Key": "A", "Value": "2"}]},
            "Duplicate tag keys found. Please note that Tag keys are case insensitive.",
        ),
        (
            {"Tags": [{"Key": "a", "Value": "1"}], "TransitiveTagKeys": ["b"]},
            "The specified transitive tag key must be included in the requested tags.",
        ),
    ],
)
def test_a_session_that_sts_refuses_is_refused_with_its_words(running: Running, given: Any, message: str) -> None:
    """Recorded: LocalStack's test_sts_invalid_parameters and test_assume_role_tag_validation."""
    iam = running.client("iam")
    if not any(role["RoleName"] == "taken-on" for role in iam.list_roles(MaxItems=1_000)["Roles"]):
        iam.create_role(RoleName="taken-on", AssumeRolePolicyDocument=trust())
    arn = iam.get_role(RoleName="taken-on")["Role"]["Arn"]
    assume = running.client("sts").assume_role
    assume(RoleArn=arn, RoleSessionName="it", Tags=[{"Key": "a", "Value": "1"}], TransitiveTagKeys=["A"])
    with pytest.raises(ClientError) as refused:
        assume(**{"RoleArn": arn, "RoleSessionName": "it", **given})
    assert refused.value.response["Error"]["Message"].startswith(message)


def test_a_policy_of_a_template_may_be_the_text_of_one(running: Running) -> None:
    """Recorded: LocalStack's test_managedpolicy_with_fn_sub_json_string."""
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:${AWS::Partition}:s3:::${Name}/*"}
    text = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    policy = {"PolicyDocument": {"Fn::Sub": [text, {"Name": "mine"}]}}
    deploy(running, "of-text", {"Policy": {"Type": "AWS::IAM::ManagedPolicy", "Properties": policy}})
    version = running.client("iam").get_policy_version(PolicyArn=ids(running, "of-text")["Policy"], VersionId="v1")
    assert version["PolicyVersion"]["Document"]["Statement"][0]["Resource"] == "arn:aws:s3:::mine/*"
    destroy(running, "of-text")
