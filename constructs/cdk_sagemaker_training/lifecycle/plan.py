"""What is known of a workflow while it is made: its jobs, by which service they are created, and its features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from cdk_sagemaker_training.lifecycle.attempt import Attempt
    from cdk_sagemaker_training.lifecycle.feature import Feature
    from cdk_sagemaker_training.lifecycle.job_set import JobSet
    from cdk_sagemaker_training.lifecycle.time_limits import TimeLimits
    from cdk_sagemaker_training.request.props import TrainingProps


class Call(NamedTuple):
    """A call of a service that describes a job."""

    operation: str  # the service and operation, as an aws-sdk integration has them
    parameters: Mapping[str, Any]
    result: str  # the member of its response that is read


class JobService(Protocol):
    """By which service a workflow's jobs are created, described, listed and stopped: SageMaker, or a queue of AWS Batch."""

    error_prefix: str  # how the names of errors begin with which it refuses a job
    job_id: str  # JSONPath of what identifies a job to the poller
    describe: Call  # by which the poller describes a job
    ended: Sequence[str]  # the statuses of a job that has ended
    errors: Sequence[str]  # of its calls, that are retried; none for those of SageMaker
    polls: bool  # whether an execution polls its jobs
    properties: Mapping[str, Any]  # members that tell a function of this library where the jobs are
    needs: Sequence[Any]  # constructs that must outlive the jobs

    @property
    def waits_unbounded(self) -> bool:
        """Whether a job may wait for its machines for longer than any limit."""

    def states(self, attempt: Attempt) -> None:
        """Add the states that create a job, find it after a lost answer, describe and stop it."""

    def arns(self, jobs: JobSet) -> list[str]:
        """Return the ARN patterns of the jobs."""

    def statements(self, plan: Plan) -> Iterator[iam.PolicyStatement]:
        """Yield what ``states`` need."""

    def polling_statement(self, jobs: JobSet, *, stops: bool) -> iam.PolicyStatement:
        """Return what the poller needs."""


@dataclass
class Plan:
    """A workflow while it is made."""

    props: TrainingProps
    jobs: JobSet
    service: JobService
    features: Sequence[Feature]  # in the order in which they put their states
    requests: Mapping[str, Mapping[str, Any]]  # as rendered, by the jobs' name suffixes, in the order in which they run
    alternatives: Sequence[Mapping[str, Any]]  # the rendered requests of jobs that run in place of the first
    limits: TimeLimits
    poller_arn: str | None = None  # of the state machine that polls jobs; None where executions poll them

    @property
    def all_requests(self) -> list[Mapping[str, Any]]:
        """The rendered requests of all jobs."""
        return [*self.requests.values(), *self.alternatives]

    @property
    def by_cause(self) -> bool:
        """Whether a feature needs to know for which cause a job did not complete."""
        return any(feature.by_cause for feature in self.features)

    @property
    def notifies(self) -> bool:
        """Whether events are wanted."""
        return any(feature.notifies for feature in self.features)

    @property
    def wait_state(self) -> str:
        """The state in which an execution waits until it describes the job."""
        return "Wait" if self.poller_arn is None else "Poll"

    def statements(self) -> Iterator[iam.PolicyStatement]:
        """Yield what the state machine may do."""
        yield from self.service.statements(self)
        for feature in self.features:
            yield from feature.statements(self)

    def as_sent(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a request as it is sent."""
        for feature in self.features:
            request = feature.request(request)
        return request
