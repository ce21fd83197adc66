"""``TrainingQueue``: a queue of training jobs with a capacity, on AWS Batch."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from aws_cdk import Duration, Resource
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.props.prop import GRANTED, LITERAL, Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import check_fields, checked
from cdk_sagemaker_training.resources.quota_share import QuotaShare, check_machines, check_quota_shares

if TYPE_CHECKING:
    from aws_cdk import aws_batch as batch

_ARN = "arn:aws:batch:us-east-1:123456789012:job-queue/jobs"
_TYPE = "SAGEMAKER_TRAINING"
_MOST_PRIORITY = 9_999  # SubmitServiceJob.schedulingPriority
_LEAST_WEIGHT, _MOST_WEIGHT = 0.0001, 999.9999  # ShareAttributes.weightFactor
_LONGEST_DECAY = 604_800  # FairsharePolicy.shareDecaySeconds, a week

_QUEUE = Known("deployment", "since the queue is made with it")
_QUEUE_ARN = Prop(known=GRANTED, example=repr(_ARN))


class ITrainingQueue(Resource):
    """What a queue that this app defines (``TrainingQueue``) and one of another (``TrainingQueue.from_...``) have alike.

    Attributes:
        queue_arn: The job queue's ARN.
        capacity: The most machines of all running jobs together, or of each type; ``sys.maxsize`` if it is not known.
        shares: The parts of the capacity, by the names of the shares; empty for a queue in the order of submission.
        quota_share_arns: The ARNs of its quota shares, by their names.
    """

    queue_arn: str
    capacity: int | Mapping[str, int]
    shares: Mapping[str, float | QuotaShare]
    quota_share_arns: Mapping[str, str]

    def share(self, name: str, *, priority: int = 0) -> QueueShare:
        """One of the queue's shares, for ``TrainingWorkflow(queue=...)``.

        Args:
            name: Its name, a key of ``shares``.
            priority: As of ``QueueShare``.

        Raises:
            ValueError: There is no such share, or a number is out of bounds.
        """
        return QueueShare(self, name, priority)

    def grant(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        """Grant permission for actions on the queue; ``TrainingWorkflow`` grants its state machine what it needs.

        Args:
            grantee: The role or another grantee.
            *actions: The actions, such as ``"batch:ListServiceJobs"``.
        """
        return iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[self.queue_arn])


class TrainingQueue(ITrainingQueue):
    """A queue in which training jobs wait until machines of its capacity are free.

    It is AWS Batch's queue for SageMaker training jobs, "service jobs" in the guide of AWS Batch: a service environment with the
    capacity, a job queue, and with ``shares`` a scheduling policy of fair or quota shares. Give it to
    ``TrainingWorkflow(queue=...)``. Batch itself costs nothing, and reserves no machines.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        capacity: Annotated[int | Mapping[str, int], _QUEUE],
        shares: Annotated[Mapping[str, float | QuotaShare] | None, _QUEUE] = None,
        share_decay: Annotated[Duration | int | None, _QUEUE] = None,
    ) -> None:
        """Create the service environment, the job queue and, with shares, the scheduling policy.

        Args:
            scope: The parent construct.
            id: The construct id.
            capacity: The most machines of all running jobs together, whatever their type; with quota shares the most of each
                type, such as ``{"ml.p5.48xlarge": 8}``.
            shares: How the capacity is divided among shares that have jobs waiting, such as ``{"vision": 2, "speech": 1}``, by
                which two thirds go to ``vision``. A share that has none leaves its part to the others. Names are letters and
                digits. Each is ``1 / part`` as Batch's ``weightFactor``, of which "a lower value has a higher priority" (service
                model). Or a ``QuotaShare`` each: numbers of machines, by type. Default: jobs start in the order of their
                submission.
            share_decay: A Duration, or seconds, over which Batch counts what a share has used, up to a week; needs ``shares``.
                Jobs run for hours, so that of ten minutes, Batch's own default, nothing would be remembered. Default: one day.

        Raises:
            ValueError: For a prop that breaks a rule, with its name.
        """
        super().__init__(scope, id)
        _check(capacity, shares, share_decay)
        # Here and not above, since importing the module takes longer than making the queue.
        from aws_cdk import aws_batch as batch

        quotas, parts = _sorted(shares or {})
        if quotas and not hasattr(batch, "CfnQuotaShare"):
            rule = "be numbers with an aws-cdk-lib older than 2.245, which has no AWS::Batch::QuotaShare"
            raise must("shares", rule, "{'vision': 2}", repr(shares))
        environment = batch.CfnServiceEnvironment(
            self,
            "Environment",
            service_environment_type=_TYPE,
            capacity_limits=[
                batch.CfnServiceEnvironment.CapacityLimitProperty(max_capacity=most, capacity_unit=unit)
                for unit, most in (capacity if isinstance(capacity, Mapping) else {"NUM_INSTANCES": capacity}).items()
            ],
        )
        policy = None
        if quotas:
            # "Currently, only FIFO is supported" (service model, QuotaSharePolicy).
            fifo = batch.CfnSchedulingPolicy.QuotaSharePolicyProperty(idle_resource_assignment_strategy="FIFO")
            policy = batch.CfnSchedulingPolicy(self, "Policy", quota_share_policy=fifo)
        elif parts:
            policy = batch.CfnSchedulingPolicy(
                self,
                "Policy",
                fairshare_policy=batch.CfnSchedulingPolicy.FairsharePolicyProperty(
                    share_decay_seconds=86_400 if share_decay is None else seconds_of("share_decay", share_decay),
                    share_distribution=[
                        batch.CfnSchedulingPolicy.ShareAttributesProperty(
                            share_identifier=name, weight_factor=round(1 / part, 4)
                        )
                        for name, part in parts.items()
                    ],
                ),
            )
        queue = self.node.default_child = batch.CfnJobQueue(
            self,
            "Queue",
            job_queue_type=_TYPE,
            priority=1,
            scheduling_policy_arn=None if policy is None else policy.attr_arn,
            service_environment_order=[
                batch.CfnJobQueue.ServiceEnvironmentOrderProperty(
                    order=1, service_environment=environment.attr_service_environment_arn
                )
            ],
        )
        shares_of_quota = {
            name: _quota_share(self, name, share, queue.attr_job_queue_arn) for name, share in quotas.items()
        }
        self.capacity = capacity
        self.shares = dict(shares or {})
        self.quota_share_arns = {name: share.attr_quota_share_arn for name, share in shares_of_quota.items()}
        self.queue_arn = queue.attr_job_queue_arn

    @staticmethod
    @checked
    def from_queue_arn(scope: Construct, id: str, queue_arn: Annotated[str, _QUEUE_ARN]) -> ITrainingQueue:
        """Use a queue that another stack or app defines, without shares and of a capacity that is not known.

        Args:
            scope: The parent construct.
            id: The construct id.
            queue_arn: The job queue's ARN.

        Raises:
            ValueError: It is not the ARN of a job queue.
        """
        return TrainingQueue.from_queue_attributes(scope, id, queue_arn=queue_arn)

    @staticmethod
    @checked
    def from_queue_attributes(
        scope: Construct,
        id: str,
        *,
        queue_arn: Annotated[str, _QUEUE_ARN],
        capacity: Annotated[int | Mapping[str, int] | None, Prop(known=_QUEUE, example="8")] = None,
        shares: Annotated[Mapping[str, float | QuotaShare] | None, _QUEUE] = None,
        quota_share_arns: Annotated[Mapping[str, str] | None, GRANTED] = None,
    ) -> ITrainingQueue:
        """Use a queue that another stack or app defines.

        Args:
            scope: The parent construct.
            id: The construct id.
            queue_arn: The job queue's ARN.
            capacity: As it was defined, so that a job with more machines is refused at synthesis. Default: not known, unless the
                queue has quota shares, which need it.
            shares: As they were defined. Default: none.
            quota_share_arns: The ARNs of the quota shares, by their names. Default: none.

        Raises:
            ValueError: The ARN is not that of a job queue, or a prop breaks a rule of ``TrainingQueue``.
        """
        return _ImportedQueue(
            scope, id, queue_arn, sys.maxsize if capacity is None else capacity, shares, quota_share_arns or {}
        )


class _ImportedQueue(ITrainingQueue):
    """A queue that another stack or app defines."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        queue_arn: str,
        capacity: int | Mapping[str, int],
        shares: Mapping[str, float | QuotaShare] | None,
        quota_share_arns: Mapping[str, str],
    ) -> None:
        known = not is_unresolved(queue_arn)
        if known and not re.fullmatch(r"arn:[^:]+:batch:[^:]+:[^:]+:job-queue/[^/]+", queue_arn):
            raise must("queue_arn", "be the ARN of a job queue", repr(_ARN), repr(queue_arn))
        quotas, _ = _sorted(shares or {})
        _check(capacity, shares, None)
        if quota_share_arns.keys() != quotas.keys():
            rule = "have the ARN of each quota share"
            example = f"{{'vision': '{_ARN}/quota-share/vision'}}"
            raise must("quota_share_arns", rule, example, repr(dict(quota_share_arns)))
        super().__init__(scope, id, environment_from_arn=queue_arn)
        self.queue_arn = queue_arn
        self.capacity = capacity
        self.shares = dict(shares or {})
        self.quota_share_arns = dict(quota_share_arns)


@kind("queue.share('vision')")
@dataclass(frozen=True)
class QueueShare:
    """A share of a ``TrainingQueue``, and the priority of a workflow's jobs within it; made by ``TrainingQueue.share``.

    Args:
        queue: The queue.
        name: The share's name.
        priority: 0 to 9,999: jobs with a higher one start before others of their share.

    Raises:
        ValueError: The queue has no such share, or the priority is out of bounds.
    """

    queue: ITrainingQueue
    name: Annotated[str, LITERAL]
    priority: Annotated[int, LITERAL] = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if self.name not in self.queue.shares:
            names = ", ".join(map(repr, self.queue.shares)) or "none: it has no shares"
            raise must("name", f"be a share of {self.queue.node.path} ({names})", "'vision'", repr(self.name))
        if not 0 <= self.priority <= _MOST_PRIORITY:
            raise must("priority", f"be a whole number from 0 to {_MOST_PRIORITY}", "10", repr(self.priority))


def _sorted(shares: Mapping[str, float | QuotaShare]) -> tuple[dict[str, QuotaShare], dict[str, float]]:
    """Return the quota shares and the fair shares."""
    quotas = {name: share for name, share in shares.items() if isinstance(share, QuotaShare)}
    return quotas, {name: share for name, share in shares.items() if not isinstance(share, QuotaShare)}


def _quota_share(scope: Construct, name: str, share: QuotaShare, queue_arn: str) -> batch.CfnQuotaShare:
    from aws_cdk import aws_batch as batch

    of = batch.CfnQuotaShare
    borrow = -1 if share.borrow_limit is None else share.borrow_limit  # -1: "unlimited borrowing" (service model)
    return of(
        scope,
        f"Share{name}",
        quota_share_name=name,
        job_queue=queue_arn,
        capacity_limits=[
            of.QuotaShareCapacityLimitProperty(capacity_unit=unit, max_capacity=most)
            for unit, most in share.capacity.items()
        ],
        resource_sharing_configuration=of.QuotaShareResourceSharingConfigurationProperty(
            strategy=share.sharing, borrow_limit=borrow if share.sharing == "LEND_AND_BORROW" else None
        ),
        preemption_configuration=of.QuotaSharePreemptionConfigurationProperty(
            in_share_preemption="ENABLED" if share.preempts else "DISABLED"
        ),
    )


def _check(
    capacity: int | Mapping[str, int],
    shares: Mapping[str, float | QuotaShare] | None,
    share_decay: Duration | int | None,
) -> None:
    quotas, parts = _sorted(shares or {})
    if quotas and parts:
        raise must("shares", "be quota shares or numbers", "{'vision': 2, 'speech': 1}", f"{shares!r}, which has both")
    if isinstance(capacity, Mapping):
        check_machines("capacity", capacity)
        if not quotas:
            rule = "be a number of machines without quota shares"
            raise must("capacity", rule, "8, or shares quota shares", repr(dict(capacity)))
        check_quota_shares(quotas, capacity)
    elif quotas:
        raise must("capacity", "be machines by type with quota shares", "{'ml.p5.48xlarge': 8}", repr(capacity))
    elif not is_unresolved(capacity) and capacity < 1:
        raise must("capacity", "be a number of machines from 1", "8", repr(capacity))
    _check_fair_shares(parts)
    if shares is not None and not shares:
        raise must("shares", "have a share", "{'vision': 2, 'speech': 1}, or be left out", "{}")
    if share_decay is None:
        return
    if not parts:
        raise must("share_decay", "be left out without shares that are numbers", "share_decay=None", "a time")
    seconds = seconds_of("share_decay", share_decay)
    if not is_unresolved(seconds) and not 1 <= seconds <= _LONGEST_DECAY:
        raise must("share_decay", "be 1 second to 7 days", "Duration.days(1)", f"{seconds} seconds")


def _check_fair_shares(parts: Mapping[str, float]) -> None:
    for name, part in parts.items():
        # "The string is limited to 255 alphanumeric characters" (service model, ShareAttributes.shareIdentifier).
        if not re.fullmatch(r"[A-Za-z0-9]{1,255}", name):
            raise must("shares", "have names of 1 to 255 letters and digits", "'teamA'", repr(name))
        if not 1 / _MOST_WEIGHT <= part <= 1 / _LEAST_WEIGHT:
            raise must(f"shares[{name!r}]", "be a number from 0.0011 to 10000", "2", repr(part))
