"""Notifications of what becomes of executions: rules of EventBridge with topics as targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_cdk import Annotations, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.guard.guard import Guard
from cdk_sagemaker_training.lifecycle.feature import Feature, Parts
from cdk_sagemaker_training.lifecycle.states import SOURCE

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch

    from cdk_sagemaker_training.lifecycle.plan import Plan

_FAILED = "FAILED"
_FIELDS = ("executionArn", "stateMachineArn", "name", "status", "startDate")


class Notify(Feature):
    """Sends events of executions, and those of other features, to topics. It follows on all of them."""

    prop = "notify"
    notifies = True

    def __init__(self, topics: Sequence[sns.ITopic]) -> None:
        """Remember the prop ``notify``, at least one topic."""
        self.topics = topics

    def constructs(self, scope: Construct, plan: Plan, parts: Parts) -> None:
        """Create the rules."""
        arn = parts.state_machine.state_machine_arn
        Notices(
            scope,
            "Notices",
            state_machine=parts.state_machine,
            topics=self.topics,
            alarms=parts.alarms,
            put={
                id: (detail_type, feature.event_source or arn)
                for feature in plan.features
                for id, detail_type in feature.events().items()
            },
        )


def check_standard(prop: str, topics: Sequence[sns.ITopic]) -> None:
    """Check that no topic is FIFO: a message to one needs a group ("Amazon SNS topic target", MessageGroupId), and has none."""
    for topic in topics:
        if topic.fifo:
            rule = "be a standard topic, since a message to a FIFO topic needs a group"
            raise must(prop, rule, "sns.Topic(self, 'Topic')", f"{topic.node.path}, which is FIFO")


class Notices(Construct):
    """Rules of the default event bus that send events of a workflow's executions to topics.

    Two match "Step Functions Execution Status Change": one that an execution failed, with its error and cause, one that it
    started, succeeded, timed out or was aborted, the last two of which no state could report. Their messages have named fields,
    since input and output have the job's hyperparameters and environment variables. One matches "CloudWatch Alarm State Change"
    of the guard's alarms. Others match the events that the state machine puts.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        state_machine: sfn.StateMachine,
        topics: Sequence[sns.ITopic],
        alarms: Sequence[cloudwatch.IAlarm] = (),
        put: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """Create the rules, and let the state machine put its events."""
        super().__init__(scope, id)
        check_standard("notify", topics)
        # Not above, since it takes long to import.
        from aws_cdk import aws_events_targets as targets

        arn = state_machine.state_machine_arn
        # Apart, since error and cause are null where an execution did not fail; what a template makes of null is not documented.
        statuses: Mapping[str, list[Any]] = {"Executions": [{"anything-but": _FAILED}], "Failures": [_FAILED]}
        patterns = {
            name: events.EventPattern(
                source=["aws.states"],
                detail_type=["Step Functions Execution Status Change"],
                detail={"stateMachineArn": [arn], "status": status},
            )
            for name, status in statuses.items()
        }
        messages = {"Executions": _message(*_FIELDS), "Failures": _message(*_FIELDS, "error", "cause")}
        # The optimised integration adds the state machine to the event's resources ("Add EventBridge events with Step
        # Functions").
        for name, (detail_type, source) in (put or {}).items():
            patterns[name] = events.EventPattern(source=[SOURCE], detail_type=[detail_type], resources=[source])
        if any(source == arn for _, source in (put or {}).values()):
            bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
            state_machine.add_to_role_policy(iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]))
        # By events and not by the alarms' actions: the policy that lets EventBridge publish replaces the topic's default one,
        # by which CloudWatch may ("Alarm events and EventBridge"; SNS, "Default topic policy").
        if alarms:
            patterns["Guard"] = events.EventPattern(
                source=["aws.cloudwatch"],
                detail_type=["CloudWatch Alarm State Change"],
                resources=[alarm.alarm_arn for alarm in alarms],
                detail={"state": {"value": ["ALARM"]}},
            )
        # No queue's policy grows by these rules: the guard's lets all rules of the stack send to it.
        guard = Guard.of(self)
        guard.take_events_of_the_stack()
        queue = sqs.Queue.from_queue_arn(self, "DeadLetters", guard.dead_letter_queue.queue_arn)
        _advise(self, topics)
        for name, pattern in patterns.items():
            events.Rule(
                self,
                name,
                description=f"{name} of a training workflow",
                event_pattern=pattern,
                targets=[
                    targets.SnsTopic(topic, message=messages.get(name), dead_letter_queue=queue) for topic in topics
                ],
            )


def _advise(scope: Construct, topics: Sequence[sns.ITopic]) -> None:
    """Warn of topics and keys whose policies this app does not write: without a permission there, a notice is lost.

    "For SNS topics, EventBridge relies on resource-based policies" (EventBridge guide, "Using resource-based policies").
    """
    for topic in topics:
        if not isinstance(topic, sns.Topic):
            kind, what, actions = "topic", f"a topic of another app, {topic.topic_arn}", "'sns:Publish'"
        elif (key := topic.master_key) is not None and not isinstance(key, kms.Key):
            kind, what = "key", f"a topic with a key of another app, {key.key_arn}"
            actions = "'kms:Decrypt' and 'kms:GenerateDataKey*'"
        else:
            continue
        text = f"notify has {what}, whose own policy must allow EventBridge, like {actions} for events.amazonaws.com"
        Annotations.of(scope).add_warning_v2(f"cdk-sagemaker-training:notify-imported-{kind}", text)


def _message(*details: str) -> events.RuleTargetInput:
    """An event of an execution with these members of its detail."""
    kept = ("source", "detail-type", "account", "region", "time", "resources")
    return events.RuleTargetInput.from_object(
        {
            **{name: events.EventField.from_path(f"$.{name}") for name in kept},
            "detail": {name: events.EventField.from_path(f"$.detail.{name}") for name in details},
        }
    )
