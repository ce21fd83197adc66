"""What a Dockerfile makes of its context: a folder with the files it copies, and the settings of what it starts."""

from __future__ import annotations

import glob
import re
import shlex
import shutil
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .base_images import base_of
from .dockerfile import BuildError, Instruction, as_json_list, command, expand, expanded, pairs, parse, words
from .dockerignore import ignored_by
from .environments import PipInstall, pip_install
from .references import reference

_SHELL = ["/bin/sh", "-c"]
_PLATFORM = {
    "BUILDARCH": "amd64",
    "BUILDOS": "linux",
    "BUILDPLATFORM": "linux/amd64",
    "TARGETARCH": "amd64",
    "TARGETOS": "linux",
    "TARGETPLATFORM": "linux/amd64",
}
# What these say has no meaning for a host that is a folder: labels, ports, and what only a Docker engine does.
_WITHOUT_EFFECT = ("EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME")


@dataclass
class Stage:
    """An image as far as it is built; ``root`` is the folder of its files."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    base: list[str] = field(default_factory=list)
    installs: list[PipInstall] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    workdir: str = "/"
    shell: list[str] = field(default_factory=lambda: [*_SHELL])
    args: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {**self.args, **self.env}

    def path(self, text: str) -> str:
        """A path in the image as an absolute one."""
        return str(PurePosixPath("/", self.workdir, text))

    def file(self, text: str) -> Path:
        """Where a path in the image lies on this machine; ``..`` does not lead out of the image."""
        parts: list[str] = []
        for part in PurePosixPath(self.path(text)).parts[1:]:
            parts = parts[:-1] if part == ".." else [*parts, part]
        return self.root.joinpath(*parts)


class Builder:
    """One build. ``known`` gives the image of a name that is the account's own, None for another; ``say`` gets the notes."""

    def __init__(
        self,
        context: Path,
        dockerfile: Path,
        scratch: Path,
        *,
        build_args: Mapping[str, str],
        known: Callable[[str], Stage | None],
        say: Callable[[str], None],
    ) -> None:
        self._context = context
        self._name = dockerfile.name
        self._instructions = parse(dockerfile.read_text(), dockerfile.name)
        self._ignored = ignored_by(context, dockerfile)
        self._scratch = scratch
        self._build_args = {**_PLATFORM, **build_args}
        self._known = known
        self._say = say
        self._globals: dict[str, str] = {}
        self._stages: list[Stage] = []
        self._names: dict[str, Stage] = {}

    def build(self, target: str | None = None) -> Stage:
        """The stage named ``target``, else the last. Raises ``BuildError`` with the Dockerfile's line."""
        last = ""
        for instruction in self._instructions:
            if instruction.keyword == "FROM":
                if target is not None and last == target:
                    break
                last = self._begin(instruction)
            elif instruction.keyword == "ARG" and not self._stages:
                self._declare(instruction, self._globals, self._globals)
            elif not self._stages:
                raise instruction.error(f"FROM must come before {instruction.keyword}, like 'FROM python:3.11'")
            else:
                self._apply(instruction, self._stages[-1])
        if not self._stages:
            raise BuildError(f"{self._name}: must have a FROM, like 'FROM python:3.11', and has none")
        if target is not None and last != target:
            raise BuildError(f"{self._name}: has no stage {target!r} to build; it has {sorted(self._names)}")
        return self._stages[-1]

    def _begin(self, instruction: Instruction) -> str:
        found = re.fullmatch(r"(\S+)(?:\s+[aA][sS]\s+(\S+))?", expand(instruction.value, self._globals).strip("\"'"))
        if not found:
            raise instruction.error(f"FROM must be like 'FROM python:3.11 AS build', got {instruction.value!r}")
        image, name = found[1], found[2] or str(len(self._stages))
        root = self._scratch / str(len(self._stages))
        before = self._names.get(image) or self._known(image)
        if before is not None:
            shutil.copytree(before.root, root, symlinks=True)
            stage = Stage(
                root=root,
                env={**before.env},
                base=[*before.base],
                installs=[*before.installs],
                entrypoint=[*before.entrypoint],
                cmd=[*before.cmd],
                workdir=before.workdir,
            )
        else:
            root.mkdir(parents=True)
            try:
                base = base_of(reference(image))
            except ValueError as error:
                raise instruction.error(f"FROM: {error}") from None
            for note in base.notes:
                self._say(f"{instruction.place}: {note}")
            stage = Stage(root=root, env={**base.env}, base=[*base.requirements])
        self._stages.append(stage)
        self._names[name] = stage
        return name

    def _apply(self, instruction: Instruction, stage: Stage) -> None:
        match instruction.keyword:
            case "ARG":
                self._declare(instruction, stage.args, stage.variables)
            case "ENV":
                stage.env.update(pairs(instruction, stage.variables))
            case "WORKDIR":
                stage.workdir = stage.path(expanded(instruction, stage.variables))
                stage.file(stage.workdir).mkdir(parents=True, exist_ok=True)
            case "COPY" | "ADD":
                self._copy(instruction, stage)
            case "RUN":
                self._run(instruction, stage)
            case "ENTRYPOINT":
                stage.entrypoint, stage.cmd = command(instruction, stage.shell), []
            case "CMD":
                stage.cmd = command(instruction, stage.shell)
            case "SHELL":
                stage.shell = as_json_list(instruction.value) or _SHELL
            case "USER":
                self._say(f"{instruction.place}: USER has no effect: a host's processes are its own root's")
            case keyword if keyword not in _WITHOUT_EFFECT:
                raise instruction.error(f"instruction {keyword} is not known to the local account")

    def _declare(self, instruction: Instruction, into: dict[str, str], variables: Mapping[str, str]) -> None:
        for word in words(instruction, variables):
            name, given, default = word.partition("=")
            value = self._build_args.get(name, default if given else self._globals.get(name))
            if value is not None:
                into[name] = value

    def _copy(self, instruction: Instruction, stage: Stage) -> None:
        listed = as_json_list(instruction.value)
        paths = [expand(p, stage.variables) for p in listed] if listed else words(instruction, stage.variables)
        documents = {f"<<{document.name}": document for document in instruction.heredocs}
        if len(paths) < 2:
            raise instruction.error(
                f"{instruction.keyword} must be like '{instruction.keyword} train.py /opt/ml/code/'"
            )
        *sources, target = paths
        into = stage.file(target)
        many = len(sources) > 1 or target.endswith("/") or into.is_dir()
        for source in sources:
            key = re.sub(r"^<<-?[\"']?(\w+)[\"']?$", r"<<\1", source)
            if key in documents:
                text = documents[key].text
                file = into / documents[key].name if many else into
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(expand(text, stage.variables) if documents[key].expands else text)
            else:
                self._copy_source(instruction, stage, source, into, many)

    def _copy_source(self, instruction: Instruction, stage: Stage, source: str, into: Path, many: bool) -> None:
        if re.match(r"[a-z+]+://|git@", source):
            raise instruction.error(
                f"{instruction.keyword}: the local account fetches nothing into an image, got {source!r}"
            )
        root, ignored = self._source_root(instruction, stage)
        pattern = str(PurePosixPath("/", source)).lstrip("/")
        found = sorted(glob.glob(pattern, root_dir=root, include_hidden=True)) if pattern else ["."]
        found = [path for path in found if path == "." or not ignored(path)]
        if not found:
            raise instruction.error(f"{instruction.keyword}: no file {source!r} is in the build's context")
        for path in found:
            whole = root / path
            if whole.is_dir():
                _copy_folder(whole, into, root, ignored)
            elif instruction.keyword == "ADD" and tarfile.is_tarfile(whole):
                with tarfile.open(whole) as archive:
                    archive.extractall(into, filter="data")
            else:
                file = into / whole.name if many or len(found) > 1 else into
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(whole, file)

    def _source_root(self, instruction: Instruction, stage: Stage) -> tuple[Path, Callable[[str], bool]]:
        [name] = instruction.flags.get("from", [""])
        if not name:
            return self._context, self._ignored
        name = expand(name, stage.variables)
        other = self._names.get(name) or self._known(name)
        if other is None:
            raise instruction.error(
                f"{instruction.keyword} --from={name}: no stage or image of this account has that name, and the files of other "
                "images are not on this machine"
            )
        return other.root, lambda path: False

    def _run(self, instruction: Instruction, stage: Stage) -> None:
        listed = as_json_list(instruction.value)
        if instruction.heredocs:
            self._say(f"{instruction.place}: skipped: RUN with a here-document")
            return
        commands = [listed] if listed else _commands(expand(instruction.value, stage.variables))
        for command_words in commands:
            install = pip_install(command_words, instruction.place, stage.file)
            if install is None:
                self._say(f"{instruction.place}: skipped: RUN {shlex.join(command_words)}")
            else:
                stage.installs.append(install)


def _copy_folder(folder: Path, into: Path, root: Path, ignored: Callable[[str], bool]) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.rglob("*")):
        if ignored(str(path.relative_to(root))):
            continue
        target = into / path.relative_to(folder)
        if path.is_dir() and not path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def _commands(text: str) -> list[list[str]]:
    """The commands of a shell line, as words, taken apart at ``&&`` and ``;``."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&;|")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set("&;|"):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # a quotation that only a shell understands
        return [text.split()]
    return [words for words in commands if words]
