"""The TensorFlow application of AWS's article: tf.data.service on two CPU machines, ResNet-50 with Horovod on eight GPUs."""

from pathlib import Path

import aws_cdk as cdk

from cdk_sagemaker_training import (
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    Mpi,
    S3Prefix,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)

app = cdk.App()
stack = cdk.Stack(app, "ResnetTensorFlow")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
# Where neither Horovod nor mpirun is, such as on a laptop (-c horovod=false), one process trains.
launcher = None if app.node.try_get_context("horovod") == "false" else Mpi()
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=HeterogeneousJob(
        groups={"data_group": InstanceGroup("ml.c5.18xlarge", 2)},
        train=DataParallelJob(InstanceGroup("ml.p4d.24xlarge"), launcher=launcher),
        train_group="dnn_group",
    ),
    image=TrainingImage.from_dlc(stack, "Image", "tensorflow-training", "2.12.0-gpu-py310"),
    code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
    output=S3Prefix(bucket, "models/"),
    checkpoints=S3Prefix(bucket, "checkpoints/"),
    # The article's batch is 1,024 over eight processes: 500 steps of an epoch, ten times.
    hyperparameters={"steps": 5_000, "batch-size": 128}
    if launcher
    else {"steps": 20, "batch-size": 8, "learning-rate": 0.001},
    metric_definitions={"loss": r"step \d+ loss ([0-9.]+)", "step_ms": r"step_ms ([0-9.]+)"},
    network=TrainingNetwork(stack, "Network"),
    max_runtime=cdk.Duration.hours(2),
)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
