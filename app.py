"""The example stacks, one for each kind of training job, deployable as they stand.

    cdk deploy HeterogeneousTraining

Against the account on this machine, or against AWS: the commands are the same.
"""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Channel,
    S3Prefix,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
    training_code_path,
)


class HeterogeneousTraining(cdk.Stack):
    """Two cheap CPU machines read and preprocess handwritten digits; one GPU machine trains on what they serve."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        bucket = TrainingBucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=HeterogeneousJob(
                groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
                train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
                train_group="dnn_group",
            ),
            image=TrainingImage(
                self, "Image", directory=training_code_path(), file="heterogeneous/Dockerfile", builder="docker"
            ),
            channels={"digits": S3Channel(bucket, "digits/", groups=["data_group"])},
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            hyperparameters={"epochs": 8, "batch-size": 64},
            metric_definitions={
                "loss": r"step \d+ loss ([0-9.]+)",
                "samples/s": r"samples/s ([0-9.]+)",
                "accuracy": r"^accuracy ([0-9.]+)",
            },
            network=TrainingNetwork(self, "Network"),
            max_runtime=cdk.Duration.hours(1),
        )
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        cdk.CfnOutput(self, "StateMachineArn", value=workflow.state_machine.state_machine_arn)


if __name__ == "__main__":
    app = cdk.App()
    HeterogeneousTraining(app, "HeterogeneousTraining")
    app.synth()
