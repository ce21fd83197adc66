"""Parts of pages that are computed: UPDATE_SNAPSHOTS=1 writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path


def by_ranges(versions: Iterable[str], cells_of: Callable[[str], list[str]]) -> tuple[list[str], list[list[str]]]:
    """The headings, like ``3.0 to 3.4``, and cells of columns: each of the versions, one after another, that have the same."""
    columns = [([*of], cells) for cells, of in groupby(versions, cells_of)]
    return [" to ".join(dict.fromkeys((of[0], of[-1]))) for of, _ in columns], [cells for _, cells in columns]


def part(page: Path, mark: str, computed: str) -> str:
    """The text between a page's comments ``<!-- mark ... -->`` and ``<!-- end of mark -->``, which is written first if asked."""
    before, start, rest = page.read_text().partition(f"<!-- {mark}, which a test writes -->\n")
    found, end, after = rest.partition(f"\n<!-- end of {mark} -->")
    assert end, f"{page.name} has no part {mark}"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        page.write_text(before + start + computed + end + after)
        return computed
    return found
