"""Policy statements that the role of a state machine needs to run jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.workflow.launch import Launch

_ON_JOBS = ("CreateTrainingJob", "DescribeTrainingJob", "StopTrainingJob", "AddTags")


def machine_policies(
    launch: Launch, requests: Iterable[Mapping[str, Any]], *, sync: bool
) -> Iterator[iam.PolicyStatement]:
    """Yield the statements that allow a state machine to create, describe and stop jobs.

    Args:
        launch: The jobs.
        requests: Rendered requests of the jobs.
        sync: Whether to add the permissions of `createTrainingJob.sync`: its EventBridge rule and ``sagemaker:ListTags`` ("IAM
            policies for Amazon SageMaker" in the guide of Step Functions, and CDK's ``SageMakerCreateTrainingJob``). Both
            sources grant ListTags on all resources; it supports jobs as a resource, so it is granted on the jobs.
    """
    yield launch.job_policy(*_ON_JOBS, *(["ListTags"] if sync else []))
    if reserved := reserved_capacity(launch.stack, requests):
        yield iam.PolicyStatement(actions=["sagemaker:CreateTrainingJob"], resources=reserved)
    yield launch.pass_role_policy()
    if sync:
        yield launch.sync_policy()


def reserved_capacity(stack: Stack, requests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ARNs of training plans and reserved capacity on which CreateTrainingJob must be allowed.

    The names of reserved capacity are random (AmazonSageMakerFullAccess, statement AllowUseOfTrainingPlanResources).

    Args:
        stack: The stack of the jobs.
        requests: Rendered requests. A plan that comes from an execution's input may be any plan of the stack's account and
            region.
    """
    found: dict[str, None] = {}
    for request in requests:
        for plan in _plans(request["ResourceConfig"]):
            known = None if plan is None or is_unresolved(plan) else plan.partition(":training-plan/")[0]
            found[plan or _arn(stack, "training-plan")] = None
            found[f"{known}:reserved-capacity/*" if known else _arn(stack, "reserved-capacity")] = None
    return list(found)


def _plans(resource_config: Mapping[str, Any]) -> Iterator[str | None]:
    """Yield the ARNs of training plans in a rendered ResourceConfig; None for one that is a JSONPath."""
    if "TrainingPlanArn" in resource_config:
        yield resource_config["TrainingPlanArn"]
    if "TrainingPlanArn.$" in resource_config:
        yield None
    for preference in resource_config.get("InstancePreferences", ()):
        yield from preference.get("TrainingPlanArns", ())
        if "TrainingPlanArns.$" in preference:
            yield None


def _arn(stack: Stack, resource: str) -> str:
    return stack.format_arn(service="sagemaker", resource=resource, resource_name="*")
