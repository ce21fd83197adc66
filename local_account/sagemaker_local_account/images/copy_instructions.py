"""COPY and ADD: their sources, and their targets in the image."""

from __future__ import annotations

import glob
import os
import posixpath
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sagemaker_local_account.core.image_tree import copy_file, copy_folder, locate
from sagemaker_local_account.images.dockerfile import Instruction, as_json_list, expand, words

# All processes of a host have the same user, so owners have no effect; the others are options of the build engine.
_WITHOUT_EFFECT = ("chown", "link", "keep-git-dir")


@dataclass(frozen=True)
class Source:
    """The source of files: the build's context, or another image; ``ignored`` is whether a path in it is left out."""

    root: Path
    ignored: Callable[[str], bool] = lambda path: False
    name: str = "the build's context"


def flags_of(instruction: Instruction, known: Sequence[str]) -> dict[str, str]:
    """Returns the flags of an instruction.

    Raises:
        BuildError: a flag is neither in ``known`` nor without effect.
    """
    found = {name: values[-1] for name, values in instruction.flags.items()}
    for name in found:
        if name not in (*known, *_WITHOUT_EFFECT):
            raise instruction.error(f"{instruction.keyword} --{name} is not supported by the local account")
    return found


def apply(
    instruction: Instruction, root: Path, workdir: str, variables: Mapping[str, str], source_of: Callable[[str], Source]
) -> list[str]:
    """Copies the files of a COPY or ADD into an image.

    Args:
        instruction: the instruction.
        root: the image's root folder.
        workdir: the current WORKDIR.
        variables: for expansion.
        source_of: returns the source for the value of `--from`, or "" for the context.

    Returns:
        Notes on flags without effect.

    Raises:
        BuildError: a source does not exist, or is a URL.
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
    # A folder of this machine counts as one of the base image: `COPY run /usr/local/bin`.
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
    return ["--chown has no effect: all files of a host have the same owner"] if "chown" in flags else []


@dataclass(frozen=True)
class Target:
    """The target in the image: a folder for files, or the path of a single file."""

    root: Path
    path: str
    is_folder: bool
    mode: int | None

    def of(self, name: str) -> str:
        """Returns the path for a source file's name."""
        return posixpath.join(self.path, name) if self.is_folder else self.path


def _copy(instruction: Instruction, text: str, source: Source, into: Target) -> None:
    if re.match(r"[a-z+]+://|git@", text):
        raise instruction.error(f"{instruction.keyword}: URLs are not supported by the local account, got {text!r}")
    pattern = posixpath.normpath(f"/{text}").lstrip("/")  # `..` does not leave the context
    matched = (
        [pattern]
        if locate(source.root, pattern).exists()
        else glob.glob(pattern, root_dir=source.root, include_hidden=True)
    )
    found = sorted(path for path in matched if not path or _is_left(source, path))
    if not found:
        why = ": it is excluded by .dockerignore" if matched else ""
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
    """Whether a file, or any file of a folder, is not ignored: `!` can include files of an ignored folder."""
    within = [str(file.relative_to(source.root)) for file in (source.root / path).rglob("*")]
    return not all(source.ignored(name) for name in [path, *within])
