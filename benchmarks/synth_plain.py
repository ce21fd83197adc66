"""The same app with aws-cdk-lib alone, with custom states where CDK's own task lacks a property.

Its templates are those of `synth_ours.py`, resource by resource, which the benchmark checks: states without a construct are
`CustomState`s, and policies are written by hand.
"""

from __future__ import annotations

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

SDK = "arn:aws:states:::aws-sdk"
HANDLER = Path(__file__).parents[1] / "constructs" / "cdk_sagemaker_training" / "handlers" / "deletion.py"
LEFT = "A training job whose execution has ended may still run: it could not be stopped for an hour"
UNDELIVERED = "A training job may still run: the end of its execution was not delivered to what stops the job"
NAME = {"TrainingJobName.$": "$.Training.JobName"}
ERRORS = [f"SageMaker.{name}" for name in ("AmazonSageMakerException", "SageMakerException", "SdkClientException")]


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
        for number in range(workflows):
            Training(self, f"Training{number}", f"digits-{number}", bucket, repository)


class Training(Construct):
    def __init__(self, scope: Construct, id: str, prefix: str, bucket: s3.IBucket, repository: ecr.IRepository) -> None:
        super().__init__(scope, id)
        role = iam.Role(
            self,
            "Role",
            description="Runs SageMaker training jobs",
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": "123456789012"}}
            ),
        )
        allow_job(role, bucket, repository)
        group = logs.LogGroup(
            self,
            "Logs",
            log_group_name=f"/aws/vendedlogs/states/{cdk.Names.unique_resource_name(self, max_length=200)}",
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        kept = sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False)
        machine = sfn.StateMachine(
            self,
            "StateMachine",
            logs=kept,
            definition_body=sfn.DefinitionBody.from_chainable(
                self.definition(prefix, request(role, bucket, repository), bucket)
            ),
            comment="Runs a training job",
            timeout=cdk.Duration.hours(26),
        )
        jobs = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{prefix}-*"
        actions = ["CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "AddTags"]
        allow(machine, [f"sagemaker:{action}" for action in actions], jobs)
        allow(machine, ["s3:ListBucket"], bucket.bucket_arn, {"StringLike": {"s3:prefix": ["models/*"]}})
        passing = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
        allow(machine, ["iam:PassRole"], role.role_arn, passing)
        stopper = Stopper(self, "Stopper", machine, prefix, jobs, kept)
        stop_on_deletion(self, machine, prefix, jobs, [role, bucket, group, machine, stopper])

    def definition(self, prefix: str, request: dict[str, Any], bucket: s3.IBucket) -> sfn.IChainable:
        states = Construct(self, "States")

        def state(id: str, state_json: dict[str, Any]) -> sfn.CustomState:
            return sfn.CustomState(states, id, state_json=state_json)

        name = f"States.Format('{prefix}-{{}}-{{}}', States.Hash($$.Execution.Id, 'MD5'), 1)"
        first = state(
            "FirstAttempt",
            {
                "Type": "Pass",
                "Parameters": {"Attempt": 1, "JobName.$": name, "Seconds": 2, "Repeated": {"Wait": 2}},
                "ResultPath": "$.Training",
            },
        )
        creating = call("createTrainingJob", request, "$.Training.Created", 0)
        del creating["Retry"]
        create = state("Create", creating)
        find = state("Find", call("describeTrainingJob", NAME, "$.Training.Job", 3))
        wait = state("Wait", {"Type": "Wait", "SecondsPath": "$.Training.Seconds"})
        describe = state("Describe", call("describeTrainingJob", NAME, "$.Training.Job", 10))
        longer = state(
            "WaitLonger",
            {
                "Type": "Pass",
                "Parameters": {
                    "Attempt.$": "$.Training.Attempt",
                    "JobName.$": "$.Training.JobName",
                    "Seconds.$": "States.MathAdd($.Training.Seconds, 2)",
                },
                "ResultPath": "$.Training",
            },
        )
        stop = state("Stop", call("stopTrainingJob", NAME, "$.Training.Stopped", 3))
        error = sfn.Fail(states, "Error", error_path="$.Training.Error.Error", cause_path="$.Training.Error.Cause")
        completed = state("Completed", {"Type": "Pass", "InputPath": "$.Training.Job"})
        found = self.look_for_model(states, bucket, completed)
        status = "$.Training.Job.TrainingJobStatus"
        over = (
            sfn.Choice(states, "IsOver")
            .when(sfn.Condition.string_equals(status, "Completed"), found)
            .when(sfn.Condition.string_equals(status, "Failed"), failed(states, "Failed", "FailureReason"))
            .when(sfn.Condition.string_equals(status, "Stopped"), failed(states, "Stopped", "SecondaryStatus"))
            .when(sfn.Condition.number_less_than("$.Training.Seconds", 36), longer)
            .otherwise(wait)
        )
        repeated = "$.Training.Repeated.Wait"
        doubled = {"Wait.$": f"States.MathAdd({repeated}, {repeated})"}
        repeat = state("Repeat", {"Type": "Pass", "Parameters": doubled, "ResultPath": "$.Training.Repeated"})
        repeat.next(state("WaitToRepeat", {"Type": "Wait", "SecondsPath": repeated})).next(create)
        unnamed = sfn.Condition.or_(*(sfn.Condition.string_equals("$.Training.Error.Error", name) for name in ERRORS))
        invalid = sfn.Condition.string_matches("$.Training.Error.Cause", "*validation error* detected:*")
        often = sfn.Condition.number_less_than(repeated, 16)
        refused = (
            sfn.Choice(states, "IsRefused")
            .when(sfn.Condition.and_(unnamed, invalid), stop)
            .when(sfn.Condition.and_(unnamed, often), repeat)
            .otherwise(find)
        )
        create.add_catch(refused, errors=["States.ALL"], result_path="$.Training.Error")
        find.add_catch(stop, errors=["States.ALL"], result_path="$.Training.Missing")
        describe.add_catch(stop, errors=["States.ALL"], result_path="$.Training.Error")
        stop.add_catch(error, errors=["States.ALL"], result_path="$.Training.Stopped")
        stop.next(error)
        find.next(over)
        longer.next(wait)
        return first.next(create).next(wait).next(describe).next(over)

    def look_for_model(self, states: Construct, bucket: s3.IBucket, completed: sfn.CustomState) -> sfn.IChainable:
        """The execution's output has a warning where the job left nothing to upload, for which SageMaker completes it too."""
        listing = {
            "Type": "Task",
            "Resource": f"{SDK}:s3:listObjectsV2",
            "Parameters": {
                "Bucket": bucket.bucket_name,
                "Prefix.$": "States.Format('{}{}/output/model', 'models/', $.Training.JobName)",
                "MaxKeys": 1,
            },
            "ResultSelector": {"Objects.$": "$.KeyCount"},
            "ResultPath": "$.Training.Model",
            "Retry": [retry(["S3.S3Exception", "S3.SdkClientException"], 3)],
        }
        find = sfn.CustomState(states, "FindModel", state_json=listing)
        find.add_catch(completed, errors=["States.ALL"], result_path="$.Training.Error")
        said = "the job completed without a model: it left nothing in /opt/ml/model, and nothing is at S3ModelArtifacts"
        warned = {"Type": "Pass", "Result": [said], "ResultPath": "$.Training.Job.Warnings"}
        without = sfn.CustomState(states, "WithoutModel", state_json=warned)
        without.next(completed)
        nothing = sfn.Condition.number_equals("$.Training.Model.Objects", 0)
        return find.next(sfn.Choice(states, "HasModel").when(nothing, without).otherwise(completed))


class Stopper(Construct):
    def __init__(
        self, scope: Construct, id: str, machine: sfn.StateMachine, prefix: str, jobs: str, kept: sfn.LogOptions
    ) -> None:
        super().__init__(scope, id)
        stopper = sfn.StateMachine(
            self,
            "StateMachine",
            logs=kept,
            comment="Stops the training jobs of executions that ended before them",
            definition_body=sfn.DefinitionBody.from_chainable(self.definition(prefix)),
        )
        executions = f"arn:aws:states:us-east-1:123456789012:execution:{machine.state_machine_name}:*"
        allow(stopper, ["sagemaker:StopTrainingJob"], jobs)
        allow(stopper, ["states:DescribeExecution"], executions)
        starting = iam.Role(
            stopper,
            "EventsRole",
            assumed_by=iam.ServicePrincipal(
                "events.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": "123456789012"}}
            ),
        )
        queue = sqs.Queue(
            self,
            "DeadLetterQueue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),
        )
        for name, description, metric in (
            ("Alarm", LEFT, stopper.metric_failed()),
            ("DeadLetterAlarm", UNDELIVERED, queue.metric_approximate_number_of_messages_visible()),
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
        events.Rule(
            self,
            "Rule",
            description="Executions that ended before their training jobs may have",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [machine.state_machine_arn],
                    "status": ["ABORTED", "FAILED", "TIMED_OUT"],
                },
            ),
            targets=[
                targets.SfnStateMachine(
                    stopper,
                    input=events.RuleTargetInput.from_event_path("$.detail"),
                    role=starting,
                    dead_letter_queue=queue,
                )
            ],
        )

    def definition(self, prefix: str) -> sfn.IChainable:
        states = Construct(self, "States")

        def walk(id: str, **members: Any) -> sfn.CustomState:
            state = {"Type": "Pass", "Parameters": members, "ResultPath": "$.Walk"}
            return sfn.CustomState(states, id, state_json=state)

        def waiting(id: str, most: str) -> sfn.CustomState:
            waited = {"Waited.$": "States.MathAdd($.Walk.Waited, $.Walk.Seconds)"}
            seconds = {"Most.$": most, "Seconds.$": f"States.MathRandom(1, {most})"}
            return walk(id, **{"Attempt.$": "$.Walk.Attempt", **seconds, **waited})

        first = walk("First", Attempt=1, Most=1, Seconds=0, Waited=0)
        name = f"States.Format('{prefix}-{{}}-{{}}', States.Hash($.executionArn, 'MD5'), $.Walk.Attempt)"
        stopping = call("stopTrainingJob", {"TrainingJobName.$": name}, "$.Stopped", 0)
        del stopping["Retry"]
        stop = sfn.CustomState(states, "Stop", state_json=stopping)
        following = {"Attempt.$": "States.MathAdd($.Walk.Attempt, 1)", "Most": 1, "Seconds": 0}
        after = walk("NextAttempt", **following, **{"Waited.$": "$.Walk.Waited"})
        cause = "$.Error.Cause"
        left = sfn.Fail(
            states,
            "MayStillRun",
            error="TrainingJobMayStillRun",
            cause_path=f"States.Format('{{}}: {{}}', $.Error.Error, {cause})",
        )
        missing = sfn.Pass(states, "Missing")
        longer = waiting("WaitLonger", "States.MathAdd($.Walk.Most, $.Walk.Most)")
        as_long = waiting("WaitAsLong", "$.Walk.Most")
        wait = sfn.Wait(states, "Wait", time=sfn.WaitTime.seconds_path("$.Walk.Seconds"))
        over = "*The request was rejected because the training job is in status *"
        is_missing = sfn.Condition.or_(
            sfn.Condition.string_equals("$.Error.Error", "SageMaker.ResourceNotFoundException"),
            sfn.Condition.string_matches(cause, "*Requested resource not found*"),
            sfn.Condition.string_matches(cause, "*Could not find job to update with name*"),
        )
        why = (
            sfn.Choice(states, "WhyNot")
            .when(sfn.Condition.string_matches(cause, over), after)
            .when(is_missing, missing)
            .when(sfn.Condition.number_greater_than_equals("$.Walk.Waited", 3600), left)
            .when(sfn.Condition.number_less_than("$.Walk.Most", 64), longer)
            .otherwise(as_long)
        )
        stop.add_catch(why, errors=["States.ALL"], result_path="$.Error")
        first.next(stop).next(after).next(stop)
        longer.next(wait)
        as_long.next(wait)
        wait.next(stop)
        done = sfn.Succeed(states, "Done")
        missing.next(self.second_look(states, first, done))
        own = [sfn.Condition.string_equals("$.error", f"TrainingJob{status}") for status in ("Failed", "Stopped")]
        is_over = sfn.Condition.and_(sfn.Condition.is_present("$.error"), sfn.Condition.or_(*own))
        return sfn.Choice(states, "IsOver").when(is_over, done).otherwise(first)

    def second_look(self, states: Construct, first: sfn.CustomState, done: sfn.Succeed) -> sfn.IChainable:
        describing = {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:sfn:describeExecution",
            "Parameters": {"ExecutionArn.$": "$.executionArn", "IncludedData": "METADATA_ONLY"},
            "ResultSelector": {"Status.$": "$.Status"},
            "ResultPath": "$.Execution",
            "Retry": [{**retry(["States.ALL"], 112), "MaxDelaySeconds": 64}],
        }
        describe = sfn.CustomState(states, "DescribeExecution", state_json=describing)
        wait = sfn.Wait(states, "WaitForLateJobs", time=sfn.WaitTime.duration(cdk.Duration.minutes(1)))
        running = sfn.Condition.string_equals("$.Execution.Status", "RUNNING")
        wait.next(describe).next(sfn.Choice(states, "WasRedriven").when(running, done).otherwise(first))
        twice = sfn.Condition.is_present("$.Execution")
        return sfn.Choice(states, "HasLookedTwice").when(twice, done).otherwise(wait)


def stop_on_deletion(
    scope: Construct, machine: sfn.StateMachine, prefix: str, jobs: str, needed: list[Construct]
) -> None:
    """A custom resource that goes before what jobs need, whose function is one for the stack and permissions are its own."""
    function = handler_of(cdk.Stack.of(scope))
    executions = f"arn:aws:states:us-east-1:123456789012:execution:{machine.state_machine_name}:*"
    assert function.role
    policy = iam.Policy(
        scope,
        "DeletionPolicy",
        roles=[function.role],
        statements=[
            iam.PolicyStatement(actions=["states:ListExecutions"], resources=[machine.state_machine_arn]),
            iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions]),
            iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"]),
            iam.PolicyStatement(
                actions=["sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"], resources=[jobs]
            ),
        ],
    )
    resource = cdk.CustomResource(
        scope,
        "Deletion",
        resource_type="Custom::SageMakerTrainingJobs",
        service_token=function.function_arn,
        service_timeout=cdk.Duration.minutes(16),
        properties={"StateMachineArn": machine.state_machine_arn, "JobNamePrefix": prefix},
    )
    resource.node.add_dependency(policy, *needed)


def handler_of(stack: cdk.Stack) -> lambda_.IFunction:
    id = "SageMakerTrainingJobsHandler"
    existing = stack.node.try_find_child(id)
    if existing is not None:
        return existing.node.find_child("Resource")  # type: ignore[return-value]
    scope = Construct(stack, id)
    description = "Stops training jobs before their workflow is deleted"
    group = logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=cdk.RemovalPolicy.DESTROY
    )
    role = iam.Role(scope, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    writing = iam.PolicyStatement(
        actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn]
    )
    iam.Policy(scope, "LogsPolicy", roles=[role], statements=[writing])
    return lambda_.Function(
        scope,
        "Resource",
        code=lambda_.Code.from_inline(HANDLER.read_text()),
        description=description,
        handler="index.handler",
        log_group=group,
        role=role,
        runtime=lambda_.Runtime.PYTHON_3_13,
        timeout=cdk.Duration.minutes(15),
    )


def request(role: iam.Role, bucket: s3.IBucket, repository: ecr.IRepository) -> dict[str, Any]:
    uri = f"s3://{bucket.bucket_name}"
    return {
        "AlgorithmSpecification": {
            "TrainingImage": repository.repository_uri_for_tag("2.6.0-gpu-py312"),
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": r"loss ([0-9.]+)"}],
        },
        "CheckpointConfig": {"S3Uri.$": f"States.Format('{{}}{{}}/', '{uri}/checkpoints/', $$.Execution.Name)"},
        "HyperParameters": {
            "epochs": "4",
            "batch-size": "64",
            "sagemaker_distribution_instance_groups": '["dnn_group"]',
            "sagemaker_torch_distributed_enabled": "true",
        },
        "InputDataConfig": [
            {
                "ChannelName": "digits",
                "DataSource": {
                    "S3DataSource": {
                        "InstanceGroupNames": ["data_group"],
                        "S3DataDistributionType": "FullyReplicated",
                        "S3DataType": "S3Prefix",
                        "S3Uri": f"{uri}/digits/",
                    }
                },
                "InputMode": "File",
            }
        ],
        "OutputDataConfig": {"S3OutputPath": f"{uri}/models/"},
        "ResourceConfig": {
            "InstanceGroups": [
                {"InstanceType": "ml.c5.xlarge", "InstanceCount": 2, "InstanceGroupName": "data_group"},
                {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "InstanceGroupName": "dnn_group"},
            ],
            "VolumeSizeInGB": 30,
        },
        "RoleArn": role.role_arn,
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        "Tags": [{"Key": "StepFunctionsExecution", "Value.$": "$$.Execution.Id"}],
        "TrainingJobName.$": "$.Training.JobName",
    }


def call(action: str, parameters: dict[str, Any], result_path: str, attempts: int) -> dict[str, Any]:
    return {
        "Type": "Task",
        "Resource": f"{SDK}:sagemaker:{action}",
        "Parameters": parameters,
        "ResultPath": result_path,
        "Retry": [retry(ERRORS, attempts)],
    }


def retry(errors: list[str], attempts: int) -> dict[str, Any]:
    return {
        "ErrorEquals": errors,
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": attempts,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
    }


def failed(scope: Construct, status: str, reason: str) -> sfn.Fail:
    cause = f"States.Format('{{}}: {{}}', $.Training.JobName, $.Training.Job.{reason})"
    return sfn.Fail(scope, status, error=f"TrainingJob{status}", cause_path=cause)


def allow_job(role: iam.Role, bucket: s3.IBucket, repository: ecr.IRepository) -> None:
    group = "arn:aws:logs:us-east-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:*"
    log_actions = ["CreateLogGroup", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"]
    allow(role, [f"logs:{action}" for action in log_actions], group)
    namespace = {"StringEquals": {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}}
    allow(role, ["cloudwatch:PutMetricData"], "*", namespace)
    repository.grant_pull(role)
    for prefix in ("digits/*", "checkpoints/*"):
        allow(role, ["s3:ListBucket"], bucket.bucket_arn, {"StringLike": {"s3:prefix": [prefix]}})
        allow(role, ["s3:GetObject"], bucket.arn_for_objects(prefix))
    for prefix in ("models/*", "checkpoints/*"):
        allow(role, ["s3:AbortMultipartUpload", "s3:PutObject"], bucket.arn_for_objects(prefix))
    allow(role, ["s3:DeleteObject"], bucket.arn_for_objects("checkpoints/*"))


def allow(
    principal: iam.Role | sfn.StateMachine, actions: list[str], resource: str, conditions: dict[str, Any] | None = None
) -> None:
    statement = iam.PolicyStatement(actions=actions, resources=[resource], conditions=conditions)
    if isinstance(principal, sfn.StateMachine):
        principal.add_to_role_policy(statement)
    else:
        principal.add_to_policy(statement)
