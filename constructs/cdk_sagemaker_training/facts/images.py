"""What is in which image (``images.json``), and what jobs need to be in it (``needs.json``)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, is_unlisted
from cdk_sagemaker_training.facts.containers import repository_in

FRAMEWORKS = ("pytorch", "tensorflow")
LIBRARIES = ("horovod", "neuron", "open-mpi", "smddp", "smp-v1", "smp-v2")
NAMES = (*FRAMEWORKS, "cuda", *LIBRARIES)

_TAG = re.compile(
    r":(?P<version>\d+\.\d+(?:\.\d+)?)(?:-transformers[\d.]+)?(?:-(?P<kind>cpu|gpu|neuronx?))?"
    r"(?:-(?P<python>py\d+))?(?:-(?P<cuda>cu\d+))?(?:-|$)"
)
# Images of others whose names tell: pytorch/pytorch, tensorflow/tensorflow and nvidia/cuda on Docker Hub, without the owner.
_OF_OTHERS = (
    re.compile(r"pytorch:(?P<pytorch>\d+\.\d+(?:\.\d+)?)-cuda(?P<cuda>\d+\.\d+)"),
    re.compile(r"tensorflow:(?P<tensorflow>\d+\.\d+\.\d+)"),
    re.compile(r"cuda:(?P<cuda>\d+\.\d+)"),
)
_MOST_MINORS_AHEAD = 2  # of the newest version in the table, by which AWS may have released a newer one


@dataclass(frozen=True)
class Contents:
    """What is known of an image.

    Args:
        versions: Versions by names of ``NAMES``; empty text where a version is not known.
        whole: Whether the image has no other library.
        pythons: Of which one is its Python, like ``("py310", "py311")``; empty where that is not known.
    """

    versions: Mapping[str, str]
    whole: bool
    pythons: tuple[str, ...] = ()

    @property
    def framework(self) -> str | None:
        """The framework; None if it is not known."""
        return next((name for name in FRAMEWORKS if name in self.versions), None)

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}".strip() for name, version in self.versions.items())


@dataclass(frozen=True)
class Need:
    """A row of ``needs.json``.

    Args:
        by: What needs it, like ``"Torchrun()"``.
        keys: What a request for it has: a key, ``key=value``, or ``!key`` for one that it has not.
        any_of: Least versions by name, any of which is enough; empty text for any version.
        image: `repository:tag` of an image that has it.
    """

    by: str
    keys: tuple[str, ...]
    any_of: Mapping[str, str]
    image: str

    def applies(self, request: Mapping[str, Any]) -> bool:
        """Whether a request, as one dict of its members, hyperparameters and variables, has the keys."""
        return all(_has(request, key) for key in self.keys)

    def is_met(self, contents: Contents) -> bool:
        """Whether an image has it, as far as is known."""
        unknown = contents.framework is None or (
            not contents.whole and all(library in LIBRARIES for library in self.any_of)
        )
        return unknown or any(
            name in contents.versions and not _older(contents.versions[name], least)
            for name, least in self.any_of.items()
        )

    def __str__(self) -> str:
        return " or ".join(f"{name} {least} or later" if least else name for name, least in self.any_of.items())


@dataclass(frozen=True)
class Gpu:
    """What is known of a GPU.

    Args:
        capability: Its compute capability.
        first_cuda: The first version of CUDA that knows it.
        last_cuda: The last one; None where that is not over.
    """

    capability: str
    first_cuda: str
    last_cuda: str | None

    @property
    def has_bf16(self) -> bool:
        """Whether it computes in bf16, rather than emulating it."""
        return not _older(self.capability, "8.0")

    def is_left_out_of(self, contents: Contents) -> bool:
        """Whether the builds of an image's framework for its CUDA leave it out, though that CUDA knows it."""
        cuda = contents.versions.get("cuda", "")
        return bool(cuda) and any(
            _older(self.capability, capability)
            for framework, first, last, from_cuda, capability in _needs()["builds"]
            if _is_between(contents.versions.get(framework), first, last) and not _older(cuda, from_cuda)
        )

    def is_older_than(self, cuda: str) -> bool:
        """Whether a version of CUDA no longer knows it."""
        return self.last_cuda is not None and _older(self.last_cuda, cuda)

    def is_newer_than(self, cuda: str) -> bool:
        """Whether a version of CUDA does not know it yet."""
        return _older(cuda, self.first_cuda)


def contents_of(base: str | None, provides: Mapping[str, str]) -> Contents | None:
    """Return what an image has; None if nothing is known.

    Args:
        base: `repository:tag` of the image or of its base image; None if unknown.
        provides: What the image has beside it, or instead where the base is unknown.
    """
    of_base = None if base is None or is_unresolved(base) or is_unlisted(base) else _contents(base)
    if not provides:
        return of_base
    return Contents({**({} if of_base is None else of_base.versions), **provides}, of_base is None or of_base.whole)


def check_tag(prop: str, value: str, container: str) -> None:
    """Check that one of AWS's containers exists, as far as its tag says.

    Args:
        prop: Name of the prop, for the message.
        value: Value of the prop, which contains the tag; an ``unlisted`` value passes.
        container: `repository:tag`; a token, a digest and a repository without rows pass.
    """
    tag, repository = _TAG.search(container), repository_in(container)
    if is_unresolved(container) or tag is None or not (rows := _rows(repository)):
        return
    listed = bool(_matching(rows, tag)) or _is_newer(repository, rows, tag["version"])
    versions = {version: row for row in rows for version in row[1]}
    near = min(versions, key=lambda version: _distance(version, tag["version"]))
    _, _, [*_, python], cudas, *_ = versions[near]
    form = _images()["repositories"][repository][2]
    example = form.format(version=near, python=python, cuda=(cudas or [""])[0])
    rule = f"be of a version, CUDA and Python that AWS has in {repository}"
    check_listed("image-contents", value, listed, prop, rule, repr(example), repr(value))


def needs() -> Iterator[Need]:
    """Yield what jobs need to be in their image."""
    for by, keys, any_of, image in _needs()["rows"]:
        yield Need(by, tuple(keys), any_of, image)


def gpu(name: str) -> Gpu | None:
    """Return what is known of a GPU by its name in ``instances.json``, like ``"NVIDIA V100"``; None without facts."""
    row = _needs()["gpus"].get(name)
    return None if row is None else Gpu(*row)


def check_provides(prop: str, value: Mapping[str, str], example: str) -> None:
    """Check that the names in ``provides`` are those of ``NAMES``, and the versions numbers or empty."""
    for name, version in value.items():
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1) or ["pytorch"]
            raise must(prop, f"have names of {', '.join(NAMES)}", repr(near[0]), repr(name))
        if not re.fullmatch(r"(\d+(\.\d+)*)?", version):
            raise must(f"{prop}[{name!r}]", "be a version, or empty where it does not matter", "'2.6'", repr(version))


def _contents(base: str) -> Contents | None:
    # Before AWS's, which has a repository of one of these names, and tags of another form.
    if others := next((match for pattern in _OF_OTHERS if (match := pattern.match(base))), None):
        return Contents(others.groupdict(), whole=False)
    tag = _TAG.search(base)
    repository = repository_in(base)
    found = _matching(_rows(repository), tag) if tag is not None else []
    if tag is None or not found:
        return None
    _, versions, pythons, cudas, on_gpus, elsewhere = found[0]
    version = tag["version"] if tag["version"] in versions else versions[-1]
    of_gpus = tag["kind"] == "gpu" or tag["cuda"] is not None
    cuda = tag["cuda"] or (cudas[0] if cudas else None)
    return Contents(
        {
            _images()["repositories"][repository][0]: version,
            **({"cuda": f"{cuda[2:-1]}.{cuda[-1]}"} if of_gpus and cuda else {}),
            **dict.fromkeys(on_gpus if of_gpus else elsewhere, ""),
        },
        whole=tag["kind"] is not None or of_gpus,
        pythons=tuple(pythons),
    )


def _rows(repository: str) -> list[Any]:
    _, shared, _ = _images()["repositories"].get(repository, (None, (), None))
    return [row for row in _images()["rows"] if row[0] in shared]


def _matching(rows: list[Any], tag: re.Match[str]) -> list[Any]:
    """The rows of a tag; ``2.6`` is a version whose patch release is left out."""
    return [
        row
        for row in rows
        if any(version == tag["version"] or version.rsplit(".", 1)[0] == tag["version"] for version in row[1])
        and tag["python"] in (None, *row[2])
        and tag["cuda"] in (None, *row[3])
    ]


def _is_newer(repository: str, rows: list[Any], version: str) -> bool:
    if repository not in _images()["continued"]:
        return False
    newest, given = max(_numbers(listed) for row in rows for listed in row[1]), _numbers(version)
    return given[0] == newest[0] and newest[1] < given[1] <= newest[1] + _MOST_MINORS_AHEAD


def _has(request: Mapping[str, Any], key: str) -> bool:
    if key.startswith("!"):
        return key[1:] not in request
    name, _, value = key.partition("=")
    return name in request and (not value or request[name] == value)


def _is_between(version: str | None, first: str, last: str | None) -> bool:
    return bool(version) and not _older(str(version), first) and (last is None or not _older(last, str(version)))


def _older(version: str, than: str) -> bool:
    """Whether a version is older, at the precision of the less precise one; a version that is not known is not."""
    ours, theirs = _numbers(version), _numbers(than)
    precision = min(len(ours), len(theirs))
    return ours[:precision] < theirs[:precision]


def _distance(version: str, other: str) -> int:
    """How far two versions are apart, a minor one as 100 patch releases, a major one as 100 minor ones."""
    pairs = zip(_numbers(version), (*_numbers(other), 0, 0), strict=False)
    return abs(sum((ours - theirs) * weight for (ours, theirs), weight in zip(pairs, (10_000, 100, 1), strict=False)))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split(".") if number)


@cache
def _images() -> dict[str, Any]:
    return dict(json.loads((Path(__file__).parent / "images.json").read_text()))


@cache
def _needs() -> dict[str, Any]:
    return dict(json.loads((Path(__file__).parent / "needs.json").read_text()))
