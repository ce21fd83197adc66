"""TensorFlow on two machines: MultiWorkerMirroredStrategy, whose cluster the launcher writes into TF_CONFIG."""

import aws_cdk as cdk

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    MultiWorkerMirrored,
    S3Prefix,
    TrainingBucket,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
    training_code_path,
)

app = cdk.App()
stack = cdk.Stack(app, "TensorFlow")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.m5.xlarge", 2), launcher=MultiWorkerMirrored()),
    image=TrainingImage.from_asset(
        stack, "Image", directory=training_code_path(), file="data_parallel/tensorflow/Dockerfile"
    ),
    output=S3Prefix(bucket, "models/"),
    hyperparameters={"epochs": 20},
    metric_definitions={"loss": r"loss ([0-9.]+)"},
    network=TrainingNetwork(stack, "Network"),
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
