"""A heterogeneous job: two CPU machines prepare handwritten digits, one GPU machine trains on them."""

import aws_cdk as cdk

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    S3Prefix,
    Torchrun,
    TrainingBucket,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)

app = cdk.App()
stack = cdk.Stack(app, "Digits")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.xlarge", 2)},
        train=DataParallelJob(InstanceGroup("ml.g5.xlarge"), launcher=Torchrun()),
        train_group="dnn_group",
    ),
    image=TrainingImage.from_asset(stack, "Image", directory=training_code_path(), file="heterogeneous/Dockerfile"),
    output=S3Prefix(bucket, "models/"),
    hyperparameters={"epochs": 8, "batch-size": 64},
    metric_definitions={"loss": r"step \d+ loss ([0-9.]+)", "accuracy": r"^accuracy ([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
