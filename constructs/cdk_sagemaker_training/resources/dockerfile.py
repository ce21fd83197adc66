"""Reads from a Dockerfile the files that it copies and the images that it is built from."""

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

from cdk_sagemaker_training.core.errors import must


def copied_sources(directory: Path, file: str) -> list[str] | None:
    """Return the sources of a Dockerfile's COPY and ADD instructions in the build context.

    Returns:
        Paths and patterns relative to ``directory``; None if the whole context is copied, or if the sources cannot be
        determined from the text: a source with a variable, a RUN that mounts the context, a heredoc.

    Raises:
        ValueError: A source does not exist; the message shows the line. Docker reports it only when the image is built.
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
            rule = "contain what its Dockerfile copies"
            example = "'train.py'"
            raise must("directory", rule, example, f"{str(directory)!r} without {source!r} (line {line} of {file})")
        sources[path] = None
    return list(sources)


def check_copied(directory: Path, sources: list[str] | None, file: str) -> None:
    """Check that a Dockerfile copies a file of ``training_code_path()``, wherever it is in the build context.

    Args:
        directory: The build context.
        sources: The return value of ``copied_sources``.
        file: Path of the file relative to ``training_code_path()``.
    """
    taken = [directory] if sources is None else [path for pattern in sources for path in directory.glob(pattern)]
    name = PurePosixPath(file).name
    if not any(path.name == name or any(path.rglob(name)) for path in taken):
        rule = f"copy {file} of training_code_path(), which the job's launcher starts on every host"
        example = f"'COPY {file} /opt/ml/code/{PurePosixPath(file).parent}/'"
        raise must("image", rule, example, f"a Dockerfile in {str(directory)!r} that does not")


def base_image(directory: Path, file: str, build_args: Mapping[str, str]) -> str:
    """Return the base image of a Dockerfile's last stage, other stages resolved.

    Returns:
        `repository:tag` without the registry.
    """
    parents, stages = _parents(directory, file, build_args)
    base = parents[-1] if parents else ""
    while base in stages:
        base = stages.pop(base)
    return base.rsplit("/", 1)[-1]


def parent_images(directory: Path, file: str, build_args: Mapping[str, str]) -> tuple[str, ...]:
    """Return the images that the build pulls for a Dockerfile's FROMs, with their registries, each once."""
    parents, stages = _parents(directory, file, build_args)
    return tuple(dict.fromkeys(parent for parent in parents if parent not in stages and parent != "scratch"))


def _parents(directory: Path, file: str, build_args: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The image of each FROM in order, and the image of each stage by the stage's name."""
    content: Any = io.BytesIO((directory / file).read_bytes())  # its type stub has text, its code accepts bytes only
    parser = DockerfileParser(fileobj=content, build_args=dict(build_args))
    froms = [instruction["value"] for instruction in parser.structure if instruction["instruction"] == "FROM"]
    stages: dict[str, str] = {
        str(name.group(1)): parent
        for text, parent in zip(froms, parser.parent_images, strict=True)
        if (name := re.search(r"\sas\s+(\S+)$", text, re.IGNORECASE))
    }
    return list(parser.parent_images), stages


def script_line(file: Path) -> str | None:
    """Return the line of a Dockerfile that gives the image a training script of its own.

    Returns:
        An ENV of SAGEMAKER_PROGRAM, or a COPY or ADD to /opt/ml/code, where the toolkit then unpacks no other code; None if
        there is neither.
    """
    content: Any = io.BytesIO(file.read_bytes())  # its type stub has text, its code accepts bytes only
    folder = PurePosixPath("/")
    for instruction in DockerfileParser(fileobj=content).structure:
        line, value = str(instruction["content"]).strip(), instruction["value"]
        if instruction["instruction"] == "FROM":
            folder = PurePosixPath("/")
        elif instruction["instruction"] == "WORKDIR":
            folder /= value.strip("\"'")
        elif instruction["instruction"] == "ENV" and re.search(r"\bSAGEMAKER_PROGRAM\b", value):
            return line
        elif instruction["instruction"] in ("COPY", "ADD"):
            destination = folder / _operands(value)[1][-1]
            if destination.is_relative_to("/opt/ml/code"):
                return line
    return None


def program_of(file: Path) -> str | None:
    """Return the script that a Dockerfile names for the toolkit by an ENV of SAGEMAKER_PROGRAM; None where another is started."""
    content: Any = io.BytesIO(file.read_bytes())  # its type stub has text, its code accepts bytes only
    parser = DockerfileParser(fileobj=content)
    names = [instruction["instruction"] for instruction in parser.structure]
    last = names[len(names) - names[::-1].index("FROM") :] if "FROM" in names else names
    return None if {"ENTRYPOINT", "CMD"} & {*last} else parser.envs.get("SAGEMAKER_PROGRAM")


def ignore_lines(kept: list[str], directory: Path) -> list[str]:
    """Return the lines of a .dockerignore that excludes all but some paths.

    Args:
        kept: The paths to keep, relative to ``directory``.
        directory: The build context, whose own .dockerignore still applies.
    """
    ignored = directory / ".dockerignore"
    return [
        "**",
        *(f"!{path}" for path in kept),
        "**/__pycache__",
        # CDK reads the directory's own lines too, but puts them first, so that the lines above would override them.
        *(ignored.read_text().splitlines() if ignored.is_file() else []),
    ]


def _sources(content: bytes) -> Iterator[tuple[str, int]]:
    """The sources of COPY and ADD in the context, each with its line; not those in another stage or the network."""
    file: Any = io.BytesIO(content)  # its type stub has text, its code accepts bytes only
    for instruction in DockerfileParser(fileobj=file).structure:
        if instruction["instruction"] not in ("COPY", "ADD"):
            continue
        options, paths = _operands(instruction["value"])
        if "--from=" in options:
            continue
        for path in paths[:-1]:
            if not re.match(r"[a-z+]+://|git@", path):
                yield path, instruction["startline"] + 1


def _paths(text: str) -> list[str]:
    return list(json.loads(text)) if text.startswith("[") else shlex.split(text)


def _operands(text: str) -> tuple[str, list[str]]:
    """The options of a COPY or ADD, and its paths, of which the last is the destination."""
    options = re.match(r"(--\S+\s+)*", text)
    assert options
    return options.group(), _paths(text[options.end() :])
