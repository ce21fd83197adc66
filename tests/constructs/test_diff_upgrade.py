"""``training-jobs diff-upgrade`` on two syntheses of an app, and what it takes for breaking."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from typer.testing import CliRunner

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingWorkflow,
)
from cdk_sagemaker_training.cli.main import app as command_line
from cdk_sagemaker_training.upgrades.replacement import CREATE_ONLY

Change = Callable[[TrainingWorkflow], None]


def assembly(folder: Path, id: str = "Training", change: Change | None = None, **props: Any) -> Path:
    """An app with a stack and another one in a stage, synthesized into a folder."""
    app = cdk.App(outdir=str(folder), analytics_reporting=False)
    for scope in (app, cdk.Stage(app, "Prod")):
        stack = cdk.Stack(scope, "Digits")
        bucket = s3.Bucket(stack, "Bucket")
        image = TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker")
        job = DataParallelJob(InstanceGroup("ml.m5.xlarge"))
        workflow = TrainingWorkflow(
            stack, id, **{"job": job, "image": image, "output": S3Prefix(bucket, "models/"), **props}
        )
        if change is not None:
            change(workflow)
    app.synth()
    return folder


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return assembly(tmp_path_factory.mktemp("syntheses") / "before")


def compared(old: Path, new: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the differences of the stack that is in no stage."""
    result = CliRunner().invoke(command_line, ["diff-upgrade", str(old), str(new), "--json"])
    rows = json.loads(result.stdout)
    assert {one["stack"] for one in rows} in (set(), {"Digits", "Prod/Digits"})
    return result.exit_code, [one for one in rows if one["stack"] == "Digits"]


def test_two_syntheses_of_one_app_have_no_difference(before: Path, tmp_path: Path) -> None:
    assert compared(before, assembly(tmp_path / "after")) == (0, [])


def test_a_member_of_the_request_with_another_value_is_breaking(before: Path, tmp_path: Path) -> None:
    code, found = compared(before, assembly(tmp_path / "after", volume_size=cdk.Size.gibibytes(50)))
    assert code == 1
    [request] = [one["what"] for one in found if one["breaking"]]
    assert request.endswith(": ResourceConfig.VolumeSizeInGB: 30 -> 50")


def test_a_new_member_of_the_request_is_breaking(before: Path, tmp_path: Path) -> None:
    code, found = compared(before, assembly(tmp_path / "after", environment={"MODE": "fast"}))
    assert code == 1
    assert [one["what"].partition(": ")[2] for one in found if one["kind"] == "request"] == [
        "Create: Environment.MODE: nothing -> fast"
    ]


def test_other_logical_ids_are_breaking(before: Path, tmp_path: Path) -> None:
    code, found = compared(before, assembly(tmp_path / "after", "Train"))
    assert code == 1
    removed = {one["what"].split()[0] for one in found if one["breaking"]}
    template = json.loads((before / "Digits.template.json").read_text())
    assert {name for name in template["Resources"] if name.startswith("Training")} <= removed


def test_a_property_whose_change_replaces_a_resource_is_breaking(before: Path, tmp_path: Path) -> None:
    def name_it(workflow: TrainingWorkflow) -> None:
        workflow.state_machine.node.default_child.state_machine_name = "digits"  # type: ignore[union-attr]

    code, found = compared(before, assembly(tmp_path / "after", change=name_it))
    assert code == 1
    [replaced] = [one["what"] for one in found if one["breaking"] and one["kind"] == "resource"]
    assert replaced.endswith("is replaced, since StateMachineName changes")


def test_a_permission_more_or_less_is_breaking(before: Path, tmp_path: Path) -> None:
    def allow(workflow: TrainingWorkflow) -> None:
        workflow.state_machine.add_to_role_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=["*"]))

    after = assembly(tmp_path / "after", change=allow)
    for old, new, word in ((before, after, "new"), (after, before, "removed")):
        code, found = compared(old, new)
        assert code == 1
        [permission] = [one["what"] for one in found if one["breaking"]]
        assert permission.endswith(f": {word}: Allow sqs:SendMessage on *")


def test_a_statement_that_is_split_in_two_grants_the_same(before: Path, tmp_path: Path) -> None:
    def statements(*groups: list[str]) -> Change:
        def add(workflow: TrainingWorkflow) -> None:
            for index, group in enumerate(groups):
                statement = iam.PolicyStatement(actions=group, resources=["arn:aws:sqs:us-east-1:1:a"])
                policy = iam.CfnPolicy(
                    workflow,
                    f"Policy{index}",
                    policy_name=f"p{index}",
                    policy_document={"Statement": [statement.to_json()]},
                )
                policy.roles = [workflow.state_machine.role.role_name]

        return add

    one = assembly(tmp_path / "one", change=statements(["sqs:SendMessage", "sqs:ReceiveMessage"]))
    two = assembly(tmp_path / "two", change=statements(["sqs:ReceiveMessage"], ["sqs:SendMessage"]))
    assert [difference for difference in compared(one, two)[1] if difference["kind"] == "permission"] == []


def test_the_hash_of_an_image_is_no_difference(before: Path, tmp_path: Path) -> None:
    def assembly_of(folder: Path, tag: str) -> Path:
        (folder).mkdir()
        (folder / "manifest.json").write_text(
            json.dumps(
                {"artifacts": {"S": {"type": "aws:cloudformation:stack", "properties": {"templateFile": "t.json"}}}}
            )
        )
        request = {"AlgorithmSpecification": {"TrainingImage": f"1.dkr.ecr.us-east-1.amazonaws.com/assets:{tag * 64}"}}
        state = {"Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync", "Parameters": request}
        machine = {
            "Type": "AWS::StepFunctions::StateMachine",
            "Properties": {"Definition": {"States": {"Train": state}}},
        }
        (folder / "t.json").write_text(json.dumps({"Resources": {"Machine": machine}}))
        return folder

    result = CliRunner().invoke(
        command_line, ["diff-upgrade", str(assembly_of(tmp_path / "a", "a")), str(assembly_of(tmp_path / "b", "b"))]
    )
    assert (result.exit_code, result.stdout) == (0, "0 breaking, 0 other\n")


def test_a_folder_without_a_synthesis_is_named(before: Path, tmp_path: Path) -> None:
    refused = CliRunner().invoke(command_line, ["diff-upgrade", str(before), str(tmp_path)])
    assert refused.exit_code == 2
    assert "manifest.json" in refused.stderr


@pytest.mark.parametrize("kind", sorted(CREATE_ONLY))
def test_what_replaces_a_resource_is_what_cloudformations_schema_names(kind: str) -> None:
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER  # type: ignore[import-untyped]

    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
    assert {path.split("/")[2] for path in schema["createOnlyProperties"]} == CREATE_ONLY[kind]
