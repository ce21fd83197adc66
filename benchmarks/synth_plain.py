"""The same app with aws-cdk-lib alone, with the states in a file: `synth_states.json`, which `synth.py --record` writes.

Its templates are those of `synth_ours.py`, resource by resource, which the benchmark checks. Policies are written by hand.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

HERE = Path(__file__).parent
HANDLER = HERE.parent / "constructs" / "cdk_sagemaker_training" / "handlers" / "deletion.py"
STATES = HERE / "synth_states.json"
LEFT = "A training job whose execution has ended may still run: it could not be stopped for an hour"
UNDELIVERED = "A training job may still run: the end of its execution was not delivered to what stops the job"
RAN_ON = "A training job ran on after its execution had ended and was stopped, or could not be looked for"
OWN = {"StringEquals": {"aws:SourceAccount": "123456789012"}}
STATES_ARN = "arn:aws:states:us-east-1:123456789012"
TAG = "aws:ResourceTag/StepFunctionsExecution"


class Stack(cdk.Stack):
    def __init__(self, scope: Construct, id: str, workflows: int) -> None:
        super().__init__(scope, id, env=cdk.Environment(account="123456789012", region="us-east-1"))
        bucket = s3.Bucket(self, "Bucket")
        repository = ecr.Repository.from_repository_attributes(
            self,
            "Repository",
            repository_arn="arn:aws:ecr:us-east-1:123456789012:repository/pytorch-training",
            repository_name="pytorch-training",
        )
        machines = f"{id}-{digest(f'{id}:')}-"
        group = logs.LogGroup(
            self,
            "SageMakerTrainingLogs",
            log_group_name=f"/aws/vendedlogs/states/{machines}executions",
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        kept = sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False)
        guard = Guard(self, "SageMakerTrainingJobsGuard", machines, kept)
        handler = Handler(self, "SageMakerTrainingJobsHandler", machines, group)
        trainings = [
            Training(self, f"Training{number}", f"digits-{number}", machines, bucket, repository, kept, guard, handler)
            for number in range(workflows)
        ]
        updates = cdk.CustomResource(
            self,
            "SageMakerTrainingUpdates",
            resource_type="Custom::SageMakerTrainingUpdates",
            service_token=handler.function.function_arn,
            service_timeout=cdk.Duration.minutes(16),
            properties={"Workflows": [training.needs for training in trainings]},
        )
        for policy in [policy for training in trainings for policy in training.policies]:
            policy.node.add_dependency(updates)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def states(name: str, **filled: str) -> sfn.DefinitionBody:
    """The definition of a state machine, with its places filled in."""
    text = json.loads(STATES.read_text())[name]
    for place, value in filled.items():
        text = text.replace(f"<{place}>", value)
    return sfn.DefinitionBody.from_string(text)


class Training(Construct):
    def __init__(
        self,
        scope: Construct,
        id: str,
        prefix: str,
        machines: str,
        bucket: s3.IBucket,
        repository: ecr.IRepository,
        kept: sfn.LogOptions,
        guard: Guard,
        handler: Handler,
    ) -> None:
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            description="Runs SageMaker training jobs",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com", conditions=OWN),
        )
        allow_job(role, prefix, bucket, repository)
        machine = sfn.StateMachine(
            self,
            "StateMachine",
            logs=kept,
            definition_body=states(
                "workflow",
                BUCKET=bucket.bucket_name,
                ROLE=role.role_arn,
                SUFFIX=cdk.Aws.URL_SUFFIX,
                PREFIX=prefix,
            ),
            state_machine_name=f"{machines}{id}-{digest(id)}",
        )
        jobs = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{prefix}-*"
        actions = ["CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "AddTags"]
        allow(machine, [f"sagemaker:{action}" for action in actions], jobs)
        passing = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
        allow(machine, ["iam:PassRole"], role.role_arn, conditions=passing)
        allow(machine, ["s3:ListBucket"], bucket.bucket_arn, conditions={"StringLike": {"s3:prefix": ["models/*"]}})
        resource = cdk.CustomResource(
            self,
            "Deletion",
            resource_type="Custom::SageMakerTrainingJobs",
            service_token=handler.function.function_arn,
            service_timeout=cdk.Duration.minutes(16),
            properties={"StateMachineArn": machine.state_machine_arn},
        )
        resource.node.add_dependency(role, bucket, kept.destination, machine, guard.rule)
        self.policies = [one.node.find_child("DefaultPolicy") for one in (role, machine.role)]
        checkpoints = bucket.arn_for_objects(f"checkpoints/{prefix}/*")
        self.needs = {
            "BreakingUpdates": "refuse",
            "Needs": {
                "iam:PassRole": [role.role_arn],
                "s3:GetObject": [bucket.arn_for_objects("digits/*"), checkpoints],
                "s3:PutObject": [bucket.arn_for_objects("models/*"), checkpoints],
                "sagemaker:DescribeTrainingJob": [jobs],
            },
            "StateMachineArn": f"{STATES_ARN}:stateMachine:{machines}{id}-{digest(id)}",
        }


class Guard(Construct):
    def __init__(self, scope: Construct, id: str, machines: str, kept: sfn.LogOptions) -> None:
        super().__init__(scope, id)
        own = {**OWN, "ArnLike": {"aws:SourceArn": f"{STATES_ARN}:stateMachine:*"}}
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com", conditions=own))
        executions, jobs = (
            f"{STATES_ARN}:execution:{machines}*",
            "arn:aws:sagemaker:us-east-1:123456789012:training-job",
        )
        allow(role, ["sagemaker:ListTrainingJobs"], "*")
        stopping = ["sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"]
        allow(role, stopping, f"{jobs}/*", conditions={"StringLike": {TAG: executions}})
        allow(role, ["states:DescribeExecution"], executions)
        allow(role, ["sagemaker:ListTags"], f"{jobs}/digits-*", f"{jobs}/{scope.node.id.lower()}-*")
        stopper = sfn.StateMachine(self, "Stopper", logs=kept, definition_body=states("stopper"), role=role)
        reconciler = sfn.StateMachine(
            self,
            "Reconciler",
            logs=kept,
            definition_body=states("reconciler", MACHINES=machines),
            role=role,
            state_machine_type=sfn.StateMachineType.EXPRESS,
        )
        queue = sqs.Queue(
            self,
            "DeadLetterQueue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
        )
        counts = {"failed": reconciler.metric_failed(), "timed_out": reconciler.metric_timed_out()}
        looks = cloudwatch.MathExpression(expression="failed + timed_out", using_metrics=counts)
        for name, description, metric in (
            ("StopperAlarm", LEFT, stopper.metric_failed()),
            ("DeadLetterAlarm", UNDELIVERED, queue.metric_approximate_number_of_messages_visible()),
            ("Alarm", RAN_ON, looks),
        ):
            metric.create_alarm(
                self,
                name,
                alarm_description=description,
                threshold=1,
                comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
                evaluation_periods=1,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            )
        starting = iam.PolicyStatement(
            actions=["states:StartExecution"], resources=[stopper.state_machine_arn, reconciler.state_machine_arn]
        )
        starter = iam.Role(
            self,
            "EventsRole",
            assumed_by=iam.ServicePrincipal("events.amazonaws.com", conditions=OWN),
            inline_policies={"Start": iam.PolicyDocument(statements=[starting])},
        ).without_policy_updates()
        self.rule = events.Rule(
            self,
            "Rule",
            description="Executions that ended before their training jobs may have",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [{"prefix": f"{STATES_ARN}:stateMachine:{machines}"}],
                    "status": ["ABORTED", "FAILED", "TIMED_OUT"],
                },
            ),
            targets=[
                targets.SfnStateMachine(
                    stopper,
                    input=events.RuleTargetInput.from_event_path("$.detail"),
                    role=starter,
                    dead_letter_queue=queue,
                )
            ],
        )
        events.Rule(
            self,
            "Schedule",
            description="Looks for training jobs whose executions have ended",
            schedule=events.Schedule.rate(cdk.Duration.minutes(15)),
            targets=[targets.SfnStateMachine(reconciler, role=starter, dead_letter_queue=queue)],
        )


class Handler(Construct):
    """The function behind the custom resources that go before what jobs need."""

    def __init__(self, scope: Construct, id: str, machines: str, group: logs.LogGroup) -> None:
        super().__init__(scope, id)
        description = "Stops training jobs before their workflow is deleted"
        executions = f"{STATES_ARN}:execution:{machines}*"
        listing = ["batch:DescribeServiceJob", "batch:ListServiceJobs", "sagemaker:ListTrainingJobs"]
        stopping = ["batch:TerminateServiceJob", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"]
        own = "us-east-1:123456789012"
        statements = [
            iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn]),
            iam.PolicyStatement(
                actions=["states:ListExecutions"], resources=[f"{STATES_ARN}:stateMachine:{machines}*"]
            ),
            iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions]),
            iam.PolicyStatement(actions=listing, resources=["*"]),
            iam.PolicyStatement(
                actions=["cloudformation:DescribeStackResource", "cloudformation:DescribeStacks"],
                resources=[f"arn:aws:cloudformation:{own}:stack/{scope.node.id}/*"],
            ),
            iam.PolicyStatement(
                actions=stopping,
                resources=[f"arn:aws:batch:{own}:service-job/*", f"arn:aws:sagemaker:{own}:training-job/*"],
                conditions={"StringLike": {TAG: executions}},
            ),
        ]
        role = iam.Role(
            self,
            "Role",
            description=description,
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={"Function": iam.PolicyDocument(statements=statements)},
        )
        self.function = lambda_.Function(
            self,
            "Resource",
            code=lambda_.Code.from_inline(HANDLER.read_text()),
            description=description,
            handler="index.handler",
            log_group=group,
            memory_size=128,
            role=role,
            runtime=lambda_.Runtime("python3.14", lambda_.RuntimeFamily.PYTHON, supports_inline_code=True),
            timeout=cdk.Duration.minutes(15),
        )


def allow_job(role: iam.Role, prefix: str, bucket: s3.IBucket, repository: ecr.IRepository) -> None:
    group = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:*"
    log_actions = ["CreateLogGroup", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"]
    allow(role, [f"logs:{action}" for action in log_actions], group)
    namespace = {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}}
    allow(role, ["cloudwatch:PutMetricData"], "*", conditions=namespace)
    repository.grant_pull(role)
    checkpoints = f"checkpoints/{prefix}/*"
    for folder in ("digits/*", checkpoints):
        allow(role, ["s3:ListBucket"], bucket.bucket_arn, conditions={"StringLike": {"s3:prefix": [folder]}})
        allow(role, ["s3:GetObject"], bucket.arn_for_objects(folder))
    for folder in ("models/*", checkpoints):
        allow(role, ["s3:AbortMultipartUpload", "s3:PutObject"], bucket.arn_for_objects(folder))
    allow(role, ["s3:DeleteObject"], bucket.arn_for_objects(checkpoints))


def allow(
    principal: iam.Role | sfn.StateMachine,
    actions: list[str],
    *resources: str,
    conditions: dict[str, Any] | None = None,
) -> None:
    statement = iam.PolicyStatement(actions=actions, resources=[*resources], conditions=conditions)
    if isinstance(principal, sfn.StateMachine):
        principal.add_to_role_policy(statement)
    else:
        principal.add_to_policy(statement)
