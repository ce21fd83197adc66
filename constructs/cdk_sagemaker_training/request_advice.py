"""What is legal in a request and yet does nothing, or not what was meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.advice import Advice, advice
from cdk_sagemaker_training.data import S3Channel, seconds_of
from cdk_sagemaker_training.image_advice import image_advice
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


# The machines of a job are billed from when they run; starting its container and loading a framework takes most of this.
_SHORT_SECONDS = 60


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
    entrypoint = props.get("container_entrypoint") is not None
    yield from image_advice(props["image"].base, machines, entrypoint)
    yield from short_time_advice("max_runtime", props.get("max_runtime"))
    yield from _overlap_advice(props)
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
    if entrypoint and launcher:
        yield from advice(
            "entrypoint-instead-of-toolkit",
            f"container_entrypoint replaces the toolkit of AWS's containers, which alone reads {launcher[0]!r}: what the job's "
            "launcher says is not done unless the entry point does it.",
        )


def short_time_advice(prop: str, given: Any) -> Iterator[Advice]:
    """Warns of a time (a Duration, or seconds) that no training fits in, such as ``2`` that was meant as hours."""
    seconds = None if given is None else seconds_of(prop, given)
    if seconds is not None and not is_unresolved(seconds) and seconds < _SHORT_SECONDS:
        yield from advice(
            f"short-{prop.replace('_', '-')}",
            f"{prop} is {seconds} seconds, in which a container starts and hardly more, and then the job is stopped; a plain "
            f"number is seconds, so say hours like {prop}=Duration.hours({min(seconds, 28 * 24)}).",
        )


def _overlap_advice(props: TrainingProps) -> Iterator[Advice]:
    """Warns of a channel that what jobs make is part of: each job then also reads the models of all jobs before it."""
    made = {"output": props["output"], "checkpoints": props.get("checkpoints")}
    for name, channel in (props.get("channels") or {}).items():
        if not isinstance(channel, S3Channel) or channel.data_type != "S3Prefix" or channel.subfolder is not None:
            continue
        for prop, place in made.items():
            if place is None or is_unresolved(channel.prefix) or is_unresolved(place.prefix):
                continue
            if place.bucket is channel.bucket and place.prefix.startswith(channel.prefix):
                yield from advice(
                    "channel-holds-output",
                    f"channels[{name!r}] is all that begins with {channel.prefix!r}, of which {prop} at {place.prefix!r} is a "
                    "part, so that each job reads what the jobs before it made: give the data a prefix of its own, "
                    "like S3Channel(bucket, 'data/').",
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
