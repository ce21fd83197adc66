"""How a workflow finds out that its job completed without a model, and what it does then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import aws_stepfunctions as sfn
from rendered import lint
from stacks import RenderedWorkflow, UserStack

from cdk_sagemaker_training import S3AccessPoint, S3Prefix, TrainingCode

ACCESS_POINT = "arn:aws:s3:us-east-1:123456789012:accesspoint/models"


def listing_of(workflow: RenderedWorkflow) -> list[tuple[str, list[str]]]:
    """What the workflow's state machine may list, and below which prefixes."""
    statements = workflow.statements("TrainingStateMachineRole")
    listing = [one for one in statements if one["Action"] == "s3:ListBucket"]
    return [(one["Resource"], one["Condition"]["StringLike"]["s3:prefix"]) for one in listing]


@pytest.fixture(scope="module")
def warning() -> RenderedWorkflow:
    return RenderedWorkflow()


def test_what_a_completed_job_uploaded_is_looked_for_packed_or_not(warning: RenderedWorkflow) -> None:
    [completed, *_] = warning.states["IsOver"]["Choices"]
    assert completed["Next"] == "FindModel"
    assert warning.states["FindModel"]["Resource"] == "arn:aws:states:::aws-sdk:s3:listObjectsV2"
    assert warning.states["FindModel"]["Parameters"] == {
        "Bucket": "bucket",
        "Prefix.$": "States.Format('{}{}/output/model', 'models/', $.Training.JobName)",
        "MaxKeys": 1,
    }
    assert lint({"Machine": warning.definition}) == []


def test_the_machine_may_list_the_outputs_prefix_and_no_more(warning: RenderedWorkflow) -> None:
    assert listing_of(warning) == [("arn:aws:s3:::bucket", ["models/*"])]


def test_an_execution_without_a_model_has_a_warning_in_its_output(warning: RenderedWorkflow) -> None:
    without = warning.states["WithoutModel"]
    assert (without["Type"], without["ResultPath"], without["Next"]) == ("Pass", "$.Training.Job.Warnings", "Completed")
    assert without["Result"] == [
        "the job completed without a model: it left nothing in /opt/ml/model, and nothing is at S3ModelArtifacts"
    ]


def test_a_listing_that_is_refused_is_no_error_where_a_model_is_not_needed(warning: RenderedWorkflow) -> None:
    assert [one["Next"] for one in warning.states["FindModel"]["Catch"]] == ["Completed"]


def test_an_execution_that_needs_a_model_fails_without_and_where_it_cannot_look() -> None:
    failing = RenderedWorkflow(missing_model="fail")
    without = failing.states["WithoutModel"]
    assert (without["Type"], without["Error"]) == ("Fail", "TrainingJobWithoutModel")
    assert [one["Next"] for one in failing.states["FindModel"]["Catch"]] == ["Error"]
    assert lint({"Machine": failing.definition}) == []


def test_a_model_that_nobody_needs_is_not_looked_for() -> None:
    ignoring = RenderedWorkflow(missing_model="ignore")
    assert ignoring.states["IsOver"]["Choices"][0]["Next"] == "Completed"
    assert "FindModel" not in ignoring.states
    assert listing_of(ignoring) == []


@pytest.mark.parametrize(("prefix", "folder"), [("", "''"), ("models", "'models/'"), ("a/it's/", r"'a/it\'s/'")])
def test_a_model_is_looked_for_where_sagemaker_puts_it_below_any_prefix(prefix: str, folder: str) -> None:
    stack = UserStack()
    found = RenderedWorkflow(stack, output=stack.place(prefix)).states["FindModel"]["Parameters"]["Prefix.$"]
    assert found == f"States.Format('{{}}{{}}/output/model', {folder}, $.Training.JobName)"


def test_below_an_access_point_a_model_is_listed_through_it() -> None:
    stack = UserStack()
    output = S3Prefix(S3AccessPoint(ACCESS_POINT, bucket=stack.bucket), "models/")
    assert listing_of(RenderedWorkflow(stack, output=output)) == [
        (ACCESS_POINT, ["models/*"]),
        ("arn:aws:s3:::bucket", ["models/*"]),
    ]


def test_a_model_whose_place_only_an_execution_knows_is_not_looked_for() -> None:
    stack = UserStack()
    chosen = stack.place("models/", subfolder=sfn.JsonPath.string_at("$.customer"))
    assert "FindModel" not in RenderedWorkflow(stack, output=chosen).states
    with pytest.raises(
        ValueError, match=r"^missing_model must be 'warn' or 'ignore' if the location of the model depends"
    ):
        stack.workflow("Failing", output=chosen, missing_model="fail")


def test_a_choice_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^missing_model must be one of 'warn', 'fail', 'ignore'.*got 'error'"):
        UserStack().workflow(missing_model="error")


SAVES = "import torch\ntorch.save(model, 'model.pt')\n"


@pytest.mark.parametrize(
    ("files", "props", "warns"),
    [
        ({"train.py": SAVES}, {}, True),
        ({"train.py": "import save\n", "save.py": SAVES}, {}, True),
        (
            {"train.py": "model.save_pretrained(arguments.output_dir)\n"},
            {"hyperparameters": {"output_dir": "out"}},
            True,
        ),
        ({"train.py": SAVES}, {"missing_model": "ignore"}, False),
        ({"train.py": SAVES.replace("'model.pt'", "'/opt/ml/model/model.pt'")}, {}, False),
        ({"train.py": SAVES + "folder = os.environ['SM_MODEL_DIR']\n"}, {}, False),
        ({"train.py": SAVES, "config.yaml": "output: /opt/ml/model\n"}, {}, False),
        ({"train.py": SAVES}, {"hyperparameters": {"output_dir": "/opt/ml/model"}}, False),
        ({"train.py": SAVES}, {"environment": {"OUT": "/opt/ml/model"}}, False),
        ({"train.py": SAVES}, {"hyperparameters": {"output_dir": sfn.JsonPath.string_at("$.output")}}, False),
        ({"train.py": SAVES}, {"hyperparameters": {"steps": sfn.JsonPath.string_at("$.steps")}}, True),
        ({"train.py": "print('evaluated')\n"}, {}, False),
    ],
)
def test_a_script_that_saves_its_model_where_nothing_is_uploaded_is_warned_of(
    tmp_path: Path, files: dict[str, str], props: dict[str, Any], warns: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    stack = UserStack()
    stack.workflow(code=TrainingCode(str(tmp_path)), **props)
    assert ("script-saves-elsewhere" in stack.warned()) is warns
