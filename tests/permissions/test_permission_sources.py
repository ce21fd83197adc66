"""The library's statements, held against IAM's own definition, the page of permissions, and the sources that it names."""

from __future__ import annotations

import pytest
from checker import REFERENCE, not_granted, not_in_iam, without_row, without_source, without_statement
from needs import lacking
from page import PAGE, Row, exercised, granted, left_out, sources
from sources import all_sources
from statements import Held
from under_review import STACKS, held_by, template_of

TEXT = PAGE.read_text()
ROWS: list[Row] = [*exercised(TEXT), *granted(TEXT)]


def assert_none(found: list[str]) -> None:
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def held() -> list[Held]:
    return [one for name in STACKS for one in held_by(name)]


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_has_only_actions_resources_and_condition_keys_that_iam_has(name: str) -> None:
    assert_none(not_in_iam(held_by(name)))


@pytest.mark.parametrize("name", STACKS)
def test_each_permission_of_a_stack_has_its_row_on_the_page(name: str) -> None:
    assert_none(without_row(held_by(name), ROWS))


@pytest.mark.parametrize("name", STACKS)
def test_each_role_of_a_stack_has_what_its_calls_and_jobs_take(name: str) -> None:
    assert_none(lacking(template_of(name)))


def test_each_row_of_the_page_is_a_permission_of_some_stack(held: list[Held]) -> None:
    assert_none(without_statement(held, ROWS))


def test_each_row_names_sources_that_list_its_action() -> None:
    assert_none(without_source(ROWS, all_sources()))


def test_what_a_source_lists_is_granted_or_left_out_with_a_reason(held: list[Held]) -> None:
    assert_none(not_granted(held, all_sources(), left_out(TEXT)))


def test_nothing_is_left_out_that_no_source_lists_any_more(held: list[Held]) -> None:
    excused = left_out(TEXT)
    assert [one for one in sorted(excused) if not_granted(held, all_sources(), excused - {one}) == []] == []


def test_the_page_says_what_each_source_is() -> None:
    assert set(sources(TEXT)) == {*all_sources(), REFERENCE}
