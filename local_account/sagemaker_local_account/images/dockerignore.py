"""`.dockerignore` (source of the rules: Docker's documentation).

Patterns are those of Go's `filepath.Match` and `**`, are relative to the context's root, match whole folders, and the last
matching pattern applies (`!` includes).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path


def ignored_by(context: Path, dockerfile: Path) -> Callable[[str], bool]:
    """Returns whether a path relative to the context is ignored; `<Dockerfile>.dockerignore` precedes `.dockerignore`."""
    for path in (dockerfile.with_name(dockerfile.name + ".dockerignore"), context / ".dockerignore"):
        if path.is_file():
            return matcher(path.read_text(encoding="utf-8-sig"))
    return lambda path: False


def matcher(text: str) -> Callable[[str], bool]:
    """Returns whether a path is ignored by the text of a `.dockerignore`."""
    rules: list[tuple[re.Pattern[str], bool]] = []
    for line in text.splitlines():
        pattern = line.strip()
        if not pattern or line.startswith("#"):
            continue
        taken_back = pattern.startswith("!")
        pattern = posixpath.normpath(pattern.removeprefix("!").strip()).lstrip("/")
        if pattern != ".":
            rules.append((re.compile(as_regex(pattern) + r"(/.*)?"), not taken_back))

    def ignored(path: str) -> bool:
        found = False
        for pattern, ignores in rules:
            if pattern.fullmatch(path):
                found = ignores
        return found

    return ignored


def as_regex(pattern: str) -> str:
    """Converts a pattern of Go's `filepath.Match`, with `**` for any number of folders, to a regular expression."""
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        rest = pattern[position:]
        if rest.startswith("**/"):
            parts.append("(.*/)?")
            position += 3
        elif rest.startswith("**"):
            parts.append(".*")
            position += 2
        elif bracket := re.match(r"\[(\^?)([^\]]+)\]", rest):
            parts.append(f"[{bracket[1]}{bracket[2]}]")
            position += bracket.end()
        elif rest[0] == "\\" and len(rest) > 1:
            parts.append(re.escape(rest[1]))
            position += 2
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0])))
            position += 1
    return "".join(parts)
