"""The setup of AWS's first table with data hosts, as a heterogeneous job with emulated work."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
from article import SETUPS

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Prefix,
    TrainingBucket,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)

SETUP = SETUPS[1]


class Emulated(cdk.Stack):
    def __init__(self, scope: cdk.App, id: str) -> None:
        super().__init__(scope, id)
        bucket = TrainingBucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        data = SETUP.data[0]
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=HeterogeneousJob(
                groups={"data_group": InstanceGroup(data.instance_type, len(SETUP.data))},
                train=DataParallelJob(InstanceGroup(SETUP.training.instance_type)),
                train_group="dnn_group",
            ),
            image=TrainingImage.from_asset(
                self,
                "Image",
                directory=str(Path(__file__).parents[2]),
                file="benchmarks/emulated/Dockerfile",
            ),
            output=S3Prefix(bucket, "models/"),
            hyperparameters={
                "seconds": data.seconds / SETUP.vcpus_of_worker,
                "workers": data.vcpus // SETUP.vcpus_of_worker,
                "local-workers": SETUP.training.vcpus // SETUP.vcpus_of_worker,
                "samples": SETUP.batch[0],
                "step": SETUP.step,
                "warmup": 8 * SETUP.workers,
                "steps": 13 * SETUP.workers,
            },
            metric_definitions={"step time": r"^step time ([0-9.]+)"},
            network=TrainingNetwork(self, "Network"),
            max_runtime=cdk.Duration.hours(1),
        )
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        cdk.CfnOutput(self, "StateMachineArn", value=workflow.state_machine.state_machine_arn)


if __name__ == "__main__":
    app = cdk.App()
    Emulated(app, "Emulated")
    app.synth()
