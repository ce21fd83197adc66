"""A CDK app whose job and file system are in a VPC that the CLI looks up by its name."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3

from cdk_sagemaker_training import (
    DataParallelJob,
    FsxLustreChannel,
    InstanceGroup,
    LustreFileSystem,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingWorkflow,
)

DESTROY = cdk.RemovalPolicy.DESTROY

app = cdk.App()
stack = cdk.Stack(app, "LookedUp", env=cdk.Environment(account="123456789012", region="us-east-1"))
network = TrainingNetwork.from_lookup(stack, "Network", vpc_name="shared", availability_zones=["us-east-1b"])
bucket = s3.Bucket(stack, "Bucket", removal_policy=DESTROY)
data = S3Prefix(bucket, "letters/")
files = LustreFileSystem(stack, "Files", network=network, data=data, removal_policy=DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.m5.large", 2)),
    image=TrainingImage.from_asset(stack, "Image", directory=str(Path(__file__).parent / "a_quick_job")),
    channels={"letters": FsxLustreChannel(files)},
    output=S3Prefix(bucket, "models/"),
    checkpoints=S3Prefix(bucket, "checkpoints/"),
    network=network,
)
cdk.CfnOutput(stack, "StateMachineArn", value=workflow.state_machine.state_machine_arn)
app.synth()
