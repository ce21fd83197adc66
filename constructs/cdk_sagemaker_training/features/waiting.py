"""The notice that an execution waits for machines, a quota or its turn in a queue longer than it should."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.nag import OF_THE_STACK
from cdk_sagemaker_training.lifecycle.feature import Feature, Parts
from cdk_sagemaker_training.lifecycle.job_set import machines_of, of_executions
from cdk_sagemaker_training.lifecycle.plan import Plan
from cdk_sagemaker_training.resources.handler_function import stack_function

_FUNCTION_ID = "SageMakerTrainingWaitingHandler"
# A schedule looks so often in the time that is waited for, but not more often than each minute, as EventBridge can.
_LOOKS, _MOST_MINUTES = 10, 15
# As long as an execution runs ("Quotas related to state machine executions").
LONGEST = 365 * 24 * 3_600


class WaitingLongerThan(Feature):
    """Puts an event for the topics of ``notify`` once no job of an execution has begun to train for a time.

    A schedule calls the stack's function, which looks at the executions that run: an execution that waits within `.sync` can do
    nothing else. The wait begins with the execution, and anew when a job that trained is run again: where a job was refused or
    had no capacity, it goes on.
    """

    prop = "waiting_longer_than"

    def __init__(self, longest: Duration | int) -> None:
        """Check the prop ``waiting_longer_than``, a Duration or whole seconds for which a state machine can wait."""
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
        return {"Waiting": "Training Job Waiting"}

    def constructs(self, scope: Construct, plan: Plan, parts: Parts) -> None:
        """Create the schedule, and let the stack's function look at this workflow's executions and jobs."""
        # Not above, since they take long to import.
        from aws_cdk import aws_events_targets as targets
        from aws_cdk import aws_lambda as lambda_

        jobs, stack = plan.jobs, plan.jobs.stack
        arn, description = parts.state_machine.state_machine_arn, "Looks for executions whose job has waited for long"
        shared = stack_function(stack, _FUNCTION_ID, "waiting", description, lambda: _statements(stack), OF_THE_STACK)
        minutes = max(1, min(_MOST_MINUTES, self.seconds // _LOOKS // 60))
        called = lambda_.Function.from_function_attributes(
            scope, "WaitingFunction", function_arn=shared.function.get_att("Arn").to_string(), same_environment=True
        )
        given = {
            "StateMachineArn": arn,
            "JobNamePrefix": jobs.prefix,
            **plan.service.properties,
            "Seconds": self.seconds,
            "Every": minutes * 60,
            "Time": events.EventField.time,
            "Resources": events.EventField.from_path("$.resources"),
        }
        rule = events.Rule(
            scope,
            "Waiting",
            description="Looks for executions whose job has waited for long",
            schedule=events.Schedule.rate(Duration.minutes(minutes)),
            targets=[targets.LambdaFunction(called, event=events.RuleTargetInput.from_object(given))],
        )
        self.event_source = rule.rule_arn


def _statements(stack: Stack) -> list[iam.PolicyStatement]:
    """What the function may do, about all workflows of the stack."""
    bus = stack.format_arn(service="events", resource="event-bus", resource_name="default")
    return [
        iam.PolicyStatement(actions=["states:ListExecutions"], resources=[machines_of(stack)]),
        # These have no narrower resource.
        iam.PolicyStatement(actions=["batch:ListServiceJobs", "sagemaker:ListTrainingJobs"], resources=["*"]),
        of_executions(stack, "sagemaker:DescribeTrainingJob"),
        iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus]),
    ]
