"""docs/aws-guidance.md: each row of AWS's guidance names a test that there is, or says why none."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")]
    for line in (ROOT / "docs" / "aws-guidance.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| what the")
]


def test_each_row_names_a_test_that_there_is_or_says_why_not() -> None:
    files = {
        path.stem: path.read_text()
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.parent.name != "training_code"
    }
    files |= {
        path.stem: path.read_text() + files.get(path.stem, "")
        for path in (ROOT / "tests" / "training_code").glob("test_*.py")
    }
    lacking = []
    for says, shown in ROWS:
        if shown.startswith("not, because "):
            continue
        named = re.fullmatch(r"`(test_\w+)::(test_\w+)`", shown)
        if not named or f"def {named[2]}(" not in files.get(named[1], ""):
            lacking.append((says, shown))
    assert lacking == []


def test_there_are_more_than_a_hundred_rows_of_which_few_have_no_test() -> None:
    without = [says for says, shown in ROWS if shown.startswith("not, because ")]
    assert len(ROWS) > 100
    assert len(without) < 10
