"""A workflow whose bucket is in another stack, and one in a nested stack, by the CDK CLI."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from deployed import Deployed, ending_at_once

from cdk_sagemaker_training import TrainingWorkflow


@pytest.mark.soak  # the templates are held with each change
def test_workflows_train_beside_the_stack_of_their_bucket_and_inside_one(deployed: Deployed, tmp_path: Path) -> None:
    context = tmp_path / "context"
    app = cdk.App(outdir=str(tmp_path / "assembly"))
    data = cdk.Stack(app, "Data")
    bucket = s3.Bucket(data, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
    beside = cdk.Stack(app, "Beside")
    for name, scope in (("Beside", beside), ("Nested", cdk.NestedStack(beside, "Nested"))):
        workflow = TrainingWorkflow(scope, "Training", **ending_at_once(scope, context, bucket))
        cdk.CfnOutput(beside, f"{name}Machine", value=workflow.state_machine.state_machine_arn)
    outputs = deployed.deploy(beside)
    executions = [deployed.start(machine) for machine in sorted(outputs.values())]
    assert [deployed.ended(execution)["status"] for execution in executions] == ["SUCCEEDED", "SUCCEEDED"]
    # What another stack imports stays; once that is gone, all goes.
    deployed.cdk("destroy", "--app", str(tmp_path / "assembly"), "--all", "--force")
    stacks = deployed.client("cloudformation").describe_stacks()["Stacks"]
    assert [stack["StackName"] for stack in stacks] == ["CDKToolkit"]
