"""AWS's containers with SageMaker's model parallelism library, by version and region."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypedDict


class SmpImage(TypedDict):
    """Where a container lies, in the words of ``TrainingImage.from_dlc``."""

    repository: str
    tag: str
    account_id: str


def smp_v2_image(region: str, pytorch_version: str, instance_type: str | None) -> SmpImage:
    """The container of SMP v2; ``instance_type`` matters to PyTorch 2.0.1, which has one of its own for P5."""
    images = _all()["v2"]
    _check("pytorch_version", pytorch_version, images["tags"])
    _check("region", region, images["accounts"])
    tags = images["tags"]
    if instance_type is not None and instance_type.startswith("ml.p5"):
        tags = {**tags, **images["tags_for_p5"]}
    return SmpImage(repository=images["repository"], tag=tags[pytorch_version], account_id=images["accounts"][region])


def smp_v1_image(region: str, framework: str, version: str) -> SmpImage:
    """The container of PyTorch or TensorFlow that has SMP v1."""
    images = _all()["v1"]
    _check("framework", framework, images["repositories"])
    _check("version", version, images["tags"][framework])
    _check("region", region, images["accounts"])
    return SmpImage(
        repository=images["repositories"][framework],
        tag=images["tags"][framework][version],
        account_id=images["accounts"][region],
    )


def _check(prop: str, value: str, known: dict[str, Any]) -> None:
    if value not in known:
        example = "us-east-1" if "us-east-1" in known else list(known)[-1]
        raise ValueError(
            f"{prop} must be one that AWS has a container with SMP for, like {example!r} of {', '.join(known)}, got {value!r}"
        )


@cache
def _all() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((Path(__file__).parent / "smp_images.json").read_text())
    return content
