"""One training stack in two accounts, deployed by CDK Pipelines: development at once, production after an approval."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_codecommit as codecommit
from aws_cdk import pipelines
from constructs import Construct

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingWorkflow,
)

# Your accounts; each is bootstrapped with `cdk bootstrap --trust 111111111111`, the pipeline's account.
PIPELINE = cdk.Environment(account="111111111111", region="us-east-1")
DEVELOPMENT = cdk.Environment(account="222222222222", region="us-east-1")
PRODUCTION = cdk.Environment(account="333333333333", region="eu-west-1")


class Training(cdk.Stage):
    """The training stack of one account, on machines of its own."""

    def __init__(self, scope: Construct, id: str, *, machines: InstanceGroup, env: cdk.Environment) -> None:
        super().__init__(scope, id, env=env)
        stack = cdk.Stack(self, "Training")
        bucket = TrainingBucket(stack, "Bucket")
        TrainingWorkflow(
            stack,
            "Training",
            job=DataParallelJob(machines),
            image=TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
            code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
            output=S3Prefix(bucket, "models/"),
            max_runtime=cdk.Duration.hours(1),
        )


app = cdk.App()
stack = cdk.Stack(app, "Delivery", env=PIPELINE)
repository = codecommit.Repository.from_repository_name(stack, "Repository", "training")
pipeline = pipelines.CodePipeline(
    stack,
    "Pipeline",
    cross_account_keys=True,
    synth=pipelines.ShellStep(
        "Synth",
        input=pipelines.CodePipelineSource.code_commit(repository, "main"),
        commands=["pip install cdk-sagemaker-training", "npx aws-cdk synth"],
    ),
)
pipeline.add_stage(Training(app, "Development", machines=InstanceGroup("ml.m5.xlarge"), env=DEVELOPMENT))
pipeline.add_stage(
    Training(app, "Production", machines=InstanceGroup("ml.m5.4xlarge"), env=PRODUCTION),
    pre=[pipelines.ManualApprovalStep("Approve")],
)
app.synth()
