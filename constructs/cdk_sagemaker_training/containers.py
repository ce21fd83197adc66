"""AWS's own containers: in which account they are in a region, and those for compilers by framework and version."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from aws_cdk import Aws, CfnMapping, Stack

from cdk_sagemaker_training.image_uri import IN_ECR
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed, is_unlisted, marked

_MAPPING = "TrainingContainerAccounts"

# The gallery with the same containers, of which no log-in is needed ("public_registry" in aws/deep-learning-containers).
_IN_GALLERY = re.compile(r"public\.ecr\.aws/deep-learning-containers/(?P<repository>[^:@]+)")

Framework = Literal["pytorch", "huggingface-pytorch", "huggingface-tensorflow", "tensorflow"]


@dataclass(frozen=True)
class Container:
    """A Deep Learning Container: ``repository`` and ``tag``, and the regions that have it, None where that is not known."""

    compiler: str
    framework: str
    version: str
    repository: str
    tag: str
    regions: tuple[str, ...] | None

    @property
    def name(self) -> str:
        return f"{self.repository}:{self.tag}"


def training_compiler_container(framework: str, version: str) -> Container:
    """The container with the Training Compiler for a framework, like ``("pytorch", "1.13.1")``; ``"1.13"`` is its last 1.13.

    A version that is ``unlisted`` is held against no list of regions either, and is the tag where no container has it.
    """
    if framework not in get_args(Framework):
        raise ValueError(
            f"framework must be one of {', '.join(map(repr, get_args(Framework)))}, like 'pytorch', got {framework!r}"
        )
    own = [one for one in _containers() if (one.compiler, one.framework) == ("training-compiler", framework)]
    found = [one for one in own if one.version == version or one.version.startswith(f"{version}.")]
    versions = [one.version for one in own]
    check_listed(
        "compiler-images",
        version,
        bool(found),
        f"version must be one of {framework} that the Training Compiler has a container for, "
        f"like {versions[-1]!r} of {versions}",
    )
    if is_unlisted(version):
        tag = found[-1].tag if found else version
        return replace(own[-1], version=version, tag=marked(tag, version), regions=None)
    return found[-1]


def training_compiler_images(frameworks: tuple[str, ...]) -> tuple[str, ...]:
    """Patterns of the containers with the Training Compiler for these frameworks, whatever their tag says after the version."""
    return tuple(
        f"{one.repository}:{one.version.rsplit('.', 1)[0] if one.framework == 'pytorch' else one.version}[.-]*gpu*"
        for one in _containers()
        if one.compiler == "training-compiler" and one.framework in frameworks
    )


def neuron_container() -> Container:
    """The last public container in which Neuron trains with PyTorch/XLA."""
    return next(one for one in _containers() if one.compiler == "neuron")


def account_of(container: Container, region: str) -> str | None:
    """The account that holds a container in a region; None where the region or its account is not known."""
    if is_unresolved(region):
        return None
    if container.regions is not None and region not in container.regions:
        raise ValueError(
            f"region must be one that has {container.name}, like {container.regions[0]!r} of {list(container.regions)}, "
            f"or unlisted({container.version!r}) as the version where AWS differs by now, got {region!r}"
        )
    return _accounts().get(region)


def account_in(stack: Stack) -> str:
    """The account that holds AWS's containers in a stack's region: by a mapping, where the region is known when it is deployed.

    Raises ``ValueError`` for a region that has none, as far as is known.
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
        raise ValueError(
            f"account_id must be given in a region whose account for AWS's containers is not known, like '763104351884', "
            f"got None in {stack.region!r}"
        )
    return _accounts()[stack.region]


def is_of_aws(account: str) -> bool:
    """Whether an account is one in which AWS keeps its containers for training, 10 GB and more each."""
    return account in _accounts().values() or account in _content()["other_accounts"]


def check_repository(prop: str, value: str, repository: str) -> None:
    """Raise ``ValueError`` unless AWS has ``repository`` for its containers, or ``value``, which names it, is ``unlisted``."""
    known = _content()["repositories"]
    near = difflib.get_close_matches(repository, known, n=1) or ["pytorch-training"]
    check_listed(
        "container-repositories",
        value,
        is_unresolved(repository) or repository in known,
        f"{prop} must name a repository that AWS has for its containers, like {near[0]!r}",
        repr(repository),
    )


def own_container(image_uri: str) -> str | None:
    """The `repository:tag` of a container of AWS's, in one of its accounts or in the public gallery; None for other images."""
    if is_unresolved(image_uri):
        return None
    in_ecr = IN_ECR.match(image_uri)
    if in_ecr is not None and is_of_aws(in_ecr["account"]):
        return image_uri[in_ecr.start("repository") :]
    in_gallery = _IN_GALLERY.match(image_uri)
    return None if in_gallery is None else image_uri[in_gallery.start("repository") :]


def repository_in(container: str) -> str:
    """The repository of a `repository:tag` or a `repository@digest`."""
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
