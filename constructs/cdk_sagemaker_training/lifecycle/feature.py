"""What a feature of a workflow is: one object, with all that its prop adds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cdk_sagemaker_training.lifecycle.causes import Cause

if TYPE_CHECKING:
    from aws_cdk import aws_cloudwatch as cloudwatch
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_stepfunctions as sfn
    from constructs import Construct

    from cdk_sagemaker_training.lifecycle.attempt import Attempt
    from cdk_sagemaker_training.lifecycle.plan import Plan
    from cdk_sagemaker_training.lifecycle.polling import Watch
    from cdk_sagemaker_training.lifecycle.time_limits import Runs
    from cdk_sagemaker_training.request.props import TrainingProps


class Parts(NamedTuple):
    """What a workflow consists of when its features create constructs beside it."""

    state_machine: sfn.StateMachine
    alarms: Sequence[cloudwatch.Alarm]  # in alarm while a job may run whose execution has ended
    logs: sfn.LogOptions  # of executions


class Feature:
    """What one prop adds to a workflow. Each method adds nothing unless a subclass says otherwise.

    ``TrainingWorkflow(features=[...])`` takes features of a user's own; docs/extending.md has one.

    Attributes:
        prop: The prop that it comes from, as errors name it.
        by_cause: Whether it needs to know for which cause a job did not complete.
        not_queued: Why it cannot be used with a queue of AWS Batch; empty where it can.
        stops_for: Causes for which it stops jobs itself.
        retried: Causes for which it runs jobs again.
        preemptions: How often AWS Batch runs a preempted job again; None for no limit.
        bounds_runs: Whether it bounds what all runs take together, which it cannot where AWS Batch runs jobs again without limit.
        notifies: Whether it wants events.
        event_source: ARN of the resource that its events name; None for the workflow's state machine, which puts them itself.
    """

    prop: ClassVar[str] = "features"
    by_cause: bool = False
    not_queued: ClassVar[str] = ""
    bounds_runs: ClassVar[bool] = False
    notifies: ClassVar[bool] = False
    stops_for: Collection[Cause] = ()
    retried: Collection[Cause] = ()
    preemptions: int | None = None
    event_source: str | None = None

    def alternatives(self, props: TrainingProps) -> Sequence[TrainingProps]:
        """Return the props of jobs that run in place of the first.

        Args:
            props: The props of the first job.

        Raises:
            ValueError: They break a rule.
        """
        return ()

    def check(self, plan: Plan) -> None:
        """Check it against the workflow.

        Args:
            plan: The workflow.

        Raises:
            ValueError: It breaks a rule, or does not go with another feature.
        """

    def runs(self, runs: Runs) -> None:
        """Add its runs and waits to those that an execution has time for.

        Args:
            runs: The runs of one job.
        """

    def watch(self) -> Watch | None:
        """Return what the poller does besides polling; None for nothing."""
        return None

    def data(self, plan: Plan) -> Mapping[str, Any]:
        """Return its members of the execution data, with their first values. Each attempt keeps them.

        Args:
            plan: The workflow.
        """
        return {}

    def request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request of CreateTrainingJob as it is sent.

        Args:
            request: The rendered request.
        """
        return request

    def before_the_first_job(self, following: str) -> Mapping[str, Any]:
        """Return the states with which an execution begins, the first of them first.

        Args:
            following: The state after them.
        """
        return {}

    def states(self, attempt: Attempt) -> None:
        """Put its states at the seams of an attempt.

        Args:
            attempt: The attempts of one job.
        """

    def billed(self, following: str, of: str = "") -> Mapping[str, Any]:
        """Return the states that account for a job that has been described, the first of them first.

        Args:
            following: The state after them.
            of: What their names end with, where there are several.
        """
        return {}

    def statements(self, plan: Plan) -> Iterable[iam.PolicyStatement]:
        """Return what its states need to be allowed.

        Args:
            plan: The workflow.
        """
        return ()

    def events(self) -> Mapping[str, str]:
        """Return the detail types of the events that it puts, by the ids of the rules that match them."""
        return {}

    def constructs(self, scope: Construct, plan: Plan, parts: Parts) -> None:
        """Create the constructs that it needs beside the state machine.

        Args:
            scope: The workflow.
            plan: The workflow's jobs and features.
            parts: What the workflow consists of.
        """
