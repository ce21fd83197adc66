"""Parts of pages that are computed: UPDATE_SNAPSHOTS=1 writes them."""

from __future__ import annotations

import os
from pathlib import Path


def part(page: Path, mark: str, computed: str) -> str:
    """The text between a page's comments ``<!-- mark ... -->`` and ``<!-- end of mark -->``, which is written first if asked."""
    before, start, rest = page.read_text().partition(f"<!-- {mark}, which a test writes -->\n")
    found, end, after = rest.partition(f"\n<!-- end of {mark} -->")
    assert end, f"{page.name} has no part {mark}"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        page.write_text(before + start + computed + end + after)
        return computed
    return found
