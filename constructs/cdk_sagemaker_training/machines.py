"""A state machine as a review wants it: its log kept, and its wildcards explained."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Names, RemovalPolicy
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.review import Answers, Reasons

_REASONS: Reasons = {
    "AwsSolutions-IAM5[Resource::*]": "log deliveries have no resource, nor has a list of training jobs",
    "AwsSolutions-SQS3": "it is the dead-letter queue of a rule, and has an alarm",
    "AwsSolutions-SF2": "an execution waits for one job, whose hosts take no part in traces",
}
_WHY_EXECUTIONS = "an execution's name is made when it starts; the state machine is this workflow's alone"
_WHY_JOBS = "a job's name is made when an execution starts; what it begins with is this workflow's alone"
_WHY_CAPACITY = (
    "the capacity that a training plan reserves has a random name; the plan is named beside it, where it is known"
)


def default_logs(scope: Construct) -> sfn.LogOptions:
    """Every event of executions, without their data, kept for three months by CloudWatch, which charges by size."""
    group = logs.LogGroup(
        scope,
        "Logs",
        # Step Functions writes leave for each group into one policy of the account, which is soon full, but for these names
        # ("Logging in CloudWatch Logs").
        log_group_name=f"/aws/vendedlogs/states/{Names.unique_resource_name(scope, max_length=200)}",
        retention=logs.RetentionDays.THREE_MONTHS,
        removal_policy=RemovalPolicy.DESTROY,
    )
    return sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL, include_execution_data=False)


def make_state_machine(scope: Construct, definition: str, log_options: sfn.LogOptions) -> sfn.StateMachine:
    """The state machine of a definition, as the child "StateMachine"."""
    return sfn.StateMachine(
        scope, "StateMachine", definition_body=sfn.DefinitionBody.from_string(definition), logs=log_options
    )


def answer_review(workflow: Construct, jobs: Sequence[str], capacity: Sequence[str], executions: Sequence[str]) -> None:
    """Give the reasons for what a review finds in a workflow.

    ``jobs`` and ``executions`` are the ARNs of its own, ``capacity`` those of training plans and what they reserve.
    """
    answers = Answers(workflow)
    answers.add(_REASONS)
    answers.add_wildcards(jobs, _WHY_JOBS)
    answers.add_wildcards(capacity, _WHY_CAPACITY)
    answers.add_wildcards(executions, _WHY_EXECUTIONS)
