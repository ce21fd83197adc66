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
from aws_cdk.assertions import Annotations, Match, Template
from test_nag import findings

import cdk_sagemaker_training

PAGE = (Path(__file__).parents[2] / "docs" / "from-cdk.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(
    BEFORE,
    AFTER,
    BEFORE_SAID,
    AFTER_SAID,
    BEFORE_NAME,
    AFTER_NAME,
    BEFORE_EFA,
    AFTER_EFA,
    BEFORE_KEY,
    AFTER_KEY,
    AFTER_SPOT,
) = EXAMPLES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the examples run, with their folder of code."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").touch()
    monkeypatch.chdir(tmp_path)


def make(stack: cdk.Stack, example: str) -> None:
    """Run an example of the page in a stack."""
    given = {
        "stack": stack,
        "bucket": s3.Bucket(stack, "Bucket"),
        "key": kms.Key(stack, "Key"),
        "vpc": ec2.Vpc(stack, "Vpc", max_azs=1),
    }
    public = {name: getattr(cdk_sagemaker_training, name) for name in cdk_sagemaker_training.__all__}
    exec(example, {"cdk": cdk, "ec2": ec2, "iam": iam, "sfn": sfn, "tasks": tasks, **public, **given})


def made(example: str) -> dict[str, Any]:
    """The resources of a stack in which an example of the page stands."""
    stack = cdk.Stack(cdk.App(), "Stack")
    make(stack, example)
    return dict(Template.from_stack(stack).to_json()["Resources"])


def sent(resources: dict[str, Any]) -> dict[str, Any]:
    """The one request that a template's state machines send, what deployment fills in left out."""
    [request] = [
        state.get("Parameters") or state["Arguments"]
        for machine in of_type(resources, "AWS::StepFunctions::StateMachine")
        for state in states_of(machine["DefinitionString"]["Fn::Join"][1])
        if "createTrainingJob" in state.get("Resource", "")
    ]
    return dict(request)


def states_of(parts: list[Any]) -> list[dict[str, Any]]:
    definition = json.loads("".join(part for part in parts if isinstance(part, str)))
    return list(definition["States"].values())


def jobs_that_may_be_tagged(resources: dict[str, Any]) -> str:
    """The ARN, what deployment fills in left out, of the jobs that a state machine may add tags to."""
    [arn] = {
        "".join(part for part in resource["Fn::Join"][1] if isinstance(part, str))
        for policy in of_type(resources, "AWS::IAM::Policy")
        for one in policy["PolicyDocument"]["Statement"]
        if "sagemaker:AddTags" in one["Action"]
        for resource in ([one["Resource"]] if isinstance(one["Resource"], dict) else one["Resource"])
    }
    return arn


def wildcards(example: str, out: Path) -> list[str]:
    """What cdk-nag finds of wildcards in the permissions of an example."""

    class Example(cdk.Stack):
        def __init__(self, app: cdk.App, id: str) -> None:
            super().__init__(app, id)
            make(self, example)

    found = findings(Example, out)
    return [rule for rule, places in found.items() for _ in places if rule.startswith("AwsSolutions-IAM5")]


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


def test_an_example_of_ours_has_nothing_to_be_warned_of() -> None:
    for example in (AFTER, AFTER_SAID, AFTER_NAME, AFTER_EFA, AFTER_KEY, AFTER_SPOT):
        stack = cdk.Stack(cdk.App(), "Stack")
        make(stack, example)
        of_ours = Match.string_like_regexp("cdk-sagemaker-training:")
        found = [str(one.entry.data) for one in Annotations.from_stack(stack).find_warning("*", of_ours)]
        # AWS's container passes no signal on, whichever construct starts the job.
        assert [text for text in found if example is not AFTER_SPOT or "spot-without-signal" not in text] == []


def test_cdk_drops_the_shuffling_that_it_takes_and_ours_sends_it() -> None:
    [before], [after] = (sent(made(example))["InputDataConfig"] for example in (BEFORE_SAID, AFTER_SAID))
    assert "ShuffleConfig" not in before
    assert after["ShuffleConfig"] == {"Seed": 7}


def test_cdks_hyperparameters_are_no_text_and_ours_are() -> None:
    assert sent(made(BEFORE_SAID))["HyperParameters"] == {"lr": 0.1, "shuffle": True}
    assert sent(made(AFTER_SAID))["HyperParameters"].items() >= {"lr": "0.1", "shuffle": "true"}.items()


def test_cdk_chooses_a_machine_where_nobody_says_one() -> None:
    chosen = {"InstanceCount": 1, "InstanceType": "ml.m4.xlarge", "VolumeSizeInGB": 10}
    assert sent(made(BEFORE_SAID))["ResourceConfig"] == chosen


def test_cdk_lets_a_machine_tag_jobs_by_an_expression_and_ours_by_their_prefix() -> None:
    assert jobs_that_may_be_tagged(made(BEFORE_NAME)).endswith(":training-job/{% $states.input.name %}*")
    assert jobs_that_may_be_tagged(made(AFTER_NAME)).endswith(":training-job/digits-*")


def test_cdk_says_places_in_s3_by_https_and_ours_as_the_api_has_them() -> None:
    assert sent(made(BEFORE))["OutputDataConfig"]["S3OutputPath"].startswith("https://s3.")
    assert sent(made(AFTER))["OutputDataConfig"]["S3OutputPath"].startswith("s3://")


def test_cdks_permissions_have_twelve_wildcards_that_a_review_finds_and_ours_none(tmp_path: Path) -> None:
    assert len(wildcards(BEFORE, tmp_path / "before")) == 12
    assert wildcards(AFTER, tmp_path / "after") == []


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
