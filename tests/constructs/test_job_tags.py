"""Tags that CDK's ``Tags.of`` adds to the scopes around what starts jobs, and that reach the jobs."""

from __future__ import annotations

import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from constructs import Construct

from cdk_sagemaker_training.resources.job_tags import JobTags

EXECUTION = {"Key": "StepFunctionsExecution", "Value.$": "$$.Execution.Id"}
OWN = [{"Key": "team", "Value": "vision"}, EXECUTION]


class Starter(Construct):
    """What starts jobs, as a workflow does: by a state machine with a request, or with one of AWS Batch."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.tags = JobTags(self)
        definition = {
            "SageMaker": self.tags.listed(OWN),
            "Batch": self.tags.mapped({"team": "vision", "StepFunctionsExecution.$": "$$.Execution.Id"}),
        }
        text = cdk.Stack.of(self).to_json_string(definition)
        sfn.StateMachine(self, "Machine", definition_body=sfn.DefinitionBody.from_string(text))


class Tagged:
    """A stack with what starts jobs, and the tags of its requests."""

    def __init__(self) -> None:
        self.stack = cdk.Stack(cdk.App(), "Stack")
        self.starter = Starter(self.stack, "Training")

    @property
    def requests(self) -> dict[str, Any]:
        template = Template.from_stack(self.stack)
        [machine] = template.find_resources("AWS::StepFunctions::StateMachine").values()
        definition = machine["Properties"]["DefinitionString"]
        if isinstance(definition, str):
            return dict(json.loads(definition))
        return dict(json.loads("".join(part if isinstance(part, str) else "REF" for part in definition["Fn::Join"][1])))


def test_a_tag_of_the_stack_is_on_jobs_of_both_services() -> None:
    tagged = Tagged()
    cdk.Tags.of(tagged.stack).add("cost-centre", "42")
    assert tagged.requests == {
        "SageMaker": [*OWN, {"Key": "cost-centre", "Value": "42"}],
        "Batch": {"team": "vision", "StepFunctionsExecution.$": "$$.Execution.Id", "cost-centre": "42"},
    }


def test_without_a_tag_of_a_scope_the_tags_are_the_requests_own() -> None:
    assert Tagged().requests["SageMaker"] == OWN


@pytest.mark.parametrize("key", ["team", "StepFunctionsExecution"])
def test_a_tag_of_the_request_wins_over_one_of_a_scope(key: str) -> None:
    tagged = Tagged()
    cdk.Tags.of(tagged.stack).add(key, "of the stack")
    assert tagged.requests["SageMaker"] == OWN


def test_a_tag_of_the_construct_wins_over_one_of_its_stack() -> None:
    tagged = Tagged()
    cdk.Tags.of(tagged.stack).add("stage", "test")
    cdk.Tags.of(tagged.starter).add("stage", "production")
    assert tagged.requests["SageMaker"][-1] == {"Key": "stage", "Value": "production"}


def test_a_tag_for_other_types_of_resources_or_removed_again_is_not_on_jobs() -> None:
    tagged = Tagged()
    cdk.Tags.of(tagged.stack).add("backup", "daily", include_resource_types=["AWS::S3::Bucket"])
    cdk.Tags.of(tagged.stack).add("no-jobs", "1", exclude_resource_types=["AWS::SageMaker::TrainingJob"])
    cdk.Tags.of(tagged.stack).add("stage", "test")
    cdk.Tags.of(tagged.starter).remove("stage")
    assert tagged.requests["SageMaker"] == OWN


def test_a_tags_value_may_be_a_parameter_of_the_stack() -> None:
    tagged = Tagged()
    cdk.Tags.of(tagged.stack).add("owner", cdk.CfnParameter(tagged.stack, "Owner").value_as_string)
    assert tagged.requests["SageMaker"][-1] == {"Key": "owner", "Value": "REF"}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cost*centre", "42", "got 'cost*centre'"),
        ("k" * 129, "42", "tags of a scope must have names of 1 to 128 letters"),
        ("owner", "a|b", "tags of a scope must have values of at most 256 letters"),
    ],
)
def test_a_tag_that_sagemaker_would_refuse_is_an_error_at_synthesis(key: str, value: str, message: str) -> None:
    tagged = Tagged()
    cdk.Tags.of(tagged.stack).add(key, value)
    with pytest.raises(RuntimeError) as raised:
        tagged.requests  # noqa: B018
    assert message in str(raised.value)
    assert "Stack/Training/JobTags" in str(raised.value)


@pytest.mark.parametrize(("count", "refused"), [(48, False), (49, True)])
def test_a_job_has_at_most_50_tags_with_its_own(count: int, refused: bool) -> None:
    tagged = Tagged()
    for number in range(count):
        cdk.Tags.of(tagged.stack).add(f"tag{number}", "1")
    if not refused:
        assert len(tagged.requests["SageMaker"]) == 50
        return
    with pytest.raises(RuntimeError, match="must be at most 48 beside the job's own 2, like 1, got 49"):
        tagged.requests  # noqa: B018
