"""State machines that pass cdk-nag: with logs, and with justified wildcards in their policies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.job_names import machines_prefix
from cdk_sagemaker_training.core.nag import Reasons, Suppressions

REASONS: Reasons = {
    "AwsSolutions-IAM5[Resource::*]": "log deliveries have no resource, nor has a list of training jobs",
    "AwsSolutions-SQS3": "it is the dead-letter queue of a rule, and has an alarm",
    "AwsSolutions-SF2": "an execution waits for one job, whose hosts do not emit traces",
}
_LOGS_ID = "SageMakerTrainingLogs"
_LONGEST_DEFINITION = 1_048_576
_WHY_EXECUTIONS = "an execution's name is chosen when it starts; the state machine belongs to this workflow only"
_WHY_JOBS = "a job's name is computed when an execution starts; its prefix belongs to this workflow only"
_WHY_CAPACITY = "the capacity that a training plan reserves has a random name; the plan is listed too, if it is known"


def default_logs(scope: Construct) -> sfn.LogOptions:
    """Return log options with all events of executions, without their data, kept for three months in CloudWatch."""
    return sfn.LogOptions(
        destination=executions_logs(Stack.of(scope)), level=sfn.LogLevel.ALL, include_execution_data=False
    )


def executions_logs(stack: Stack) -> logs.LogGroup:
    """Return the log group of a stack's executions; create it where there is none."""
    if (existing := stack.node.try_find_child(_LOGS_ID)) is not None:
        assert isinstance(existing, logs.LogGroup)
        return existing
    group = logs.LogGroup(
        stack,
        _LOGS_ID,
        # Step Functions adds a permission for each log group to one resource policy of the account, whose size is limited,
        # except for groups with this prefix ("Logging in CloudWatch Logs").
        log_group_name=f"/aws/vendedlogs/states/{machines_prefix(stack)}executions",
        retention=logs.RetentionDays.THREE_MONTHS,
        removal_policy=RemovalPolicy.DESTROY,
    )
    Suppressions(group)
    return group


def make_state_machine(
    scope: Construct,
    definition: Mapping[str, Any] | str,
    log_options: sfn.LogOptions,
    type: sfn.StateMachineType | None = None,
    id: str = "StateMachine",
    name: str | None = None,
    role: iam.IRole | None = None,
) -> sfn.StateMachine:
    """Create the state machine of a definition, unless it is longer than Step Functions takes."""
    text = definition if isinstance(definition, str) else json.dumps(definition, default=lambda token: "")
    if (size := len(text.encode())) > _LONGEST_DEFINITION:
        rule = (
            f"have a definition of at most {_LONGEST_DEFINITION:,} bytes (service model of Step Functions, Definition)"
        )
        example = "fewer alternatives, or a file in a channel in place of hyperparameters"
        raise must(scope.node.path, rule, example, f"{size:,} bytes")
    rendered = definition if isinstance(definition, str) else Stack.of(scope).to_json_string(definition)
    body = sfn.DefinitionBody.from_string(rendered)
    return sfn.StateMachine(
        scope,
        id,
        definition_body=body,
        logs=log_options,
        state_machine_type=type,
        state_machine_name=name,
        role=role,
    )


def alarm_of_any(
    scope: Construct, id: str, description: str, metric: cloudwatch.Metric | cloudwatch.MathExpression
) -> cloudwatch.Alarm:
    """Create an alarm that one is enough for, and no data is none."""
    return metric.create_alarm(
        scope,
        id,
        alarm_description=description,
        threshold=1,
        comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
        evaluation_periods=1,
        treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
    )


def suppress_findings(
    workflow: Construct, jobs: Sequence[str], capacity: Sequence[str], executions: Sequence[str]
) -> None:
    """Suppress cdk-nag's findings on a workflow, with their justification."""
    suppressions = Suppressions(workflow)
    suppressions.add(REASONS)
    suppressions.add_wildcards(jobs, _WHY_JOBS)
    suppressions.add_wildcards(capacity, _WHY_CAPACITY)
    suppressions.add_wildcards(executions, _WHY_EXECUTIONS)
