"""How a workflow finds out that its job completed without a model, and what it does then."""

from __future__ import annotations

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk.assertions import Template
from rendered import definitions, lint, resolved

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3AccessPoint,
    S3Prefix,
    TrainingImage,
    TrainingWorkflow,
)

ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/models"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"


class Stack(cdk.Stack):
    def __init__(self) -> None:
        env = cdk.Environment(account="123456789012", region="us-east-1")
        super().__init__(cdk.App(), "Stack", env=env, analytics_reporting=False)
        self.bucket = s3.Bucket.from_bucket_name(self, "Bucket", "bucket")

    def workflow(self, output: S3Prefix | None = None, **props: Any) -> None:
        TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.g5.xlarge")),
            image=TrainingImage.from_uri(self, "Image", IMAGE),
            output=output or S3Prefix(self.bucket, "models/"),
            **props,
        )

    def template(self) -> dict[str, Any]:
        return dict(Template.from_stack(self).to_json())


class Rendered:
    """A workflow's states, and what its state machine may list."""

    def __init__(self, stack: Stack) -> None:
        template = stack.template()
        [self.definition] = [one for one in definitions(template).values() if "Create" in one["States"]]
        self.states = self.definition["States"]
        self.listing = [
            (resolved(statement["Resource"]), statement["Condition"]["StringLike"]["s3:prefix"])
            for name, resource in template["Resources"].items()
            if resource["Type"] == "AWS::IAM::Policy" and name.startswith("TrainingStateMachineRole")
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]
            if statement["Action"] == "s3:ListBucket"
        ]

    @property
    def prefix(self) -> str:
        return str(self.states["FindModel"]["Parameters"]["Prefix.$"])


def rendered(output: S3Prefix | None = None, **props: Any) -> Rendered:
    stack = Stack()
    stack.workflow(output, **props)
    return Rendered(stack)


@pytest.fixture(scope="module")
def warning() -> Rendered:
    return rendered()


def test_what_a_completed_job_uploaded_is_looked_for_packed_or_not(warning: Rendered) -> None:
    [completed, *_] = warning.states["IsOver"]["Choices"]
    assert completed["Next"] == "FindModel"
    assert warning.states["FindModel"]["Resource"] == "arn:aws:states:::aws-sdk:s3:listObjectsV2"
    assert warning.states["FindModel"]["Parameters"] == {
        "Bucket": "bucket",
        "Prefix.$": "States.Format('{}{}/output/model', 'models/', $.Training.JobName)",
        "MaxKeys": 1,
    }
    assert lint({"Machine": warning.definition}) == []


def test_the_machine_may_list_the_outputs_prefix_and_no_more(warning: Rendered) -> None:
    assert warning.listing == [("arn:aws:s3:::bucket", ["models/*"])]


def test_an_execution_without_a_model_has_a_warning_in_its_output(warning: Rendered) -> None:
    without = warning.states["WithoutModel"]
    assert (without["Type"], without["ResultPath"], without["Next"]) == ("Pass", "$.Training.Job.Warnings", "Completed")
    assert without["Result"] == [
        "the job completed without a model: it left nothing in /opt/ml/model, and nothing is at S3ModelArtifacts"
    ]


def test_a_listing_that_is_refused_is_no_error_where_a_model_is_not_needed(warning: Rendered) -> None:
    assert [one["Next"] for one in warning.states["FindModel"]["Catch"]] == ["Completed"]


def test_an_execution_that_needs_a_model_fails_without_and_where_it_cannot_look() -> None:
    failing = rendered(missing_model="fail")
    without = failing.states["WithoutModel"]
    assert (without["Type"], without["Error"]) == ("Fail", "TrainingJobWithoutModel")
    assert [one["Next"] for one in failing.states["FindModel"]["Catch"]] == ["Error"]
    assert lint({"Machine": failing.definition}) == []


def test_a_model_that_nobody_needs_is_not_looked_for() -> None:
    ignoring = rendered(missing_model="ignore")
    assert ignoring.states["IsOver"]["Choices"][0]["Next"] == "Completed"
    assert "FindModel" not in ignoring.states
    assert ignoring.listing == []


@pytest.mark.parametrize(("prefix", "folder"), [("", "''"), ("models", "'models/'"), ("a/it's/", r"'a/it\'s/'")])
def test_a_model_is_looked_for_where_sagemaker_puts_it_below_any_prefix(prefix: str, folder: str) -> None:
    found = rendered(S3Prefix(Stack().bucket, prefix)).prefix
    assert found == f"States.Format('{{}}{{}}/output/model', {folder}, $.Training.JobName)"


def test_below_an_access_point_a_model_is_listed_through_it() -> None:
    stack = Stack()
    stack.workflow(S3Prefix(S3AccessPoint(ACCESS_POINT, bucket=stack.bucket), "models/"))
    assert Rendered(stack).listing == [(ACCESS_POINT, ["models/*"]), ("arn:aws:s3:::bucket", ["models/*"])]


def test_a_model_whose_place_only_an_execution_knows_is_not_looked_for() -> None:
    chosen = S3Prefix(Stack().bucket, "models/", subfolder=sfn.JsonPath.string_at("$.customer"))
    assert "FindModel" not in rendered(chosen).states
    with pytest.raises(ValueError, match=r"^missing_model must be 'warn' or 'ignore' where only an execution knows"):
        rendered(chosen, missing_model="fail")


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^missing_model must be one of 'warn', 'fail', 'ignore'.*got 'error'"):
        rendered(missing_model="error")
