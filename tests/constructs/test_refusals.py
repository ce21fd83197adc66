"""The library's rules, each with what it says to whom breaks it: the prop, the rule, an example, and what it got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from refused_requests import REQUESTS
from refused_values import CONSTRUCTORS
from stacks import message_of
from whole_requests import request_of

from cdk_sagemaker_training.core.errors import must


def test_an_error_names_the_prop_the_rule_an_example_and_the_value() -> None:
    assert str(must("count", "be at least 1", "2", "0")) == "count must be at least 1, like 2, got 0"
    assert str(must("count", "match [0-9]+", "", "'a'")) == "count must match [0-9]+, got 'a'"


@pytest.mark.parametrize(("breaks", "begins", "ends"), CONSTRUCTORS, ids=[row[1] for row in CONSTRUCTORS])
def test_a_value_that_breaks_a_rule_is_refused(breaks: Callable[[], Any], begins: str, ends: str) -> None:
    message = message_of(breaks)
    assert message.startswith(begins)
    assert message.endswith(ends)


@pytest.mark.parametrize(("job", "props", "begins", "ends"), REQUESTS, ids=[row[2] for row in REQUESTS])
def test_a_request_that_breaks_a_rule_is_refused(job: Any, props: dict[str, Any], begins: str, ends: str) -> None:
    message = message_of(lambda: request_of(job, **props))
    assert message.startswith(begins)
    assert message.endswith(ends)


def test_each_row_is_about_a_rule_of_its_own_and_there_are_more_than_60() -> None:
    rules = {begins for _, begins, _ in CONSTRUCTORS} | {begins for _, _, begins, _ in REQUESTS}
    assert len(rules) >= 60
