"""The library's statements, held against IAM's own definition, the page of permissions, and the sources that it names.

Then the checker itself, on the same stacks with permissions that were altered.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from checker import REFERENCE, not_granted, not_in_iam, without_row, without_source, without_statement
from iam_reference import listed, wrong_in
from moto.iam.aws_managed_policies import aws_managed_policies_data
from needs import lacking
from page import PAGE, Row, exercised, granted, left_out, sources
from sources import RECORDED, all_sources, full_access
from statements import Held, statements
from under_review import STACKS, held_by, template_of

TEXT = PAGE.read_text()
ROWS: list[Row] = [*exercised(TEXT), *granted(TEXT)]
JOBS = "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits-*"


def assert_none(found: list[str]) -> None:
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def held() -> list[Held]:
    return [one for name in STACKS for one in held_by(name)]


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_has_only_actions_resources_and_condition_keys_that_iam_has(name: str) -> None:
    assert_none(not_in_iam(held_by(name)))


@pytest.mark.parametrize("name", STACKS)
def test_each_permission_of_a_stack_has_its_row_on_the_page(name: str) -> None:
    assert_none(without_row(held_by(name), ROWS))


@pytest.mark.parametrize("name", STACKS)
def test_each_role_of_a_stack_has_what_its_calls_and_jobs_take(name: str) -> None:
    assert_none(lacking(template_of(name)))


def test_each_row_of_the_page_is_a_permission_of_some_stack(held: list[Held]) -> None:
    assert_none(without_statement(held, ROWS))


def test_each_row_names_sources_that_list_its_action() -> None:
    assert_none(without_source(ROWS, all_sources()))


def test_what_a_source_lists_is_granted_or_left_out_with_a_reason(held: list[Held]) -> None:
    assert_none(not_granted(held, all_sources(), left_out(TEXT)))


def test_nothing_is_left_out_that_no_source_lists_any_more(held: list[Held]) -> None:
    excused = left_out(TEXT)
    assert [one for one in sorted(excused) if not_granted(held, all_sources(), excused - {one}) == []] == []


def test_the_page_says_what_each_source_is() -> None:
    assert set(sources(TEXT)) == {*all_sources(), REFERENCE}


def altered(name: str, action: str, *instead: str) -> dict[str, Any]:
    """A stack's template in whose policies an action stands as others, or as none."""
    template: dict[str, Any] = copy.deepcopy(dict(template_of(name)))
    found = 0
    for resource in template["Resources"].values():
        for statement in resource.get("Properties", {}).get("PolicyDocument", {}).get("Statement", []):
            named = listed(statement["Action"])
            found += named.count(action)
            statement["Action"] = [one for had in named for one in (instead if had == action else [had])]
    assert found, f"{name} has no {action}"
    return template


def test_an_action_that_is_misspelt_is_found() -> None:
    held = statements(altered("Waiting", "sagemaker:ListTags", "sagemaker:ListTag"))
    assert all(found.endswith("there is no action sagemaker:ListTag") for found in not_in_iam(held))
    assert not_in_iam(held)
    found = " ".join(without_row(held, ROWS))
    assert all(f"has no row for `sagemaker:ListTag` of the {holder}" in found for holder in ("machine", "guard"))


@pytest.mark.parametrize("action", ["sagemaker:ListTags", "sagemaker:DescribeTrainingJob", "iam:PassRole"])
def test_an_action_that_is_taken_away_is_found(action: str) -> None:
    held = [one for name in STACKS for one in altered_if_there(name, action)]
    found = not_granted(held, all_sources(), left_out(TEXT))
    assert [one for one in found if f"`sagemaker-iam` lists `{action}` for the machine, which has it not" in one]
    assert [one for one in without_statement(held, ROWS) if f"no stack grants `{action}` to the machine" in one]


def altered_if_there(name: str, action: str) -> list[Held]:
    has = any(action in one.actions for one in held_by(name) if one.holder != "trust")
    return statements(altered(name, action)) if has else held_by(name)


@pytest.mark.parametrize(
    ("name", "action", "role"),
    [
        ("Waiting", "sagemaker:ListTags", "MachineRole"),
        ("Waiting", "iam:PassRole", "CalledStateMachineRole"),
        ("Waiting", "states:StopExecution", "CallerRole"),
        ("CompiledTraining", "sagemaker:DescribeTrainingJob", "TrainingStateMachineRole"),
        ("CompiledTraining", "ec2:DescribeDhcpOptions", "TrainingRole"),
        ("Members", "kms:CreateGrant", "TrainingRole"),
        ("Everything", "ecr:BatchGetImage", "TrainingRole"),
        ("Reading", "s3:PutObject", "Own"),
    ],
)
def test_an_action_that_is_taken_away_in_one_stack_is_found(name: str, action: str, role: str) -> None:
    found = lacking(altered(name, action))
    assert [one for one in found if one.startswith(role) and one.endswith(f" has no {action}")]


def test_an_action_that_a_source_comes_to_list_is_found(held: list[Held]) -> None:
    policy = json.loads(aws_managed_policies_data)["AmazonSageMakerFullAccess"]["Document"]
    plans = next(one for one in policy["Statement"] if one["Sid"] == "AllowUseOfTrainingPlanResources")
    plans["Action"].append("sagemaker:UseTrainingPlan")
    more = {**all_sources(), "AmazonSageMakerFullAccess": full_access(policy)}
    [found] = not_granted(held, more, left_out(TEXT))
    assert found.startswith("`AmazonSageMakerFullAccess` lists `sagemaker:UseTrainingPlan` for the machine")
    assert "| `AmazonSageMakerFullAccess` | `sagemaker:UseTrainingPlan` | why not |" in found


def test_a_source_that_does_not_list_the_action_any_more_is_found() -> None:
    fewer = {**all_sources(), "sagemaker-iam": all_sources()["sagemaker-iam"] - {("machine", "sagemaker:ListTags")}}
    assert without_source(ROWS, fewer) == ["`sagemaker-iam` does not list `sagemaker:ListTags` for the machine"]


def test_a_row_without_a_source_is_found() -> None:
    [row] = granted(
        "| role | action | why | source |\n|---|---|---|---|\n| job | `s3:GetObject` | to read | nobody |\n"
    )
    assert without_source([row], all_sources()) == [
        "the row of `s3:GetObject` of the job must name a source, like `reference`, got none"
    ]


def test_a_row_with_a_cell_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must have the cells role \| action \| why \| source, got \| job"):
        granted("| role | action | why | source |\n|---|---|---|---|\n| job | `s3:GetObject` | `reference` |\n")


@pytest.mark.parametrize(
    ("action", "resource", "condition", "wrong"),
    [
        ("s3:GetObjects", "*", {}, "there is no action s3:GetObjects"),
        ("s4:GetObject", "*", {}, "there is no action s4:GetObject"),
        ("s3:ListBucket", "arn:aws:s3:::data/images/*", {}, "s3:ListBucket takes none of"),
        ("s3:GetObject", "arn:aws:s3:::data", {}, "s3:GetObject takes none of"),
        ("fsx:DescribeFileSystems", "arn:aws:fsx:us-east-1:123456789012:file-system/fs-1", {}, "takes none of"),
        ("sagemaker:ListTrainingJobs", JOBS, {}, "sagemaker:ListTrainingJobs takes none of"),
        ("sagemaker:StopTrainingJob", JOBS.replace("job/", "jobs/"), {}, "sagemaker:StopTrainingJob takes none of"),
        ("s3:ListBucket", "arn:aws:s3:::data", {"s3:prefixes": "a"}, "s3:ListBucket has no condition key s3:prefixes"),
        ("s3:GetObject", "arn:aws:s3:::data/*", {"s3:prefix": "a"}, "s3:GetObject has no condition key s3:prefix"),
        ("s3:GetObject", "*", {"aws:SourceAccounts": "1"}, "s3:GetObject has no condition key aws:SourceAccounts"),
    ],
)
def test_what_iam_does_not_have_is_found(action: str, resource: str, condition: Mapping[str, str], wrong: str) -> None:
    statement = {"Action": action, "Resource": resource, "Condition": {"StringLike": condition}}
    assert any(wrong in found for found in wrong_in(statement))


@pytest.mark.parametrize(
    "statement",
    [
        {"Action": ["sagemaker:CreateTrainingJob", "sagemaker:StopTrainingJob"], "Resource": JOBS},
        {"Action": "kms:GenerateDataKey*", "Resource": "arn:aws:kms:us-east-1:123456789012:key/1"},
        {"Action": "s3:*", "Resource": ["arn:aws:s3:::data", "arn:aws:s3:::data/*"]},
        {"Action": "s3:GetObject", "Resource": "*", "Condition": {"StringEquals": {"aws:PrincipalTag/team": "a"}}},
        {"Action": "logs:PutLogEvents", "Resource": "arn:aws:logs:us-east-1:123456789012:log-group:/aws/jobs:*"},
    ],
)
def test_nothing_is_wrong_with_what_iam_has(statement: Mapping[str, Any]) -> None:
    assert wrong_in(statement) == []


def test_what_is_recorded_of_aws_are_actions_that_iam_has() -> None:
    for by_holder in RECORDED.values():
        for actions in by_holder.values():
            assert wrong_in({"Action": [*actions]}) == []
