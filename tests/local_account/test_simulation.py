"""IAM's policy simulator, as SageMaker's Python SDK asks it whether a role will do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.iam.models import iam_backends
from running_account import Running

OBJECT = "arn:aws:s3:::data/1"


@pytest.fixture
def iam(running: Running) -> Iterator[Any]:
    client = running.client("iam")
    running.role("Simulated", "sagemaker.amazonaws.com")
    yield client
    for name in client.list_role_policies(RoleName="Simulated")["PolicyNames"]:
        client.delete_role_policy(RoleName="Simulated", PolicyName=name)
    client.delete_role(RoleName="Simulated")


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def allow(action: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def decision(iam: Any, *statements: dict[str, Any], **request: Any) -> str:
    """What is said of s3:GetObject on an object, for a role with one policy."""
    if statements:
        iam.put_role_policy(RoleName="Simulated", PolicyName="Only", PolicyDocument=policy(*statements))
    arn = iam.get_role(RoleName="Simulated")["Role"]["Arn"]
    given = {"PolicySourceArn": arn, "ActionNames": ["s3:GetObject"], "ResourceArns": [OBJECT], **request}
    [result] = iam.simulate_principal_policy(**given)["EvaluationResults"]
    return str(result["EvalDecision"])


def test_a_role_without_policies_is_allowed_nothing_though_nothing_is_enforced(iam: Any) -> None:
    assert decision(iam) == "implicitDeny"


def test_what_a_policy_allows_is_allowed(iam: Any) -> None:
    assert decision(iam, allow("s3:Get*", "arn:aws:s3:::data/*")) == "allowed"


def test_an_explicit_deny_beats_an_allow(iam: Any) -> None:
    deny = {**allow("s3:*", OBJECT), "Effect": "Deny"}
    assert decision(iam, allow("s3:*"), deny) == "explicitDeny"


def test_without_resources_a_statement_of_one_resource_does_not_allow(iam: Any) -> None:
    assert decision(iam, allow("s3:*", "arn:aws:s3:::data/*"), ResourceArns=["*"]) == "implicitDeny"


def test_policies_can_be_added_for_the_question(iam: Any) -> None:
    assert decision(iam, PolicyInputList=[policy(allow("s3:GetObject"))]) == "allowed"


@pytest.mark.parametrize(("region", "expected"), [("us-east-1", "allowed"), ("eu-west-1", "implicitDeny")])
def test_conditions_are_evaluated_with_the_context_that_is_given(iam: Any, region: str, expected: str) -> None:
    statement = allow("s3:*", Condition={"StringEquals": {"aws:RequestedRegion": "us-east-1"}})
    entry = {"ContextKeyName": "aws:RequestedRegion", "ContextKeyType": "string", "ContextKeyValues": [region]}
    assert decision(iam, statement, ContextEntries=[entry]) == expected


def test_a_condition_that_nobody_can_tell_does_not_undo_what_another_statement_allows(iam: Any) -> None:
    tagged = allow("s3:*", Condition={"StringEquals": {"s3:ExistingObjectTag/SageMaker": "true"}})
    assert decision(iam, tagged, allow("s3:GetObject")) == "allowed"


@pytest.mark.parametrize("effect", ["Allow", "Deny"])
def test_a_condition_that_nobody_can_tell_is_refused_where_it_decides(iam: Any, effect: str) -> None:
    tagged = allow("s3:*", Condition={"StringEquals": {"s3:ExistingObjectTag/SageMaker": "true"}})
    others = [allow("s3:*")] if effect == "Deny" else []
    with pytest.raises(ClientError, match=r"condition key s3:ExistingObjectTag/SageMaker.*is not evaluated here"):
        decision(iam, {**tagged, "Effect": effect}, *others)


def test_a_permissions_boundary_limits_what_is_allowed(iam: Any) -> None:
    made = iam.create_policy(PolicyName="Boundary", PolicyDocument=policy(allow("sagemaker:*")))["Policy"]
    iam.put_role_permissions_boundary(RoleName="Simulated", PermissionsBoundary=made["Arn"])
    assert decision(iam, allow("s3:*")) == "implicitDeny"


def test_a_users_groups_count(iam: Any) -> None:
    user = iam.create_user(UserName="reader")["User"]
    iam.create_group(GroupName="readers")
    iam.put_group_policy(GroupName="readers", PolicyName="Read", PolicyDocument=policy(allow("s3:Get*")))
    iam.add_user_to_group(GroupName="readers", UserName="reader")
    assert decision(iam, PolicySourceArn=user["Arn"]) == "allowed"


def test_each_action_on_each_resource_has_a_result(iam: Any) -> None:
    arn = iam.get_role(RoleName="Simulated")["Role"]["Arn"]
    results = iam.simulate_principal_policy(
        PolicySourceArn=arn, ActionNames=["s3:GetObject", "s3:PutObject"], ResourceArns=[OBJECT, "arn:aws:s3:::data/2"]
    )["EvaluationResults"]
    assert len({(result["EvalActionName"], result["EvalResourceName"]) for result in results}) == 4


@pytest.mark.parametrize("kind", ["role", "user"])
def test_who_is_not_there_cannot_be_asked_about(iam: Any, kind: str) -> None:
    with pytest.raises(iam.exceptions.NoSuchEntityException, match=f"the account has no {kind}"):
        decision(iam, PolicySourceArn=f"arn:aws:iam::123456789012:{kind}/nobody")


def test_a_resource_policy_is_refused_by_name(iam: Any) -> None:
    with pytest.raises(ClientError, match="does not evaluate ResourcePolicy in SimulatePrincipalPolicy"):
        decision(iam, ResourcePolicy=policy(allow("s3:*")))


def test_awss_managed_policies_are_there_in_the_partition_of_the_account_alone(iam: Any) -> None:
    arn = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
    assert iam.get_policy(PolicyArn=arn)["Policy"]["Arn"] == arn
    assert iam_backends["123456789012"]["aws-cn"].managed_policies == {}
