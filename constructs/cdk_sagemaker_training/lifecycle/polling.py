"""Polling of jobs: within an execution, or in executions of a second state machine if the event history is too small."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.nag import Suppressions
from cdk_sagemaker_training.lifecycle.state_machines import make_state_machine
from cdk_sagemaker_training.lifecycle.states import DATA, catch, retry

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
_OTHER_EVENTS_OF_AN_ATTEMPT = 40
_EVENTS_OF_A_REFUSAL = 45
_GROWTHS = 20
_FIRST_INTERVAL = 2
_SHORTEST_LAST_INTERVAL = 30

_WHY_STREAMS = "the log streams of jobs are named after them, and their log group is that of all training jobs"

# Of one execution of the poller; the next execution continues.
POLLS = _EVENTS // _EVENTS_OF_A_COUNTED_POLL


@dataclass(frozen=True)
class Intervals:
    """Intervals between polls, in seconds.

    Attributes:
        first: The first interval.
        step: What each interval adds to the one before.
        last: The interval at which they stop growing.
    """

    first: int
    step: int
    last: int

    @staticmethod
    def over(seconds: int, jobs: int, refusals: int = 0) -> Intervals:
        """Return the shortest intervals with which jobs fit into one execution's history.

        Args:
            seconds: Total time of all jobs, in seconds.
            jobs: Number of jobs.
            refusals: Number of calls that create no job and are repeated.
        """
        of_jobs = jobs * (_GROWTHS * _EVENTS_OF_A_COUNTED_POLL + _OTHER_EVENTS_OF_AN_ATTEMPT)
        # At least one poll fits, at an interval that is too long; TimeLimits.outlast_one_history then says so.
        events = max(_EVENTS_OF_A_POLL, _EVENTS - of_jobs - refusals * _EVENTS_OF_A_REFUSAL)
        last = max(_SHORTEST_LAST_INTERVAL, math.ceil(_EVENTS_OF_A_POLL * seconds / events))
        return Intervals(_FIRST_INTERVAL, max(_FIRST_INTERVAL, math.ceil(last / _GROWTHS)), last)

    @property
    def longest(self) -> int:
        """The longest interval, in seconds."""
        return self.first + self.step * math.ceil((self.last - self.first) / self.step)


class Watch(Protocol):
    """What a poller does with a job that trains, besides polling it.

    Attributes:
        events: The most events of a look, of an execution's history.
    """

    @property
    def events(self) -> int:
        """The most events of a look."""

    def first(self) -> Mapping[str, Any]:
        """Return the members with which an execution of the poller begins."""

    def kept(self) -> Mapping[str, Any]:
        """Return the members with which another state keeps them."""

    def rule(self) -> Mapping[str, Any]:
        """Return the rule of a Choice that leads to its states."""

    def states(self, partition: str, after: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return its states.

        Args:
            partition: Partition of ARNs.
            after: The state that follows on them, `Looked`.
        """

    def policies(self, stack: Stack) -> Iterable[iam.PolicyStatement]:
        """Return what its states need.

        Args:
            stack: The stack of the jobs.
        """


class Poller(Construct):
    """A state machine whose executions each poll one job until it ends, at most ``POLLS`` times.

    The input is ``{"JobName": ...}``. The workflow's execution starts them one after the other by `states:startExecution.sync:2`,
    so that Step Functions stops them together with it; one that is not stopped ends with its job, which the workflow's stopper
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
        """Create the state machine.

        Args:
            scope: The parent construct.
            id: The construct id.
            jobs: The jobs.
            service: By which service they are described.
            logs: Log options of the executions.
            watch: The states that stop a job by rules; None for none.
        """
        super().__init__(scope, id)
        # The one token in it is the partition, which stands within text.
        definition = json.dumps(polling_definition(jobs.partition, service, watch))
        self.state_machine = make_state_machine(self, definition, logs)
        self.state_machine.add_to_role_policy(service.polling_statement(jobs, stops=watch is not None))
        suppressions = Suppressions(self)
        for statement in watch.policies(jobs.stack) if watch else ():
            self.state_machine.add_to_role_policy(statement)
            suppressions.add_wildcards(statement.resources, _WHY_STREAMS)
        self.executions_arn = jobs.stack.format_arn(
            service="states", resource=f"execution:{self.state_machine.state_machine_name}:*"
        )
        self._rule = jobs.stack.format_arn(
            service="events", resource="rule", resource_name="StepFunctionsGetEventsForStepFunctionsExecutionRule"
        )

    def grant_run(self, role: iam.IGrantable) -> None:
        """Grant permission to run executions by `.sync:2` (Step Functions guide, "IAM policies for Step Functions").

        Args:
            role: The role of the workflow's state machine.
        """
        principal = role.grant_principal
        for actions, resource in (
            (["states:StartExecution"], self.state_machine.state_machine_arn),
            (["states:DescribeExecution", "states:StopExecution"], self.executions_arn),
            (["events:DescribeRule", "events:PutRule", "events:PutTargets"], self._rule),
        ):
            principal.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=[resource]))


def polling_definition(partition: str, service: JobService, watch: Watch | None = None) -> dict[str, Any]:
    """Return the state machine that polls a job until it ends, at most ``POLLS`` times, at intervals up to ``MOST_SECONDS``.

    Args:
        partition: Partition of ARNs.
        service: By which service the job is described.
        watch: The states that stop a job by rules; None for none. With them there are fewer polls.
    """
    # With fewer polls the intervals grow faster.
    intervals = Intervals(_FIRST_INTERVAL, _FIRST_INTERVAL if watch is None else 5 * _FIRST_INTERVAL, MOST_SECONDS)
    polls = POLLS if watch is None else _EVENTS // (_EVENTS_OF_A_COUNTED_POLL + watch.events)
    kept = {} if watch is None else watch.kept()
    status = {"Status.$": f"$.{service.describe.result}"}
    over = [{"Variable": "$.Job.Status", "StringEquals": ended, "Next": "Done"} for ended in service.ended]
    longer = {"Variable": "$.Seconds", "NumericLessThan": intervals.last, "Next": "WaitLonger"}
    return {
        "Comment": "Polls a training job",
        "StartAt": "Start",
        "States": {
            "Start": {
                "Type": "Pass",
                "Parameters": {
                    "JobName.$": "$.JobName",
                    "Seconds": intervals.first,
                    "Polls": 1,
                    **({} if watch is None else watch.first()),
                },
                "Next": "Wait",
            },
            "Wait": {"Type": "Wait", "SecondsPath": "$.Seconds", "Next": "Describe"},
            "Describe": {
                "Type": "Task",
                "Resource": f"arn:{partition}:states:::aws-sdk:{service.describe.operation}",
                "Parameters": dict(service.describe.parameters),
                "ResultSelector": status if watch is None else {**status, "Secondary.$": "$.SecondaryStatus"},
                "ResultPath": "$.Job",
                "Retry": [retry(10, *service.errors)],
                "Next": "IsOver",
            },
            "IsOver": {
                "Type": "Choice",
                "Choices": [
                    *over,
                    {"Variable": "$.Polls", "NumericGreaterThanEquals": polls, "Next": "Done"},
                    *([] if watch is None else [watch.rule()]),
                    longer,
                ],
                "Default": "Count",
            },
            **(
                {}
                if watch is None
                else watch.states(partition, {"Type": "Choice", "Choices": [longer], "Default": "Count"})
            ),
            "WaitLonger": _counted(f"States.MathAdd($.Seconds, {intervals.step})", kept),
            "Count": _counted("$.Seconds", kept),
            "Done": {"Type": "Succeed"},
        },
    }


def poll_state(partition: str, poller_arn: str, job_id: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a workflow that runs an execution of the poller.

    Args:
        partition: Partition of ARNs.
        poller_arn: ARN of the poller's state machine.
        job_id: JSONPath of what identifies the job.
        kept: What is kept of the execution, as a ResultSelector.
    """
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::states:startExecution.sync:2",
        "Parameters": {
            "StateMachineArn": poller_arn,
            # The second member lets the console show which execution started it ("Start workflow executions from a Task state").
            "Input": {"JobName.$": job_id, "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id"},
        },
        "ResultSelector": kept,
        "ResultPath": f"{DATA}.Polled",
        "Retry": [{**retry(5), "ErrorEquals": ["States.TaskFailed"]}],
        "Catch": [catch("Stop")],
        "Next": "Describe",
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
