"""What builds an image, and which: where its base images lie decides."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, get_args

from cdk_sagemaker_training.containers import is_of_aws
from cdk_sagemaker_training.image_uri import IN_ECR

Builder = Literal["docker", "codebuild"]

# The alias of AWS's containers in ECR's public gallery, which takes no log-in ("Image Access", AWS Deep Learning Containers).
PUBLIC_CONTAINERS = "public.ecr.aws/deep-learning-containers/"


def is_aws_container(image: str) -> bool:
    """Whether an image is one of AWS's containers for training: in an account of AWS's, or in ECR's public gallery."""
    place = IN_ECR.match(image)
    return image.startswith(PUBLIC_CONTAINERS) or (place is not None and is_of_aws(place["account"]))


def chosen_builder(builder: Builder | None, parents: tuple[str, ...]) -> Builder:
    """The builder that a user names, or else the one for images that are built from ``parents``."""
    if builder is not None and builder not in get_args(Builder):
        raise ValueError(
            f"builder must be one of {', '.join(map(repr, get_args(Builder)))} or None, like 'codebuild', got {builder!r}"
        )
    if builder == "docker":
        return "docker"
    if builder is None and not any(map(is_aws_container, parents)):
        return "docker"
    if find_spec("deploy_time_build") is None:
        raise ValueError(
            "builder must be 'docker' without the package deploy-time-build, "
            "like builder='docker', or pip install 'cdk-sagemaker-training[codebuild]', "
            f"got {builder!r} for an image from {', '.join(parents)}"
        )
    return "codebuild"


def check_left_out(props: Mapping[str, Any], instead: str, beside: str) -> None:
    """Refuse props that another one makes void."""
    for name, value in props.items():
        if value is not None:
            raise ValueError(f"{name} must be left out, or come with {instead}, like {name}=None, got it with {beside}")
