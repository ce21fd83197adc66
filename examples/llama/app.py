"""A Llama of Hugging Face's transformers, whose parameters FSDP2 shards over the GPUs of a machine."""

import aws_cdk as cdk

from cdk_sagemaker_training import (
    InstanceGroup,
    ModelParallelJob,
    NativeParallelism,
    S3Channel,
    S3Prefix,
    TrainingBucket,
    TrainingImage,
    TrainingWorkflow,
    training_code_path,
)

app = cdk.App()
stack = cdk.Stack(app, "Llama")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    # data_shard is FSDP2; its product with the other degrees is the number of GPUs, here two.
    job=ModelParallelJob(InstanceGroup("ml.g7e.12xlarge"), parallelism=NativeParallelism(data_shard=2)),
    image=TrainingImage.from_asset(
        stack, "Image", directory=training_code_path(), file="model_parallel/huggingface/Dockerfile"
    ),
    channels={"model": S3Channel(bucket, "model/"), "tokens": S3Channel(bucket, "tokens/")},
    output=S3Prefix(bucket, "models/"),
    checkpoints=S3Prefix(bucket, "checkpoints/"),
    hyperparameters={"steps": 60, "context": 64, "learning-rate": 0.003},
    metric_definitions={"loss": r"loss ([0-9.]+)", "tokens/s": r"tokens/s ([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
cdk.CfnOutput(stack, "BucketName", value=bucket.bucket_name)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
