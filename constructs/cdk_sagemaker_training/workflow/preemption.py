"""The states that follow on the preemptions of a job in a quota share.

Batch stops a preempted job's training job, and creates another one once there are machines again. "A sliding window of recent
preemption attempts is stored on the job, and visible via DescribeServiceJob" (AWS Batch guide, "Preemption"), each with the ARN
of its training job (the guide's example of the event "Batch Service Job Preemption Completed").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.workflow.budget import BudgetStates
from cdk_sagemaker_training.workflow.queued_states import Submission


def with_preemptions(
    states: Mapping[str, Any], to: Submission, budget: BudgetStates | None, own: str
) -> dict[str, Any]:
    """Return the states of an attempt in a queue with those of its preemptions.

    `Preempted` fails the execution of a job that was preempted once more than it may be. With a budget each preempted training
    job is described once the service job has ended, and taken from the budget.

    Args:
        states: The states of ``queued_states``.
        to: Where the job waits.
        budget: The states that count what attempts take; None without a budget.
        own: JSONPath of the workflow's own data.
    """
    if to.quota_share_arn is None:
        return dict(states)
    job = f"{own}.Service"
    count, recent = f"{job}.PreemptionSummary.PreemptedAttemptCount", f"{job}.PreemptionSummary.RecentPreemptedAttempts"
    rules: list[dict[str, Any]] = []
    made: dict[str, Any] = {}
    if to.preemption_retries is not None:
        too_often = [
            {"Variable": f"{job}.Status", "StringEquals": "FAILED"},
            {"Variable": count, "IsPresent": True},
            {"Variable": count, "NumericGreaterThan": to.preemption_retries},
        ]
        rules.append({"And": too_often, "Next": "Preempted"})
        made["Preempted"] = {
            "Type": "Fail",
            "Error": "TrainingJobStopped",
            "CausePath": (
                f"States.Format('{{}}: preempted more often than preemption_retries={to.preemption_retries} allows', "
                f"{own}.JobName)"
            ),
        }
    if budget is not None:
        over = [{"Variable": f"{job}.Status", "StringEquals": status} for status in ("SUCCEEDED", "FAILED")]
        first = f"{recent}[0].ServiceResourceId.Value"
        rules.append({"And": [{"Or": over}, {"Variable": first, "IsPresent": True}], "Next": "DescribePreempted"})
        describe = states["DescribeJob"]
        made["DescribePreempted"] = {
            **describe,
            "Parameters": {"TrainingJobName.$": f"States.ArrayGetItem(States.StringSplit({first}, '/'), 1)"},
            "Next": "WhatIsBilledPreempted",
        }
        made |= budget.taking("NextPreempted", "Preempted")
        made["NextPreempted"] = {
            "Type": "Pass",
            "InputPath": f"{recent}[1:]",
            "ResultPath": recent,
            "Next": "IsQueued",
        }
    is_queued = states["IsQueued"]
    return {**states, "IsQueued": {**is_queued, "Choices": [*rules, *is_queued["Choices"]]}, **made}
