"""What is legal in a request and yet does nothing, or not what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.advice import Advice, advice
from cdk_sagemaker_training.instance_facts import family
from cdk_sagemaker_training.instance_types import has_local_storage, is_newer, nearest
from cdk_sagemaker_training.jobs import JobRequest
from cdk_sagemaker_training.props import TrainingProps
from cdk_sagemaker_training.rules import instance_count, instance_types
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import unlisted_values, unlisted_warning

# "jobs that request accelerated computing instance types, such as instances in the ml.p , ml.g , and ml.trn families"
# (API, StoppingCondition.MaxPendingTimeInSeconds).
_ACCELERATED = ("p", "g", "trn")


def request_advice(job_request: JobRequest, props: TrainingProps) -> Iterator[Advice]:
    """What to say of one of a job's requests and of the props beside it."""
    machines = instance_types(job_request)
    known = [name for name in machines if not is_unresolved(name)]
    for name in filter(is_newer, known):
        yield from advice(
            "newer-instance-type",
            f"{name!r} is not among the types that botocore's model of SageMaker lists, of which {nearest(name)!r} is spelt most "
            "like it; it is taken for a newer one, of which nothing is checked. A newer botocore may know it.",
        )
    if props.get("volume_size") is not None and known and all(map(has_local_storage, machines)):
        yield from advice(
            "volume-size-without-volume",
            f"volume_size has no effect on {known[0]!r}, whose own disks SageMaker uses instead of a volume; leave it out.",
        )
    if props.get("max_pending") is not None and known and not any(map(_is_accelerated, machines)):
        yield from advice(
            "max-pending-without-accelerators",
            f"max_pending has no effect on {known[0]!r}: it counts for types with accelerators only; leave it out.",
        )
    if props.get("inter_container_encryption") is True and instance_count(job_request) == 1:
        yield from advice(
            "encryption-without-peers",
            "inter_container_encryption has no effect on a job of one machine, which has nobody to talk to; leave it out.",
        )
    spot = props.get("spot")
    if spot is not None and spot.checkpoints is None and props.get("checkpoints") is None:
        yield from advice(
            "spot-without-checkpoints",
            "spot machines may be taken back at any time, and a job without checkpoints begins anew: say where they are kept, "
            "like Spot(S3Prefix(bucket, 'checkpoints/'), max_wait=...).",
        )
    if props.get("network_isolation") is True:
        yield from _isolation_advice(job_request, props)
    launcher = [name for name in job_request.hyperparameters if name.startswith("sagemaker_")]
    if props.get("container_entrypoint") is not None and launcher:
        yield from advice(
            "entrypoint-instead-of-toolkit",
            f"container_entrypoint replaces the toolkit of AWS's containers, which alone reads {launcher[0]!r}: what the job's "
            "launcher says is not done unless the entry point does it.",
        )


def unlisted_advice(value: Any) -> Iterator[Advice]:
    """A warning of each value, such as in a request, that no list of this library is held against."""
    for one in unlisted_values(value):
        yield Advice(*unlisted_warning(one))


def warm_pool_advice(matched: Mapping[str, Any], prop_names: Mapping[str, str]) -> Iterator[Advice]:
    """Tells of members that each execution decides anew, where they must be alike for a warm pool to be used again."""
    for member in matched:
        if member.endswith(".$"):
            path = member.removesuffix(".$")
            prop = next((prop_names[name] for name in prop_names if name.startswith(path)), path)
            yield from advice(
                "warm-pool-of-one-execution",
                f"{prop} is decided by each execution, and a warm pool is only used by a job with the same {path}: machines "
                "of executions that differ in it are kept, and billed, for nobody.",
            )


def _isolation_advice(job_request: JobRequest, props: TrainingProps) -> Iterator[Advice]:
    """The guide's "Run training and inference containers in internet-free mode": a script in isolation has no AWS credentials."""
    callers = [name for name in ("mlflow", "experiment") if props.get(name) is not None]
    if job_request.storage:
        callers.append("job")
    for caller in callers:
        yield from advice(
            "isolated-script-calls-aws",
            f"network_isolation leaves the script without a network and without credentials, and {caller} has it call AWS; "
            "what it says there gets lost, or fails the job.",
        )


def _is_accelerated(instance_type: str) -> bool:
    return is_unresolved(instance_type) or family(instance_type).startswith(_ACCELERATED)
