"""COPY and ADD: which files they name, and where in the image these go."""

from __future__ import annotations

import glob
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .dockerfile import Instruction, as_json_list, expand, words
from .trees import copy_file, copy_folder, locate

# Owners mean nothing on a host, whose processes are all one user's; the others are how a build engine goes about it.
_WITHOUT_EFFECT = ("chown", "link", "keep-git-dir")


@dataclass(frozen=True)
class Source:
    """Where files come from: the build's context, or another image; ``ignored`` of a path in it."""

    root: Path
    ignored: Callable[[str], bool] = lambda path: False
    name: str = "the build's context"


def flags_of(instruction: Instruction, known: Sequence[str]) -> dict[str, str]:
    """The flags of an instruction. Raises ``BuildError`` for one that is neither known nor without effect."""
    found = {name: values[-1] for name, values in instruction.flags.items()}
    for name in found:
        if name not in (*known, *_WITHOUT_EFFECT):
            raise instruction.error(f"{instruction.keyword} --{name} is not known to the local account")
    return found


def apply(
    instruction: Instruction, root: Path, workdir: str, variables: Mapping[str, str], source_of: Callable[[str], Source]
) -> list[str]:
    """Put what a COPY or ADD names into the image at ``root``; the notes on what it says without effect.

    ``source_of`` gives the source of a name that `--from` names, or of "".

    Raises:
        BuildError: a source is not there, or is one to be fetched.
    """
    flags = flags_of(instruction, ("from", "chmod"))
    if not re.fullmatch(r"([0-7]{3,4})?", flags.get("chmod", "")):
        raise instruction.error(f"{instruction.keyword} --chmod must be like 755, got {flags['chmod']!r}")
    mode = int(flags["chmod"], 8) if "chmod" in flags else None
    listed = as_json_list(instruction.value)
    paths = [expand(path, variables) for path in listed] if listed else words(instruction, variables)
    if len(paths) < 2:
        raise instruction.error(f"{instruction.keyword} must be like '{instruction.keyword} train.py /opt/ml/code/'")
    *sources, target = paths
    path = posixpath.join(workdir, target)
    # Where the image has no such folder yet, its base has it if this machine has: `COPY run /usr/local/bin`.
    into_folder = len(sources) > 1 or target.endswith(("/", "/.")) or target == "." or locate(root, path).is_dir()
    into_folder = into_folder or (not locate(root, path).exists() and os.path.isdir(path))
    into = Target(root, path, into_folder, mode)
    documents = {f"<<{document.name}": document for document in instruction.heredocs}
    for source in sources:
        document = documents.get(re.sub(r"^<<-?[\"']?(\w+)[\"']?$", r"<<\1", source))
        if document is not None:
            file = locate(root, into.of(document.name))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(expand(document.text, variables) if document.expands else document.text)
        else:
            _copy(instruction, source, source_of(expand(flags.get("from", ""), variables)), into)
    return ["--chown has no effect: a host's files are its own user's"] if "chown" in flags else []


@dataclass(frozen=True)
class Target:
    """A place in the image: a folder to put files into, or the one file's own path."""

    root: Path
    path: str
    is_folder: bool
    mode: int | None

    def of(self, name: str) -> str:
        return posixpath.join(self.path, name) if self.is_folder else self.path


def _copy(instruction: Instruction, text: str, source: Source, into: Target) -> None:
    if re.match(r"[a-z+]+://|git@", text):
        raise instruction.error(f"{instruction.keyword}: the local account fetches nothing into an image, got {text!r}")
    pattern = posixpath.normpath(f"/{text}").lstrip("/")  # `..` does not lead out of the context
    matched = (
        [pattern]
        if locate(source.root, pattern).exists()
        else glob.glob(pattern, root_dir=source.root, include_hidden=True)
    )
    found = sorted(path for path in matched if not path or _is_left(source, path))
    if not found:
        why = ": .dockerignore leaves it out" if matched else ""
        raise instruction.error(f"{instruction.keyword}: no file {text!r} is in {source.name}{why}")
    into = Target(into.root, into.path, into.is_folder or len(found) > 1, into.mode)
    for path in found:
        file = locate(source.root, path)
        if file.is_dir():
            copy_folder(
                file,
                into.root,
                into.path,
                into.mode,
                ignored=lambda within, path=path: source.ignored(posixpath.join(path, within)),  # type: ignore[misc]
            )
        elif instruction.keyword == "ADD" and tarfile.is_tarfile(file):
            folder = locate(into.root, into.path)
            folder.mkdir(parents=True, exist_ok=True)
            with tarfile.open(file) as archive:
                archive.extractall(folder, filter="data")
        else:
            copy_file(file, into.root, into.of(posixpath.basename(path)), into.mode)


def _is_left(source: Source, path: str) -> bool:
    """Whether anything of a file or folder is left that is not ignored: `!` takes files of an ignored folder back in."""
    within = [str(file.relative_to(source.root)) for file in (source.root / path).rglob("*")]
    return not all(source.ignored(name) for name in [path, *within])
