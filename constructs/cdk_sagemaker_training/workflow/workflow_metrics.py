"""The metrics of a workflow's jobs and of what stops them, as methods of the workflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.job_metrics import (
    BILLABLE_TIME,
    BUDGET_NEARLY_USED,
    CAUSE,
    DIMENSION,
    FAILED_ATTEMPTS,
    NAMESPACE,
    TRAINING_TIME,
    UNKNOWN,
)
from cdk_sagemaker_training.workflow.state_machine_base import StateMachineBase

if TYPE_CHECKING:
    # Takes long to import.
    from aws_cdk import aws_cloudwatch as cloudwatch

    from cdk_sagemaker_training.workflow.stopping import Stopper


class WorkflowMetrics(StateMachineBase):
    """Methods of a workflow, beside those of its executions; all but the last need ``job_metrics=True``.

    Attributes:
        stopper: What stops jobs of executions that ended before them.
        job_metrics: Whether the state machine puts metrics of its jobs.
    """

    stopper: Stopper
    job_metrics: bool

    def metric_failed_attempts(
        self, cause: Cause | Literal["unknown"] | None = None, **options: Any
    ) -> cloudwatch.Metric:
        """How many jobs did not complete, those that were run again among them.

        Args:
            cause: Those of one cause, or ``"unknown"``, those whose reason has the sign of no cause. Default: all.
            options: Those of ``metric``.

        Raises:
            ValueError: The workflow has no ``job_metrics``, or the cause is none.
        """
        if cause not in (None, UNKNOWN, *Cause):
            raise ValueError(f"cause must be a Cause or 'unknown', like Cause.CAPACITY, got {cause!r}")
        dimensions = {} if cause is None else {CAUSE: str(cause)}
        return self._of_jobs(FAILED_ATTEMPTS, "Sum", options, dimensions)

    def metric_training_time(self, **options: Any) -> cloudwatch.Metric:
        """For how many seconds jobs trained (``TrainingTimeInSeconds``); of each job that ended and was billed.

        Args:
            options: Those of ``metric``.

        Raises:
            ValueError: The workflow has no ``job_metrics``.
        """
        return self._of_jobs(TRAINING_TIME, "Sum", options)

    def metric_billable_time(self, **options: Any) -> cloudwatch.Metric:
        """For how many seconds each machine of a job is billed (``BillableTimeInSeconds``).

        Args:
            options: Those of ``metric``.

        Raises:
            ValueError: The workflow has no ``job_metrics``.
        """
        return self._of_jobs(BILLABLE_TIME, "Sum", options)

    def metric_budgets_nearly_used(self, **options: Any) -> cloudwatch.Metric:
        """How many executions had nearly used their budget, as the event of ``notify`` says; none without both.

        Args:
            options: Those of ``metric``.

        Raises:
            ValueError: The workflow has no ``job_metrics``.
        """
        return self._of_jobs(BUDGET_NEARLY_USED, "Sum", options)

    def metric_stopper_failed(self, **options: Any) -> cloudwatch.Metric:
        """How often a job whose execution had ended could not be stopped for an hour; ``alarms`` has an alarm of it.

        Args:
            options: Those of ``metric``.
        """
        return self.stopper.state_machine.metric_failed(**options)

    def _of_jobs(
        self, name: str, statistic: str, options: dict[str, Any], dimensions: dict[str, str] | None = None
    ) -> cloudwatch.Metric:
        if not self.job_metrics:
            raise ValueError(
                f"job_metrics must be True for the metric {name}, like TrainingWorkflow(..., job_metrics=True), got False"
            )
        from aws_cdk import aws_cloudwatch as cloudwatch

        machine = {DIMENSION: self.state_machine.state_machine_arn}
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={**machine, **(dimensions or {})},
            **{"statistic": statistic, **options},
        ).attach_to(self.state_machine)
