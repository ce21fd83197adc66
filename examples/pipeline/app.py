"""A model that is registered only if it is good enough."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_sagemaker as sagemaker

from cdk_sagemaker_training import (
    DataParallelJob,
    Gate,
    InstanceGroup,
    RegisterModel,
    S3Prefix,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingPipeline,
    TrainingWorkflow,
)

app = cdk.App()
stack = cdk.Stack(app, "Pipeline")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
group = sagemaker.CfnModelPackageGroup(stack, "Group", model_package_group_name="lines")
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
    image=TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
    code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
    output=S3Prefix(bucket, "models/"),
    metric_definitions={"accuracy": "accuracy=([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
pipeline = TrainingPipeline(
    stack,
    "Pipeline",
    steps=[
        workflow,
        Gate(stack, "GoodEnough", workflow, metric="accuracy", at_least=0.9),
        RegisterModel(stack, "Register", workflow, group="lines", metrics=["accuracy"]),
    ],
)
pipeline.node.add_dependency(group)
cdk.CfnOutput(stack, "StateMachineArn", value=pipeline.state_machine.state_machine_arn)
app.synth()
