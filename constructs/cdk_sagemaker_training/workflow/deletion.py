"""The custom resource that stops a workflow's jobs and waits for their end before CloudFormation deletes the workflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from aws_cdk import CfnResource, CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from cdk_sagemaker_training.workflow.launch import Launch

_HANDLER = Path(__file__).with_name("deletion_handler.py")
_RUNTIME = "python3.13"
_TIMEOUT = Duration.minutes(15)  # Lambda's longest
_FUNCTION_ID = "SageMakerTrainingJobsHandler"


def stop_jobs_on_deletion(
    workflow: Construct, launch: Launch, state_machine: sfn.StateMachine, executions: str, needed: Iterable[Any]
) -> None:
    """Stop the jobs of a workflow before CloudFormation deletes resources that they need.

    The Lambda function is shared by all workflows of the stack. Each workflow adds its own policy: a statement of a shared policy
    would be removed in the update that removes the workflow, before CloudFormation deletes the custom resource.

    Args:
        workflow: The workflow.
        launch: The jobs of the workflow.
        state_machine: The workflow's state machine.
        executions: ARN pattern of its executions.
        needed: What must be deleted after the jobs' end: constructs, and props that contain constructs.
    """
    function, role = _function(launch.stack)
    policy = iam.Policy(
        workflow,
        "DeletionPolicy",
        roles=[role],
        statements=[
            iam.PolicyStatement(actions=["states:ListExecutions"], resources=[state_machine.state_machine_arn]),
            iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions]),
            # ListTrainingJobs has no narrower resource.
            iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"]),
            launch.job_policy("DescribeTrainingJob", "StopTrainingJob"),
        ],
    )
    resource = CustomResource(
        workflow,
        "Deletion",
        resource_type="Custom::SageMakerTrainingJobs",
        service_token=function.get_att("Arn").to_string(),
        # Otherwise CloudFormation waits an hour for a function that timed out.
        service_timeout=Duration.minutes(16),
        properties={"StateMachineArn": state_machine.state_machine_arn, "JobNamePrefix": launch.prefix},
    )
    outer = set(map(id, workflow.node.scopes))
    for construct in {id(one): one for one in _constructs(needed)}.values():
        # Resources of another stack that this one refers to are deleted after it anyway.
        if id(construct) not in outer and Stack.of(construct) is launch.stack:
            resource.node.add_dependency(construct)
    resource.node.add_dependency(policy)


def _function(stack: Stack) -> tuple[CfnResource, iam.Role]:
    """The stack's function, made without aws_lambda, whose import takes longer than creating a workflow."""
    existing = stack.node.try_find_child(_FUNCTION_ID)
    if existing is not None:
        function, role = existing.node.find_child("Resource"), existing.node.find_child("Role")
        assert isinstance(function, CfnResource)
        assert isinstance(role, iam.Role)
        return function, role
    scope = Construct(stack, _FUNCTION_ID)
    group = logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
    )
    role = iam.Role(
        scope,
        "Role",
        description="Stops training jobs before their workflow is deleted",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
    )
    writing = iam.Policy(scope, "LogsPolicy", roles=[role])
    writing.add_statements(
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn])
    )
    function = CfnResource(
        scope,
        "Resource",
        type="AWS::Lambda::Function",
        properties={
            "Code": {"ZipFile": _handler()},
            "Description": "Stops training jobs before their workflow is deleted",
            "Handler": "index.handler",
            "LoggingConfig": {"LogGroup": group.log_group_name},
            "Role": role.role_arn,
            "Runtime": _RUNTIME,
            "Timeout": _TIMEOUT.to_seconds(),
        },
    )
    function.node.add_dependency(writing)
    return function, role


@cache
def _handler() -> str:
    return _HANDLER.read_text()


def _constructs(values: Iterable[Any]) -> Iterator[IConstruct]:
    """Yield the constructs among values, and within mappings, sequences and dataclasses."""
    for value in values:
        if isinstance(value, Mapping):
            yield from _constructs(value.values())
        elif isinstance(value, list | tuple):
            yield from _constructs(value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from _constructs(getattr(value, field.name) for field in dataclasses.fields(value))
        elif hasattr(value, "node"):
            yield value
