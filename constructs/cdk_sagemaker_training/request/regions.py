"""Checks that a job's resources are in its region, and warns of instance types that the region may lack."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from aws_cdk import Stack

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.image_uri import IN_ECR
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted, unlisted_hint
from cdk_sagemaker_training.data.s3 import S3AccessPoint, S3Channel
from cdk_sagemaker_training.facts.instance_facts import family
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.request.props import TrainingProps


def check_regions(stack: Stack, props: TrainingProps) -> None:
    """Check that a job's resources are in the region of the stack; tokens pass.

    - Buckets: "Your input bucket must be located in same Amazon Web Services region as your training job" (API, S3DataSource); an
      upload to another fails with "BucketRegionError: bucket must be in the same region as the job"
      (aws/amazon-sagemaker-examples 3881), and "SageMaker does not support cross-region data access" (2077 there).
    - The image: CreateTrainingJob refuses it with "Invalid DNS suffix 'amazonaws.com' for region 'us-east-1' in training image"
      (aws-samples/mlops-amazon-sagemaker 9).
    - Keys and networks, which belong to one region, and training plans, whose capacity is in its zones (guide, "Reserve training
      plans for your training jobs or HyperPod clusters").
    """
    region = stack.region
    if is_unresolved(region):
        return
    for prop, found in _regions(props):
        if not is_unresolved(found) and found != region:
            example = _EXAMPLES.get(prop.partition("[")[0], "a bucket of the stack's region")
            raise must(prop, f"be in the region of the stack, {region!r}, where its jobs run", example, repr(found))


def region_advice(stack: Stack, instance_types: tuple[str, ...], props: TrainingProps) -> Iterator[Advice]:
    """Warn of instance types that the stack's region lacked when ``regions.json`` was recorded.

    CreateTrainingJob fails with "ResourceLimitExceeded: ... The requested resource training-job/ml.p2.xlarge is not available in
    this region" (aws/amazon-sagemaker-examples 1001).

    Args:
        stack: The stack, in whose region the jobs run.
        instance_types: The types of a job's machines.
        props: The props of the job; a training plan skips the check, because its capacity is known to exist.
    """
    region = stack.region
    if is_unresolved(region) or props.get("training_plan") is not None:
        return
    for name in instance_types:
        if lacks(region, name):
            having = [other for other in _lacking() if not lacks(other, name)]
            yield from advice(
                "instance-type-not-in-region",
                f"{name!r} is not among the instance types that EC2 offered in {region!r} when that was recorded (moto 5.2.5), "
                "and CreateTrainingJob refuses a type that is not available in its region; it was available in "
                f"{', '.join(having)}. Use another type or region{unlisted_hint(name)}.",
            )


def lacks(region: str, instance_type: str) -> bool:
    """Return whether ``regions.json`` lists a type as missing in a region; False for a token and an ``unlisted`` type."""
    if is_unresolved(instance_type) or is_unlisted(instance_type):
        return False
    lacking = _lacking().get(region, frozenset())
    return instance_type in lacking or family(instance_type) in lacking


_EXAMPLES: Mapping[str, str] = {
    "image": "TrainingImage.from_dlc(self, 'Image', 'pytorch-training', '2.6.0-gpu-py312'), which is of the stack's region",
    "network": "TrainingNetwork(self, 'Network')",
    "output_key": "kms.Key(self, 'Key')",
    "training_plan": "a training plan of the stack's region",
    "volume_key": "kms.Key(self, 'Key')",
}


def _regions(props: TrainingProps) -> Iterator[tuple[str, str]]:
    """Yield the regions of the resources that a job uses, by prop, as far as CDK has them."""
    yield from _of_buckets(props)
    for prop in ("output_key", "volume_key"):
        key: Any = props.get(prop)
        if key is not None:
            yield prop, key.env.region
    network, image = props.get("network"), props["image"]
    if network is not None:
        yield "network", network.vpc.env.region
    if not is_unresolved(image.image_uri):
        if in_ecr := IN_ECR.match(image.image_uri):
            yield "image", in_ecr["region"]
    elif image.repository is not None:
        yield "image", image.repository.env.region
    yield from _of_training_plans(props)


def _of_training_plans(props: TrainingProps) -> Iterator[tuple[str, str]]:
    plans = [props.get("training_plan")]
    for request in props["job"].requests():
        plans += [
            plan for machines in machines_of(request.resource_config) for plan in machines.get("TrainingPlanArns") or ()
        ]
    for plan in plans:
        if plan is not None and not is_unresolved(plan):
            yield "training_plan", plan.split(":")[3] if plan.count(":") > 3 else ""


def _of_buckets(props: TrainingProps) -> Iterator[tuple[str, str]]:
    spot = props.get("spot")
    places: dict[str, Any] = {
        "output": props["output"],
        "checkpoints": props.get("checkpoints"),
        "spot.checkpoints": spot.checkpoints if spot is not None else None,
    }
    for name, channel in (props.get("channels") or {}).items():
        if isinstance(channel, S3Channel):
            places |= {f"channels[{name!r}]": channel, f"channels[{name!r}].objects": channel.objects}
    for prop in ("debugger", "profiler", "tensorboard"):
        watcher: Any = props.get(prop)
        if watcher is not None:
            places[f"{prop}.output"] = watcher.output
    seen: dict[int, str] = {}  # reading it is a call into Node, and most jobs have one bucket
    for prop, place in places.items():
        if place is None:
            continue
        bucket = place.bucket
        if id(bucket) not in seen:
            seen[id(bucket)] = _region_of(bucket)
        if seen[id(bucket)]:
            yield prop, seen[id(bucket)]


def _region_of(bucket: Any) -> str:
    """The region of a bucket or of an access point; empty for the ARN of an access point that is a token."""
    if isinstance(bucket, S3AccessPoint):
        return "" if is_unresolved(bucket.arn) else bucket.arn.split(":")[3]
    return str(bucket.env.region)


@cache
def _lacking() -> dict[str, frozenset[str]]:
    content = json.loads((Path(__file__).parent / "regions.json").read_text())
    return {region: frozenset(lacking) for region, lacking in content["lacking"].items()}
