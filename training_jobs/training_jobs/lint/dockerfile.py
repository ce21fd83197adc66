"""What a Dockerfile says of its image: bases, copied files, variables, and the program that starts, as far as its text says.

Source: Docker's Dockerfile reference, https://docs.docker.com/reference/dockerfile/. No command of RUN is executed.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from training_jobs.lint.shell import UNKNOWN, Run, runs

_ALLOWED = re.compile(r"#\s*training-jobs:\s*allow\s+command\b")
# A heredoc, and a RUN that reads the context: what they bring, the text of the instructions does not say.
_BEYOND = re.compile(r"<<-?[\"']?\w|--mount=type=bind")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?\s+")
_ELSEWHERE = re.compile(r"[a-z+]+://|git@")
_VARIABLE = re.compile(r"\\?\$(?:(\w+)|\{(\w+)(?::?([-+?])([^{}]*))?\})")
_NAMED = re.compile(r"\sas\s+(\S+)$", re.IGNORECASE)
_ARCHIVES = (".tar", ".gz", ".tgz", ".bz2", ".xz")
_DOLLAR = "\1"  # an escaped one
_CODE = "/opt/ml/code"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # Docker's default


# A program that is not known, and what is read last where all of a text is.
NOT_KNOWN = Run((UNKNOWN,), 0, None, False, {})
_END = "\1"
_PIP = re.compile(r"(?:.*/)?pip3?(?:\.\d+)?")
_PYTHON = re.compile(r"(?:.*/)?python3?(?:\.\d+)?")


class MalformedError(ValueError):
    """A Dockerfile that no builder reads: the line, and what is wrong with it."""


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        keyword: Its name in capitals.
        flags: Its flags by name.
        value: What follows, with continued lines joined.
        line: Its first line.
    """

    keyword: str
    flags: Mapping[str, str]
    value: str
    line: int


class Started(NamedTuple):
    """An ENTRYPOINT.

    Attributes:
        words: The program and its arguments; of the shell form the one text.
        is_exec: Whether it is of the exec form, to which arguments are appended, and whose variables no shell replaces.
        line: Its line.
    """

    words: tuple[str, ...]
    is_exec: bool
    line: int


@dataclass
class Image:
    """What the instructions of an image's stages leave.

    Attributes:
        parent: The image that it is built from, with its registry.
        env: Variables of ENV.
        workdir: WORKDIR; "" for the parent's, ``UNKNOWN`` where that is not known.
        entrypoint: ENTRYPOINT; None for the parent's.
        files: Files of the context, by their path in the image.
        runs: The texts of RUN, and of what ``--chmod`` does, with their lines.
        is_certain: Whether all that is copied is in ``files``.
    """

    parent: str = ""
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = ""
    entrypoint: Started | None = None
    files: dict[str, Path] = field(default_factory=dict)
    runs: list[tuple[str, int]] = field(default_factory=list)
    is_certain: bool = True

    @property
    def path(self) -> list[str]:
        """The folders of PATH, those of the parent as Docker's default."""
        return self.env.get("PATH", DEFAULT_PATH).replace(UNKNOWN, DEFAULT_PATH).split(":")

    @property
    def program(self) -> str | None:
        """The script that SageMaker's toolkit starts by SAGEMAKER_PROGRAM; None without one, or if another program starts."""
        return None if self.entrypoint is not None else self.env.get("SAGEMAKER_PROGRAM")

    def named(self, name: str) -> dict[str, Path]:
        """Return the copied files of a name, by their path in the image.

        Args:
            name: The name.
        """
        return {path: file for path, file in self.files.items() if posixpath.basename(path) == name}


@dataclass(frozen=True)
class Dockerfile:
    """A Dockerfile.

    Attributes:
        directory: The build context.
        file: Its path in it.
        build_args: The values of ``--build-arg``.
    """

    directory: Path
    file: str
    build_args: Mapping[str, str]

    @property
    def path(self) -> Path:
        """Its path."""
        return self.directory / self.file

    @cached_property
    def text(self) -> str:
        """Its content."""
        return self.path.read_bytes().decode(errors="replace")

    @property
    def allows_commands(self) -> bool:
        """Whether a comment switches the rules of commands off."""
        return bool(_ALLOWED.search(self.text))

    @property
    def is_readable(self) -> bool:
        """Whether its instructions name all that is copied."""
        return not _BEYOND.search(self.text)

    @cached_property
    def instructions(self) -> list[Instruction]:
        """The instructions, without comments."""
        found = (part for part in self._parser.structure if part["instruction"] != "COMMENT")
        return [
            Instruction(part["instruction"], *_flags(part["instruction"], part["value"]), part["startline"] + 1)
            for part in found
        ]

    @cached_property
    def _parser(self) -> Any:
        from dockerfile_parse import DockerfileParser  # here, since most jobs build no image

        file: Any = io.BytesIO(self.text.encode())  # its type stub has text, its code accepts bytes only
        return DockerfileParser(fileobj=file, build_args=dict(self.build_args))

    @cached_property
    def parents(self) -> list[str]:
        """The image, or the stage, of each FROM in order, with its variables replaced."""
        try:
            found = list(self._parser.parent_images)
        except (ValueError, IndexError) as error:
            raise MalformedError(f"{self.file}: {error}") from error
        if len(found) != sum(one.keyword == "FROM" for one in self.instructions):
            raise MalformedError(f"{self.file}: a FROM names no image")
        return found

    @cached_property
    def stages(self) -> dict[str, int]:
        """The number of each stage that has a name."""
        froms = (one.value for one in self.instructions if one.keyword == "FROM")
        return {name[1]: number for number, text in enumerate(froms) if (name := _NAMED.search(text))}

    @property
    def pulled(self) -> tuple[str, ...]:
        """The images that a build pulls for FROMs, each once."""
        return tuple(dict.fromkeys(name for name in self.parents if name not in self.stages and name != "scratch"))

    @property
    def copied(self) -> list[str] | None:
        """The sources of COPY and ADD in the context, which may be patterns; None for all of it, or where that is not known."""
        paths = [str(PurePosixPath(source.lstrip("/"))) for source, _ in self.sources]
        unknown = not self.is_readable or any(path == "." or "$" in path for path in paths)
        return None if unknown else [*dict.fromkeys(paths)]

    def lacking(self) -> Iterator[tuple[str, int, str]]:
        """Yield the sources that the build does not find, with their lines and why."""
        for source, line in self.sources:
            path = str(PurePosixPath(source.lstrip("/")))
            used = any(first <= line < last for first, last in self._used)
            if not used or not self.is_readable or path == "." or "$" in path:
                continue
            found = _below(self.directory, path)
            if not found:
                yield source, line, "without"
            elif not any(one.is_dir() or not self._is_ignored(one) for one in found):
                yield source, line, "whose .dockerignore excludes"

    @property
    def _used(self) -> list[tuple[int, int]]:
        """The lines of the stages that the last one needs, first and last; a builder leaves others out."""
        froms = [one.line for one in self.instructions if one.keyword == "FROM"]
        ends = [*froms[1:], len(self.text.splitlines()) + 1]
        used, left = set[int](), [len(froms) - 1] if froms else []
        while left:
            number = left.pop()
            used.add(number)
            inside = (one for one in self.instructions if froms[number] <= one.line < ends[number])
            names = [self.parents[number], *(one.flags["from"] for one in inside if "from" in one.flags)]
            needed = (int(name) if name.isdigit() else self.stages.get(name, number) for name in names)
            left += [one for one in needed if one < number and one not in used]
        return [(froms[number], ends[number]) for number in sorted(used)]

    def _is_ignored(self, path: Path) -> bool:
        """Whether .dockerignore excludes a file, of whose lines the last that matches decides."""
        within = path.relative_to(self.directory).as_posix()
        parts = within.split("/")
        above = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
        ignored = False
        for pattern, excludes in self._ignore_lines:
            if any(map(pattern.fullmatch, above)):
                ignored = excludes
        return ignored

    @cached_property
    def _ignore_lines(self) -> list[tuple[re.Pattern[str], bool]]:
        # That of the Dockerfile's name comes before that of the context.
        names = (self.path.with_name(f"{self.path.name}.dockerignore"), self.directory / ".dockerignore")
        file = next((path for path in names if path.is_file()), None)
        lines = [] if file is None else [line.strip() for line in file.read_text(errors="replace").splitlines()]
        kept = [line for line in lines if line and not line.startswith("#")]
        return [(_pattern(line.lstrip("!").strip("/")), not line.startswith("!")) for line in kept]

    @property
    def sources(self) -> Iterator[tuple[str, int]]:
        """The sources of COPY and ADD in the context, with their lines; not those in another stage or the network."""
        for one in self.instructions:
            if one.keyword in ("COPY", "ADD") and "from" not in one.flags:
                paths = operands(one.value)[:-1]
                yield from ((path, one.line) for path in paths if not _ELSEWHERE.match(path))

    @property
    def script_line(self) -> str | None:
        """The line by which the image has a script of its own: of SAGEMAKER_PROGRAM, or to /opt/ml/code; None without one."""
        folder = PurePosixPath("/")
        for one in self.instructions:
            names = one.keyword == "ENV" and re.search(r"\bSAGEMAKER_PROGRAM\b", one.value)
            target = operands(one.value)[-1:] if one.keyword in ("COPY", "ADD") else []
            copies = any((folder / path).is_relative_to(_CODE) for path in target)
            if one.keyword == "FROM":
                folder = PurePosixPath("/")
            elif one.keyword == "WORKDIR":
                folder /= one.value.strip("\"'")
            elif names or copies:
                return self.text.splitlines()[one.line - 1].strip()
        return None

    @cached_property
    def image(self) -> Image:
        """The image of the last stage."""
        return self._image(len(self.parents) - 1) if self.parents else Image(is_certain=False)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """What RUN starts, and ``NOT_KNOWN`` where that, or what is copied, is not all known; pip has its plain name."""
        found = [] if self.image.is_certain else [NOT_KNOWN]
        for text, line in self.image.runs:
            started = [*runs(f"{text}\n{_END}", self.image.env, PurePosixPath("/"), None)]
            found += [_plain(run)._replace(line=line) for run in started if run.words != (_END,)]
            found += [] if started and started[-1].words == (_END,) else [NOT_KNOWN]
        return tuple(found)

    def _image(self, number: int) -> Image:
        parent = self.parents[number]
        earlier = self.stages.get(parent, number)
        image = Image(parent=parent) if earlier >= number else self._image(earlier)
        image.is_certain = image.is_certain and self.is_readable
        everywhere, arguments = dict[str, str](), dict[str, str]()
        at = -1
        for one in self.instructions:
            at += one.keyword == "FROM"
            if one.keyword == "ARG" and at in (-1, number):
                name, equals, default = one.value.partition("=")
                value = _replaced(default.strip("\"'"), arguments) if equals else everywhere.get(name, UNKNOWN)
                (everywhere if at < 0 else arguments)[name] = self.build_args.get(name, value)
            elif at == number:
                try:
                    self._apply(one, image, {**arguments, **image.env})
                except ValueError as error:
                    if self.is_readable:
                        raise MalformedError(f"{self.file}:{one.line}: {one.keyword} {one.value}: {error}") from error
        return image

    def _apply(self, one: Instruction, image: Image, known: Mapping[str, str]) -> None:
        if one.keyword == "FROM":
            return
        if one.keyword == "ENV":
            image.env |= _pairs(one.value, known)
        elif one.keyword == "WORKDIR":
            folder = _replaced(one.value.strip().strip("\"'"), known)
            joined = posixpath.join(image.workdir or "/", folder)
            image.workdir = UNKNOWN if UNKNOWN in joined else _normal(joined)
        elif one.keyword == "ENTRYPOINT":
            listed = _listed(one.value)
            words = (one.value,) if listed is None else tuple(listed)
            image.entrypoint = Started(words, listed is not None, one.line) if words and words != ("",) else None
        elif one.keyword == "RUN":
            listed = _listed(one.value)
            image.runs.append((one.value if listed is None else shlex.join(listed), one.line))
        elif one.keyword in ("COPY", "ADD"):
            self._copy(one, image, known)

    def _copy(self, one: Instruction, image: Image, known: Mapping[str, str]) -> None:
        *sources, target = [_replaced(path, known) for path in operands(one.value)] or [""]
        if not sources:
            raise ValueError("it has no source and destination")
        into = _normal(posixpath.join(image.workdir or "/", target))
        if "from" in one.flags or UNKNOWN in "".join((*sources, into)) or any(map(_ELSEWHERE.match, sources)):
            image.is_certain = False
            return
        unpacks = one.keyword == "ADD" and any(source.endswith(_ARCHIVES) for source in sources)
        image.is_certain = image.is_certain and not unpacks and not (target[:1] != "/" and not image.workdir)
        found = [path for source in sources for path in _below(self.directory, source)]
        is_folder = len(found) > 1 or target.endswith("/") or target in (".", "..")
        copied: dict[str, Path] = {}
        for path in found:
            if path.is_dir():
                inside = ((name, path / name) for name in _within(path))
                copied |= {posixpath.join(into, name): file for name, file in inside if not self._is_ignored(file)}
            elif not self._is_ignored(path):
                copied[posixpath.join(into, path.name)] = path
                if not is_folder:  # unless the image has a folder of that name
                    copied[into] = path
        image.files |= copied
        if "chmod" in one.flags:
            image.runs.append((f"chmod {one.flags['chmod']} {into}", one.line))


def _plain(run: Run) -> Run:
    """A program, of pip with its plain name."""
    as_module = len(run.words) > len(("python", "-m")) and _PYTHON.fullmatch(run.words[0]) and run.words[1] == "-m"
    words = run.words[2:] if as_module else run.words
    return run._replace(words=("pip", *words[1:])) if _PIP.fullmatch(words[0]) else run


def operands(value: str) -> list[str]:
    """Return the paths of a COPY or ADD without its flags, of which the last is the destination.

    Args:
        value: What follows the flags.
    """
    listed = _listed(value)
    try:
        return shlex.split(value) if listed is None else listed
    except ValueError:  # a quote without an end
        return []


def _flags(keyword: str, value: str) -> tuple[dict[str, str], str]:
    flags = dict[str, str]()
    while keyword in ("COPY", "ADD", "RUN", "FROM") and (match := _FLAG.match(value)):
        flags[match[1]] = match[2] or ""
        value = value[match.end() :]
    return flags, value


def _listed(text: str) -> list[str] | None:
    """The exec form, a list of JSON; None for the shell form, as which Docker takes all else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else None


def _replaced(text: str, known: Mapping[str, str]) -> str:
    """A text with its variables; ``UNKNOWN`` for those that the parent may set."""

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0][1:]
        found = known.get(match[1] or match[2])
        if match[3] == "+":
            return UNKNOWN if found is None else match[4]
        return found if found is not None else UNKNOWN

    return _VARIABLE.sub(value, text)


def _pairs(value: str, known: Mapping[str, str]) -> dict[str, str]:
    """The variables of an ENV: ``NAME=value NAME2="a b"``, or the old form ``NAME the rest``."""
    first, *rest = value.split(maxsplit=1) or [""]
    if "=" not in first:
        return {first: _replaced(rest[0] if rest else "", known)}
    pairs = (word.partition("=") for word in shlex.split(value.replace("\\$", _DOLLAR)))
    return {name: _replaced(text, known).replace(_DOLLAR, "$") for name, _, text in pairs}


def _pattern(line: str) -> re.Pattern[str]:
    """The expression of a pattern of .dockerignore, as Go's filepath.Match has it, with ``**`` for any number of folders."""
    parts = re.split(r"(\*\*/?|[*?]|\[[^\]]+\])", line)
    kinds = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(kinds.get(part, part if part.startswith("[") else re.escape(part)) for part in parts))


def _normal(path: str) -> str:
    """A path without `..` and without more than one slash, also at its beginning."""
    return posixpath.normpath(re.sub("^//+", "/", path))


def _below(directory: Path, pattern: str) -> list[Path]:
    """The files and folders of the context that a source names."""
    path = str(PurePosixPath(_normal(f"/{pattern}")).relative_to("/"))
    return [directory] if path == "." else sorted(directory.glob(path))


def _within(folder: Path) -> Iterator[str]:
    """The paths of a folder's files, without those of hidden folders."""
    for path in folder.rglob("*"):
        within = path.relative_to(folder)
        if not any(part.startswith(".") for part in within.parts[:-1]) and path.is_file():
            yield within.as_posix()
