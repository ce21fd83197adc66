"""What docs/other-tools.md shows, as it stands there: an app in JavaScript that starts a workflow of one in Python."""

from __future__ import annotations

import tarfile
from pathlib import Path

import aws_cdk as cdk
import constructs
import pytest
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import cloud_assembly_schema
from deployed import ROOT, Deployed, ending_at_once
from fenced_blocks import blocks

from cdk_sagemaker_training import TrainingWorkflow

PAGE = {block.language: block.text for block in blocks((ROOT / "docs" / "other-tools.md").read_text())}


class Training(cdk.Stack):
    """A workflow whose output is the page's."""

    def __init__(self, app: cdk.App, context: Path) -> None:
        super().__init__(app, "Training")
        props = ending_at_once(self, context, s3.Bucket(self, "Bucket"))
        names = {"cdk": cdk, "sfn": sfn, "self": self, "TrainingWorkflow": TrainingWorkflow, "props": props}
        exec(PAGE["python"].replace("...", "**props,"), names)


def unpacked(folder: Path) -> Path:
    """The packages of npm, which those of Python carry."""
    carried = {"aws-cdk-lib": cdk, "constructs": constructs, "@aws-cdk/cloud-assembly-schema": cloud_assembly_schema}
    for package, module in carried.items():
        [archive] = Path(str(module.__file__)).parent.glob("_jsii/*.tgz")
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        home = folder / "node_modules" / package
        home.parent.mkdir(parents=True, exist_ok=True)
        (folder / "package").rename(home)
    return folder


@pytest.mark.soak
def test_an_app_in_javascript_starts_the_workflow_of_one_in_python(deployed: Deployed, tmp_path: Path) -> None:
    deployed.deploy(Training(cdk.App(outdir=str(tmp_path / "assembly")), tmp_path / "context"))
    app = unpacked(tmp_path / "javascript")
    (app / "app.js").write_text(PAGE["javascript"])
    deployed.cdk(
        "deploy", "--app", f"node {app}/app.js", "--output", str(tmp_path / "cdk.out"), "--require-approval", "never"
    )
    [stack] = deployed.client("cloudformation").describe_stacks(StackName="Release")["Stacks"]
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    ended = deployed.ended(deployed.start(outputs["Release"]))
    assert ended["status"] == "SUCCEEDED", ended
    [job] = deployed.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    assert job["TrainingJobStatus"] == "Completed"
    deployed.cdk("destroy", "--app", f"node {app}/app.js", "--output", str(tmp_path / "cdk.out"), "--force")
