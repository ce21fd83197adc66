"""A stack of two workflows, deployed, with executions that have ended: what the client and the command line are tested on."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingWorkflow,
)

A_LOGGING_JOB = Path(__file__).parent / "a_logging_job"
FOREVER = 1_000_000  # steps, of a job that a test stops


class TwoWorkflows(cdk.Stack):
    """`Training` has two groups, checkpoints and resume_from, and `Single` one machine and neither."""

    def __init__(self, app: cdk.App) -> None:
        super().__init__(app, "Logging")
        bucket = s3.Bucket(self, "Bucket")
        steps = {"steps": sfn.JsonPath.string_at("$.steps")}
        image = TrainingImage.from_asset(self, "Image", directory=str(A_LOGGING_JOB))
        TrainingWorkflow(
            self,
            "Training",
            job=HeterogeneousJob(
                groups={"data_group": InstanceGroup("ml.c5.xlarge")},
                train=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
                train_group="dnn_group",
            ),
            image=image,
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            resume_from=sfn.JsonPath.string_at("$.resume_from"),
            hyperparameters=steps,
            metric_definitions={"loss": r"loss (\d+)"},
            max_runtime=cdk.Duration.hours(1),
        )
        TrainingWorkflow(
            self,
            "Single",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            image=image,
            output=S3Prefix(bucket, "models/"),
            hyperparameters=steps,
            max_runtime=cdk.Duration.hours(1),
        )
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
