"""Who says that a permission is needed: what each source of docs/permissions.md lists, by whose permission it is.

A source is AWS's own text, recorded here as it was read or taken from a package that carries it, or a grant of CDK's, which
is synthesized. What a source lists and the library does not grant has a row with a reason in docs/permissions.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from deploy_time_build import ContainerImageBuild
from iam_reference import listed, services
from moto.iam.aws_managed_policies import aws_managed_policies_data
from statements import statements

# Whose it is, and the action.
Listed = frozenset[tuple[str, str]]

# Read in November 2026.
RECORDED: Mapping[str, Mapping[str, Iterable[str]]] = {
    # "CreateTrainingJob API: Execution Role Permissions", those for VPCs and keys included.
    "sagemaker-roles": {
        "job": (
            "cloudwatch:PutMetricData",
            *("logs:CreateLogStream", "logs:PutLogEvents", "logs:CreateLogGroup", "logs:DescribeLogStreams"),
            *("s3:GetObject", "s3:PutObject", "s3:ListBucket"),
            *("ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer"),
            "ecr:BatchGetImage",
            *("ec2:CreateNetworkInterface", "ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"),
            *("ec2:DeleteNetworkInterfacePermission", "ec2:DescribeNetworkInterfaces", "ec2:DescribeVpcs"),
            *("ec2:DescribeDhcpOptions", "ec2:DescribeSubnets", "ec2:DescribeSecurityGroups"),
            *("kms:Decrypt", "kms:Encrypt", "kms:CreateGrant"),
        ),
        "trust": ("sts:AssumeRole",),
    },
    # "CreateTrainingJob", run a job (.sync).
    "sagemaker-iam": {
        "machine": (
            *("sagemaker:CreateTrainingJob", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"),
            *("sagemaker:ListTags", "iam:PassRole", "events:PutTargets", "events:PutRule", "events:DescribeRule"),
        )
    },
    # "Synchronous".
    "stepfunctions-iam": dict.fromkeys(
        ("caller", "machine", "sweep", "pipeline"),
        (
            *("states:StartExecution", "states:DescribeExecution", "states:StopExecution"),
            *("events:PutTargets", "events:PutRule", "events:DescribeRule"),
        ),
    ),
    # "IAM permissions for calling AWS Lambda".
    "lambda-iam": dict.fromkeys(("sweep", "poller"), ("lambda:InvokeFunction",)),
    # "IAM policies for calling Amazon SNS".
    "sns-iam": {"pipeline": ("sns:Publish",)},
    "events-iam": {"machine": ("events:PutEvents",)},
    "events-resources": {"topic": ("sns:Publish",)},
    "lustre-s3-encryption": {
        "FSx": ("kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey")
    },
    # "Set up IAM permissions", IAM role.
    "train-remote-debugging": {
        "job": (
            *("ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel"),
            *("ssmmessages:OpenControlChannel", "ssmmessages:OpenDataChannel"),
        )
    },
    # SubmitServiceJob, in the table of operations.
    "batch-operations": {"machine": ("batch:SubmitServiceJob", "batch:TagResource", "iam:PassRole")},
    "aws-cdk 32294": {"machine": ("sagemaker:AddTags",)},
}
# The statements of AmazonSageMakerFullAccess that are about training jobs: whose each is here, and of which services.
FULL_ACCESS = {
    "AllowUseOfTrainingPlanResources": ("machine", ("sagemaker",)),
    "AllowPassRoleToSageMaker": ("machine", ("iam",)),
    "AllowAWSServiceActions": ("job", ("cloudwatch", "ec2", "ecr", "elasticfilesystem", "fsx", "kms", "logs")),
    "AllowS3ObjectActions": ("job", ("s3",)),
    "AllowS3BucketActions": ("job", ("s3",)),
    "AllowLambdaInvokeFunction": ("job", ("lambda",)),
}


def full_access(document: Mapping[str, Any]) -> Listed:
    """What the managed policy AmazonSageMakerFullAccess lists for training jobs."""
    by_sid = {statement["Sid"]: statement for statement in document["Statement"]}
    return frozenset(
        (holder, action)
        for sid, (holder, prefixes) in FULL_ACCESS.items()
        for action in listed(by_sid[sid]["Action"])
        if action.partition(":")[0] in prefixes
    )


def _task(stack: cdk.Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "data")
    place = tasks.S3Location.from_bucket(bucket, "images/")
    channel = tasks.Channel(channel_name="images", data_source=tasks.DataSource(s3_data_source=_s3(place)))
    task = tasks.SageMakerCreateTrainingJob(
        stack,
        "Task",
        integration_pattern=sfn.IntegrationPattern.RUN_JOB,
        training_job_name="job",
        algorithm_specification=tasks.AlgorithmSpecification(
            training_image=tasks.DockerImage.from_ecr_repository(
                ecr.Repository.from_repository_name(stack, "Repository", "images")
            ),
            training_input_mode=tasks.InputMode.FILE,
        ),
        input_data_config=[channel],
        output_data_config=tasks.OutputDataConfig(s3_output_location=place, encryption_key=kms.Key(stack, "Key")),
        vpc_config=tasks.VpcConfig(vpc=ec2.Vpc(stack, "Vpc")),
    )
    sfn.StateMachine(stack, "Machine", definition_body=sfn.DefinitionBody.from_chainable(task))


def _s3(place: tasks.S3Location) -> tasks.S3DataSource:
    return tasks.S3DataSource(s3_location=place)


def _machine(stack: cdk.Stack, **options: Any) -> sfn.StateMachine:
    body = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass"))
    return sfn.StateMachine(stack, "Called", definition_body=body, **options)


def _calling(stack: cdk.Stack) -> None:
    run = sfn.IntegrationPattern.RUN_JOB
    call = tasks.StepFunctionsStartExecution(stack, "Call", state_machine=_machine(stack), integration_pattern=run)
    sfn.StateMachine(stack, "Caller", definition_body=sfn.DefinitionBody.from_chainable(call))


def _logging(stack: cdk.Stack) -> None:
    _machine(stack, logs=sfn.LogOptions(destination=logs.LogGroup(stack, "Logs"), level=sfn.LogLevel.ALL))


def _rule(stack: cdk.Stack) -> None:
    pattern = events.EventPattern(source=["aws.states"])
    target = targets.SfnStateMachine(_machine(stack), dead_letter_queue=sqs.Queue(stack, "Queue"))
    events.Rule(stack, "Rule", event_pattern=pattern, targets=[target])


def _job_role(stack: cdk.Stack) -> iam.Role:
    return iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))


def _key(stack: cdk.Stack) -> None:
    kms.Key(stack, "Key").grant_encrypt_decrypt(_job_role(stack))


def _buckets(stack: cdk.Stack) -> None:
    gone: dict[str, Any] = {"removal_policy": cdk.RemovalPolicy.DESTROY, "auto_delete_objects": True}
    log = s3.Bucket(stack, "Log", **gone)
    s3.Bucket(stack, "Bucket", server_access_logs_bucket=log, **gone)


def _flow_logs(stack: cdk.Stack) -> None:
    ec2.Vpc(stack, "Vpc").add_flow_log("Logs", destination=ec2.FlowLogDestination.to_cloud_watch_logs())


def _project(stack: cdk.Stack) -> None:
    spec = codebuild.BuildSpec.from_object({"version": "0.2"})
    codebuild.Project(stack, "Project", build_spec=spec)


def _image_build(stack: cdk.Stack) -> None:
    ContainerImageBuild(stack, "Build", directory=str(cdk.FileSystem.mkdtemp("context")))


# CDK's own constructs, and deploy-time-build's, by what the page calls them.
GRANTS: Mapping[str, Callable[[cdk.Stack], object]] = {
    "SageMakerCreateTrainingJob": _task,
    "StepFunctionsStartExecution": _calling,
    "StateMachine(logs=)": _logging,
    "SfnStateMachine": _rule,
    "Key.grant_encrypt_decrypt": _key,
    "Bucket(auto_delete_objects=, server_access_logs_bucket=)": _buckets,
    "Vpc.add_flow_log": _flow_logs,
    "Project": _project,
    "ContainerImageBuild": _image_build,
}


def granted_by(build: Callable[[cdk.Stack], object]) -> Listed:
    """What the statements of a stack list."""
    # As CDK is with the flags that `cdk init` sets, of which one has S3's log delivery in a bucket's policy.
    app = cdk.App(context={"@aws-cdk/aws-s3:serverAccessLogsUseBucketPolicy": True})
    stack = cdk.Stack(app, "Stack")
    build(stack)
    template = app.synth().get_stack_by_name("Stack").template
    return frozenset((one.holder, action) for one in statements(template) for action in one.actions)


@cache
def all_sources() -> Mapping[str, Listed]:
    """What every source lists. `reference`, where an operation of that name is what is called, lists no needs."""
    policy = json.loads(aws_managed_policies_data)["AmazonSageMakerFullAccess"]["Document"]
    recorded = {
        name: frozenset((holder, action) for holder, actions in by_holder.items() for action in actions)
        for name, by_holder in RECORDED.items()
    }
    mlflow = services()["sagemaker-mlflow"]["privileges"]
    return {
        "AmazonSageMakerFullAccess": full_access(policy),
        "sagemaker-mlflow": frozenset(("job", f"sagemaker-mlflow:{name}") for name in mlflow),
        **recorded,
        **{name: granted_by(build) for name, build in GRANTS.items()},
    }
