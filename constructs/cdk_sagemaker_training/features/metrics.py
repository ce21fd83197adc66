"""Metrics of a workflow's jobs, which its state machine puts into CloudWatch once each has ended, and methods that read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.features.budget import BUDGETS_NEARLY_USED
from cdk_sagemaker_training.lifecycle.attempt import FAILED_ATTEMPTS, UNKNOWN, Attempt, Seam
from cdk_sagemaker_training.lifecycle.causes import Cause
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.state_machine_base import StateMachineBase
from cdk_sagemaker_training.lifecycle.states import DATA, catch, retry

if TYPE_CHECKING:
    # Takes long to import.
    from aws_cdk import aws_cloudwatch as cloudwatch

    from cdk_sagemaker_training.lifecycle.plan import Plan

NAMESPACE = "cdk-sagemaker-training"
TRAINING_TIME, BILLABLE_TIME = "TrainingTime", "BillableTime"
# As Step Functions names it, in whose namespace the other metrics of executions are.
DIMENSION, CAUSE = "StateMachineArn", "Cause"


class JobMetrics(Feature):
    """Puts the times of jobs, and counts those that did not complete; each state goes on where it cannot.

    ``CountRetryCapacity`` and the like precede the state that they count, so that no other state leads there. It follows on all
    other features, whose states it counts.
    """

    prop = "job_metrics"
    by_cause = True

    def states(self, attempt: Attempt) -> None:
        """Put states at a job's end, and before each state that is counted."""
        times = {TRAINING_TIME: "TrainingTimeInSeconds", BILLABLE_TIME: "BillableTimeInSeconds"}
        paths = {name: f"{DATA}.Job.{member}" for name, member in times.items()}
        billed = [{"Variable": path, "IsPresent": True} for path in paths.values()]
        data = [{"MetricName": name, "Value.$": path, "Unit": "Seconds"} for name, path in paths.items()]
        was_billed = {"Type": "Choice", "Choices": [{"And": billed, "Next": "PutTimes"}], "Default": Seam.OVER}
        put = _put(attempt.partition, Seam.OVER, *data)
        attempt.before(Seam.OVER, "WasBilled", {"WasBilled": was_billed, "PutTimes": put})
        for seam, counted in attempt.counted.items():
            datum: dict[str, Any] = {"MetricName": counted.metric, "Value": 1, "Unit": "Count"}
            by_cause = [{**datum, "Dimensions": [{"Name": CAUSE, "Value": counted.cause}]}] if counted.cause else []
            attempt.before(seam, counted.id, {counted.id: _put(attempt.partition, seam, datum, *by_cause)})

    def statements(self, plan: Plan) -> Iterator[iam.PolicyStatement]:
        """Yield the statement that allows it; the action has no resource ("Actions ... for Amazon CloudWatch")."""
        yield iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": NAMESPACE}},
        )


def _put(partition: str, following: str, *data: Mapping[str, Any]) -> dict[str, Any]:
    """The state that puts metrics of the state machine."""
    machine = {"Name": DIMENSION, "Value.$": "$$.StateMachine.Id"}
    metrics = [{**datum, "Dimensions": [machine, *datum.get("Dimensions", ())]} for datum in data]
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::aws-sdk:cloudwatch:putMetricData",
        "Parameters": {"Namespace": NAMESPACE, "MetricData": metrics},
        "ResultPath": f"{DATA}.Put",
        "Retry": [retry(2, "States.TaskFailed")],
        "Catch": [catch(following, f"{DATA}.NotPut")],
        "Next": following,
    }


class WorkflowMetrics(StateMachineBase):
    """Metrics of a workflow's jobs, beside those of its executions; they need ``job_metrics=True``.

    Attributes:
        job_metrics: Whether the state machine puts metrics of its jobs.
    """

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
            raise must("cause", "be a Cause or 'unknown'", "Cause.CAPACITY", repr(cause))
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
        return self._of_jobs(BUDGETS_NEARLY_USED, "Sum", options)

    def _of_jobs(
        self, name: str, statistic: str, options: dict[str, Any], dimensions: dict[str, str] | None = None
    ) -> cloudwatch.Metric:
        if not self.job_metrics:
            raise must(
                "job_metrics", f"be True for the metric {name}", "TrainingWorkflow(..., job_metrics=True)", "False"
            )
        from aws_cdk import aws_cloudwatch as cloudwatch

        machine = {DIMENSION: self.state_machine.state_machine_arn}
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={**machine, **(dimensions or {})},
            **{"statistic": statistic, **options},
        ).attach_to(self.state_machine)
