"""Messages of what becomes of executions: rules of EventBridge with topics as targets, and the event of a retry."""

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
    from aws_cdk import aws_sns as sns

# Of the event of a retry; those of executions are Step Functions' own ("Automating Step Functions event delivery").
SOURCE, DETAIL_TYPE = "cdk-sagemaker-training", "Training Job Retried"


class Notices(Construct):
    """Two rules of the default event bus that send events of a workflow's executions to topics.

    One matches "Step Functions Execution Status Change": started, succeeded, failed, timed out and aborted, the last two of
    which no state could report. The other matches the retries.
    """

    def __init__(
        self, scope: Construct, id: str, *, state_machine: sfn.StateMachine, topics: Sequence[sns.ITopic], retries: bool
    ) -> None:
        """Create the rules, and let the state machine put its events.

        Args:
            scope: The parent construct.
            id: The construct id.
            state_machine: The workflow's state machine.
            topics: The topics, which must allow EventBridge to publish; a topic of the same app does then.
            retries: Whether the state machine puts events of retries.
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
        if retries:
            # The optimised integration adds the state machine to the event's resources ("Add EventBridge events with Step
            # Functions").
            patterns["Retries"] = events.EventPattern(source=[SOURCE], detail_type=[DETAIL_TYPE], resources=[arn])
            bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
            state_machine.add_to_role_policy(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]))
        for name, pattern in patterns.items():
            events.Rule(
                self,
                name,
                description=f"{name} of a training workflow",
                event_pattern=pattern,
                targets=[targets.SnsTopic(topic) for topic in topics],
            )


def retry_event(partition: str, detail: Mapping[str, Any], own: str, following: str) -> dict[str, Any]:
    """Return the state that puts the event of a retry; a failure to do so delays nothing.

    Args:
        partition: Partition of ARNs.
        detail: The event's detail.
        own: JSONPath of the workflow's own data.
        following: The state after it.
    """
    return {
        "Type": "Task",
        "Resource": f"arn:{partition}:states:::events:putEvents",
        "Parameters": {"Entries": [{"Source": SOURCE, "DetailType": DETAIL_TYPE, "Detail": dict(detail)}]},
        "ResultPath": f"{own}.Told",
        "Retry": [retry(2, "States.TaskFailed")],
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{own}.NotTold", "Next": following}],
        "Next": following,
    }
