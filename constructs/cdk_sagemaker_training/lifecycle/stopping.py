"""Stops the jobs of an execution that ended before them, and raises an alarm if that fails."""

from __future__ import annotations

import json

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.lifecycle.state_machines import events_role, make_state_machine
from cdk_sagemaker_training.lifecycle.stopping_states import stopping_definition


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
        self.alarm = self._alarm(
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
        self.dead_letter_alarm = self._alarm(
            "DeadLetterAlarm",
            "A training job may still run: the end of its execution was not delivered to what stops the job",
            self.dead_letter_queue.metric_approximate_number_of_messages_visible(),
        )
        self._watch(jobs.stack.account, state_machine)

    @property
    def alarms(self) -> list[cloudwatch.Alarm]:
        """Both alarms."""
        return [self.alarm, self.dead_letter_alarm]

    def _alarm(self, id: str, description: str, metric: cloudwatch.Metric) -> cloudwatch.Alarm:
        return metric.create_alarm(
            self,
            id,
            alarm_description=description,
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )

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
