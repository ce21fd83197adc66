"""The metrics of a state machine's executions, as methods of a construct that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import aws_stepfunctions as sfn

if TYPE_CHECKING:
    # Takes long to import.
    from aws_cdk import aws_cloudwatch as cloudwatch


class ExecutionMetrics:
    """Methods of constructs with a `state_machine`.

    Attributes:
        state_machine: The state machine.
    """

    state_machine: sfn.StateMachine

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
