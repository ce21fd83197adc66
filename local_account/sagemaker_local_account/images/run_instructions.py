"""RUN: its commands are not executed, except for `pip install`, which is evaluated."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from sagemaker_local_account.images.dockerfile import Instruction, as_json_list, expand
from sagemaker_local_account.images.pip_install import PipInstall, pip_install


def read(
    instruction: Instruction, workdir: str, variables: Mapping[str, str], find: Callable[[str], Path]
) -> tuple[list[PipInstall], list[str]]:
    """Parses a RUN instruction.

    Args:
        instruction: the instruction.
        workdir: the current WORKDIR.
        variables: for expansion.
        find: returns this machine's path for a path of the image.

    Returns:
        Its `pip install` commands, and its other commands.

    Raises:
        ImageError: a `pip install` cannot be parsed.
    """
    text = expand(instruction.value, variables)
    listed = as_json_list(instruction.value)
    if instruction.heredocs and re.fullmatch(r"<<\S+", instruction.value.strip()):
        text = "\n".join(document.text for document in instruction.heredocs)
    installs: list[PipInstall] = []
    skipped: list[str] = []
    for words in [listed] if listed else _commands(text):
        command = _without_prefix(words)
        install = pip_install(command, instruction.place, workdir, find)
        if install is not None:
            installs.append(install)
        elif command[:1] == ["cd"] and len(command) == 2:
            workdir = posixpath.join(workdir, command[1])
        elif re.search(r"\bpip3?(\s+-\S+)*\s+install\b", " ".join(words)):
            raise instruction.error(
                f"RUN: 'pip install' must be a command of its own, like 'RUN pip install pandas', got {' '.join(words)!r}"
            )
        else:
            skipped.append(shlex.join(words))
    return installs, skipped


def _commands(text: str) -> list[list[str]]:
    """The commands of a shell script as words, split at lines, ``&&``, ``;`` and ``|``, without redirections."""
    commands: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(re.sub(r"\s\d?>&\d\b|\s&>\s*\S+", " ", line), posix=True, punctuation_chars="&;|")
        lexer.whitespace_split = True
        commands.append([])
        try:
            for word in lexer:
                if set(word) <= set("&;|"):
                    commands.append([])
                elif re.fullmatch(r"\d?(>>?|<)", word):
                    next(lexer, None)
                elif not re.match(r"\d?[<>]", word):
                    commands[-1].append(word)
        except ValueError:  # quoting that shlex does not support
            commands[-1] = line.split()
    return [words for words in commands if words]


def _without_prefix(words: list[str]) -> list[str]:
    """A command without leading assignments, `sudo`, `env` and `exec`."""
    while words and (words[0] in ("sudo", "env", "exec") or re.match(r"\w+=", words[0])):
        words = words[1:]
    return words
