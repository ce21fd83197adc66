"""The table of docs/what-ran.md: what of the training code and of the kinds of job ran where, from the markers beside the code.

    python docs/what_ran.py

A marker is a comment ``# ran: WHAT | CPU | ACCOUNT | GPU | AWS``: the tests that run it as processes on a CPU, and as a job of
the local account, by their files' names; the machine with GPUs on which a person ran it; and AWS. ``no``: it never did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKED = ("training_code", "constructs/cdk_sagemaker_training/jobs")
PAGE = ROOT / "docs" / "what-ran.md"
BEGIN, END = "<!-- ran -->\n", "<!-- end of ran -->\n"
COLUMNS = ("what", "on a CPU", "as a job of the local account", "on a GPU", "on AWS", "in")


def rows() -> Iterator[list[str]]:
    """The five columns of each marker, and the file that it is in."""
    for folder in MARKED:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for columns in re.findall(r"^# ran: (.*)$", file.read_text(), re.M):
                yield [*(column.strip() for column in columns.split("|")), str(file.relative_to(ROOT))]


def page() -> str:
    """The page with its table anew."""
    lines = [COLUMNS, ("---",) * len(COLUMNS)]
    lines += [(*columns, f"[{Path(file).name}](../{file})") for *columns, file in rows()]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + "".join(f"| {' | '.join(line)} |\n" for line in lines) + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
