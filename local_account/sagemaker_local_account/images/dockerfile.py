"""Parses a Dockerfile into instructions with their lines, and expands variables.

Source: Docker's Dockerfile reference. `dockerfile-parse` finds the instructions; what it does not support (here-documents, blank
lines within a continued line, unknown instructions) is handled or rejected here.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local_account.core.image_names import ImageError

KNOWN = frozenset(
    [
        "ADD",
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "MAINTAINER",
        "RUN",
        "SHELL",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    ]
)
HEREDOC = re.compile(r"(?<!<)<<(?P<dash>-?)(?P<quote>['\"]?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P=quote)(?=\s|$|[;&|)])")
TAKES_HEREDOCS = ("RUN", "COPY", "ADD")
VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<name>\w+)(?:(?P<operator>:?[-+?])(?P<word>[^}]*))?\})")


class BuildError(ImageError):
    """An image cannot be built; the message begins with the Dockerfile's name and line, as in `Dockerfile:7: ...`."""


@dataclass(frozen=True)
class Heredoc:
    """A here-document: `COPY <<NAME /path` up to the line NAME; its variables are expanded unless NAME is quoted."""

    name: str
    text: str
    expands: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction; ``value`` is the text after the keyword and flags, with continued lines joined."""

    keyword: str
    value: str
    place: str  # "Dockerfile:7"
    flags: Mapping[str, list[str]] = field(default_factory=dict)
    heredocs: tuple[Heredoc, ...] = ()

    def error(self, message: str) -> BuildError:
        """Returns an error with the instruction's line."""
        return BuildError(f"{self.place}: {message}")

    def __str__(self) -> str:
        flags = [
            f"--{name}={value}" if value else f"--{name}" for name, values in self.flags.items() for value in values
        ]
        return " ".join([self.keyword, *flags, self.value])


def parse(text: str, name: str = "Dockerfile") -> list[Instruction]:
    """Parses a Dockerfile.

    Args:
        text: its content.
        name: its name in messages.

    Raises:
        BuildError: a line is not an instruction, or an unknown one.
    """
    from dockerfile_parse import DockerfileParser

    lines, heredocs = _prepare(text, name)
    file: Any = io.BytesIO("\n".join(lines).encode())  # annotated as text; the code requires bytes
    found = DockerfileParser(fileobj=file, env_replace=False).structure
    covered = {number for part in found for number in range(part["startline"], part["endline"] + 1)}
    for number, line in enumerate(lines):
        if line.strip() and number not in covered:
            raise BuildError(f"{name}:{number + 1}: {_what_is_wrong(line)}")
    return [
        _instruction(part["instruction"], part["value"], f"{name}:{part['startline'] + 1}", heredocs, part)
        for part in found
        if part["instruction"] != "COMMENT"
    ]


def _what_is_wrong(line: str) -> str:
    word = line.split()[0]
    if word.upper() in KNOWN:
        return f"instruction {word.upper()} has no argument, or its line does not end"
    return f"instruction {word} is not supported by the local account; it supports {', '.join(sorted(KNOWN))}"


def _instruction(
    keyword: str, value: str, place: str, heredocs: Mapping[int, list[Heredoc]], part: Mapping[str, Any]
) -> Instruction:
    if keyword not in KNOWN:
        raise BuildError(f"{place}: {_what_is_wrong(keyword)}")
    flags: dict[str, list[str]] = {}
    rest = value.strip()
    while match := re.match(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)", rest):
        if keyword in ("CMD", "ENTRYPOINT", "ENV", "LABEL", "SHELL"):
            break
        flags.setdefault(match[1], []).append((match[2] or "").strip("\"'"))
        rest = rest[match.end() :]
    inside = [doc for number in range(part["startline"], part["endline"] + 1) for doc in heredocs.get(number, [])]
    return Instruction(keyword, rest, place, flags, tuple(inside))


def _prepare(text: str, name: str) -> tuple[list[str], dict[int, list[Heredoc]]]:
    """The lines without here-documents, which are returned by their first line, and with blank continued lines as comments."""
    lines = text.removeprefix("\ufeff").splitlines()
    heredocs: dict[int, list[Heredoc]] = {}
    escape = "`" if re.match(r"(?is)\s*(?:#\s*syntax\s*=[^\n]*\n\s*)?#\s*escape\s*=\s*`", text) else "\\"
    keyword, number = "", 0
    while number < len(lines):
        line = lines[number]
        comment = line.lstrip().startswith("#")
        if keyword and not line.strip():
            lines[number] = "#"
        elif not comment:
            keyword = keyword or line.split(maxsplit=1)[0].upper() if line.strip() else ""
            opened = list(HEREDOC.finditer(line)) if keyword in TAKES_HEREDOCS else []
            following = number + 1
            for match in opened:
                heredoc, following = _heredoc(lines, following, match, f"{name}:{number + 1}")
                heredocs.setdefault(number, []).append(heredoc)
            lines[number + 1 : following] = [""] * (following - number - 1)
            if opened or not line.rstrip().endswith(escape):
                keyword = ""
            number = following - 1
        number += 1
    if keyword:
        lines.append(" ")  # ends a continued last line
    return lines, heredocs


def _heredoc(lines: list[str], start: int, match: re.Match[str], place: str) -> tuple[Heredoc, int]:
    body: list[str] = []
    for number in range(start, len(lines)):
        line = lines[number].lstrip("\t") if match["dash"] else lines[number]
        if line == match["name"]:
            text = "".join(f"{part}\n" for part in body)
            return Heredoc(match["name"], text, expands=not match["quote"]), number + 1
        body.append(line)
    raise BuildError(f"{place}: the here-document {match['name']} has no end: no line is {match['name']!r} alone")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expands `$NAME`, `${NAME}`, `${NAME:-word}`, `${NAME:+word}`, `${NAME:?word}`; quotes are kept.

    Raises:
        ValueError: a variable of `${NAME:?word}` is not set.
    """

    def value(match: re.Match[str]) -> str:
        name = match["plain"] or match["name"]
        found = variables.get(name)
        operator = match["operator"] or ""
        given = found is not None and (found != "" or not operator.startswith(":"))
        if operator.endswith("-"):
            return found if given and found is not None else expand(match["word"], variables)
        if operator.endswith("+"):
            return expand(match["word"], variables) if given else ""
        if operator.endswith("?") and not given:
            raise ValueError(f"${{{name}}} is not set: {match['word']}")
        return found or ""

    return VARIABLE.sub(value, text)


def words(instruction: Instruction, variables: Mapping[str, str]) -> list[str]:
    """Splits an instruction's value into words without quotes, with variables expanded outside of single quotes."""
    try:
        return [word for word, _ in _words(instruction.value, variables)]
    except ValueError as error:
        raise instruction.error(f"{instruction.keyword}: {error}") from None


def expanded(instruction: Instruction, variables: Mapping[str, str]) -> str:
    """Returns an instruction's expanded value as one text."""
    return " ".join(words(instruction, variables))


def pairs(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Parses the values of ENV and LABEL: `NAME=value NAME2="a b"`, or the old form `NAME the rest`."""
    first = instruction.value.split(maxsplit=1)
    if "=" not in first[0]:
        if len(first) == 1:
            raise instruction.error(
                f"{instruction.keyword} must be like '{instruction.keyword} NAME=value', got {instruction.value!r}"
            )
        try:
            return {first[0]: "".join(word + space for word, space in _words(first[1], variables)).strip()}
        except ValueError as error:
            raise instruction.error(f"{instruction.keyword}: {error}") from None
    found = {}
    for word in words(instruction, variables):
        key, equals, value = word.partition("=")
        if not equals:
            raise instruction.error(
                f"{instruction.keyword} must be like '{instruction.keyword} NAME=value', got {word!r}"
            )
        found[key] = value
    return found


def _words(text: str, variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs of a word and the whitespace after it."""
    word, quote, position, begun = "", "", 0, False
    while position < len(text):
        char = text[position]
        if char.isspace() and not quote:
            space = re.match(r"\s+", text[position:])
            assert space
            if begun:
                yield word, space[0]
            word, begun, position = "", False, position + space.end()
            continue
        begun = True
        if char == quote:
            quote = ""
        elif char in "'\"" and not quote:
            quote = char
        elif char == "\\" and quote != "'" and position + 1 < len(text):
            position += 1
            word += text[position] if not quote or text[position] in '"$\\' else "\\" + text[position]
        elif char == "$" and quote != "'" and (match := VARIABLE.match(text, position)):
            word += expand(match[0], variables)
            position = match.end() - 1
        else:
            word += char
        position += 1
    if quote:
        raise ValueError(f"a quotation mark {quote} is not closed in {text!r}")
    if begun:
        yield word, ""


def command(instruction: Instruction, shell: list[str]) -> list[str]:
    """Returns the command of CMD or ENTRYPOINT: the exec form `["a", "b"]` as it is, the shell form with the shell."""
    listed = as_json_list(instruction.value)
    return listed if listed is not None else [*shell, instruction.value]


def as_json_list(text: str) -> list[str] | None:
    """Parses a JSON list of strings; None for other texts, which are the shell form."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(part, str) for part in found) else None
