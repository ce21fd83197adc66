"""What is wrong with permissions, as text: held against their rows in docs/permissions.md, and these against their sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

from iam_reference import actions_like, wrong_in
from page import EXERCISED, GRANTED, PAGE, Row
from sources import Listed
from statements import Held

REFERENCE = "reference"


def not_in_iam(held: Iterable[Held]) -> list[str]:
    """Statements with an action, a resource or a condition key that IAM does not have."""
    return sorted({f"{one.holder}, {one.resource}: {wrong}" for one in held for wrong in wrong_in(one.statement)})


def without_row(held: Iterable[Held], rows: Iterable[Row]) -> list[str]:
    """Actions of statements that have no row on the page."""
    known = {(row.role, row.action) for row in rows}
    lacking = {
        (one.holder, action): one.resource
        for one in held
        for action in one.actions
        if (one.holder, action) not in known
    }
    return [
        f"{PAGE.name} has no row for `{action}` of the {holder} (in {resource}). Add one with its source: to the first table, "
        f"| {' | '.join(EXERCISED)} |, where tests/end_to_end/test_permissions.py shows what happens without it, else to the "
        f"second, like | {holder} | `{action}` | why it is granted | `reference` | ({' | '.join(GRANTED)}). A source is a name "
        "of the table under Sources; what a new one lists is recorded in tests/permissions/sources.py."
        for (holder, action), resource in sorted(lacking.items())
    ]


def without_statement(held: Iterable[Held], rows: Iterable[Row]) -> list[str]:
    """Rows whose action no statement has."""
    known = {(one.holder, action) for one in held for action in one.actions}
    return [
        f"no stack grants `{row.action}` to the {row.role}: take its row from {PAGE.name}, or add a stack that has it to "
        "tests/permissions/under_review.py"
        for row in rows
        if (row.role, row.action) not in known
    ]


def without_source(rows: Iterable[Row], sources: Mapping[str, Listed]) -> list[str]:
    """Rows without a source, or with one that does not list their action."""
    found = []
    for row in rows:
        if not row.sources:
            found.append(f"the row of `{row.action}` of the {row.role} must name a source, like `reference`, got none")
        for name in row.sources:
            if name == REFERENCE:
                listed = bool(actions_like(row.action))
            elif name not in sources:
                found.append(f"`{name}` of `{row.action}` must be a source of tests/permissions/sources.py")
                continue
            else:
                listed = any(holder == row.role and fnmatchcase(row.action, action) for holder, action in sources[name])
            if not listed:
                found.append(f"`{name}` does not list `{row.action}` for the {row.role}")
    return found


def not_granted(
    held: Iterable[Held], sources: Mapping[str, Listed], left_out: Collection[tuple[str, str]]
) -> list[str]:
    """What sources list and no statement grants, but for what is left out with a reason."""
    granted = {(one.holder, action) for one in held for action in one.actions}

    def has(holder: str, action: str) -> bool:
        return any(holder == whose and fnmatchcase(action, pattern) for whose, pattern in granted)

    def excused(name: str, action: str) -> bool:
        return any(name == whose and fnmatchcase(action, pattern) for whose, pattern in left_out)

    return [
        f"`{name}` lists `{action}` for the {holder}, which has it not: grant it, or add a row with the reason to the "
        f"third table of {PAGE.name}, like | `{name}` | `{action}` | why not |"
        for name, listed in sources.items()
        for holder, action in sorted(listed)
        if not has(holder, action) and not excused(name, action)
    ]
