"""What the CDK CLI does by Cloud Control API in `cdk deploy --hotswap` and `cdk watch`, over boto3."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from running_account import Running

TRUST = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
MACHINE = "AWS::StepFunctions::StateMachine"


def definition(result: str) -> str:
    return json.dumps({"StartAt": "Only", "States": {"Only": {"Type": "Pass", "Result": result, "End": True}}})


@pytest.fixture(scope="module")
def machine(running: Running) -> str:
    trust = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
    role = running.client("iam").create_role(RoleName="of-machines", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    made = running.client("stepfunctions").create_state_machine(
        name="swapped", definition=definition("first"), roleArn=role, tags=[{"key": "team", "value": "vision"}]
    )
    return str(made["stateMachineArn"])


def update(running: Running, machine: str, *operations: dict[str, Any], kind: str = MACHINE) -> dict[str, Any]:
    client = running.client("cloudcontrol")
    patch = json.dumps(operations)
    return dict(client.update_resource(TypeName=kind, Identifier=machine, PatchDocument=patch)["ProgressEvent"])


def described(running: Running, machine: str) -> dict[str, Any]:
    found = running.client("cloudcontrol").get_resource(TypeName=MACHINE, Identifier=machine)["ResourceDescription"]
    return dict(json.loads(found["Properties"]))


def test_a_definition_is_replaced_and_the_rest_stays(running: Running, machine: str) -> None:
    before = running.client("stepfunctions").describe_state_machine(stateMachineArn=machine)
    event = update(running, machine, {"op": "replace", "path": "/DefinitionString", "value": definition("second")})
    assert (event["OperationStatus"], event["Identifier"]) == ("SUCCESS", machine)
    after = running.client("stepfunctions").describe_state_machine(stateMachineArn=machine)
    assert (after["definition"], after["roleArn"]) == (definition("second"), before["roleArn"])
    assert described(running, machine)["DefinitionString"] == definition("second")


def test_tags_are_added_and_removed_one_by_one(running: Running, machine: str) -> None:
    update(running, machine, {"op": "add", "path": "/Tags/-", "value": {"Key": "cost", "Value": "42"}})
    update(running, machine, {"op": "remove", "path": "/Tags/0"})
    assert described(running, machine)["Tags"] == [{"Key": "cost", "Value": "42"}]


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ({"op": "replace", "path": "/Nowhere/3", "value": "x"}, "PatchDocument cannot be applied"),
        ({"op": "replace", "path": "/DefinitionString", "value": "{}"}, "InvalidRequestException"),
        (
            {"op": "replace", "path": "", "value": {"RoleArn": "arn:aws:iam::123456789012:role/other"}},
            "must add, replace",
        ),
        ({"op": "copy", "path": "/RoleArn", "from": "/Arn"}, "must add, replace"),
    ],
)
def test_a_change_that_cannot_be_made_is_an_error_and_changes_nothing(
    running: Running, machine: str, operation: dict[str, Any], said: str
) -> None:
    before = described(running, machine)
    with pytest.raises(ClientError, match=said):
        update(running, machine, operation)
    assert described(running, machine) == before


def test_another_type_and_a_machine_that_is_not_there_are_refused_by_name(running: Running, machine: str) -> None:
    operation = {"op": "add", "path": "/Tags", "value": []}
    with pytest.raises(ClientError, match="AWS::SQS::Queue"):
        update(running, machine, operation, kind="AWS::SQS::Queue")
    with pytest.raises(ClientError, match="there is no state machine"):
        update(running, f"{machine}-other", operation)


def of_a_user(running: Running, name: str, *actions: str) -> Any:
    """Cloud Control API for a user that may do these on anything."""
    iam = running.client("iam")
    iam.create_user(UserName=name)
    allowed = {"Effect": "Allow", "Action": ["cloudformation:UpdateResource", *actions], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    iam.put_user_policy(UserName=name, PolicyName="swap", PolicyDocument=policy)
    keys = iam.create_access_key(UserName=name)["AccessKey"]
    return running.client(
        "cloudcontrol", aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"]
    )


def test_who_may_not_update_the_machine_may_not_by_cloud_control(running: Running, machine: str) -> None:
    client = of_a_user(running, "swapper")
    with pytest.raises(ClientError, match="not authorized to perform: states:UpdateStateMachine"):
        client.update_resource(TypeName=MACHINE, Identifier=machine, PatchDocument="[]")


def test_who_may_not_pass_a_role_may_not_by_cloud_control(running: Running, machine: str) -> None:
    client = of_a_user(running, "passer", "states:UpdateStateMachine")
    role = {"op": "replace", "path": "/RoleArn", "value": "arn:aws:iam::123456789012:role/admin"}
    with pytest.raises(ClientError, match=r"not authorized to perform: iam:PassRole on resource: .*role/admin"):
        client.update_resource(TypeName=MACHINE, Identifier=machine, PatchDocument=json.dumps([role]))
