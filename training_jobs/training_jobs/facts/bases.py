"""What is known of images by their names: whether they have SageMaker's toolkit, packages of Python, and which package manager.

Source of AWS's: aws/deep-learning-containers, docs/reference/available_images.md; DNF is the package manager of Amazon Linux 2023
(its guide).
"""

from __future__ import annotations

import re
from typing import Literal

Base = Literal["toolkit", "public", ""]
BARE_MODULES = frozenset({"pip", "setuptools", "pkg_resources", "wheel"})
# Images of others, none of which has SageMaker's toolkit or a program `train`; an entry point of theirs starts what it is given.
_PUBLIC = re.compile(
    r"(?:(?:docker\.io/)?(?:library/)?|public\.ecr\.aws/docker/library/)"
    r"(?:python|ubuntu|debian|amazonlinux|almalinux|rockylinux|fedora|buildpack-deps)(?:[:@].*)?"
    r"|(?:docker\.io/)?(?:nvidia/cuda|pytorch/pytorch|tensorflow/tensorflow|continuumio/(?:mini|ana)conda3)(?:[:@].*)?"
    r"|nvcr\.io/nvidia/(?:cuda|pytorch|tensorflow)(?:[:@].*)?"
    r"|public\.ecr\.aws/(?:amazonlinux/amazonlinux|ubuntu/ubuntu|debian/debian)(?:[:@].*)?"
)
_OF_AWS = re.compile(
    r"(?:public\.ecr\.aws/deep-learning-containers|763104351884\.dkr\.ecr\.[\w-]+\.amazonaws\.com)/(?P<container>.*)"
)
# AWS's containers of frameworks, whose toolkit starts scripts; those of algorithms have something to do without.
_OF_FRAMEWORKS = re.compile(r"pytorch|tensorflow|huggingface|mxnet|smdistributed")
_FOR_INFERENCE = re.compile(r"[^:@]*-inference")
_FOR_EC2 = re.compile(r".*-(?:ec2|inference)$|pytorch:.*-amzn2023$")
# Those that have no packages of Python but pip and what builds some.
_BARE = re.compile(
    r"(?:.*/)?(?:python|ubuntu|debian|amazonlinux|almalinux|rockylinux|fedora|buildpack-deps|cuda)(?:[:@].*)?"
)
_MANAGERS = (
    (re.compile(r"alpine"), ("apt-get", "apt", "yum", "dnf")),
    (re.compile(r"amzn2023|amazonlinux|almalinux|rockylinux|fedora"), ("apt-get", "apt", "apk")),
    (
        re.compile(r"ubuntu|(?:^|/)(?:debian|python|pytorch/pytorch|tensorflow/tensorflow)(?:[:@]|$)"),
        ("yum", "dnf", "apk"),
    ),
)


def is_public(parent: str) -> bool:
    """Return whether an image is one of others, of which it is known that it has no ``train`` and no toolkit.

    Args:
        parent: Its name, with its registry.
    """
    return _PUBLIC.fullmatch(parent) is not None


def has_no_packages(parent: str) -> bool:
    """Return whether an image of ``is_public`` has no packages of Python but ``BARE_MODULES``.

    Args:
        parent: Its name, with its registry.
    """
    return is_public(parent) and _BARE.fullmatch(parent) is not None


def lacks_train(container: str) -> Literal["for inference", "for EC2", ""]:
    """Return for what one of AWS's containers is that has no ``train``, the program that SageMaker runs; "" for others.

    Args:
        container: `repository:tag`, whose tags end with the platform.
    """
    if _FOR_INFERENCE.match(container):
        return "for inference"
    return "for EC2" if _FOR_EC2.match(container) else ""


def has_toolkit(container: str) -> bool:
    """Return whether SageMaker's toolkit starts in one of AWS's containers, and needs a script.

    Args:
        container: `repository:tag`.
    """
    return _OF_FRAMEWORKS.match(container) is not None and not lacks_train(container)


def base_of(parent: str) -> Base:
    """Return the kind of an image that a Dockerfile is built from; AWS's are known in its main accounts.

    Args:
        parent: Its name, with its registry.
    """
    of_aws = _OF_AWS.fullmatch(parent)
    return "toolkit" if of_aws and has_toolkit(of_aws["container"]) else "public" if is_public(parent) else ""


def absent_package_managers(parent: str) -> tuple[str, ...]:
    """Return the package managers that an image's system lacks, by what its name says.

    Args:
        parent: Its name, with its registry.
    """
    return next((names for pattern, names in _MANAGERS if pattern.search(parent)), ())
