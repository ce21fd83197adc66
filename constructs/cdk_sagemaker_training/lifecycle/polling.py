"""Polling of jobs: within an execution, or in executions of a second state machine if the event history is too small."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aws_cdk import CfnResource, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.lifecycle.state_machines import make_state_machine
from cdk_sagemaker_training.lifecycle.states import DATA, STARTED_BY, catch, retry

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.job_set import JobSet
    from cdk_sagemaker_training.lifecycle.plan import JobService

# The longest time until the end of a job is detected.
MOST_SECONDS = 120

# Step Functions fails an execution with more than 25,000 events of history. A poll writes 9 (Wait 2, Describe 5, Choice 2), and
# 2 more where the interval grows or polls are counted; the rest of an attempt writes fewer than 40.
_EVENTS = 24_000
_EVENTS_OF_A_POLL = 9
_EVENTS_OF_A_COUNTED_POLL = 11
# Look 5, Looked 2, Stop 5, NotStopped 2; neither call is retried, since the next poll makes it again.
_EVENTS_OF_A_LOOK = 14
_OTHER_EVENTS_OF_AN_ATTEMPT = 40
_EVENTS_OF_A_REFUSAL = 45
_GROWTHS = 20
_FIRST_INTERVAL = 2
_SHORTEST_LAST_INTERVAL = 30

_LONGEST_LOOK = 60
# What a poller returns of its looks, as it is before the first.
NOT_LOOKED: Mapping[str, Any] = {"Because": "", "State": {}}
_NOT_TO_STOP = {"Variable": "$.Stop.Because", "StringEquals": ""}
_TRAINS = {"Variable": "$.Job.Secondary", "StringEquals": "Training"}

# Of one execution of the poller; the next execution continues.
POLLS = _EVENTS // _EVENTS_OF_A_COUNTED_POLL


@dataclass(frozen=True)
class Intervals:
    """Intervals between polls, in seconds."""

    first: int
    step: int  # what each interval adds to the one before
    last: int  # at which they stop growing

    @staticmethod
    def over(seconds: int, jobs: int, refusals: int = 0) -> Intervals:
        """Return the shortest intervals with which jobs of so many seconds together, and refused calls, fit into one history."""
        of_jobs = jobs * (_GROWTHS * _EVENTS_OF_A_COUNTED_POLL + _OTHER_EVENTS_OF_AN_ATTEMPT)
        # At least one poll fits, at an interval that is too long; TimeLimits.outlast_one_history then says so.
        events = max(_EVENTS_OF_A_POLL, _EVENTS - of_jobs - refusals * _EVENTS_OF_A_REFUSAL)
        last = max(_SHORTEST_LAST_INTERVAL, math.ceil(_EVENTS_OF_A_POLL * seconds / events))
        return Intervals(_FIRST_INTERVAL, max(_FIRST_INTERVAL, math.ceil(last / _GROWTHS)), last)

    @property
    def longest(self) -> int:
        """The longest interval, in seconds."""
        return self.first + self.step * math.ceil((self.last - self.first) / self.step)


@dataclass(frozen=True)
class Watch:
    """A function that a poller calls after each poll of a job that trains, and that says whether to stop it.

    It gets `JobName`, `Rules`, the `State` that it returned last, at first `{}`, and the `Seconds` since the last poll. It
    returns `Because`, what the job is to be stopped for or an empty text, and the next `State`.
    """

    rules: Sequence[Mapping[str, Any]]
    function: Callable[[Stack], CfnResource]  # returns the function in a stack


class Poller(Construct):
    """A state machine whose executions each poll one job until it ends, at most ``POLLS`` times.

    The input is ``{"JobName": ...}``. The workflow's execution starts them one after the other by `states:startExecution.sync:2`,
    so that Step Functions stops them together with it; one that is not stopped ends with its job, which the stack's guard
    stops.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        jobs: JobSet,
        service: JobService,
        logs: sfn.LogOptions,
        watch: Watch | None = None,
    ) -> None:
        """Create the state machine."""
        super().__init__(scope, id)
        function = watch.function(jobs.stack).get_att("Arn").to_string() if watch else ""
        # The tokens in it, the partition and a function's ARN, stand within text.
        definition = json.dumps(polling_definition(jobs.partition, service, watch, function))
        self.state_machine = make_state_machine(self, definition, logs)
        self.state_machine.add_to_role_policy(service.polling_statement(jobs, stops=watch is not None))
        if function:
            invoking = iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function])
            self.state_machine.add_to_role_policy(invoking)
        self.executions_arn = jobs.stack.format_arn(
            service="states", resource=f"execution:{self.state_machine.state_machine_name}:*"
        )
        self._rule = jobs.stack.format_arn(
            service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
        )

    def grant_run(self, role: iam.IGrantable) -> None:
        """Grant permission to run executions by `.sync:2` (Step Functions guide, "IAM policies for Step Functions")."""
        principal = role.grant_principal
        for actions, resource in (
            (["states:StartExecution"], self.state_machine.state_machine_arn),
            (["states:DescribeExecution", "states:StopExecution"], self.executions_arn),
            (["events:DescribeRule", "events:PutRule", "events:PutTargets"], self._rule),
        ):
            principal.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=[resource]))


def polling_definition(
    partition: str, service: JobService, watch: Watch | None = None, function: str = ""
) -> dict[str, Any]:
    """Return the state machine that polls a job until it ends, at most ``POLLS`` times, at intervals up to ``MOST_SECONDS``."""
    intervals = Intervals(_FIRST_INTERVAL, _FIRST_INTERVAL, MOST_SECONDS)
    polls = _EVENTS // (_EVENTS_OF_A_COUNTED_POLL + _EVENTS_OF_A_LOOK) if watch else POLLS
    kept = {"Stop.$": "$.Stop"} if watch else {}
    secondary = {"Secondary.$": "$.SecondaryStatus"} if watch else {}
    longer = {"Variable": "$.Seconds", "NumericLessThan": intervals.last, "Next": "WaitLonger"}
    over = [{"Variable": "$.Job.Status", "StringEquals": ended, "Next": "Done"} for ended in service.ended]
    return {
        "Comment": "Polls a training job",
        "StartAt": "Start",
        "States": {
            "Start": {
                "Type": "Pass",
                "Parameters": {"JobName.$": "$.JobName", "Seconds": intervals.first, "Polls": 1, **kept},
                "Next": "Wait",
            },
            "Wait": {"Type": "Wait", "SecondsPath": "$.Seconds", "Next": "Describe"},
            "Describe": {
                "Type": "Task",
                "Resource": f"arn:{partition}:states:::aws-sdk:{service.describe.operation}",
                "Parameters": dict(service.describe.parameters),
                "ResultSelector": {"Status.$": f"$.{service.describe.result}", **secondary},
                "ResultPath": "$.Job",
                "Retry": [retry(10, *service.errors)],
                "Next": "IsOver",
            },
            "IsOver": {
                "Type": "Choice",
                "Choices": [
                    *over,
                    {"Variable": "$.Polls", "NumericGreaterThanEquals": polls, "Next": "Done"},
                    *([{"And": [_TRAINS, _NOT_TO_STOP], "Next": "Look"}] if watch else []),
                    longer,
                ],
                "Default": "Count",
            },
            **(_look_states(partition, function, watch.rules, longer) if watch else {}),
            "WaitLonger": _counted(f"States.MathAdd($.Seconds, {intervals.step})", kept),
            "Count": _counted("$.Seconds", kept),
            "Done": {"Type": "Succeed"},
        },
    }


def poll_state(partition: str, poller_arn: str, job_id: str, *, watched: bool) -> dict[str, Any]:
    """Return the state of a workflow that runs an execution of the poller, whose looks at a watched job go on in the next."""
    looks = {"Stop.$": f"{DATA}.Polled"} if watched else {}
    looked = {f"{name}.$": f"$.Output.Stop.{name}" for name in NOT_LOOKED}
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::states:startExecution.sync:2",
        "Parameters": {
            "StateMachineArn": poller_arn,
            "Input": {"JobName.$": job_id, f"{STARTED_BY}.$": "$$.Execution.Id", **looks},
        },
        "ResultSelector": looked if watched else {"ExecutionArn.$": "$.ExecutionArn"},
        "ResultPath": f"{DATA}.Polled",
        "Retry": [{**retry(5), "ErrorEquals": ["States.TaskFailed"]}],
        # The job goes on meanwhile.
        "Catch": [catch("Describe")],
        "Next": "Describe",
    }


def _look_states(
    partition: str, function: str, rules: Sequence[Mapping[str, Any]], longer: Mapping[str, Any]
) -> dict[str, Any]:
    """The states that call a watch's function, and stop the job.

    The poller polls on until the job has ended, so that its last checkpoint is in S3.
    """
    looked = {"Because.$": "$.Payload.Because", "State.$": "$.Payload.State"}
    return {
        "Look": {
            "Type": "Task",
            "Resource": f"arn:{partition}:states:::lambda:invoke",
            "Parameters": {
                "FunctionName": function,
                "Payload": {
                    "JobName.$": "$.JobName",
                    "Rules": list(rules),
                    "State.$": "$.Stop.State",
                    "Seconds.$": "$.Seconds",
                },
            },
            "TimeoutSeconds": _LONGEST_LOOK,
            "ResultSelector": looked,
            "ResultPath": "$.Stop",
            # Not to know is no reason to stop a job.
            "Catch": [catch("Looked", "$.NotLooked")],
            "Next": "Looked",
        },
        "Looked": {
            "Type": "Choice",
            "Choices": [{"Not": _NOT_TO_STOP, "Next": "Stop"}, dict(longer)],
            "Default": "Count",
        },
        "Stop": {
            "Type": "Task",
            "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:stopTrainingJob",
            "Parameters": {"TrainingJobName.$": "$.JobName"},
            "ResultPath": "$.Stopped",
            "Catch": [catch("NotStopped", "$.Stopped")],
            "Next": "Count",
        },
        # As of a job that has just ended; if it has not, the next look stops it.
        "NotStopped": {"Type": "Pass", "Result": "", "ResultPath": "$.Stop.Because", "Next": "Count"},
    }


def _counted(seconds: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "Type": "Pass",
        "Parameters": {
            "JobName.$": "$.JobName",
            "Seconds.$": seconds,
            "Polls.$": "States.MathAdd($.Polls, 1)",
            **kept,
        },
        "Next": "Wait",
    }
