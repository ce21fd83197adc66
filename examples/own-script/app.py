"""A script that was written for SageMaker's SDK, as it is, in one of AWS's containers: no Dockerfile, no build."""

from pathlib import Path

import aws_cdk as cdk

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingWorkflow,
)

app = cdk.App()
stack = cdk.Stack(app, "OwnScript")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
    image=TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
    code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
    channels={"training": S3Channel(bucket, "data/")},
    output=S3Prefix(bucket, "models/"),
    hyperparameters={"epochs": 200, "learning-rate": 0.1},
    metric_definitions={"loss": "loss=([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "BucketName", value=bucket.bucket_name)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
