"""Findings of a reviewing program, held against a table of reasons why some stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

# Parts of text, in which those of a reason may have wildcards.
Finding = tuple[str, ...]


def unexplained(found: Iterable[Finding], reasons: Iterable[Finding]) -> list[Finding]:
    """The findings that no reason is about."""
    patterns = [*reasons]
    return sorted(one for one in found if not any(all(map(fnmatchcase, one, pattern)) for pattern in patterns))


def needless(found: Iterable[Finding], reasons: Mapping[Finding, str]) -> list[Finding]:
    """The reasons without which no finding would be left unexplained."""
    findings = [*found]
    return [one for one in reasons if not unexplained(findings, (other for other in reasons if other != one))]
