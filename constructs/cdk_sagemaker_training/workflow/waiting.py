"""The notice that an execution waits for machines, a quota or its turn in a queue longer than it should."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import ceil
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.workflow.attempt_states import execution_hash
from cdk_sagemaker_training.workflow.causes import Cause
from cdk_sagemaker_training.workflow.launch import Launch
from cdk_sagemaker_training.workflow.notifying import RETRIED, SOURCE, WAITING, put_event
from cdk_sagemaker_training.workflow.retries import retry
from cdk_sagemaker_training.workflow.retry_policy import REFUSALS
from cdk_sagemaker_training.workflow.state_machines import events_role, make_state_machine

# Seconds between two looks at least: how long an execution of this state machine outlasts the workflow's at most, unless the
# notice is later than so many looks.
_LOOKS_EVERY, _MOST_LOOKS = 300, 600
# As long as an execution runs ("Quotas related to state machine executions").
LONGEST = 365 * 24 * 3_600


class Waiting(Construct):
    """Puts an event once no attempt of an execution has begun to train for a time.

    This needs a separate state machine, since an execution that waits within `.sync` does nothing else. Rules of EventBridge
    start it when an execution of the workflow starts, and when a job that trained is run again: where a job was refused or had no
    capacity, the wait goes on. It ends once a later job has trained, or the execution has ended.

    Attributes:
        state_machine: The state machine.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        launch: Launch,
        state_machine: sfn.StateMachine,
        seconds: int,
        causes: Sequence[Cause],
        executions_arn: str,
        logs: sfn.LogOptions,
        queue_arn: str | None = None,
    ) -> None:
        """Create the state machine and its rules.

        Args:
            scope: The parent construct.
            id: The construct id.
            launch: The jobs of the workflow.
            state_machine: The workflow's state machine.
            seconds: After how long the event is put.
            causes: The causes for which jobs are run again.
            executions_arn: ARN pattern of the workflow's executions.
            logs: Log options of the executions.
            queue_arn: The queue in which jobs wait; None without one.
        """
        super().__init__(scope, id)
        definition = waiting_definition(launch.prefix, seconds, launch.partition, queue_arn)
        # The only tokens in it are the partition and the queue, within text, so no other conversion to JSON is needed.
        self.state_machine = make_state_machine(self, json.dumps(definition), logs)
        bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
        # ListTrainingJobs and ListServiceJobs have no narrower resource.
        lists = "sagemaker:ListTrainingJobs" if queue_arn is None else "batch:ListServiceJobs"
        for statement in (
            iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[executions_arn]),
            iam.PolicyStatement(actions=[lists], resources=["*"]),
            *([launch.job_policy("DescribeTrainingJob")] if queue_arn is None else []),
            iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]),
        ):
            self.state_machine.add_to_role_policy(statement)
        self._start_by_rules(launch, state_machine, [cause for cause in causes if cause not in REFUSALS])

    def _start_by_rules(self, launch: Launch, state_machine: sfn.StateMachine, causes: Sequence[Cause]) -> None:
        # Not above, since it takes long to import.
        from aws_cdk import aws_events_targets as targets

        arn, field = state_machine.state_machine_arn, events.EventField.from_path
        started = events.EventPattern(
            source=["aws.states"],
            detail_type=["Step Functions Execution Status Change"],
            detail={"stateMachineArn": [arn], "status": ["RUNNING"]},
        )
        rules = {"Started": (started, {"Execution": field("$.detail.executionArn"), "JobName": ""})}
        trained = [str(cause) for cause in causes if cause is not Cause.CAPACITY]
        if trained:
            again = events.EventPattern(
                source=[SOURCE], detail_type=[RETRIED], resources=[arn], detail={"Cause": trained}
            )
            names = {name: field(f"$.detail.{name}") for name in ("Execution", "JobName")}
            rules["RunAgain"] = (again, names)
        starter = events_role(self.state_machine, launch.stack.account)
        for name, (pattern, given) in rules.items():
            events.Rule(
                self,
                name,
                description="Executions that may wait for long before a job trains",
                event_pattern=pattern,
                targets=[
                    targets.SfnStateMachine(
                        self.state_machine, input=events.RuleTargetInput.from_object(given), role=starter
                    )
                ],
            )


def waiting_definition(prefix: str, seconds: int, partition: str, queue_arn: str | None = None) -> dict[str, Any]:
    """Return the state machine that looks at intervals whether a job of an execution has trained.

    Its input is the execution's ARN, ``Execution``, and ``JobName``, the name of the job that is run again, or no text.

    Args:
        prefix: How the jobs' names begin.
        seconds: After how long the event is put.
        partition: Partition of ARNs.
        queue_arn: The queue in which jobs wait; None without one.
    """
    looks = max(1, min(_MOST_LOOKS, seconds // _LOOKS_EVERY))
    job = "$.Found.List[0]"
    name = f"{job}.{'TrainingJobName' if queue_arn is None else 'JobName'}"
    # "the time when the training job starts on training instances" and "for when the service job was started" (service models,
    # DescribeTrainingJobResponse and ServiceJobSummary).
    began = "$.Described.TrainingStartTime" if queue_arn is None else f"{job}.StartedAt"
    members = {"Execution.$": "$.Execution", "JobName.$": "$.JobName", "Looks.$": "States.MathAdd($.Looks, 1)"}
    hashed = execution_hash("$.Execution")
    if queue_arn is None:
        listed = ("sagemaker:listTrainingJobs", "TrainingJobSummaries")
        given: dict[str, Any] = {
            "NameContains.$": hashed,
            "SortBy": "CreationTime",
            "SortOrder": "Descending",
            "MaxResults": 1,
        }
    else:
        listed = (
            "batch:listServiceJobs",
            "JobSummaryList",
        )
        # The most recent first ("sorted by the createdAt field", service model).
        pattern = f"States.Array(States.Format('{prefix}-{{}}-*', {hashed}))"
        given = {"JobQueue": queue_arn, "Filters": [{"Name": "JOB_NAME", "Values.$": pattern}]}

    def called(operation: str, parameters: dict[str, Any], following: str, **more: Any) -> dict[str, Any]:
        return {
            "Type": "Task",
            "Resource": f"arn:{partition}:states:::aws-sdk:{operation}",
            "Parameters": parameters,
            "Retry": [retry(10, "States.TaskFailed")],
            **more,
            "Next": following,
        }

    describe = called(
        "sagemaker:describeTrainingJob",
        # moto has a list of one for `$.Found.List[0].TrainingJobName` (getmoto/moto 7825).
        {"TrainingJobName.$": "States.ArrayGetItem($.Found.List[*].TrainingJobName, 0)"},
        "HasTrained",
        ResultPath="$.Described",
    )
    detail = {"Execution.$": "$.Execution", "WaitedSeconds": seconds}
    return {
        "Comment": "Puts an event once no job of an execution has trained for a time",
        "StartAt": "First",
        "States": {
            "First": {"Type": "Pass", "Result": 0, "ResultPath": "$.Looks", "Next": "Wait"},
            "Wait": {"Type": "Wait", "Seconds": ceil(seconds / looks), "Next": "Look"},
            "Look": {"Type": "Pass", "Parameters": members, "Next": "DescribeExecution"},
            "DescribeExecution": called(
                "sfn:describeExecution",
                {"ExecutionArn.$": "$.Execution", "IncludedData": "METADATA_ONLY"},
                "IsRunning",
                ResultSelector={"Status.$": "$.Status"},
                ResultPath="$.Described",
            ),
            "IsRunning": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.Described.Status", "StringEquals": "RUNNING", "Next": "List"}],
                "Default": "Done",
            },
            "List": called(
                listed[0],
                given,
                "HasJob",
                ResultSelector={"List.$": f"$.{listed[1]}"},
                ResultPath="$.Found",
            ),
            "HasJob": {
                "Type": "Choice",
                "Choices": [
                    {
                        "And": [
                            {"Variable": name, "IsPresent": True},
                            {"Not": {"Variable": name, "StringEqualsPath": "$.JobName"}},
                        ],
                        "Next": "Describe" if queue_arn is None else "HasTrained",
                    }
                ],
                "Default": "HasWaited",
            },
            **({} if queue_arn is not None else {"Describe": describe}),
            "HasTrained": {
                "Type": "Choice",
                "Choices": [{"Variable": began, "IsPresent": True, "Next": "Done"}],
                "Default": "HasWaited",
            },
            "HasWaited": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.Looks", "NumericGreaterThanEquals": looks, "Next": "Tell"}],
                "Default": "Wait",
            },
            "Tell": put_event(partition, WAITING, detail, "$", "Done"),
            "Done": {"Type": "Succeed"},
        },
    }
