"""AWS's containers with SageMaker's model parallelism library (SMP), by version and region."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from cdk_sagemaker_training.core.unlisted import check_listed, is_unlisted, unlisted_if


class SmpImage(TypedDict):
    """The location of a container, as the arguments of ``TrainingImage.from_dlc``.

    Attributes:
        repository: Name of the ECR repository.
        tag: Tag of the image.
        account_id: Registry account; None for the region's default account.
    """

    repository: str
    tag: str
    account_id: str | None


def smp_v2_image(region: str, *, pytorch_version: str = "2.5.1", instance_type: str | None = None) -> SmpImage:
    """Return AWS's container with SMP v2, for ``TrainingImage.from_dlc(self, "Image", **SmpV2.image("us-east-1"))``.

    Args:
        region: The region of the job; for an ``unlisted`` region the account of all other regions is used.
        pytorch_version: Version of PyTorch; an ``unlisted`` version is used as the tag.
        instance_type: The type of the job's machines; PyTorch 2.0.1 has a separate image for P5.

    Returns:
        Repository, tag and account, as the arguments of ``TrainingImage.from_dlc``.

    Raises:
        ValueError: AWS has no such container.
    """
    images = _all()["v2"]
    _check("pytorch_version", pytorch_version, images["tags"])
    _check("region", region, images["accounts"])
    tags = images["tags"]
    if instance_type is not None and instance_type.startswith("ml.p5"):
        tags = {**tags, **images["tags_for_p5"]}
    [account] = set(images["accounts"].values())
    return SmpImage(
        repository=images["repository"],
        tag=unlisted_if(tags.get(pytorch_version, pytorch_version), region),
        account_id=account,
    )


def smp_v1_image(region: str, *, framework: str = "pytorch", version: str = "2.0.0") -> SmpImage:
    """Return AWS's container with SMP v1, for ``TrainingImage.from_dlc(self, "Image", **SmpV1.image("us-east-1"))``.

    Args:
        region: The region of the job.
        framework: ``"pytorch"`` or ``"tensorflow"``; an ``unlisted`` framework is used as the repository.
        version: Version of the framework; an ``unlisted`` version is used as the tag.

    Returns:
        Repository, tag and account, as the arguments of ``TrainingImage.from_dlc``.

    Raises:
        ValueError: AWS has no such container.
    """
    images = _all()["v1"]
    _check("framework", framework, images["repositories"])
    tags = images["tags"].get(framework, {})
    if not is_unlisted(framework):
        _check("version", version, tags)
    _check("region", region, images["accounts"])
    return SmpImage(
        repository=images["repositories"].get(framework, framework),
        tag=unlisted_if(tags.get(version, version), region, framework),
        account_id=images["accounts"].get(region),
    )


def _check(prop: str, value: str, known: dict[str, Any]) -> None:
    example = "us-east-1" if "us-east-1" in known else list(known)[-1]
    rule = "be one that AWS has a container with SMP for"
    check_listed("smp-images", value, value in known, prop, rule, f"{example!r} of {', '.join(known)}")


@cache
def _all() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(__file__).parent / "smp_images.json").read_text())
    return content
