"""The build backend of an image, Docker or CodeBuild, chosen by where its base images are."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, get_args

from cdk_sagemaker_training.core.image_uri import IN_ECR
from cdk_sagemaker_training.facts.containers import is_aws_account

Builder = Literal["docker", "codebuild"]

# The alias of AWS's containers in ECR's public gallery, which needs no log-in ("Image Access", AWS Deep Learning Containers).
PUBLIC_CONTAINERS = "public.ecr.aws/deep-learning-containers/"


def is_aws_container(image: str) -> bool:
    """Return whether an image is one of AWS's containers for training, in AWS's accounts or in ECR's public gallery."""
    place = IN_ECR.match(image)
    return image.startswith(PUBLIC_CONTAINERS) or (place is not None and is_aws_account(place["account"]))


def chosen_builder(builder: Builder | None, parents: tuple[str, ...]) -> Builder:
    """Return the build backend of an image.

    Args:
        builder: The backend that the user chose; None chooses CodeBuild if a base image is one of AWS's containers, which have
            10 GB and more, else Docker.
        parents: The base images.

    Raises:
        ValueError: ``builder`` is unknown, or deploy-time-build is not installed for CodeBuild.
    """
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
    """Check that props which have no effect beside another one are left out.

    Args:
        props: Values of the props by their names; None for a prop that is left out.
        instead: The prop and value that they need, for the message.
        beside: The prop and value that was set, for the message.

    Raises:
        ValueError: One of them is not None.
    """
    for name, value in props.items():
        if value is not None:
            raise ValueError(f"{name} must be left out, or used with {instead}, like {name}=None, got it with {beside}")
