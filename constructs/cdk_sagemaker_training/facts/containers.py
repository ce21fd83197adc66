"""AWS's Deep Learning Containers: their registry accounts by region, and the containers with compilers."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from aws_cdk import Aws, CfnMapping, Stack

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.image_uri import IN_ECR
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, is_unlisted, unlisted_if

_MAPPING = "TrainingContainerAccounts"

# The public gallery with the same containers, which needs no log-in ("public_registry" in aws/deep-learning-containers).
_IN_GALLERY = re.compile(r"public\.ecr\.aws/deep-learning-containers/(?P<repository>[^:@]+)")

Framework = Literal["pytorch", "huggingface-pytorch", "huggingface-tensorflow", "tensorflow"]


@dataclass(frozen=True)
class Container:
    """A Deep Learning Container.

    Attributes:
        compiler: ``"training-compiler"`` or ``"neuron"``.
        framework: The framework, like ``"pytorch"``.
        version: Version of the framework.
        repository: Name of the ECR repository.
        tag: Tag of the image.
        regions: Regions that have the image; None if unknown.
    """

    compiler: str
    framework: str
    version: str
    repository: str
    tag: str
    regions: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """`repository:tag`."""
        return f"{self.repository}:{self.tag}"


def training_compiler_container(framework: str, version: str) -> Container:
    """Return the container with the Training Compiler for a framework.

    Args:
        framework: One of ``Framework``.
        version: Version of the framework, like ``"1.13.1"``; ``"1.13"`` selects the newest patch release. If it is ``unlisted``,
            regions are not checked, and a version without a container is used as the tag.

    Raises:
        ValueError: There is no container for the framework or the version.
    """
    if framework not in get_args(Framework):
        rule = f"be one of {', '.join(map(repr, get_args(Framework)))}"
        raise must("framework", rule, "'pytorch'", repr(framework))
    offered = [
        image for image in _containers() if (image.compiler, image.framework) == ("training-compiler", framework)
    ]
    found = [image for image in offered if image.version == version or image.version.startswith(f"{version}.")]
    versions = [image.version for image in offered]
    rule = f"be one of {framework} that the Training Compiler has a container for"
    check_listed("compiler-images", version, bool(found), "version", rule, f"{versions[-1]!r} of {versions}")
    if is_unlisted(version):
        tag = found[-1].tag if found else version
        return replace(offered[-1], version=version, tag=unlisted_if(tag, version), regions=None)
    return found[-1]


def training_compiler_images(frameworks: tuple[str, ...]) -> tuple[str, ...]:
    """Return fnmatch patterns of `repository:tag` of the containers with the Training Compiler for these frameworks.

    A tag may leave the patch release out, as those that the SDK resolves do: ``1.11-transformers4.21-gpu-py38``.
    """
    return tuple(
        f"{container.repository}:{'.'.join(container.version.split('.')[:2])}[.-]*gpu*"
        for container in _containers()
        if container.compiler == "training-compiler" and container.framework in frameworks
    )


def neuron_container() -> Container:
    """Return the last public container in which Neuron trains with PyTorch/XLA."""
    return next(container for container in _containers() if container.compiler == "neuron")


def account_of(container: Container, region: str) -> str | None:
    """Return the registry account of a container in a region; None if the region is a token or its account is unknown.

    Args:
        container: The container.
        region: The region, which may be a token.

    Raises:
        ValueError: The region does not have the container.
    """
    if is_unresolved(region):
        return None
    if container.regions is not None and region not in container.regions:
        regions = f"{container.regions[0]!r} of {list(container.regions)}"
        example = f"{regions}, or unlisted({container.version!r}) as the version where AWS differs by now"
        raise must("region", f"be one that has {container.name}", example, repr(region))
    return _accounts().get(region)


def account_in(stack: Stack) -> str:
    """Return the registry account of AWS's containers in the region of a stack.

    Returns:
        The account; for a stack without a region, a lookup in a CloudFormation mapping.

    Raises:
        ValueError: The account of the region is unknown.
    """
    if is_unresolved(stack.region):
        mapping: Any = stack.node.try_find_child(_MAPPING) or CfnMapping(
            stack,
            _MAPPING,
            mapping={region: {"account": account} for region, account in _accounts().items()},
            lazy=True,
        )
        return str(mapping.find_in_map(Aws.REGION, "account"))
    if stack.region not in _accounts():
        rule = "be set in a region whose account for AWS's containers is not known"
        raise must("account_id", rule, "'763104351884'", f"None in {stack.region!r}")
    return _accounts()[stack.region]


def is_aws_account(account: str) -> bool:
    """Return whether an account is one of AWS's registry accounts of training containers."""
    return account in _accounts().values() or account in _content()["other_accounts"]


def check_repository(prop: str, value: str, repository: str) -> None:
    """Check that a repository is one of AWS's container repositories.

    Args:
        prop: Name of the prop, for the message.
        value: Value of the prop, which contains the repository; an ``unlisted`` value passes.
        repository: Name of the repository; a token passes.
    """
    known = _content()["repositories"]
    near = difflib.get_close_matches(repository, known, n=1) or ["pytorch-training"]
    rule = "name a repository that AWS has for its containers"
    listed = is_unresolved(repository) or repository in known
    check_listed("container-repositories", value, listed, prop, rule, repr(near[0]), repr(repository))


def aws_container(image_uri: str) -> str | None:
    """Return the `repository:tag` of one of AWS's containers, in its accounts or in the public gallery; None for other images."""
    if is_unresolved(image_uri):
        return None
    in_ecr = IN_ECR.match(image_uri)
    if in_ecr is not None and is_aws_account(in_ecr["account"]):
        return image_uri[in_ecr.start("repository") :]
    in_gallery = _IN_GALLERY.match(image_uri)
    return None if in_gallery is None else image_uri[in_gallery.start("repository") :]


def repository_in(container: str) -> str:
    """Return the repository of a `repository:tag` or a `repository@digest`."""
    return re.split("[:@]", container, maxsplit=1)[0]


def _containers() -> tuple[Container, ...]:
    return tuple(
        Container(compiler, framework, version, repository, tag, None if regions is None else tuple(regions))
        for compiler, framework, version, repository, tag, regions in _content()["containers"]
    )


def _accounts() -> dict[str, str]:
    return dict(_content()["accounts"])


@cache
def _content() -> dict[str, Any]:
    return dict(json.loads((Path(__file__).parent / "containers.json").read_text()))
