"""What stops the jobs of an execution that has ended without them."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.definition import execution_hash
from cdk_sagemaker_training.launch import Launch
from cdk_sagemaker_training.machines import make_state_machine

# Long enough for a Create that was under way when its execution ended to show in a list.
_SECONDS_BETWEEN_LOOKS = 60


class Stopper(Construct):
    """Stops the jobs of each execution of a state machine that was aborted, timed out or failed.

    A machine of its own, since an execution that ended can do nothing any more. It looks until, a minute after it
    last stopped a job, it finds none.
    """

    def __init__(
        self, scope: Construct, id: str, *, launch: Launch, state_machine: sfn.IStateMachine, logs: sfn.LogOptions
    ) -> None:
        super().__init__(scope, id)
        # The one token in it is the partition, which stands within text and needs no care of its own.
        stopper = make_state_machine(self, json.dumps(stopping_definition(launch.partition)), logs)
        # SageMaker lists all jobs or none; no resource narrows this.
        listing = iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"])
        stopper.add_to_role_policy(listing)
        stopper.add_to_role_policy(launch.job_policy("StopTrainingJob"))
        starter = iam.Role(
            stopper,
            "EventsRole",
            # Only for rules of this account, as CDK has it for state machines, but not for the role that it would make here.
            assumed_by=iam.ServicePrincipal(
                "events.amazonaws.com",
                conditions={"StringEquals": {"aws:SourceAccount": launch.stack.account}},
            ),
        )
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
                targets.SfnStateMachine(stopper, input=events.RuleTargetInput.from_event_path("$.detail"), role=starter)
            ],
        )


def stopping_definition(partition: str) -> dict[str, Any]:
    """Stops every job with the execution's hash in its name; the input is the detail of the execution's event."""
    look = {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:listTrainingJobs",
        "Parameters": {
            "NameContains.$": execution_hash("$.executionArn"),
            "StatusEquals": "InProgress",
            "MaxResults": 100,
        },
        "ResultPath": "$.Found",
        "Retry": [_retry()],
    }
    return {
        "Comment": "Stops the training jobs of executions that ended before them",
        "StartAt": "Look",
        "States": {
            "Look": {**look, "Next": "StopEach"},
            "StopEach": {
                "Type": "Map",
                "ItemsPath": "$.Found.TrainingJobSummaries",
                "ItemSelector": {"TrainingJobName.$": "$$.Map.Item.Value.TrainingJobName"},
                "ItemProcessor": {
                    "StartAt": "Stop",
                    "States": {
                        "Stop": {
                            "Type": "Task",
                            "Resource": f"arn:{partition}:states:::aws-sdk:sagemaker:stopTrainingJob",
                            "Parameters": {"TrainingJobName.$": "$.TrainingJobName"},
                            "ResultPath": "$.Stopped",
                            "Retry": [_retry()],
                            # The job came to its own end meanwhile; the next look tells.
                            "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.Error", "Next": "Ended"}],
                            "End": True,
                        },
                        "Ended": {"Type": "Pass", "End": True},
                    },
                },
                "ResultPath": "$.Stopped",
                "Next": "Wait",
            },
            "Wait": {"Type": "Wait", "Seconds": _SECONDS_BETWEEN_LOOKS, "Next": "LookAgain"},
            "LookAgain": {**look, "Next": "AnyLeft"},
            "AnyLeft": {
                "Type": "Choice",
                "Choices": [
                    {"Variable": "$.Found.TrainingJobSummaries[0]", "IsPresent": True, "Next": "StopEach"},
                ],
                "Default": "Done",
            },
            "Done": {"Type": "Succeed"},
        },
    }


def _retry() -> dict[str, Any]:
    return {
        "ErrorEquals": ["States.TaskFailed"],
        "IntervalSeconds": 1,
        "BackoffRate": 2,
        "MaxAttempts": 6,
        "MaxDelaySeconds": 60,
        "JitterStrategy": "FULL",
    }
