"""The benchmarked app as this library writes it: `TrainingWorkflow`s, 25 to a stack."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Torchrun,
    TrainingImage,
    TrainingWorkflow,
)


class Stack(cdk.Stack):
    def __init__(self, scope: Construct, id: str, workflows: int) -> None:
        super().__init__(scope, id, env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket")
        image = TrainingImage.from_dlc(self, "Image", "pytorch-training", "2.6.0-gpu-py312", account_id="123456789012")
        for number in range(workflows):
            TrainingWorkflow(
                self,
                f"Training{number}",
                job=HeterogeneousJob(
                    groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
                    train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
                    train_group="dnn_group",
                ),
                image=image,
                channels={"digits": S3Channel(bucket, "digits/", groups=["data_group"])},
                output=S3Prefix(bucket, "models/"),
                checkpoints=S3Prefix(bucket, "checkpoints/"),
                hyperparameters={"epochs": 4, "batch-size": 64},
                metric_definitions={"loss": r"loss ([0-9.]+)"},
                job_name_prefix=f"digits-{number}",
                max_runtime=cdk.Duration.hours(1),
            )
