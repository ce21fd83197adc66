"""The notice that an execution waits for machines, a quota or its turn in a queue longer than it should."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.lifecycle.causes import REFUSALS, Cause
from cdk_sagemaker_training.lifecycle.feature import Feature, Parts
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.lifecycle.state_machines import events_role, make_state_machine
from cdk_sagemaker_training.lifecycle.states import RETRIED, SOURCE, put_event, retry

if TYPE_CHECKING:
    from aws_cdk import Duration

    from cdk_sagemaker_training.lifecycle.job_set import JobSet
    from cdk_sagemaker_training.lifecycle.plan import JobService

WAITING = "Training Job Waiting"  # the event's detail type
# Seconds between two looks at least: how long an execution of this state machine outlasts the workflow's at most, unless the
# notice is later than so many looks.
_LOOKS_EVERY, _MOST_LOOKS = 300, 600
# As long as an execution runs ("Quotas related to state machine executions").
LONGEST = 365 * 24 * 3_600


class WaitingLongerThan(Feature):
    """Puts an event for the topics of ``notify`` once an execution has waited for a time."""

    prop = "waiting_longer_than"

    def __init__(self, longest: Duration | int) -> None:
        """Check the prop ``waiting_longer_than``.

        Raises:
            ValueError: It is no time that a state machine can wait for.
        """
        self.seconds = seconds_of(self.prop, longest)
        if self.seconds > LONGEST:
            rule = "at most a year, as long as an execution runs"
            raise must("waiting_longer_than", f"be {rule}", "Duration.hours(2)", repr(longest))

    def check(self, plan: Plan) -> None:
        """Check that there is a topic."""
        if not plan.notifies:
            raise must("notify", "have a topic with waiting_longer_than", "notify=[topic]", "[]")

    def events(self) -> Mapping[str, str]:
        """Return that of an execution that waits."""
        return {"Waiting": WAITING}

    def constructs(self, scope: Construct, plan: Plan, parts: Parts) -> None:
        """Create the state machine that waits."""
        waiting = Waiting(scope, "Waiting", plan=plan, parts=parts, seconds=self.seconds)
        self.event_source = waiting.state_machine.state_machine_arn


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
        plan: Plan,
        parts: Parts,
        seconds: int,
    ) -> None:
        """Create the state machine and its rules.

        Args:
            scope: The parent construct.
            id: The construct id.
            plan: The workflow's jobs and features.
            parts: The workflow's state machine, stopper and logs.
            seconds: After how long the event is put.
        """
        super().__init__(scope, id)
        jobs, service = plan.jobs, plan.service
        definition = waiting_definition(service, jobs, seconds)
        # The only tokens in it are the partition and the queue, within text, so no other conversion to JSON is needed.
        self.state_machine = make_state_machine(self, json.dumps(definition), parts.logs)
        bus = Stack.of(self).format_arn(service="events", resource="event-bus", resource_name="default")
        for statement in (
            iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[parts.stopper.executions_arn]),
            *service.listing_statements(jobs),
            iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]),
        ):
            self.state_machine.add_to_role_policy(statement)
        retried = [cause for feature in plan.features for cause in feature.retried]
        self._start_by_rules(
            jobs.stack.account, parts.state_machine, [cause for cause in retried if cause not in REFUSALS]
        )

    def _start_by_rules(self, account: str, state_machine: sfn.StateMachine, causes: Sequence[Cause]) -> None:
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
        starter = events_role(self.state_machine, account)
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


def waiting_definition(service: JobService, jobs: JobSet, seconds: int) -> dict[str, Any]:
    """Return the state machine that looks at intervals whether a job of an execution has trained.

    Its input is the execution's ARN, ``Execution``, and ``JobName``, the name of the job that is run again, or no text.

    Args:
        service: By which service jobs are listed.
        jobs: The jobs.
        seconds: After how long the event is put.
    """
    looks = max(1, min(_MOST_LOOKS, seconds // _LOOKS_EVERY))
    partition, newest = jobs.partition, service.newest(jobs, "$.Execution")
    name = f"$.Found.List[0].{newest.name}"
    members = {"Execution.$": "$.Execution", "JobName.$": "$.JobName", "Looks.$": "States.MathAdd($.Looks, 1)"}

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
                newest.operation,
                dict(newest.parameters),
                "HasJob",
                ResultSelector={"List.$": f"$.{newest.result}"},
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
                        "Next": "HasTrained" if newest.is_described else "Describe",
                    }
                ],
                "Default": "HasWaited",
            },
            **({} if newest.is_described else {"Describe": describe}),
            "HasTrained": {
                "Type": "Choice",
                "Choices": [{"Variable": newest.began, "IsPresent": True, "Next": "Done"}],
                "Default": "HasWaited",
            },
            "HasWaited": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.Looks", "NumericGreaterThanEquals": looks, "Next": "Tell"}],
                "Default": "Wait",
            },
            "Tell": put_event(partition, WAITING, detail, "Done", "$.Told", "$.NotTold"),
            "Done": {"Type": "Succeed"},
        },
    }
