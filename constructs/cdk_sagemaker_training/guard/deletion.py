"""The custom resources that stop executions and jobs, and wait for their end, before CloudFormation deletes what they need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, IConstruct

from cdk_sagemaker_training.core.nag import OF_THE_STACK, acknowledge_policies
from cdk_sagemaker_training.guard.updates import BreakingUpdates, Updates
from cdk_sagemaker_training.lifecycle.job_set import JobSet, executions_of, machines_of, of_executions
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.lifecycle.state_machines import executions_logs
from cdk_sagemaker_training.resources.handler_function import StackFunction, stack_function

_ID = "Deletion"
_ID_OF_FUNCTION = "SageMakerTrainingJobsHandler"


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
    properties = {**service.properties, **({"Retain": "true"} if retain else {})}
    resource = _resource(workflow, _function(jobs.stack), state_machine, properties)
    _delete_before(resource, [*needed, *service.needs])


def check_updates(
    plan: Plan, machine_name: str, machine_role: iam.IRole, breaking: BreakingUpdates, *, retain: bool
) -> None:
    """Look, in updates of the stack, at what a workflow's running executions would lose.

    Args:
        plan: The workflow.
        machine_name: The name of its state machine.
        machine_role: That state machine's role.
        breaking: What becomes of an update that takes away something, or the workflow itself.
        retain: Whether executions and jobs go on without the workflow.
    """
    updates = Updates.of(plan.jobs.stack, _function(plan.jobs.stack))
    updates.look_at(plan, machine_name, machine_role, breaking, retain=retain)


def stop_executions_on_deletion(
    scope: Construct,
    state_machine: sfn.StateMachine,
    workflows: Iterable[Construct] = (),
    jobs: JobSet | None = None,
) -> None:
    """Stop the executions of a state machine that is not a workflow's before CloudFormation deletes it.

    An update that removes it while one runs is refused.

    Args:
        scope: What has the state machine, or the state with jobs of its own.
        state_machine: The state machine.
        workflows: The workflows that it starts: theirs are stopped afterwards, so that it starts no other meanwhile.
        jobs: Jobs that its executions create themselves, which have a tag that names the execution. Default: none.
    """
    shared = _function(Stack.of(scope))
    # In a policy of its own, which is deleted after the custom resource, in an update that removes both too.
    policy = iam.Policy(scope, "DeletionPolicy", roles=[shared.role], statements=_on(state_machine, jobs))
    acknowledge_policies(policy, OF_THE_STACK)
    properties = {} if jobs is None else {"TaggedJobNamePrefix": jobs.prefix}
    resource = _resource(scope, shared, state_machine, properties)
    if Stack.of(state_machine) is Stack.of(scope):
        Updates.of(Stack.of(scope), shared).look_for(state_machine)
    deletions = [workflow.node.try_find_child(_ID) for workflow in workflows]
    of_jobs = [] if jobs is None else [jobs.role, jobs.role.role]
    _delete_before(resource, [policy, state_machine, *filter(None, deletions), *of_jobs])


def _function(stack: Stack) -> StackFunction:
    description = "Stops training jobs before their workflow is deleted"
    group = executions_logs(stack)
    return stack_function(
        stack, _ID_OF_FUNCTION, "deletion", description, lambda: _statements(stack), OF_THE_STACK, group
    )


def _resource(
    scope: Construct, shared: StackFunction, state_machine: sfn.StateMachine, properties: Mapping[str, Any]
) -> CustomResource:
    return CustomResource(
        scope,
        _ID,
        resource_type="Custom::SageMakerTrainingJobs",
        service_token=shared.function.get_att("Arn").to_string(),
        # Otherwise CloudFormation waits an hour for a function that timed out.
        service_timeout=Duration.minutes(16),
        properties={"StateMachineArn": state_machine.state_machine_arn, **properties},
    )


def _delete_before(resource: CustomResource, needed: Iterable[Any]) -> None:
    """Have CloudFormation delete a custom resource before what jobs need."""
    node, stack = resource.node, Stack.of(resource)
    outer = set(map(id, node.scopes))
    constructs = {id(construct): construct for construct in _constructs(needed)}
    # Resources of another stack that this one refers to are deleted after it anyway.
    inner = [construct for key, construct in constructs.items() if key not in outer and Stack.of(construct) is stack]
    if inner:
        node.add_dependency(*inner)


def _on(state_machine: sfn.StateMachine, jobs: JobSet | None) -> list[iam.PolicyStatement]:
    """What stopping the executions of one state machine takes, and jobs that they have created themselves."""
    stack = Stack.of(state_machine)
    executions = stack.format_arn(service="states", resource=f"execution:{state_machine.state_machine_name}:*")
    statements = [
        iam.PolicyStatement(actions=["states:ListExecutions"], resources=[state_machine.state_machine_arn]),
        iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions]),
    ]
    return [
        *statements,
        *([] if jobs is None else [jobs.job_policy("DescribeTrainingJob", "ListTags", "StopTrainingJob")]),
    ]


def _statements(stack: Stack) -> list[iam.PolicyStatement]:
    """What the function may do: its calls about executions of the stack's state machines, and about jobs that these created."""
    return [
        iam.PolicyStatement(actions=["states:ListExecutions"], resources=[machines_of(stack)]),
        iam.PolicyStatement(actions=["states:StopExecution"], resources=[executions_of(stack)]),
        # These have no narrower resource.
        iam.PolicyStatement(
            actions=["batch:DescribeServiceJob", "batch:ListServiceJobs", "sagemaker:ListTrainingJobs"], resources=["*"]
        ),
        # Of the stack itself: whether an update is one that takes back another, and the state machine of a logical id.
        iam.PolicyStatement(
            actions=["cloudformation:DescribeStackResource", "cloudformation:DescribeStacks"],
            resources=[
                stack.format_arn(service="cloudformation", resource="stack", resource_name=f"{stack.stack_name}/*")
            ],
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
        # Of the class first, which is no call behind the CDK.
        elif hasattr(type(value), "node") or hasattr(value, "node"):
            yield value
