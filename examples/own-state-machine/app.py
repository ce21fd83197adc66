"""Training as one state of a state machine of your own: what comes before and after it is yours."""

from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_stepfunctions as sfn

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    S3Prefix,
    TrainingBucket,
    TrainingCode,
    TrainingImage,
    TrainingWorkflow,
)

app = cdk.App()
stack = cdk.Stack(app, "OwnStateMachine")
bucket = TrainingBucket(stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY)
workflow = TrainingWorkflow(
    stack,
    "Training",
    job=DataParallelJob(InstanceGroup("ml.m5.xlarge")),
    image=TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker"),
    code=TrainingCode(str(Path(__file__).with_name("src")), entry_point="train.py"),
    output=S3Prefix(bucket, "models/"),
    metric_definitions={"accuracy": "accuracy=([0-9.]+)"},
    max_runtime=cdk.Duration.hours(1),
)
trained = sfn.Pass(
    stack, "Trained", parameters={"Model.$": "$.Job.Output.ModelArtifacts.S3ModelArtifacts", "Name.$": "$.Name"}
)
failed = sfn.Fail(stack, "NotTrained", error="NotTrained", cause_path="$.Error.Cause")
train = workflow.as_task(stack, "Train", result_path="$.Job")
train.add_catch(failed, errors=["States.ALL"], result_path="$.Error")
machine = sfn.StateMachine(
    stack,
    "Machine",
    definition_body=sfn.DefinitionBody.from_chainable(
        sfn.Pass(stack, "Prepare", parameters={"Name.$": "$$.Execution.Name"}).next(train).next(trained)
    ),
)
workflow.stop_with(machine)
cdk.CfnOutput(stack, "StateMachineArn", value=machine.state_machine_arn)
app.synth()
