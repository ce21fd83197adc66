"""A ResNet on JPEGs: one CPU machine decodes and crops, one GPU machine trains."""

import aws_cdk as cdk

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)

app = cdk.App()
stack = cdk.Stack(app, "Images")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge")},
        train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
        train_group="dnn_group",
    ),
    image=TrainingImage.from_asset(
        stack, "Image", directory=training_code_path(), file="heterogeneous/images/Dockerfile"
    ),
    channels={
        "train": S3Channel(bucket, "images/train/", groups=["data_group"]),
        "validation": S3Channel(bucket, "images/val/", groups=["dnn_group"]),
    },
    output=S3Prefix(bucket, "models/"),
    # A small network on small images, which a CPU trains in seconds. For ImageNet: {"epochs": 90}, the rest is the default.
    hyperparameters={
        "epochs": 4,
        "classes": 3,
        "depth": 26,
        "width": 16,
        "size": 32,
        "batch-size": 20,
        "learning-rate": 0.5,
        "log-every": 5,
    },
    metric_definitions={"loss": r"step \d+ loss ([0-9.]+)", "accuracy": r"accuracy ([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "BucketName", value=bucket.bucket_name)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
