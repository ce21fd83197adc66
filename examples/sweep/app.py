"""One job for each learning rate, two at a time, and a table with the best."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_stepfunctions as sfn

from cdk_sagemaker_training import (
    DataParallelJob,
    Grid,
    InstanceGroup,
    NumberField,
    Objective,
    S3Prefix,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingSweep,
    TrainingWorkflow,
)

app = cdk.App()
stack = cdk.Stack(app, "Sweep")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
    image=TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
    code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
    output=S3Prefix(bucket, "models/"),
    # Hyperparameters are text.
    hyperparameters={"learning-rate": sfn.JsonPath.format("{}", sfn.JsonPath.string_at("$.learning_rate"))},
    input_fields={"learning_rate": NumberField(0, 1)},
    metric_definitions={"loss": "loss=([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
sweep = TrainingSweep(
    stack,
    "Sweep",
    workflow=workflow,
    over=Grid({"learning_rate": [0.003, 0.03, 0.3]}),
    results=S3Prefix(bucket, "sweeps/learning-rate/"),
    objective=Objective("loss", "Minimize"),
    concurrency=2,
)
cdk.CfnOutput(stack, "BucketName", value=bucket.bucket_name)
cdk.CfnOutput(stack, "StateMachineArn", value=sweep.state_machine.state_machine_arn)
app.synth()
