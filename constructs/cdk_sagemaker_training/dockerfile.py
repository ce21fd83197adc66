"""Which files of a build context an image takes."""

from __future__ import annotations

import glob
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from dockerfile_parse import DockerfileParser


def copied_sources(directory: Path, file: str) -> list[str] | None:
    """What the Dockerfile ``file`` takes of ``directory``: paths and patterns, relative to it; None where that is everything.

    Everything it is too where that cannot be told from the text: a source is a variable, whose value only the build knows,
    or a RUN mounts the context, or a heredoc stands where the parser looks for instructions. Raises ``ValueError`` for a
    source that is not there, with its line: Docker would say so only when the image is built.
    """
    content = (directory / file).read_bytes()
    if re.search(rb"<<-?[\"']?\w|--mount=type=bind", content):
        return None
    sources: dict[str, None] = {}
    for source, line in _sources(content):
        path = str(PurePosixPath(source.lstrip("/")))
        if path == "." or "$" in path:
            return None
        if not glob.glob(str(PurePosixPath(glob.escape(str(directory))) / path)):
            raise ValueError(
                f"directory must hold what its Dockerfile copies, like 'train.py', "
                f"got {str(directory)!r} without {source!r} (line {line} of {file})"
            )
        sources[path] = None
    return list(sources)


def base_image(directory: Path, file: str, build_args: Mapping[str, str]) -> str:
    """The `repository:tag` that the image of ``file`` is built from in the end, stages resolved, without its registry."""
    parents, stages = _parents(directory, file, build_args)
    base = parents[-1] if parents else ""
    while base in stages:
        base = stages.pop(base)
    return base.rsplit("/", 1)[-1]


def parent_images(directory: Path, file: str, build_args: Mapping[str, str]) -> tuple[str, ...]:
    """The images that the build of ``file`` pulls for its FROMs, with their registries."""
    parents, stages = _parents(directory, file, build_args)
    return tuple(dict.fromkeys(parent for parent in parents if parent not in stages and parent != "scratch"))


def _parents(directory: Path, file: str, build_args: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """What each FROM names, in order, and what stands behind the name of each stage."""
    content: Any = io.BytesIO((directory / file).read_bytes())  # its type stub says text, its code takes bytes only
    parser = DockerfileParser(fileobj=content, build_args=dict(build_args))
    froms = [one["value"] for one in parser.structure if one["instruction"] == "FROM"]
    stages: dict[str, str] = {
        str(name.group(1)): parent
        for text, parent in zip(froms, parser.parent_images, strict=True)
        if (name := re.search(r"\sas\s+(\S+)$", text, re.IGNORECASE))
    }
    return list(parser.parent_images), stages


def excluded_but(kept: list[str], directory: Path) -> list[str]:
    """The lines of a .dockerignore that leave ``kept`` only, less what the directory's own .dockerignore leaves out."""
    own = directory / ".dockerignore"
    return [
        "**",
        *(f"!{path}" for path in kept),
        "**/__pycache__",
        # CDK reads the directory's own lines too, but puts them first, so that the lines above would take them back.
        *(own.read_text().splitlines() if own.is_file() else []),
    ]


def _sources(content: bytes) -> Iterator[tuple[str, int]]:
    """What COPY and ADD take from the context, each with its line; not what comes from another stage or the network."""
    file: Any = io.BytesIO(content)  # its type stub says text, its code takes bytes only
    for instruction in DockerfileParser(fileobj=file).structure:
        if instruction["instruction"] not in ("COPY", "ADD"):
            continue
        text = instruction["value"]
        options = re.match(r"(--\S+\s+)*", text)
        assert options
        if "--from=" in options.group():
            continue
        for path in _paths(text[options.end() :])[:-1]:
            if not re.match(r"[a-z+]+://|git@", path):
                yield path, instruction["startline"] + 1


def _paths(text: str) -> list[str]:
    return list(json.loads(text)) if text.startswith("[") else shlex.split(text)
