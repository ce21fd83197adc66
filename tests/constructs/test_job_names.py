"""What the names of a construct's jobs begin with by default, and which jobs its policies are for."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase

import aws_cdk as cdk
import pytest
from constructs import Construct
from stacks import UserStack

from cdk_sagemaker_training.core.job_names import default_prefix


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


def test_a_prefix_is_the_path_in_lower_case_and_a_hash_of_it() -> None:
    found = of_workflows("Train", "Evaluate-2", "A-long-name-of-a-workflow")
    kept = [re.fullmatch(r"(.*)-[0-9a-f]{8}-\*", pattern) for pattern in found]
    assert [name[1] for name in kept if name] == ["stack-train", "stack-evaluate-2", "stack-a-long-name"]


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
def test_prefixes_are_for_other_jobs_and_do_not_change_when_another_workflow_comes(first: str, second: str) -> None:
    one, other = of_workflows(first, second)
    assert [[one], [other]] == [of_workflows(first), of_workflows(second)]
    assert not overlap(one, other)


def test_a_stack_under_another_name_has_prefixes_of_its_own() -> None:
    found = set()
    for name in ("dev", "prod"):
        stack = cdk.Stack(cdk.App(), "Stack", stack_name=name)
        found.add(default_prefix(Construct(stack, "Train")))
    assert len(found) == 2


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
