"""The custom resource that stops a workflow's jobs and waits for their end before CloudFormation deletes the workflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from cdk_sagemaker_training.core.nag import OF_THE_STACK
from cdk_sagemaker_training.lifecycle.job_set import executions_of, machines_of, of_executions
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.resources.handler_function import stack_function

_FUNCTION_ID = "SageMakerTrainingJobsHandler"


def stop_jobs_on_deletion(
    workflow: Construct, plan: Plan, state_machine: sfn.StateMachine, needed: Iterable[Any], *, retain: bool
) -> None:
    """Stop the jobs of a workflow before CloudFormation deletes resources that they need.

    Where they are retained the custom resource is there too, and does nothing: its removal in an update would stop the jobs that
    the update retains.

    The Lambda function is shared by all workflows of the stack, and what it may do names none of them: a statement of one would
    be removed in the update that removes the workflow, before CloudFormation deletes the custom resource.

    Args:
        workflow: The workflow.
        plan: The workflow's jobs, and by which service they are created.
        state_machine: The workflow's state machine.
        needed: What must be deleted after the jobs' end: constructs, and props that contain constructs.
        retain: Whether executions and jobs go on.
    """
    jobs, service = plan.jobs, plan.service
    description = "Stops training jobs before their workflow is deleted"
    shared = stack_function(
        jobs.stack, _FUNCTION_ID, "deletion", description, lambda: _statements(jobs.stack), OF_THE_STACK
    )
    resource = CustomResource(
        workflow,
        "Deletion",
        resource_type="Custom::SageMakerTrainingJobs",
        service_token=shared.function.get_att("Arn").to_string(),
        # Otherwise CloudFormation waits an hour for a function that timed out.
        service_timeout=Duration.minutes(16),
        properties={
            "StateMachineArn": state_machine.state_machine_arn,
            "JobNamePrefix": jobs.prefix,
            **service.properties,
            **({"Retain": "true"} if retain else {}),
        },
    )
    outer = set(map(id, workflow.node.scopes))
    for construct in {id(construct): construct for construct in _constructs([*needed, *service.needs])}.values():
        # Resources of another stack that this one refers to are deleted after it anyway.
        if id(construct) not in outer and Stack.of(construct) is jobs.stack:
            resource.node.add_dependency(construct)


def _statements(stack: Stack) -> list[iam.PolicyStatement]:
    """What the function may do: its calls about executions of the stack's state machines, and about jobs that these created."""
    return [
        iam.PolicyStatement(actions=["states:ListExecutions"], resources=[machines_of(stack)]),
        iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions_of(stack)]),
        # These have no narrower resource.
        iam.PolicyStatement(
            actions=["batch:DescribeServiceJob", "batch:ListServiceJobs", "sagemaker:ListTrainingJobs"], resources=["*"]
        ),
        of_executions(stack, "batch:TerminateServiceJob", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"),
    ]


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
