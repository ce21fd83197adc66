"""Warnings about requests that AWS accepts but that have no effect, or not the intended one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import unlisted_values, unlisted_warning
from cdk_sagemaker_training.data.s3 import S3Channel
from cdk_sagemaker_training.facts.instance_facts import family
from cdk_sagemaker_training.facts.instance_types import has_local_storage, is_newer, nearest
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.kinds import JobRequest
from cdk_sagemaker_training.request.machine_rules import instance_count, instance_types
from cdk_sagemaker_training.request.props import TrainingProps
from cdk_sagemaker_training.resources.image_advice import image_advice

# "jobs that request accelerated computing instance types, such as instances in the ml.p , ml.g , and ml.trn families"
# (API, StoppingCondition.MaxPendingTimeInSeconds).
_ACCELERATED = ("p", "g", "trn")


# Starting a container and loading a framework take most of this time.
_SHORT_SECONDS = 60


def request_advice(job_request: JobRequest, props: TrainingProps) -> Iterator[Advice]:
    """Return the warnings about one request of a job.

    Args:
        job_request: The request.
        props: The props of the job.
    """
    machines = instance_types(job_request)
    known = [name for name in machines if not is_unresolved(name)]
    for name in filter(is_newer, known):
        yield from advice(
            "newer-instance-type",
            f"{name!r} is not among the types that botocore's model of SageMaker lists; the closest is {nearest(name)!r}. "
            "It is assumed to be a newer type, and checks that need facts about it are skipped. A newer botocore may list it.",
        )
    entrypoint = props.get("container_entrypoint") is not None
    yield from image_advice(props["image"].base, machines, entrypoint)
    yield from short_time_advice("max_runtime", props.get("max_runtime"))
    yield from _overlap_advice(props)
    if props.get("volume_size") is not None and known and all(map(has_local_storage, machines)):
        yield from advice(
            "volume-size-without-volume",
            f"volume_size has no effect on {known[0]!r}, whose local disks SageMaker uses instead of a volume; leave it out.",
        )
    if props.get("max_pending") is not None and known and not any(map(_is_accelerated, machines)):
        yield from advice(
            "max-pending-without-accelerators",
            f"max_pending has no effect on {known[0]!r}: it counts for types with accelerators only; leave it out.",
        )
    if props.get("inter_container_encryption") is True and instance_count(job_request) == 1:
        yield from advice(
            "encryption-without-peers",
            "inter_container_encryption has no effect on a job of one machine, which has no peers; leave it out.",
        )
    spot = props.get("spot")
    if spot is not None and spot.checkpoints is None and props.get("checkpoints") is None:
        yield from advice(
            "spot-without-checkpoints",
            "spot machines may be interrupted at any time, and a job without checkpoints then starts over: set their location, "
            "like Spot(S3Prefix(bucket, 'checkpoints/'), max_wait=...).",
        )
    if props.get("network_isolation") is True:
        yield from _isolation_advice(job_request, props)
    launcher = [name for name in job_request.hyperparameters if name.startswith("sagemaker_")]
    if entrypoint and launcher:
        yield from advice(
            "entrypoint-instead-of-toolkit",
            f"container_entrypoint replaces the toolkit of AWS's containers, the only reader of {launcher[0]!r}: the job's "
            "launcher has no effect unless the entry point implements it.",
        )
    if entrypoint and props.get("code") is not None:
        yield from advice(
            "entrypoint-instead-of-code",
            "container_entrypoint replaces the toolkit of AWS's containers, the only reader of 'sagemaker_submit_directory': no "
            "host fetches the folder of code unless the entry point does. Leave one of them out.",
        )


def short_time_advice(prop: str, value: Any) -> Iterator[Advice]:
    """Warn of a time that is too short for any training, such as ``2`` that was meant as hours.

    Args:
        prop: Name of the prop.
        value: The time, as a Duration or in seconds.
    """
    seconds = None if value is None else seconds_of(prop, value)
    if seconds is not None and not is_unresolved(seconds) and seconds < _SHORT_SECONDS:
        yield from advice(
            f"short-{prop.replace('_', '-')}",
            f"{prop} is {seconds} seconds, hardly more than a container needs to start; then the job is stopped. A plain "
            f"number is in seconds, so write hours like {prop}=Duration.hours({min(seconds, 28 * 24)}).",
        )


def _overlap_advice(props: TrainingProps) -> Iterator[Advice]:
    """Warn of a channel whose prefix contains the output: each job would read the models of all earlier jobs."""
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
                    f"channels[{name!r}] contains every key that begins with {channel.prefix!r}, so also {prop} at "
                    f"{place.prefix!r}, and each job reads the results of earlier jobs: use a separate prefix for the data, "
                    "like S3Channel(bucket, 'data/').",
                )


def unlisted_advice(value: Any) -> Iterator[Advice]:
    """Warn of each ``unlisted`` value within ``value``, such as a request."""
    for one in unlisted_values(value):
        yield Advice(*unlisted_warning(one))


def warm_pool_advice(matched: Mapping[str, Any], prop_names: Mapping[str, str]) -> Iterator[Advice]:
    """Warn of members that must be equal for a warm pool to be reused, and that each execution sets.

    Args:
        matched: The members that must be equal, by their paths.
        prop_names: Names of the props, by the members' paths.
    """
    for member in matched:
        if member.endswith(".$"):
            path = member.removesuffix(".$")
            prop = next((prop_names[name] for name in prop_names if name.startswith(path)), path)
            yield from advice(
                "warm-pool-of-one-execution",
                f"{prop} is set by each execution, and only a job with the same {path} reuses a warm pool: machines of other "
                "executions are kept, and billed, without use.",
            )


def _isolation_advice(job_request: JobRequest, props: TrainingProps) -> Iterator[Advice]:
    """A script in isolation has no AWS credentials (guide, "Run training and inference containers in internet-free mode")."""
    callers = [name for name in ("mlflow", "experiment") if props.get(name) is not None]
    if job_request.storage:
        callers.append("job")
    for caller in callers:
        yield from advice(
            "isolated-script-calls-aws",
            f"network_isolation leaves the script without a network and without credentials, and {caller} requires calls to AWS, "
            "which fail.",
        )
    code = props.get("code")
    if code is not None and Path("requirements.txt") in code.files():
        # entry_point.install of sagemaker-training; pip looks for a package that the image lacks on PyPI.
        yield from advice(
            "isolated-script-installs-packages",
            "network_isolation leaves the hosts without a network, and the toolkit runs `pip install` of the requirements.txt of "
            "code before the script, which fails for a package that the image lacks: install them in an image of your own.",
        )


def _is_accelerated(instance_type: str) -> bool:
    return is_unresolved(instance_type) or family(instance_type).startswith(_ACCELERATED)
