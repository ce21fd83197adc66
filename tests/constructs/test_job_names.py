"""What the names of a construct's jobs begin with by default, and which jobs its policies are for."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import pytest
from stacks import UserStack


def patterns(stack: UserStack) -> list[str]:
    """The names of jobs that the policies of each workflow of a stack are for, in the order of the workflows."""
    policies = [one for one in stack.template()["Resources"].values() if one["Type"] == "AWS::IAM::Policy"]
    statements = [one for policy in policies for one in policy["Properties"]["PolicyDocument"]["Statement"]]
    creating = [one["Resource"] for one in statements if "sagemaker:CreateTrainingJob" in one["Action"]]
    return [re.findall(r"training-job/([^\"]+)", json.dumps(resource))[0] for resource in creating]


def of_workflows(*ids: str) -> list[str]:
    stack = UserStack()
    for id in ids:
        stack.workflow(id)
    return patterns(stack)


def overlap(one: str, other: str) -> bool:
    """Whether a pattern is for jobs of another."""
    return fnmatchcase(other.replace("*", "1"), one) or fnmatchcase(one.replace("*", "1"), other)


def test_a_prefix_is_the_path_in_lower_case() -> None:
    assert of_workflows("Train", "Evaluate-2", "Score") == ["stack-train-*", "stack-evaluate-2-*", "stack-score-*"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Train", "train"),
        ("train", "Train"),
        ("DataTrain", "Datatrain"),
        ("Train_2", "Train-2"),
        ("Train", "Train-2"),
        ("Train-2", "Train"),
    ],
)
def test_prefixes_that_differ_in_capitals_or_separators_or_go_on_are_for_other_jobs(first: str, second: str) -> None:
    one, other = of_workflows(first, second)
    assert [one] == of_workflows(first)  # as if it were alone
    assert re.fullmatch(r"stack(train2?|datatrain)[0-9a-f]{8}-\*", other)
    assert not overlap(one, other)


def test_prefixes_of_ids_in_other_scripts_are_for_other_jobs() -> None:
    ids = ("Обучение", "Оценка", "学習", "訓練", "Größe", "Grüße", "Train")
    found = of_workflows(*ids)
    assert all(re.fullmatch(r"[a-z0-9-]{1,26}-\*", pattern) for pattern in found), found
    pairs = [(one, other) for number, one in enumerate(found) for other in found[:number]]
    assert not [pair for pair in pairs if overlap(*pair)]


def test_a_prefix_of_an_id_in_another_script_is_the_same_beside_others() -> None:
    assert of_workflows("Train", "学習")[1:] == of_workflows("学習")


def test_a_prefix_is_for_other_jobs_than_one_that_is_given() -> None:
    stack = UserStack()
    stack.workflow("Given", job_name_prefix="UserStack-Train")
    stack.workflow("Train")
    given, default = patterns(stack)
    assert given == "UserStack-Train-*"
    assert not overlap(given.lower(), default)


def test_tasks_and_workflows_have_prefixes_of_their_own() -> None:
    stack = UserStack()
    stack.workflow("Train")
    stack.machine_of(stack.task("train"))
    workflow, of_task = patterns(stack)
    assert not overlap(workflow, of_task)
