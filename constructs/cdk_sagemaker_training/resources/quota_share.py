"""``QuotaShare``: the machines of one team in a ``TrainingQueue``, by type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.props.prop import Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

Sharing = Literal["RESERVE", "LEND", "LEND_AND_BORROW"]  # QuotaShareResourceSharingStrategy
# "a maximum of 5 capacity limits", "A maximum of 20 can be attached to any job queue" (AWS Batch guide, "Quota shares").
_MOST_TYPES, _MOST_SHARES = 5, 20


_MACHINES = Known("synth", "since the machines of jobs are compared with it")
_QUEUE = Known("synth", "since the queue is made with it")


@kind("QuotaShare({'ml.p5.48xlarge': 4})")
@dataclass(frozen=True)
class QuotaShare(Value):
    """The machines that the jobs of one team may use, by type: a share of ``TrainingQueue(shares=...)``.

    It is AWS Batch's quota share (AWS Batch guide, "Quota shares"): a share of numbers of machines, where a number in ``shares``
    is one of time.

    Args:
        capacity: The most machines of the share's running jobs that are not borrowed, by type: 1 to 5 types.
        sharing: What becomes of machines that no job of the share uses. ``"RESERVE"``: they stay idle. ``"LEND"``: jobs of shares
            that borrow run on them until a job of this share needs them; Batch then stops those. ``"LEND_AND_BORROW"``: the
            share's jobs run on what others lend, too.
        borrow_limit: The most machines that are borrowed, in percent of ``capacity``; needs ``"LEND_AND_BORROW"``. Default: no
            limit.
        preempts: Whether Batch stops a job of the share for another of the share with a higher priority.

    Raises:
        ValueError: For a field that breaks a rule, with its name.
    """

    capacity: Annotated[Mapping[str, int], Prop(known=_MACHINES, example="{'ml.p5.48xlarge': 4}")]
    sharing: Annotated[Sharing, Prop(known=_QUEUE, example="'LEND'")] = "RESERVE"
    borrow_limit: Annotated[int | None, Prop(known=_MACHINES, example="100")] = None
    preempts: Annotated[bool, _QUEUE] = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_machines("capacity", self.capacity)
        if len(self.capacity) > _MOST_TYPES:
            raise must("capacity", f"have 1 to {_MOST_TYPES} types", "{'ml.p5.48xlarge': 4}", f"{len(self.capacity)}")
        if self.borrow_limit is None:
            return
        if self.sharing != "LEND_AND_BORROW":
            rule = "be left out unless sharing is 'LEND_AND_BORROW'"
            raise must("borrow_limit", rule, "borrow_limit=None", f"{self.borrow_limit!r} with {self.sharing!r}")
        if self.borrow_limit < 0:
            raise must("borrow_limit", "be a percentage from 0", "100", repr(self.borrow_limit))

    @property
    def is_preemptible(self) -> bool:
        """Whether Batch may stop a job of the share for another: one that borrows, or one of a lower priority."""
        return self.sharing == "LEND_AND_BORROW" or self.preempts

    def most(self, instance_type: str, of_queue: int) -> int:
        """Return the most machines of a type that one job of the share can have.

        Args:
            instance_type: The type.
            of_queue: The queue's machines of the type.
        """
        most = self.capacity.get(instance_type, 0)
        if self.sharing == "LEND_AND_BORROW":
            most = of_queue if self.borrow_limit is None else most + most * self.borrow_limit // 100
        return most if is_unresolved(of_queue) else min(most, of_queue)


def check_machines(prop: str, machines: Mapping[str, int]) -> None:
    """Check numbers of machines by type."""
    if not machines:
        raise must(prop, "have a type", "{'ml.p5.48xlarge': 4}", "{}")
    for instance_type, count in machines.items():
        check_training_instance_type(instance_type, prop)
        if not is_unresolved(count) and count < 1:
            raise must(f"{prop}[{instance_type!r}]", "be a number of machines from 1", "4", repr(count))


def check_quota_shares(shares: Mapping[str, QuotaShare], capacity: Mapping[str, int]) -> None:
    """Check the quota shares of a queue."""
    if len(shares) > _MOST_SHARES:
        raise must("shares", f"be at most {_MOST_SHARES} quota shares", "3", f"{len(shares)}")
    for name, share in shares.items():
        # "up to 128 characters long ... uppercase and lowercase letters, numbers, hyphens (-), and underscores (_)" (service
        # model, CreateQuotaShare.quotaShareName).
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name):
            rule = "have names of 1 to 128 letters, digits, hyphens and underscores"
            raise must("shares", rule, "'vision'", repr(name))
        for instance_type in share.capacity:
            if instance_type not in capacity:
                rule = f"have types of the queue's capacity ({', '.join(map(repr, capacity))})"
                raise must(f"shares[{name!r}]", rule, repr(next(iter(capacity))), repr(instance_type))
