"""AWS's containers with SageMaker's model parallelism library, by version and region."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from cdk_sagemaker_training.unlisted import check_listed, is_unlisted, marked


class SmpImage(TypedDict):
    """Where a container lies, in the words of ``TrainingImage.from_dlc``, which knows the account of most regions itself."""

    repository: str
    tag: str
    account_id: str | None


def smp_v2_image(region: str, pytorch_version: str, instance_type: str | None) -> SmpImage:
    """The container of SMP v2; ``instance_type`` matters to PyTorch 2.0.1, which has one of its own for P5.

    A version that is ``unlisted`` is the tag itself; in such a region lies the account of all others.
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
        tag=marked(tags.get(pytorch_version, pytorch_version), region),
        account_id=account,
    )


def smp_v1_image(region: str, framework: str, version: str) -> SmpImage:
    """The container of PyTorch or TensorFlow that has SMP v1; a version that is ``unlisted`` is the tag, such a framework the
    repository.
    """
    images = _all()["v1"]
    _check("framework", framework, images["repositories"])
    tags = images["tags"].get(framework, {})
    if not is_unlisted(framework):
        _check("version", version, tags)
    _check("region", region, images["accounts"])
    return SmpImage(
        repository=images["repositories"].get(framework, framework),
        tag=marked(tags.get(version, version), region, framework),
        account_id=images["accounts"].get(region),
    )


def _check(prop: str, value: str, known: dict[str, Any]) -> None:
    example = "us-east-1" if "us-east-1" in known else list(known)[-1]
    must = f"{prop} must be one that AWS has a container with SMP for, like {example!r} of {', '.join(known)}"
    check_listed("smp-images", value, value in known, must)


@cache
def _all() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(__file__).parent / "smp_images.json").read_text())
    return content
