"""How a workflow polls a job: within its own execution, or, where that has too few events, in executions of a second machine."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.launch import Launch
from cdk_sagemaker_training.machines import make_state_machine
from cdk_sagemaker_training.retries import retry

# A job that is over is noticed within this.
MOST_SECONDS = 120

# Step Functions ends an execution with more than 25,000 events of history. A poll writes 9 (Wait 2, Describe 5, Choice 2), and
# 2 more where the interval grows or polls are counted; the rest of an attempt writes fewer than 40.
_EVENTS = 24_000
_EVENTS_OF_A_POLL = 9
_EVENTS_OF_A_COUNTED_POLL = 11
_OTHER_EVENTS_OF_AN_ATTEMPT = 40
_GROWTHS = 20
_FIRST_INTERVAL = 2
_SHORTEST_LAST_INTERVAL = 30

# Of one execution of the poller. The next execution goes on.
POLLS = _EVENTS // _EVENTS_OF_A_COUNTED_POLL


@dataclass(frozen=True)
class Intervals:
    """Seconds between two polls of a job: ``first``, growing by ``step`` until they are at least ``last``."""

    first: int
    step: int
    last: int

    @staticmethod
    def over(seconds: int, jobs: int) -> Intervals:
        """The intervals with which ``jobs``, of ``seconds`` in all, fit into one execution's history."""
        events = _EVENTS - jobs * (_GROWTHS * _EVENTS_OF_A_COUNTED_POLL + _OTHER_EVENTS_OF_AN_ATTEMPT)
        last = max(_SHORTEST_LAST_INTERVAL, math.ceil(_EVENTS_OF_A_POLL * seconds / events))
        return Intervals(_FIRST_INTERVAL, max(_FIRST_INTERVAL, math.ceil(last / _GROWTHS)), last)

    @property
    def longest(self) -> int:
        """The interval that they grow to."""
        return self.first + self.step * math.ceil((self.last - self.first) / self.step)


class Poller(Construct):
    """A state machine whose executions each poll one job, until it is over or they have polled ``POLLS`` times.

    Their input is ``{"JobName": ...}``. The workflow's execution starts one after the other by `states:startExecution.sync:2`,
    so that Step Functions stops them with it; one that is not stopped ends with its job, which the workflow's stopper stops.
    """

    def __init__(self, scope: Construct, id: str, *, launch: Launch, logs: sfn.LogOptions) -> None:
        super().__init__(scope, id)
        # The one token in it is the partition, which stands within text.
        definition = json.dumps(polling_definition(launch.partition))
        self.state_machine = make_state_machine(self, definition, logs)
        self.state_machine.add_to_role_policy(launch.job_policy("DescribeTrainingJob"))
        self.executions_arn = launch.stack.format_arn(
            service="states", resource=f"execution:{self.state_machine.state_machine_name}:*"
        )
        self._rule = launch.stack.format_arn(
            service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
        )

    def grant_run(self, role: iam.IGrantable) -> None:
        """Allow ``role`` to run executions by `.sync:2`, as "Start workflow executions from a Task state" has it (Step
        Functions guide, "IAM policies for Step Functions")."""
        principal = role.grant_principal
        for actions, resource in (
            (["states:StartExecution"], self.state_machine.state_machine_arn),
            (["states:DescribeExecution", "states:StopExecution"], self.executions_arn),
            (["events:DescribeRule", "events:PutRule", "events:PutTargets"], self._rule),
        ):
            principal.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=[resource]))


def polling_definition(partition: str) -> dict[str, Any]:
    """Polls a job until it is over, or ``POLLS`` times, at intervals that grow to ``MOST_SECONDS``."""
    intervals = Intervals(_FIRST_INTERVAL, _FIRST_INTERVAL, MOST_SECONDS)
    over = [
        {"Variable": "$.Job.Status", "StringEquals": status, "Next": "Done"}
        for status in ("Completed", "Failed", "Stopped")
    ]
    return {
        "Comment": "Polls a training job",
        "StartAt": "Start",
        "States": {
            "Start": {
                "Type": "Pass",
                "Parameters": {"JobName.$": "$.JobName", "Seconds": intervals.first, "Polls": 1},
                "Next": "Wait",
            },
            "Wait": {"Type": "Wait", "SecondsPath": "$.Seconds", "Next": "Describe"},
            "Describe": {
                "Type": "Task",
                "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:describeTrainingJob",
                "Parameters": {"TrainingJobName.$": "$.JobName"},
                "ResultSelector": {"Status.$": "$.TrainingJobStatus"},
                "ResultPath": "$.Job",
                "Retry": [retry(10)],
                "Next": "IsOver",
            },
            "IsOver": {
                "Type": "Choice",
                "Choices": [
                    *over,
                    {"Variable": "$.Polls", "NumericGreaterThanEquals": POLLS, "Next": "Done"},
                    {"Variable": "$.Seconds", "NumericLessThan": intervals.last, "Next": "WaitLonger"},
                ],
                "Default": "Count",
            },
            "WaitLonger": _counted(f"States.MathAdd($.Seconds, {intervals.step})"),
            "Count": _counted("$.Seconds"),
            "Done": {"Type": "Succeed"},
        },
    }


def poll_state(partition: str, poller_arn: str, job_name: str, result_path: str, error_path: str) -> dict[str, Any]:
    """The state of a workflow that waits by an execution of the poller; `Describe` then finds what has become of the job."""
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::states:startExecution.sync:2",
        "Parameters": {
            "StateMachineArn": poller_arn,
            # The second member lets the console show which execution started it ("Start workflow executions from a Task state").
            "Input": {"JobName.$": job_name, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id"},
        },
        "ResultSelector": {"ExecutionArn.$": "$.ExecutionArn"},
        "ResultPath": result_path,
        "Retry": [{**retry(5), "ErrorEquals": ["States.TaskFailed"]}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": error_path, "Next": "Stop"}],
        "Next": "Describe",
    }


def _counted(seconds: str) -> dict[str, Any]:
    return {
        "Type": "Pass",
        "Parameters": {"JobName.$": "$.JobName", "Seconds.$": seconds, "Polls.$": "States.MathAdd($.Polls, 1)"},
        "Next": "Wait",
    }
