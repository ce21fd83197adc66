"""The custom resource that stops a workflow's jobs and waits for their end before CloudFormation deletes the workflow."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.resources.handler_function import stack_function

_FUNCTION_ID = "SageMakerTrainingJobsHandler"
# Each workflow adds some 600 characters to the policies of the function's role, of which IAM allows 10,240 ("IAM and AWS STS
# quotas"). A second function would get some of the first one's workflows when one is added before them, and CloudFormation does
# not let the function of a custom resource change.
_MOST_WORKFLOWS = 15


def stop_jobs_on_deletion(
    workflow: Construct, plan: Plan, state_machine: sfn.StateMachine, executions: str, needed: Iterable[Any]
) -> None:
    """Stop the jobs of a workflow before CloudFormation deletes resources that they need.

    The Lambda function is shared by all workflows of the stack. Each workflow adds its own policy: a statement of a shared policy
    would be removed in the update that removes the workflow, before CloudFormation deletes the custom resource.

    Args:
        workflow: The workflow.
        plan: The workflow's jobs, and by which service they are created.
        state_machine: The workflow's state machine.
        executions: ARN pattern of its executions.
        needed: What must be deleted after the jobs' end: constructs, and props that contain constructs.

    Raises:
        ValueError: The stack has more workflows than one function's role has room for.
    """
    jobs, service = plan.jobs, plan.service
    description = "Stops training jobs before their workflow is deleted"
    shared = stack_function(jobs.stack, _FUNCTION_ID, "deletion", description)
    if shared.workflows > _MOST_WORKFLOWS:
        rule = (
            f"stop the jobs of at most {_MOST_WORKFLOWS} workflows of a stack, whose permissions one role has room for"
        )
        raise must(
            "retain_jobs=False", rule, "a stack for each team or model, or retain_jobs=True", str(shared.workflows)
        )
    policy = iam.Policy(
        workflow,
        "DeletionPolicy",
        roles=[shared.role],
        statements=[
            *_merged(
                iam.PolicyStatement(actions=["states:ListExecutions"], resources=[state_machine.state_machine_arn]),
                iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions]),
                *service.deletion_statements(jobs),
            )
        ],
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
        },
    )
    outer = set(map(id, workflow.node.scopes))
    for construct in {id(construct): construct for construct in _constructs([*needed, *service.needs])}.values():
        # Resources of another stack that this one refers to are deleted after it anyway.
        if id(construct) not in outer and Stack.of(construct) is jobs.stack:
            resource.node.add_dependency(construct)
    resource.node.add_dependency(policy)


def _merged(*statements: iam.PolicyStatement) -> Iterator[iam.PolicyStatement]:
    """Yield one statement for those of some resources, which is shorter: none of the actions is one on another's resources."""
    narrow = [statement for statement in statements if statement.resources != ["*"]]
    yield from (statement for statement in statements if statement.resources == ["*"])
    yield iam.PolicyStatement(
        actions=[action for statement in narrow for action in statement.actions],
        resources=[resource for statement in narrow for resource in statement.resources],
    )


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
