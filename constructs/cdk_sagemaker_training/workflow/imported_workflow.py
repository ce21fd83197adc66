"""Workflows that another stack or app defines, and the interface that all workflows have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jsii
from aws_cdk import Resource
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct, Node

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.features.metrics import WorkflowMetrics

if TYPE_CHECKING:
    from aws_cdk import RemovalPolicy, Stack
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk.interfaces import ResourceEnvironment

_ARN = "arn:aws:states:us-east-1:123456789012:stateMachine:training"


@runtime_checkable
class ITrainingWorkflow(Protocol):
    """A workflow that this app defines (``TrainingWorkflow``) or another one does (``TrainingWorkflow.from_...``).

    Attributes:
        state_machine: The state machine.
        job_metrics: Whether CloudWatch gets metrics of its jobs.
    """

    state_machine: Any  # an sfn.IStateMachine, and an sfn.StateMachine where the app defines it
    job_metrics: bool

    @property
    def node(self) -> Node:
        """The node of the construct tree."""

    @property
    def env(self) -> ResourceEnvironment:
        """The account and region of the workflow."""

    @property
    def stack(self) -> Stack:
        """The stack that the construct is part of."""

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The principal of the role of its jobs."""

    def apply_removal_policy(self, policy: RemovalPolicy) -> None:
        """Apply a removal policy to the state machine, if the app defines it.

        Args:
            policy: The policy.
        """

    def as_task(self, scope: Construct, id: str, **task_state: Any) -> sfn.TaskStateBase:
        """One state of another machine that starts an execution, waits for its end, and stops it with its own.

        Args:
            scope: The construct that the state is part of.
            id: Its id among that construct's children, and its name.
            task_state: Props of CDK's ``StepFunctionsStartExecution``, such as ``input`` and ``result_path``.
        """

    def grant(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Allow actions on the state machine.

        Args:
            grantee: Who may do them.
            *actions: The actions.
        """

    def grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow starting executions.

        Args:
            grantee: Who may start executions.
        """

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow listing and describing the state machine and its executions.

        Args:
            grantee: Who may read them.
        """

    def grant_execution(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Allow actions on all executions.

        Args:
            grantee: Who may do them.
            *actions: The actions.
        """

    def metric(self, metric_name: str, **options: Any) -> cloudwatch.Metric:
        """A metric of the executions.

        Args:
            metric_name: The name that Step Functions gives it.
            **options: Props of CDK's ``cloudwatch.Metric``.
        """


@jsii.implements(iam.IGrantable)
class ImportedWorkflow(WorkflowMetrics, Resource):
    """A workflow that another stack or app defines.

    Attributes:
        state_machine: The state machine.
        role: The jobs' role; None if it is not known.
        job_metrics: Whether CloudWatch gets metrics of its jobs.
    """

    def __init__(
        self, scope: Construct, id: str, state_machine_arn: str, role: iam.IRole | None, job_metrics: bool
    ) -> None:
        """Refer to the state machine.

        Args:
            scope: The parent construct.
            id: The construct id.
            state_machine_arn: Its ARN.
            role: The jobs' role; None if it is not known.
            job_metrics: Whether CloudWatch gets metrics of its jobs.

        Raises:
            ValueError: The ARN is not that of a state machine.
        """
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
