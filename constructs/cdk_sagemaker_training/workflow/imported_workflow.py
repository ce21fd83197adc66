"""Workflows that another stack or app defines, and what all workflows have alike."""

from __future__ import annotations

import re

import jsii
from aws_cdk import Resource
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.features.metrics import WorkflowMetrics

_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:training"


class ITrainingWorkflow(WorkflowMetrics, Resource):
    """What a workflow that this app defines (``TrainingWorkflow``) and one of another (``TrainingWorkflow.from_...``) have alike.

    Attributes:
        state_machine: The state machine.
        job_metrics: Whether CloudWatch gets metrics of its jobs.
    """


@jsii.implements(iam.IGrantable)
class ImportedWorkflow(ITrainingWorkflow):
    """A workflow that another stack or app defines; its ``role``, the jobs', is None if it is not known."""

    def __init__(
        self, scope: Construct, id: str, state_machine_arn: str, role: iam.IRole | None, job_metrics: bool
    ) -> None:
        """Refer to the state machine."""
        known = not is_unresolved(state_machine_arn)
        if known and not re.fullmatch(r"arn:[^:]+:states:[^:]+:[^:]+:stateMachine:[^:]+", state_machine_arn):
            raise must("state_machine_arn", "be the ARN of a state machine", repr(_ARN), repr(state_machine_arn))
        super().__init__(scope, id, environment_from_arn=state_machine_arn)
        self.state_machine = sfn.StateMachine.from_state_machine_arn(self, "StateMachine", state_machine_arn)
        self.role = role
        self.job_metrics = job_metrics

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """The principal of the jobs' role; one to which nothing can be granted where that is not known."""
        jobs: iam.IGrantable = iam.UnknownPrincipal(resource=self) if self.role is None else self.role
        return jobs.grant_principal
