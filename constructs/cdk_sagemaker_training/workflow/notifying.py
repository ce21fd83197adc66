"""Messages of what becomes of executions: rules of EventBridge with topics as targets, and the events of a state machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.workflow.retries import retry

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk import aws_sns as sns

# Of the workflow's own events; those of executions are Step Functions' own ("Automating Step Functions event delivery").
SOURCE, RETRIED, BUDGET_NEARLY_USED = "cdk-sagemaker-training", "Training Job Retried", "Training Budget Nearly Used"
WAITING = "Training Job Waiting"


class Notices(Construct):
    """Rules of the default event bus that send events of a workflow's executions to topics.

    One matches "Step Functions Execution Status Change": started, succeeded, failed, timed out and aborted, the last two of
    which no state could report. One matches "CloudWatch Alarm State Change" of the stopper's alarms. Others match the events
    that the state machine puts.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        state_machine: sfn.StateMachine,
        topics: Sequence[sns.ITopic],
        alarms: Sequence[cloudwatch.IAlarm] = (),
        retries: bool = False,
        budget: bool = False,
        waiting: sfn.StateMachine | None = None,
    ) -> None:
        """Create the rules, and let the state machine put its events.

        Args:
            scope: The parent construct.
            id: The construct id.
            state_machine: The workflow's state machine.
            topics: The topics, which must allow EventBridge to publish, and their keys to use them; those of the same app do
                then.
            alarms: The alarms that a job may still run whose execution has ended.
            retries: Whether the state machine puts events of retries.
            budget: Whether it puts events of a budget that is nearly used.
            waiting: The state machine that puts events of executions that wait too long; None for none.
        """
        super().__init__(scope, id)
        # Not above, since it takes long to import.
        from aws_cdk import aws_events_targets as targets

        arn = state_machine.state_machine_arn
        patterns = {
            "Executions": events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"stateMachineArn": [arn]},
            )
        }
        # The optimised integration adds the state machine to the event's resources ("Add EventBridge events with Step
        # Functions").
        for name, detail_type in (
            *([("Retries", RETRIED)] if retries else []),
            *([("Budget", BUDGET_NEARLY_USED)] if budget else []),
        ):
            patterns[name] = events.EventPattern(source=[SOURCE], detail_type=[detail_type], resources=[arn])
        if waiting is not None:
            patterns["Waiting"] = events.EventPattern(
                source=[SOURCE], detail_type=[WAITING], resources=[waiting.state_machine_arn]
            )
        if retries or budget:
            bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
            state_machine.add_to_role_policy(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]))
        # By events and not by the alarms' actions: the policy that lets EventBridge publish replaces the topic's default one,
        # by which CloudWatch may ("Alarm events and EventBridge"; SNS, "Default topic policy").
        if alarms:
            patterns["Stopper"] = events.EventPattern(
                source=["aws.cloudwatch"],
                detail_type=["CloudWatch Alarm State Change"],
                resources=[alarm.alarm_arn for alarm in alarms],
                detail={"state": {"value": ["ALARM"]}},
            )
        for name, pattern in patterns.items():
            events.Rule(
                self,
                name,
                description=f"{name} of a training workflow",
                event_pattern=pattern,
                targets=[targets.SnsTopic(topic) for topic in topics],
            )


def put_event(partition: str, detail_type: str, detail: Mapping[str, Any], own: str, following: str) -> dict[str, Any]:
    """Return the state that puts an event; a failure to do so delays nothing.

    Args:
        partition: Partition of ARNs.
        detail_type: The event's detail type.
        detail: The event's detail.
        own: JSONPath of the workflow's own data.
        following: The state after it.
    """
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::events:putEvents",
        "Parameters": {"Entries": [{"Source": SOURCE, "DetailType": detail_type, "Detail": dict(detail)}]},
        "ResultPath": f"{own}.Told",
        "Retry": [retry(2, "States.TaskFailed")],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{own}.NotTold", "Next": following}],
        "Next": following,
    }
