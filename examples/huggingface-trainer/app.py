"""Hugging Face's Trainer with a step that torch.compile compiles once: a tokenizer that pads to one length, and a guard."""

from pathlib import Path

import aws_cdk as cdk

from cdk_sagemaker_training import (
    CompiledJob,
    InstanceGroup,
    S3Prefix,
    TorchCompile,
    Torchrun,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingWorkflow,
)

app = cdk.App()
stack = cdk.Stack(app, "HuggingFaceTrainer")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=CompiledJob(InstanceGroup("ml.g5.xlarge"), compiler=TorchCompile(), launcher=Torchrun()),
    image=TrainingImage.from_dlc(
        stack, "Image", "huggingface-pytorch-training", "2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"
    ),
    code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
    output=S3Prefix(bucket, "models/"),
    checkpoints=S3Prefix(bucket, "checkpoints/"),
    hyperparameters={"steps": 60, "batch-size": 32, "length": 32},
    metric_definitions={
        "loss": r"step \d+ loss ([0-9.]+)",
        "compile time (s)": r"compile time ([0-9.]+)",
        "steady step (ms)": r"steady step ([0-9.]+)",
    },
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
