"""The page "From CDK's task to ours": that its examples run, and that what it says of CDK's task is so."""

import json
import re
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from aws_cdk.assertions import Template

import cdk_sagemaker_training

PAGE = (Path(__file__).parents[2] / "docs" / "from-cdk.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BEFORE, AFTER, BEFORE_EFA, AFTER_EFA, BEFORE_KEY, AFTER_KEY, AFTER_SPOT = EXAMPLES


def made(example: str) -> dict[str, Any]:
    """The template of a stack in which an example of the page stands."""
    stack = cdk.Stack(cdk.App(), "Stack")
    given = {
        "stack": stack,
        "bucket": s3.Bucket(stack, "Bucket"),
        "key": kms.Key(stack, "Key"),
        "vpc": ec2.Vpc(stack, "Vpc", max_azs=1),
    }
    public = {name: getattr(cdk_sagemaker_training, name) for name in cdk_sagemaker_training.__all__}
    exec(example, {"cdk": cdk, "ec2": ec2, "iam": iam, "sfn": sfn, "tasks": tasks, **public, **given})
    return dict(Template.from_stack(stack).to_json()["Resources"])


def of_type(resources: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["Properties"] for one in resources.values() if one["Type"] == kind]


def to_themselves(resources: dict[str, Any], direction: str) -> int:
    """How many rules of a direction lead from a security group to itself."""
    other = {"Ingress": "SourceSecurityGroupId", "Egress": "DestinationSecurityGroupId"}[direction]
    rules = of_type(resources, f"AWS::EC2::SecurityGroup{direction}")
    return sum(rule["GroupId"] == rule.get(other) for rule in rules)


def actions_on_keys(resources: dict[str, Any]) -> set[str]:
    statements = [
        one for policy in of_type(resources, "AWS::IAM::Policy") for one in policy["PolicyDocument"]["Statement"]
    ]
    actions = [[one["Action"]] if isinstance(one["Action"], str) else one["Action"] for one in statements]
    return {action for some in actions for action in some if action.startswith("kms:")}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_page_makes_a_template(example: str) -> None:
    assert made(example)


def test_cdks_group_has_no_rule_to_itself_and_ours_has_both() -> None:
    before, after = made(BEFORE), made(AFTER)
    assert (to_themselves(before, "Ingress"), to_themselves(before, "Egress")) == (0, 0)
    assert (to_themselves(after, "Ingress"), to_themselves(after, "Egress")) == (1, 1)


def test_what_cdk_mends_of_its_group_is_the_way_in_only_and_ours_mends_both() -> None:
    before, after = made(BEFORE_EFA), made(AFTER_EFA)
    assert (to_themselves(before, "Ingress"), to_themselves(before, "Egress")) == (1, 0)
    assert (to_themselves(after, "Ingress"), to_themselves(after, "Egress")) == (1, 1)


def test_cdks_output_key_is_not_granted_to_decrypt_and_ours_is() -> None:
    assert "kms:Decrypt" not in actions_on_keys(made(BEFORE))
    assert actions_on_keys(made(AFTER)) >= {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey*"}


def test_cdk_grants_no_pull_of_an_image_in_an_ecr_and_ours_does() -> None:
    assert "ecr:BatchGetImage" not in json.dumps(made(BEFORE))
    assert "ecr:BatchGetImage" in json.dumps(made(AFTER))


def test_cdk_grants_to_delete_objects_and_ours_does_not() -> None:
    assert "s3:DeleteObject*" in json.dumps(made(BEFORE))
    assert "s3:DeleteObject" not in json.dumps(made(AFTER))
