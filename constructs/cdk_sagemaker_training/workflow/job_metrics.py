"""Metrics of a workflow's jobs, which its state machine puts into CloudWatch once each has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.redirection import redirected
from cdk_sagemaker_training.workflow.retries import retry

NAMESPACE = "cdk-sagemaker-training"
FAILED_ATTEMPTS, TRAINING_TIME, BILLABLE_TIME = "FailedAttempts", "TrainingTime", "BillableTime"
BUDGET_NEARLY_USED = "BudgetsNearlyUsed"
# As Step Functions names it, in whose namespace the other metrics of executions are.
DIMENSION, CAUSE = "StateMachineArn", "Cause"
UNKNOWN: Final = "unknown"  # of a job whose FailureReason has the sign of no cause


class MetricStates:
    """The states that put metrics; each goes on where it cannot.

    ``CountRetryCapacity`` and the like precede the state that they count, so that no other state leads there.
    """

    def __init__(self, partition: str, own: str) -> None:
        """Prepare the states.

        Args:
            partition: Partition of ARNs.
            own: JSONPath of the workflow's own data.
        """
        self._partition, self._own = partition, own

    def times(self, following: str) -> dict[str, Any]:
        """Return the states from `WasBilled`, which puts the times of a job that has ended and was billed.

        Args:
            following: The state after them.
        """
        times = {TRAINING_TIME: "TrainingTimeInSeconds", BILLABLE_TIME: "BillableTimeInSeconds"}
        paths = {name: f"{self._own}.Job.{member}" for name, member in times.items()}
        data = [{"MetricName": name, "Value.$": path, "Unit": "Seconds"} for name, path in paths.items()]
        return {
            "WasBilled": {
                "Type": "Choice",
                "Choices": [
                    {
                        "And": [{"Variable": path, "IsPresent": True} for path in paths.values()],
                        "Next": "PutTimes",
                    }
                ],
                "Default": following,
            },
            "PutTimes": self._put(following, *data),
        }

    def counted(self, states: Mapping[str, Any]) -> dict[str, Any]:
        """Return states with one before each that follows on a job that did not complete, which counts it.

        Args:
            states: The states of an attempt.
        """
        causes = {"".join(word.capitalize() for word in cause.split()): str(cause) for cause in Cause}
        counts = {f"{end}{name}": cause for name, cause in causes.items() for end in ("Retry", "Failed")}
        counts |= {"Failed": UNKNOWN, "Stopped": str(Cause.STOPPED), "StoppedByRule": str(Cause.STOPPED)}
        counts["Preempted"] = str(Cause.STOPPED)
        counts["TellNextJob" if "TellNextJob" in states else "NextJob"] = str(Cause.CAPACITY)
        present = {name: cause for name, cause in counts.items() if name in states}
        made = redirected(dict(states), {name: f"Count{name}" for name in present})
        for name, cause in present.items():
            made[f"Count{name}"] = self._count(name, FAILED_ATTEMPTS, cause)
        if "TellBudget" in states:
            made = redirected(made, {"TellBudget": "CountBudget"})
            made["CountBudget"] = self._count("TellBudget", BUDGET_NEARLY_USED, None)
        return dict(made)

    def policy(self) -> iam.PolicyStatement:
        """Return the statement that allows it; the action has no resource ("Actions ... for Amazon CloudWatch")."""
        return iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": NAMESPACE}},
        )

    def _count(self, following: str, metric: str, cause: str | None) -> dict[str, Any]:
        one: dict[str, Any] = {"MetricName": metric, "Value": 1, "Unit": "Count"}
        if cause is None:
            return self._put(following, one)
        return self._put(following, one, {**one, "Dimensions": [{"Name": CAUSE, "Value": cause}]})

    def _put(self, following: str, *data: Mapping[str, Any]) -> dict[str, Any]:
        machine = {"Name": DIMENSION, "Value.$": "$$.StateMachine.Id"}
        every = [{**datum, "Dimensions": [machine, *datum.get("Dimensions", ())]} for datum in data]
        return {
            "Type": "Task",
            "Resource": f"arn:{self._partition}:states:::aws-sdk:cloudwatch:putMetricData",
            "Parameters": {"Namespace": NAMESPACE, "MetricData": every},
            "ResultPath": f"{self._own}.Put",
            "Retry": [retry(2, "States.TaskFailed")],
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{self._own}.NotPut", "Next": following}],
            "Next": following,
        }
