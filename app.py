"""The example stacks, one for each kind of training job, deployable as they stand.

    cdk deploy HeterogeneousTraining
    cdk deploy CompiledTraining
    cdk deploy ModelParallelTraining

Against the account on this machine, or against AWS: the commands are the same.
"""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    ModelParallelJob,
    NativeParallelism,
    S3Channel,
    S3Prefix,
    TorchCompile,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
    rescaled_learning_rate,
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
            image=TrainingImage.from_asset(
                self, "Image", directory=training_code_path(), file="heterogeneous/Dockerfile"
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


class CompiledTraining(cdk.Stack):
    """A machine with two GPUs trains a language model of bytes, by a step that is compiled once and kept with the checkpoints."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        bucket = TrainingBucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=CompiledJob(InstanceGroup("ml.g7e.12xlarge"), compiler=TorchCompile(), launcher=Torchrun()),
            image=TrainingImage.from_asset(self, "Image", directory=training_code_path(), file="compiled/Dockerfile"),
            channels={"text": S3Channel(bucket, "text/")},
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            hyperparameters={
                "steps": 200,
                "batch-size": 16,
                "sequence": 128,
                # 0.001 was chosen for one process; here each of two GPUs has a batch of 16.
                "learning-rate": rescaled_learning_rate(1e-3, batch_size=16, new_batch_size=32, rule="square-root"),
            },
            metric_definitions={
                "loss": r"step \d+ loss ([0-9.]+)",
                "tokens/s": r"tokens/s ([0-9.]+)",
                "steady step (ms)": r"steady step ([0-9.]+)",
                "compile time (s)": r"compile time ([0-9.]+)",
                "compilations": r"^compilations (\d+)",
                "peak memory (MiB)": r"peak memory (\d+)",
            },
            network=TrainingNetwork(self, "Network"),
            max_runtime=cdk.Duration.hours(1),
        )
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        cdk.CfnOutput(self, "StateMachineArn", value=workflow.state_machine.state_machine_arn)


class ModelParallelTraining(cdk.Stack):
    """One machine with four GPUs trains one transformer on text: two share each matrix, and two such pairs the state."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        bucket = TrainingBucket(self, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
        workflow = TrainingWorkflow(
            self,
            "Training",
            job=ModelParallelJob(
                InstanceGroup("ml.g7e.24xlarge"), parallelism=NativeParallelism(data_shard=2, tensor=2)
            ),
            image=TrainingImage.from_asset(
                self, "Image", directory=training_code_path(), file="model_parallel/Dockerfile"
            ),
            channels={"text": S3Channel(bucket, "text/")},
            output=S3Prefix(bucket, "models/"),
            checkpoints=S3Prefix(bucket, "checkpoints/"),
            hyperparameters={"steps": 60, "batch-size": 16, "checkpoint-every": 20},
            metric_definitions={
                "loss": r"step \d+ loss ([0-9.]+)",
                "tokens/s": r"tokens/s ([0-9.]+)",
            },
            # Of several machines, this network's security group lets EFA's packets pass between them.
            network=TrainingNetwork(self, "Network"),
            retries=1,
            max_runtime=cdk.Duration.hours(1),
        )
        cdk.CfnOutput(self, "BucketName", value=bucket.bucket_name)
        cdk.CfnOutput(self, "StateMachineArn", value=workflow.state_machine.state_machine_arn)


if __name__ == "__main__":
    app = cdk.App()
    HeterogeneousTraining(app, "HeterogeneousTraining")
    CompiledTraining(app, "CompiledTraining")
    ModelParallelTraining(app, "ModelParallelTraining")
    app.synth()
