"""Stops the jobs of an execution that ended before them, and raises an alarm if that fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.lifecycle.state_machines import alarm_of_any, events_role, make_state_machine
from cdk_sagemaker_training.lifecycle.states import job_name, no_such_job, state_of_job, states_of_job

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan

# Long enough for a CreateTrainingJob call that was in flight when its execution ended to have created the job.
_SECONDS_BETWEEN_LOOKS = 60
_RETRIED_SECONDS = 3_600
_LONGEST_INTERVAL = 64

# The message of StopTrainingJob for a job that has ended (the sources of states.no_such_job).
_OVER = "*The request was rejected because the training job is in status *"

# The errors with which the workflow itself fails executions after the end of their last job.
_OWN_ERRORS = ("TrainingJobFailed", "TrainingJobStopped")


class Stopper(Construct):
    """Stops the jobs of each execution of a state machine that was aborted, timed out or failed.

    This needs a separate state machine, started by an EventBridge rule.

    Attributes:
        state_machine: The state machine that stops jobs.
        executions_arn: ARN pattern of the workflow's executions.
        alarm: In alarm if a job could not be stopped for an hour, so that it may still run.
        dead_letter_queue: Events that EventBridge could not deliver, after 24 hours and up to 185 retries ("How EventBridge
            retries delivering events").
        dead_letter_alarm: In alarm if the queue has a message.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        plan: Plan,
        state_machine: sfn.StateMachine,
        logs: sfn.LogOptions,
    ) -> None:
        """Create the state machine, its rule and its alarms.

        Args:
            scope: The parent construct.
            id: The construct id.
            plan: The workflow.
            state_machine: The workflow's state machine.
            logs: Log options of the executions.
        """
        super().__init__(scope, id)
        jobs = plan.jobs
        definition = stopping_definition(plan.service.stopping_states(jobs), jobs.partition)
        # The only tokens in it are the partition and the queue, within text, so no other conversion to JSON is needed.
        self.state_machine = make_state_machine(self, json.dumps(definition), logs)
        for statement in plan.service.stopping_statements(jobs):
            self.state_machine.add_to_role_policy(statement)
        self.executions_arn = jobs.stack.format_arn(
            service="states", resource=f"execution:{state_machine.state_machine_name}:*"
        )
        self.state_machine.add_to_role_policy(
            iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[self.executions_arn])
        )
        self.alarm = alarm_of_any(
            self,
            "Alarm",
            "A training job whose execution has ended may still run: it could not be stopped for an hour",
            self.state_machine.metric_failed(),
        )
        self.dead_letter_queue = sqs.Queue(
            self,
            "DeadLetterQueue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        self.dead_letter_alarm = alarm_of_any(
            self,
            "DeadLetterAlarm",
            "A training job may still run: the end of its execution was not delivered to what stops the job",
            self.dead_letter_queue.metric_approximate_number_of_messages_visible(),
        )
        self._watch(jobs.stack.account, state_machine)

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """Both alarms."""
        return [self.alarm, self.dead_letter_alarm]

    def _watch(self, account: str, state_machine: sfn.StateMachine) -> None:
        starter = events_role(self.state_machine, account)
        events.Rule(
            self,
            "Rule",
            description="Executions that ended before their training jobs may have",
            event_pattern=events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={
                    "stateMachineArn": [state_machine.state_machine_arn],
                    "status": ["ABORTED", "FAILED", "TIMED_OUT"],
                },
            ),
            targets=[
                targets.SfnStateMachine(
                    self.state_machine,
                    input=events.RuleTargetInput.from_event_path("$.detail"),
                    role=starter,
                    dead_letter_queue=self.dead_letter_queue,
                )
            ],
        )


def stopping_definition(states: Mapping[str, Any], partition: str) -> dict[str, Any]:
    """Return the state machine that stops an execution's jobs, and again a minute later.

    Its input is the detail of the execution's event. The second pass skips an execution that was redriven meanwhile: it runs, and
    its end will be another event.

    Args:
        states: The states that stop them, the first of them first, which lead to `HasLookedTwice`.
        partition: Partition of ARNs.
    """
    first = next(iter(states))
    own_error = {"Or": [{"Variable": "$.error", "StringEquals": error} for error in _OWN_ERRORS]}
    is_over = {
        "Type": "Choice",
        "Choices": [{"And": [{"Variable": "$.error", "IsPresent": True}, own_error], "Next": "Done"}],
        "Default": first,
    }
    return {
        "Comment": "Stops the training jobs of executions that ended before them",
        "StartAt": "IsOver",
        "States": {"IsOver": is_over, **states, **_second_look(first, partition)},
    }


def stopping_states(prefix: str, suffixes: Sequence[str], partition: str) -> dict[str, Any]:
    """Return the states that stop jobs by their names, suffix by suffix, the first of them first.

    Attempts are consecutive, so the first name without a job ends the search for a suffix.

    Args:
        prefix: How the jobs' names begin.
        suffixes: Name suffixes of the jobs of one execution.
        partition: Partition of ARNs.
    """
    states: dict[str, Any] = {}
    firsts = [state_of_job(suffix, "First") for suffix in suffixes[1:]]
    for suffix, following in zip(suffixes, [*firsts, "HasLookedTwice"], strict=True):
        states |= states_of_job(suffix, _states(prefix, suffix, partition))
        # After the suffix was added, because the next job's first state has the same name without it.
        states[state_of_job(suffix, "Missing")]["Next"] = following
    return states


def _states(prefix: str, suffix: str, partition: str) -> dict[str, Any]:
    """The states that stop the jobs of one suffix, attempt by attempt; they retry unless there is nothing to stop."""
    cause = "$.Error.Cause"
    return {
        "First": _walk("Stop", Attempt=1, Most=1, Seconds=0, Waited=0),
        "Stop": {
            "Type": "Task",
            "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:stopTrainingJob",
            "Parameters": {"TrainingJobName.$": job_name(prefix, "$.Walk.Attempt", suffix, "$.executionArn")},
            "ResultPath": "$.Stopped",
            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Error", "Next": "WhyNot"}],
            "Next": "NextAttempt",
        },
        "WhyNot": {
            "Type": "Choice",
            "Choices": [
                {"Variable": cause, "StringMatches": _OVER, "Next": "NextAttempt"},
                {**no_such_job("$.Error"), "Next": "Missing"},
                {"Variable": "$.Walk.Waited", "NumericGreaterThanEquals": _RETRIED_SECONDS, "Next": "MayStillRun"},
                {"Variable": "$.Walk.Most", "NumericLessThan": _LONGEST_INTERVAL, "Next": "WaitLonger"},
            ],
            "Default": "WaitAsLong",
        },
        "WaitLonger": _wait("States.MathAdd($.Walk.Most, $.Walk.Most)"),
        "WaitAsLong": _wait("$.Walk.Most"),
        "Wait": {"Type": "Wait", "SecondsPath": "$.Walk.Seconds", "Next": "Stop"},
        "NextAttempt": _walk(
            "Stop",
            **{"Attempt.$": "States.MathAdd($.Walk.Attempt, 1)", "Most": 1, "Seconds": 0, "Waited.$": "$.Walk.Waited"},
        ),
        "MayStillRun": {
            "Type": "Fail",
            "Error": "TrainingJobMayStillRun",
            "CausePath": f"States.Format('{{}}: {{}}', $.Error.Error, {cause})",
        },
        "Missing": {"Type": "Pass"},
    }


def _walk(next_state: str, **members: Any) -> dict[str, Any]:
    """A Pass state with the next attempt, the maximum and actual seconds to wait, and the seconds waited so far."""
    return {"Type": "Pass", "Parameters": members, "ResultPath": "$.Walk", "Next": next_state}


def _wait(most: str) -> dict[str, Any]:
    """A Pass state that chooses a random wait of up to ``most`` seconds."""
    members = {
        "Attempt.$": "$.Walk.Attempt",
        "Most.$": most,
        "Seconds.$": f"States.MathRandom(1, {most})",
        "Waited.$": "States.MathAdd($.Walk.Waited, $.Walk.Seconds)",
    }
    return _walk("Wait", **members)


def _second_look(first: str, partition: str) -> Mapping[str, Any]:
    return {
        "HasLookedTwice": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Execution", "IsPresent": True, "Next": "Done"}],
            "Default": "WaitForLateJobs",
        },
        "WaitForLateJobs": {"Type": "Wait", "Seconds": _SECONDS_BETWEEN_LOOKS, "Next": "DescribeExecution"},
        "DescribeExecution": {
            "Type": "Task",
            "Resource": f"arn:{partition}:states:::aws-sdk:sfn:describeExecution",
            # The execution's input and output may exceed the size limit of a state's result.
            "Parameters": {"ExecutionArn.$": "$.executionArn", "IncludedData": "METADATA_ONLY"},
            "ResultSelector": {"Status.$": "$.Status"},
            "ResultPath": "$.Execution",
            "Retry": [
                {
                    "ErrorEquals": ["States.ALL"],
                    "IntervalSeconds": 1,
                    "BackoffRate": 2,
                    "MaxAttempts": _RETRIED_SECONDS // (_LONGEST_INTERVAL // 2),
                    "MaxDelaySeconds": _LONGEST_INTERVAL,
                    "JitterStrategy": "FULL",
                }
            ],
            "Next": "WasRedriven",
        },
        "WasRedriven": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Execution.Status", "StringEquals": "RUNNING", "Next": "Done"}],
            "Default": first,
        },
        "Done": {"Type": "Succeed"},
    }
