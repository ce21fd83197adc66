"""What a reader types or saves from a page of Markdown: its fenced blocks, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass

BLOCK = re.compile(r"([^\n]*)\n+```(\w+)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block, its language, and the first name in backticks of the line before it, such as the file it is to be saved as."""

    language: str
    name: str
    text: str


def blocks(page: str) -> list[Block]:
    found = []
    for line, language, text in BLOCK.findall(page):
        name = re.search(r"`([^`]+)`", line)
        found.append(Block(language, name[1] if name else "", text))
    return found
