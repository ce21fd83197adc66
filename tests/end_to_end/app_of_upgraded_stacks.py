"""Stacks whose library is upgraded while their jobs train: run with either library on the path."""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingImage,
    TrainingPipeline,
    TrainingWorkflow,
    default_retries,
)

RELEASED = Path(__file__).parent / "a_released_job"


class Upgraded(cdk.Stack):
    """A workflow whose job trains until it is released."""

    def __init__(self, app: cdk.App, name: str, **props: Any) -> None:
        super().__init__(app, name)
        bucket = s3.Bucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
        self.workflow = TrainingWorkflow(
            self,
            "Training",
            job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
            image=TrainingImage.from_asset(self, "Image", directory=str(RELEASED)),
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            max_runtime=cdk.Duration.hours(3),
            **props,
        )
        cdk.CfnOutput(self, "Arn", value=self.workflow.state_machine.state_machine_arn)
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)


class Noticed(Upgraded):
    """One with notices, in a pipeline."""

    def __init__(self, app: cdk.App, name: str) -> None:
        super().__init__(app, name)
        pipeline = TrainingPipeline(self, "Pipeline", steps=[self.workflow], notify=[sns.Topic(self, "Topic")])
        cdk.CfnOutput(self, "PipelineArn", value=pipeline.state_machine.state_machine_arn)


if __name__ == "__main__":
    app = cdk.App()
    Upgraded(app, "Waiting")
    Upgraded(app, "Polling", integration="poll", retries=default_retries(), job_metrics=True)
    Noticed(app, "Piped")
    app.synth()
