"""The programs that a command of bash starts, as far as its text says: read until the first line that may or may not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from training_jobs.facts.launchers import UNKNOWN as UNKNOWN

ALL = "$@"  # all arguments of the shell
CODE = PurePosixPath("/opt/ml/code")  # where SageMaker's toolkit puts the folder of the script
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|\$\(\([^()]*\)\)|`[^`]*`")
# A quoted text, or an escaped character, is kept; and a comment is not.
_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?<![^\s;&|()])#[^\n]*""", re.DOTALL)
_DESCRIPTOR = re.compile(r"(?<=\s)\d+(?=[<>])")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^{}$]*))?\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# A file that a program may read.
_NAMES_SCRIPT = re.compile(r"\.(?:py|sh|ya?ml|json)\b")
_OPERATORS = "();<>|&\n"
# What begins and ends a block, whose lines may not run, or run again; and what stands before its first command.
_BEGINS, _ENDS = ("if", "for", "while", "until", "select", "{"), ("fi", "done", "}")
_THEN = ("then", "do", "else", "elif")
_TESTS = ("[", "[[", "test", "!", "grep", "command", "which", "false")
# After which nothing is known of variables, or no line may run.
_STOPS = (
    "case",
    "function",
    "source",
    ".",
    "eval",
    "unset",
    "conda",
    "mamba",
    "sudo",
    "ssh",
    "docker",
    "exit",
    "return",
)
_BEFORE = ("exec", "nohup", "time", "env")
_ASSIGNS = ("export", "readonly", "declare", "local")
# What leaves the files and the programs of the machine as they are.
_HARMLESS = {
    *(
        "set",
        "export",
        "echo",
        "printf",
        "cd",
        "ls",
        "pwd",
        "nvidia-smi",
        "printenv",
        "cat",
        "tee",
        "true",
        ":",
        "ulimit",
    ),
    *("trap", "date", "sleep", "wait", "df", "free", "which", "shift", *_TESTS),
}


class Run(NamedTuple):
    """One program that a command starts.

    Attributes:
        words: Its name and its arguments; ``UNKNOWN`` for one that is known only when the job runs, ``ALL`` for ``"$@"``.
        line: The line of the text.
        folder: Where it is started, relative to the root of paths; None where that is not known.
        is_certain: Whether it runs if those before it end well.
        environment: The variables that the text sets.
    """

    words: tuple[str, ...]
    line: int
    folder: PurePosixPath | None
    is_certain: bool
    environment: Mapping[str, str]


def runs(
    text: str,
    variables: Mapping[str, str],
    root: PurePosixPath = CODE,
    begins: PurePosixPath | None = PurePosixPath(),  # noqa: B008 - which nothing changes
) -> Iterator[Run]:
    """Yield the programs that a command starts, until nothing more is certain.

    Args:
        text: A command, or a file, of bash.
        variables: Known variables of the environment.
        root: The folder of the machine to which paths are relative.
        begins: Where it is started, relative to ``root``; None where that is not known.
    """
    known, given = {**variables}, dict[str, str]()
    folder = begins
    depth, depends, tested = 0, False, False
    for line, words, joined, writes in _commands(text, known):
        depends = "||" in joined or ("&" in joined and "&&" in joined and (depends or tested))
        while words and (words[0] in _THEN or words[0] in _BEGINS):
            depth += words[0] in _BEGINS
            if words[0] in ("for", "select"):
                known[words[1]] = UNKNOWN
            words = [] if words[0] in ("for", "select") else words[1:]
        if words and words[0] in _ENDS:
            depth -= 1
            continue
        maybe = depends or depth > 0
        replaces = "exec" in words[:1]
        words, own = _without_assignments(words)
        if not words or words[0] in ("continue", "break"):
            continue
        tested = words[0] in _TESTS
        assigned = words[words[0] in _ASSIGNS :]
        if all(map(_ASSIGNMENT.fullmatch, assigned)):
            for name, value in (word.split("=", 1) for word in assigned):
                known[name] = given[name] = UNKNOWN if maybe or UNKNOWN in value else value
        elif words[0] in _STOPS or UNKNOWN in words[0]:
            if words[0] == "exit" and "||" in joined and not depth:  # where the one before it failed
                continue
            return
        elif words[0] == "cd":
            certain = not maybe and folder is not None and UNKNOWN not in words and len(words) == len(("cd", "FOLDER"))
            folder = _below(folder, words[1], root) if certain and folder is not None else None
        elif words[0] not in _HARMLESS or writes or (words[0] == "tee" and _NAMES_SCRIPT.search(" ".join(words))):
            yield Run(tuple(words), line, folder, not maybe, {**given, **own})
        if replaces:
            return


def _without_assignments(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """A program without what stands before it, and its own variables."""
    own = dict[str, str]()
    while len(words) > 1 and (words[0] in _BEFORE or _ASSIGNMENT.fullmatch(words[0])):
        if words[0] not in _BEFORE:
            if all(map(_ASSIGNMENT.fullmatch, words)):  # no program follows
                break
            name, value = words[0].split("=", 1)
            own[name] = value
        words = words[1:]
    return words, own


def _below(folder: PurePosixPath, name: str, root: PurePosixPath) -> PurePosixPath | None:
    path = PurePosixPath(name)
    if ".." in path.parts or name.startswith("~"):
        return None
    if path.is_absolute():
        return path.relative_to(root) if path.is_relative_to(root) else None
    return folder / path


def _commands(text: str, known: Mapping[str, str]) -> Iterator[tuple[int, list[str], str, bool]]:
    """The lines and the words of simple commands, what joins each to the one before it, and whether it writes a file."""
    lines = text.splitlines()
    text = _DESCRIPTOR.sub("", _COMMENT.sub(lambda match: match[1] or "", text).replace("\\\n", " "))
    while (shorter := _SUBSTITUTION.sub(UNKNOWN, text)) != text:
        text = shorter
    if "$(" in text or "<<" in text:
        return
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words, line, joined, writes = list[str](), 1, "", False
    try:
        for token in lexer:
            if not {*token} <= {*_OPERATORS} or not token:
                words.append(_known(token, known))
                continue
            if "<" in token or ">" in token:
                if "\n" in token or not (target := next(lexer, "")):
                    return
                writes = writes or (token in (">", ">>") and target != "/dev/null")
                continue
            if words and not token.startswith("("):  # with which a function begins
                line = _line(lines, line, words[0])
                yield line, words, joined, writes
                joined, writes = "", False
            words, joined = [], joined + token
            if "(" in token or ")" in token:
                return
    except ValueError:  # a quote without an end
        return
    if words:
        yield _line(lines, line, words[0]), words, joined, writes


def _line(lines: list[str], first: int, word: str) -> int:
    """The first line, from a line on, that has a word."""
    return next((number for number in range(first, len(lines) + 1) if word in lines[number - 1]), first)


def _known(word: str, known: Mapping[str, str]) -> str:
    """A word with what is known of its variables."""
    if word in ("$@", "$*", "${@}"):
        return ALL

    def value(match: re.Match[str]) -> str:
        text = known.get(match[1] or match[2], UNKNOWN)
        return text if text and not re.search(r"\s", text) else UNKNOWN  # which may be several words, or none

    found = _VARIABLE.sub(value, word)
    return UNKNOWN if "$" in found else found
