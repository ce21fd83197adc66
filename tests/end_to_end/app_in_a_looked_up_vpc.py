"""A CDK app whose job and file system are in a VPC that the CLI looks up by its name."""

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

app = cdk.App()
stack = cdk.Stack(app, "LookedUp", env=cdk.Environment(account="123456789012", region="us-east-1"))
network = TrainingNetwork.from_lookup(stack, "Network", vpc_name="shared", availability_zones=["us-east-1b"])
bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "data")
files = LustreFileSystem(stack, "Files", network=network, data=S3Prefix(bucket, "letters/"))
TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 20)),
    image=TrainingImage.from_uri(stack, "Image", "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1"),
    channels={"letters": FsxLustreChannel(files)},
    output=S3Prefix(bucket, "models/"),
    network=network,
)
app.synth()
