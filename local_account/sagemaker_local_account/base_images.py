"""What a Dockerfile's FROM, or a job's image, brings along when no file of it is on this machine.

AWS's deep learning containers bring their training module and their packages, known by repository and tag; every other
base (`python:3.12-slim`, `ubuntu`, ...) is this machine itself.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from . import atomic_files
from .container_packages import listed
from .container_start import CONTAINER_ENV, UNKNOWN, Start, start_of
from .pip_install import requirement_name
from .references import ACCOUNT_ID, ECR_REGISTRY, ImageError, Reference

# The accounts in which AWS keeps its containers, over all regions ("image_uri_config" of the SageMaker Python SDK; that of
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
    """What an image begins with: its environment, requirements in pip's words, and how it starts, where that is known.

    ``listed``: what AWS lists besides ``requirements``, which is there as far as the account has it or a file imports it.
    """

    env: dict[str, str]
    requirements: list[str]
    notes: list[str]
    start: Start = UNKNOWN
    listed: list[str] = field(default_factory=list)

    def write_files(self, root: Path) -> None:
        """Write what its entry point needs into an image's folder, which is made where there is none."""
        root.mkdir(parents=True, exist_ok=True)
        for path, text in self.start.files.items():
            file = root / path.lstrip("/")
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                atomic_files.write(file, text, mode=0o755)


@dataclass(frozen=True)
class Framework:
    """A family of AWS's containers: the training module that its toolkit starts, and its packages."""

    module: str
    toolkit: str
    package: str  # of which the tag begins with the version


PYTORCH = Framework(PYTORCH_MODULE, "sagemaker-pytorch-training", "torch")
# tensorflow-cpu with GPU tags too: the same modules at a third of the size, and a host here has no GPU. The toolkit's version is
# the one in the container (docker/tensorflow/2.21/cuda/uv.lock in aws/deep-learning-containers); later ones want an older numpy.
TENSORFLOW = Framework(TENSORFLOW_MODULE, "sagemaker-tensorflow-training==20.4.1", "tensorflow-cpu")
CONTAINERS = {
    "pytorch": PYTORCH,  # PyTorch 2.11 and later
    "pytorch-training": PYTORCH,
    "huggingface-pytorch-training": PYTORCH,
    "tensorflow-training": TENSORFLOW,
}
# Of what the Hugging Face containers have besides, what nearly every script imports is there whether a file does or not.
_HUGGING_FACE = ("accelerate", "datasets", "evaluate", "huggingface-hub", "peft")
# Those of them that AWS publishes in ECR's public gallery too ("public_registry" in aws/deep-learning-containers, August 2026).
PUBLIC_CONTAINERS = ("pytorch", "pytorch-training", "tensorflow-training")


def deep_learning_container(image: Reference) -> Base | None:
    """What one of AWS's training containers brings, whatever region's account it is named by; None for other images.

    The tag begins with the framework's version: `2.13-cpu-amzn2023-sagemaker` brings PyTorch 2.13.*, and the toolkit
    unless it is one for EC2.
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
        f"{image}: its files are not on this machine; it stands for {', '.join(requirements)} and their environment"
    ]
    if others is not None:
        notes.append(f"{image}: of its other packages it has what the image's files import ({others.source})")
    if python := re.search(r"-py(3)(\d+)", image.tag):
        notes += _other_python(str(image), f"{python[1]}.{python[2]}")
    return Base(env, requirements, notes, start, lines)


def base_of(image: Reference) -> Base:
    """What any image that is not the account's own brings to those built from it.

    Raises:
        ImageError: it is of an ECR registry, and no container that is known here.
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
            f"the local account does not know what {image} brings; of AWS's containers {'there ' if public else ''}it knows "
            f"{names}, with tags that begin with a version, like pytorch:2.13-cpu-amzn2023-sagemaker"
        )
    if str(image) == "scratch:latest":
        return Base({}, [], [])
    notes = [f"{image}: its files are not on this machine; this machine's own stand in for them"]
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
