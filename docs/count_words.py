"""The words of the pages that are written by hand: `python docs/count_words.py` lists them, the longest page last.

Not counted: generated pages and parts of pages, code, addresses of links. Tables are counted.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Written by both docs_generator.py, release/licences.py and benchmarks/memory.py.
GENERATED = {
    "members.md",
    "fidelity.md",
    "resource-types.md",
    "create-training-job.md",
    "licences.md",
    "memory-by-layout.md",
}
PART = re.compile(r"^<!-- (?!end)[^>]*-->\n.*?^<!-- [^>]*-->$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def words() -> dict[str, int]:
    """By page, relative to the repository."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    counted = {}
    for file in files:
        if file.name not in GENERATED:
            text = re.sub(r"\]\([^)]*\)", "]", CODE.sub("", PART.sub("", file.read_text())))
            counted[str(file.relative_to(ROOT))] = sum(bool(re.search(r"\w", word)) for word in text.split())
    return counted


if __name__ == "__main__":
    counted = words()
    for page, number in sorted(counted.items(), key=lambda row: row[1]):
        print(f"{number:6,} {page}")
    print(f"{sum(counted.values()):6,} in all")
