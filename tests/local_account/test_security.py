"""SECURITY.md, whose claims name the tests that hold them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()


def test_each_test_that_it_names_is_there() -> None:
    named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", TEXT)
    assert len(named) > 20
    missing = []
    for file, name in named:
        path = Path(__file__).with_name(file)
        if not path.is_file() or (name and f"\ndef {name}(" not in path.read_text()):
            missing.append(f"{file}::{name}")
    assert missing == []


def test_each_page_that_it_links_to_is_there() -> None:
    assert [link for link in re.findall(r"\]\(([^)]+)\)", TEXT) if not (ROOT / link).is_file()] == []
