"""Looks, on a schedule, for training jobs whose execution has ended, and stops them: no lost event leaves a job running.

EventBridge delivers events of AWS's services by best effort, so that in rare cases a stopper does not hear of an execution's end
(EventBridge reference, "Delivery level for AWS service events").
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.lazy import at_synthesis
from cdk_sagemaker_training.core.nag import Suppressions
from cdk_sagemaker_training.lifecycle.job_set import JobSet
from cdk_sagemaker_training.lifecycle.state_machines import (
    REASONS,
    alarm_of_any,
    default_logs,
    events_role,
    make_state_machine,
)
from cdk_sagemaker_training.lifecycle.states import catch, retry, sdk_task
from cdk_sagemaker_training.request.access import EXECUTION_TAG

_ID = "SageMakerTrainingJobsGuard"
_MINUTES = 15
# Each workflow adds some 500 characters to the role's policies, of which IAM allows 10,240 ("IAM and AWS STS quotas").
_MOST_WORKFLOWS = 15
_PAGE = 100  # MaxResults of ListTrainingJobs
_AT_ONCE = 10
# In which the stopper, where the event did arrive, has stopped the job.
_SECONDS_FOR_THE_STOPPER = 60
_WHY = "the names of jobs and executions are computed when an execution starts; their prefix is that of a workflow of the stack"


class Guard(Construct):
    """What stops the jobs of a stack's workflows that run although their executions have ended.

    An execution each quarter of an hour, of an express state machine, lists the workflows' jobs that run, and describes the
    execution that each job's tag names. It fails where it stopped a job or could not look, with the jobs or the errors as its
    cause.

    Attributes:
        alarm: In alarm if it stopped a job, or could not look.
    """

    def __init__(self, scope: Construct, id: str) -> None:
        """Create the state machine, its schedule and its alarm.

        Args:
            scope: The stack.
            id: The construct id.
        """
        super().__init__(scope, id)
        self._machines: dict[str, list[str]] = {}  # by the first word of their jobs' names
        stack = Stack.of(self)
        listed = at_synthesis(lambda: [{"Word": word, "Machines": names} for word, names in self._machines.items()])
        definition = guard_definition(listed, stack.partition)
        machine = make_state_machine(self, definition, default_logs(self), sfn.StateMachineType.EXPRESS)
        machine.add_to_role_policy(iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"]))
        self._machine, self._suppressions = machine, Suppressions(self)
        self._suppressions.add(REASONS)
        self.alarm = alarm_of_any(
            self,
            "Alarm",
            "A training job ran on after its execution had ended and was stopped, or could not be looked for",
            machine.metric_failed(),
        )
        events.Rule(
            self,
            "Rule",
            description="Looks for training jobs whose executions have ended",
            schedule=events.Schedule.rate(Duration.minutes(_MINUTES)),
            targets=[targets.SfnStateMachine(machine, role=events_role(machine, stack.account))],
        )

    @staticmethod
    def of(stack: Stack) -> Guard:
        """Return the guard of a stack that has room for a workflow; create it where there is none."""
        number = 1
        while True:
            id = _ID if number == 1 else f"{_ID}{number}"
            existing = stack.node.try_find_child(id)
            if existing is None:
                return Guard(stack, id)
            assert isinstance(existing, Guard)
            if sum(map(len, existing._machines.values())) < _MOST_WORKFLOWS:
                return existing
            number += 1

    def watch(self, jobs: JobSet, state_machine: sfn.StateMachine, executions: str) -> None:
        """Watch over a workflow.

        Args:
            jobs: Its jobs.
            state_machine: Its state machine.
            executions: ARN pattern of its executions.
        """
        # The first word, which by default is the stack's: the jobs of all of its workflows are one list.
        word = jobs.prefix.partition("-")[0]
        self._machines.setdefault(word, []).append(state_machine.state_machine_name)
        similar = jobs.stack.format_arn(service="sagemaker", resource="training-job", resource_name=f"{word}-*")
        self._machine.add_to_role_policy(jobs.job_policy("DescribeTrainingJob", "StopTrainingJob"))
        for action, resource in (("sagemaker:ListTags", similar), ("states:DescribeExecution", executions)):
            self._machine.add_to_role_policy(iam.PolicyStatement(actions=[action], resources=[resource]))
        self._suppressions.add_wildcards([*jobs.job_arns, similar, executions], _WHY)


def guard_definition(workflows: Any, partition: str) -> dict[str, Any]:
    """Return the state machine that stops jobs that run although their executions have ended.

    Args:
        workflows: The first ``Word`` of jobs' names, and the names of the ``Machines`` whose executions' jobs they are.
        partition: Partition of ARNs.
    """
    acted = {"Variable": "$.Acted[0]", "IsPresent": True, "Next": "Acted"}
    return {
        "Comment": "Stops training jobs that run although their executions have ended",
        "StartAt": "Workflows",
        "States": {
            "Workflows": {"Type": "Pass", "Result": {"Workflows": workflows}, "Next": "OfEach"},
            "OfEach": {
                "Type": "Map",
                "ItemsPath": "$.Workflows",
                # ListTrainingJobs has 2 calls a second in an account (aws-solutions/deepracer-on-aws 87).
                "MaxConcurrency": 1,
                "ItemProcessor": {"StartAt": "List", "States": _of_workflows(partition)},
                "ResultPath": "$.Found",
                "Next": "Gather",
            },
            "Gather": {
                "Type": "Pass",
                "Parameters": {"Acted.$": "$.Found[?(@.Acted == 'yes')].Told"},
                "Next": "HasActed",
            },
            "HasActed": {"Type": "Choice", "Choices": [acted], "Default": "Done"},
            "Acted": {
                "Type": "Fail",
                "Error": "TrainingJobGuard",
                "CausePath": "States.JsonToString($.Acted)",
            },
            "Done": {"Type": "Succeed"},
        },
    }


def _called(partition: str, operation: str, parameters: dict[str, Any], result: str, following: str) -> dict[str, Any]:
    errors = ("Sfn.SfnException", "Sfn.SdkClientException") if operation.startswith("sfn:") else ()
    return sdk_task(partition, operation, parameters, f"$.{result}", retry(5, *errors), following)


def _of_workflows(partition: str) -> dict[str, Any]:
    """The states that look at the jobs of workflows, page by page, until a job was stopped."""
    asked = {"StatusEquals": "InProgress", "NameContains.$": "States.Format('{}-', $.Word)", "MaxResults": _PAGE}
    not_looked = {"Catch": [catch("NotLooked", "$.Error")]}

    def listed(more: dict[str, str]) -> dict[str, Any]:
        return {
            **_called(partition, "sagemaker:listTrainingJobs", {**asked, **more}, "Page", "OfEachJob"),
            **not_looked,
        }

    return {
        "List": listed({}),
        "OfEachJob": {
            "Type": "Map",
            "ItemsPath": "$.Page.TrainingJobSummaries",
            "ItemSelector": {"Job.$": "$$.Map.Item.Value", "Machines.$": "$.Machines", "Word.$": "$.Word"},
            "MaxConcurrency": _AT_ONCE,
            "ItemProcessor": {"StartAt": "FirstWord", "States": _of_job(partition)},
            "ResultPath": "$.Looked",
            **not_looked,
            "Next": "Stopped",
        },
        "Stopped": {
            "Type": "Pass",
            "Parameters": {"Jobs.$": "$.Looked[?(@.Stopped != '')].Stopped"},
            "ResultPath": "$.Stopped",
            "Next": "IsDone",
        },
        "IsDone": {
            "Type": "Choice",
            "Choices": [
                {"Variable": "$.Stopped.Jobs[0]", "IsPresent": True, "Next": "Tell"},
                {"Variable": "$.Page.NextToken", "IsPresent": True, "Next": "ListMore"},
            ],
            "Default": "Nothing",
        },
        "ListMore": listed({"NextToken.$": "$.Page.NextToken"}),
        "Tell": {"Type": "Pass", "Parameters": {"Acted": "yes", "Told.$": "$.Stopped.Jobs"}, "End": True},
        "Nothing": {"Type": "Pass", "Result": {"Acted": "no"}, "End": True},
        "NotLooked": {
            "Type": "Pass",
            "Parameters": {
                "Acted": "yes",
                "Told.$": "States.Array(States.Format('{}: {}: {}', $.Word, $.Error.Error, $.Error.Cause))",
            },
            "End": True,
        },
    }


def _of_job(partition: str) -> dict[str, Any]:
    """The states that stop a job whose execution has ended."""
    name = {"TrainingJobName.$": "$.Job.TrainingJobName"}
    execution = "$.Tagged.Execution[0]"
    machine = f"States.ArrayGetItem(States.StringSplit({execution}, ':'), 6)"
    ended = {"ErrorEquals": ["Sfn.ExecutionDoesNotExistException"], "ResultPath": "$.Error", "Next": "WaitForStopper"}
    runs = [{"Variable": "$.Execution.Status", "StringEquals": status} for status in ("RUNNING", "PENDING_REDRIVE")]
    return {
        # A name that contains the word elsewhere is another's, of which not even the tags may be read.
        "FirstWord": {
            "Type": "Pass",
            "Parameters": {"Is.$": "States.ArrayGetItem(States.StringSplit($.Job.TrainingJobName, '-'), 0)"},
            "ResultPath": "$.First",
            "Next": "HasWord",
        },
        "HasWord": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.First.Is", "StringEqualsPath": "$.Word", "Next": "Tags"}],
            "Default": "Well",
        },
        "Tags": {
            **_called(partition, "sagemaker:listTags", {"ResourceArn.$": "$.Job.TrainingJobArn"}, "Tagged", "IsTagged"),
            "ResultSelector": {"Execution.$": f"$.Tags[?(@.Key == '{EXECUTION_TAG}')].Value"},
        },
        "IsTagged": {
            "Type": "Choice",
            "Choices": [{"Variable": execution, "IsPresent": True, "Next": "Whose"}],
            "Default": "Well",
        },
        "Whose": {
            "Type": "Pass",
            "Parameters": {"IsOurs.$": f"States.ArrayContains($.Machines, {machine})"},
            "ResultPath": "$.Whose",
            "Next": "IsOurs",
        },
        "IsOurs": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Whose.IsOurs", "BooleanEquals": True, "Next": "DescribeExecution"}],
            "Default": "Well",
        },
        "DescribeExecution": {
            **_called(
                partition,
                "sfn:describeExecution",
                {"ExecutionArn.$": execution, "IncludedData": "METADATA_ONLY"},
                "Execution",
                "HasEnded",
            ),
            "ResultSelector": {"Status.$": "$.Status"},
            # It was deleted, or ended 90 days ago ("Quotas related to state machine executions").
            "Catch": [ended],
        },
        "HasEnded": {"Type": "Choice", "Choices": [{"Or": runs, "Next": "Well"}], "Default": "WaitForStopper"},
        "WaitForStopper": {"Type": "Wait", "Seconds": _SECONDS_FOR_THE_STOPPER, "Next": "DescribeJob"},
        "DescribeJob": {
            **_called(partition, "sagemaker:describeTrainingJob", name, "Now", "IsLeft"),
            "ResultSelector": {"Status.$": "$.TrainingJobStatus"},
        },
        "IsLeft": {
            "Type": "Choice",
            "Choices": [{"Variable": "$.Now.Status", "StringEquals": "InProgress", "Next": "Stop"}],
            "Default": "Well",
        },
        "Stop": _called(partition, "sagemaker:stopTrainingJob", name, "Answer", "Left"),
        "Left": {
            "Type": "Pass",
            "Parameters": {
                "Stopped.$": f"States.Format('{{}} ran after the end of {{}}', $.Job.TrainingJobName, {execution})"
            },
            "End": True,
        },
        "Well": {"Type": "Pass", "Result": {"Stopped": ""}, "End": True},
    }
