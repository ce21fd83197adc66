"""docs/aws-guidance.md and docs/promises.md: each row names a test that there is, or says why none."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows(page: str) -> list[list[str]]:
    lines = (ROOT / "docs" / page).read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in lines if line.startswith("| ")]
    return [of for of in cells if len(of) == 2 and of[1] != "shown by"]


ROWS = rows("aws-guidance.md")


@pytest.mark.parametrize("page", ["aws-guidance.md", "promises.md"])
def test_each_row_names_a_test_that_there_is_or_says_why_not(page: str) -> None:
    files = defaultdict[str, str](str)
    for path in (ROOT / "tests").rglob("test_*.py"):
        files[path.stem] += path.read_text()
    lacking = []
    for says, shown in rows(page):
        if shown.startswith("not, because "):
            continue
        named = re.fullmatch(r"`(test_\w+)::(test_\w+)`", shown)
        if not named or f"def {named[2]}(" not in files[named[1]]:
            lacking.append((says, shown))
    assert lacking == []


def test_there_are_more_than_a_hundred_rows_of_which_few_have_no_test() -> None:
    without = [says for says, shown in ROWS if shown.startswith("not, because ")]
    assert len(ROWS) > 100
    assert len(without) < 10
