"""Base images, whose files are not on this machine: environment, packages and entry point by repository and tag.

AWS's deep learning containers have their packages and training module; any other base (`python:3.12-slim`, `ubuntu`, ...) is this
machine's own system.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.image_names import ACCOUNT_ID, ECR_REGISTRY, ImageError, Reference
from sagemaker_local_account.images.container_packages import listed
from sagemaker_local_account.images.container_start import CONTAINER_ENV, UNKNOWN, Start, start_of
from sagemaker_local_account.images.pip_install import requirement_name

# The accounts of AWS's deep learning containers in all regions ("image_uri_config" of the SageMaker Python SDK; that of
# eusc-de-east-1 is from CDK's region-info).
AWS_ACCOUNTS = frozenset(
    [
        "094389454867",
        "204133271717",
        "204538143572",
        "217643126080",
        "303241398832",
        "364406365360",
        "380420809688",
        "442386744353",
        "446045086412",
        "454834333376",
        "457447274322",
        "503227376785",
        "550225433462",
        "590183813437",
        "626614931356",
        "633930458069",
        "637423239942",
        "658645717510",
        "692866216735",
        "727897471807",
        "763104351884",
        "772153158452",
        "780543022126",
        "871362719292",
        "886529160074",
        "907027046896",
        "914824155844",
        "975050140332",
    ]
)
PUBLIC_REGISTRY = "public.ecr.aws"
PYTORCH_MODULE = "sagemaker_pytorch_container.training:main"
TENSORFLOW_MODULE = "sagemaker_tensorflow_container.training:main"


@dataclass(frozen=True)
class Base:
    """A base image.

    Args:
        env: its variables.
        requirements: its packages, as pip's requirements.
        notes: remarks for the output of a build.
        start: its entry point.
        listed: further packages of AWS's list, which are installed if the account has them or a file of the image imports them.
    """

    env: dict[str, str]
    requirements: list[str]
    notes: list[str]
    start: Start = UNKNOWN
    listed: list[str] = field(default_factory=list)

    def write_files(self, root: Path) -> None:
        """Writes the scripts of its entry point into an image's root folder."""
        root.mkdir(parents=True, exist_ok=True)
        for path, text in self.start.files.items():
            file = root / path.lstrip("/")
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                atomic_files.write(file, text, mode=0o755)


@dataclass(frozen=True)
class Framework:
    """A family of AWS's containers: the toolkit's training module, the toolkit, and the framework's package."""

    module: str
    toolkit: str
    package: str  # the tag begins with its version


PYTORCH = Framework(PYTORCH_MODULE, "sagemaker-pytorch-training", "torch")
# tensorflow-cpu also for GPU tags: the same modules at a third of the size, and hosts here have no GPU. The toolkit's version is
# that of the container (docker/tensorflow/2.21/cuda/uv.lock in aws/deep-learning-containers); later ones require an older numpy.
TENSORFLOW = Framework(TENSORFLOW_MODULE, "sagemaker-tensorflow-training==20.4.1", "tensorflow-cpu")
CONTAINERS = {
    "pytorch": PYTORCH,  # PyTorch 2.11 and later
    "pytorch-training": PYTORCH,
    "huggingface-pytorch-training": PYTORCH,
    "tensorflow-training": TENSORFLOW,
}
# The packages of the Hugging Face containers that nearly every script imports, which are always installed.
_HUGGING_FACE = ("accelerate", "datasets", "evaluate", "huggingface-hub", "peft")
# The containers that are also in ECR's public gallery ("public_registry" in aws/deep-learning-containers, August 2026).
PUBLIC_CONTAINERS = ("pytorch", "pytorch-training", "tensorflow-training")


def deep_learning_container(image: Reference) -> Base | None:
    """Returns the base for one of AWS's training containers, from the registry of any region; None for other images.

    The tag begins with the framework's version: `2.13-cpu-amzn2023-sagemaker` has PyTorch 2.13.*, and the toolkit unless it
    is an EC2 tag.
    """
    name = image.repository.removeprefix("deep-learning-containers/")
    framework = CONTAINERS.get(name)
    version = re.match(r"(\d+)\.(\d+)", image.tag)
    if framework is None or version is None or not _of_aws(image):
        return None
    requirements = [f"{framework.package}=={version[1]}.{version[2]}.*", "boto3", "numpy"]
    env = dict(CONTAINER_ENV)
    start = UNKNOWN
    if "-ec2" not in image.tag:
        requirements += ["sagemaker-training", framework.toolkit]
        start = start_of(name, (int(version[1]), int(version[2])))
        env |= {**start.env, "SAGEMAKER_TRAINING_MODULE": framework.module}
    others = listed(name, f"{version[1]}.{version[2]}", image.tag) if "-ec2" not in image.tag else None
    of_tag = (framework.package, "tensorflow", "tensorflow-cpu")
    lines = [line for line in others.requirements if requirement_name(line) not in of_tag] if others else []
    if transformers := re.search(r"-transformers(\d+)\.(\d+)", image.tag):
        requirements.append(f"transformers=={transformers[1]}.{transformers[2]}.*")
    requirements += [
        line for line in lines if name.startswith("huggingface") and requirement_name(line) in _HUGGING_FACE
    ]
    named = {requirement_name(line) for line in requirements}
    lines = [line for line in lines if requirement_name(line) not in named]
    notes = [
        f"{image}: its files are not on this machine; it is replaced by {', '.join(requirements)} and its variables"
    ]
    if others is not None:
        notes.append(
            f"{image}: of its other packages only those are installed that the image's files import ({others.source})"
        )
    if python := re.search(r"-py(3)(\d+)", image.tag):
        notes += _other_python(str(image), f"{python[1]}.{python[2]}")
    return Base(env, requirements, notes, start, lines)


def base_of(image: Reference) -> Base:
    """Returns the base for an image that is not the account's own.

    Raises:
        ImageError: it is in an ECR registry and not a supported container.
    """
    container = deep_learning_container(image)
    if container is not None:
        return container
    if image.region_of(ACCOUNT_ID):
        raise ImageError(f"no image {image} has been pushed to the account")
    public = str(image).startswith(f"{PUBLIC_REGISTRY}/deep-learning-containers/")
    if public or ECR_REGISTRY.fullmatch(image.registry):
        names = ", ".join(PUBLIC_CONTAINERS if public else CONTAINERS)
        raise ImageError(
            f"the local account does not support {image}; of AWS's containers {'there ' if public else ''}it supports "
            f"{names}, with tags that begin with a version, like pytorch:2.13-cpu-amzn2023-sagemaker"
        )
    if str(image) == "scratch:latest":
        return Base({}, [], [])
    notes = [f"{image}: its files are not on this machine; they are replaced by this machine's own"]
    requirements = []
    version = re.match(r"(\d+)\.(\d+)", image.tag)
    if image.repository == "pytorch/pytorch" and version:
        requirements.append(f"torch=={version[1]}.{version[2]}.*")
    if image.repository.rpartition("/")[2] == "python" and version:
        notes += _other_python(str(image), version[0])
    return Base({}, requirements, notes)


def _of_aws(image: Reference) -> bool:
    if image.registry == PUBLIC_REGISTRY:
        return image.repository.removeprefix("deep-learning-containers/") in PUBLIC_CONTAINERS
    return ECR_REGISTRY.fullmatch(image.registry) is not None and image.region_of(ACCOUNT_ID) is None


def _other_python(image: str, version: str) -> list[str]:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [] if version == own else [f"{image}: jobs run on this account's Python {own}, not on {version}"]
