"""A training whose step is compiled by torch.compile; the compiled code is kept with the checkpoints."""

import argparse

import aws_cdk as cdk
from aws_cdk import aws_s3_assets as s3_assets

from cdk_sagemaker_training import (
    CompiledJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    TorchCompile,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)

app = cdk.App()
stack = cdk.Stack(app, "Compiled")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
# Text to train on: a module of Python's standard library. Name a file of your own.
text = s3_assets.Asset(stack, "Text", path=argparse.__file__)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=CompiledJob(InstanceGroup("ml.g5.xlarge"), compiler=TorchCompile(), launcher=Torchrun()),
    image=TrainingImage.from_asset(stack, "Image", directory=training_code_path(), file="compiled/Dockerfile"),
    channels={"text": S3Channel(text.bucket, text.s3_object_key)},
    output=S3Prefix(bucket, "models/"),
    checkpoints=S3Prefix(bucket, "checkpoints/"),
    hyperparameters={"steps": 40, "batch-size": 16, "sequence": 64},
    metric_definitions={
        "loss": r"step \d+ loss ([0-9.]+)",
        "compile time (s)": r"compile time ([0-9.]+)",
        "steady step (ms)": r"steady step ([0-9.]+)",
    },
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
