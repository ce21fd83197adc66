"""What constructs with a state machine have alike: its grants, and the metrics of its executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn

if TYPE_CHECKING:
    # Takes long to import.
    from aws_cdk import aws_cloudwatch as cloudwatch


class StateMachineBase:
    """Members of constructs with a `state_machine`.

    A plain class, before ``Construct`` among the bases. jsii finds its ``grant_principal`` where the construct itself has
    ``@jsii.implements(iam.IGrantable)``, which here would hide from jsii that it is a construct: the decorator sets the class's
    ``__jsii_type__``, and members of interfaces are looked up in all bases before ``Construct`` (jsii, ``_get_overides``).

    Attributes:
        state_machine: The state machine.
    """

    state_machine: sfn.StateMachine

    @property
    @jsii.member(jsii_name="grantPrincipal")
    def grant_principal(self) -> iam.IPrincipal:
        """The principal of the role of its jobs; where those are a workflow's, of the state machine's role."""
        jobs: iam.IGrantable = getattr(self, "role", self.state_machine)
        return jobs.grant_principal

    def grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal start the state machine.

        Args:
            grantee: Who may start executions.
        """
        return self.state_machine.grant_start_execution(grantee)

    def metric(self, metric_name: str, **options: Any) -> cloudwatch.Metric:
        """A metric of the executions.

        Args:
            metric_name: The name that Step Functions gives it, such as ``"ExecutionsFailed"``.
            **options: Props of CDK's ``cloudwatch.Metric``, such as ``period`` and ``statistic``.
        """
        return self.state_machine.metric(metric_name, **options)

    def metric_started(self, **options: Any) -> cloudwatch.Metric:
        """How many executions were started.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_started(**options)

    def metric_succeeded(self, **options: Any) -> cloudwatch.Metric:
        """How many executions succeeded.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_succeeded(**options)

    def metric_failed(self, **options: Any) -> cloudwatch.Metric:
        """How many executions failed.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_failed(**options)

    def metric_aborted(self, **options: Any) -> cloudwatch.Metric:
        """How many executions were stopped.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_aborted(**options)

    def metric_timed_out(self, **options: Any) -> cloudwatch.Metric:
        """How many executions ended by the time-out.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_timed_out(**options)

    def metric_time(self, **options: Any) -> cloudwatch.Metric:
        """How long executions take, in milliseconds.

        Args:
            options: Those of ``metric``.
        """
        return self.state_machine.metric_time(**options)
