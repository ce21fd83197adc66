"""The whole surface at once: whatever is said, there is a request that SageMaker's model takes, or a prop to change."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from drawn_jobs import Surface, made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refused_requests import REQUESTS
from service_rules import breaches
from whole_requests import request_of

import cdk_sagemaker_training
from cdk_sagemaker_training.request.props import prop_names, table
from training_jobs.facts.smp_v1 import smp_v1_parameters

# Which no list of SageMaker's types has yet.
NEWER_TYPES = frozenset({"ml.p7.48xlarge"})
# The props of the constructs, and those of the values that they take.
VALUES = [getattr(cdk_sagemaker_training, name) for name in cdk_sagemaker_training.__all__]
FIELDS = {field.name for value in VALUES if is_dataclass(value) for field in fields(value)}
NAMED = {*table(), *smp_v1_parameters()} | FIELDS | {prop.split(".")[0] for prop in prop_names().values()}

drawn = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def request_or_refusal(props: dict[str, Any]) -> dict[str, Any] | str:
    """The request, or what ``ValueError`` says; any other error is the test's."""
    try:
        return request_of(**{name: made(value) for name, value in props.items()})
    except ValueError as refusal:
        return str(refusal)


def requests_or_refusal(job: Any) -> list[dict[str, Any]] | str:
    """The requests of a job of any kind, or what ``ValueError`` says."""
    try:
        requests = made(job).requests()
    except ValueError as refusal:
        return str(refusal)
    # A job that was accepted has a request.
    return [request_of(SimpleNamespace(requests=lambda one=one: [one])) for one in requests]


def names_a_prop(refusal: str) -> bool:
    prop = re.match(r"\w+", refusal)
    return prop is not None and prop[0] in NAMED


def check_what_is_meant(props: dict[str, Any]) -> None:
    """That props which are each right make a request that the service takes, unless they exclude each other."""
    result = request_or_refusal(props)
    if isinstance(result, dict):
        assert breaches(result, NEWER_TYPES) == []
    else:
        excluding = "checkpoints|warm_pool|training_plan|ultra_servers|remote_debug|volume_key"
        assert re.match(rf"({excluding}) must |rules must each have a name", result)


def check_anything(props: dict[str, Any]) -> None:
    """That any props make a request that the service takes, or are refused by the name of one of them."""
    result = request_or_refusal(props)
    if isinstance(result, dict):
        assert breaches(result, NEWER_TYPES) == []
    else:
        assert names_a_prop(result), result


def check_job(job: Any) -> None:
    """That a job of any kind makes requests that the service takes, or is refused by the name of one of its props."""
    result = requests_or_refusal(job)
    if isinstance(result, str):
        assert names_a_prop(result), result
    else:
        assert [breaches(request, NEWER_TYPES) for request in result] == [[]] * len(result)


MEANT = Surface(wild=False).props()
ANYTHING = Surface(wild=True).props()
JOBS = st.one_of(Surface(wild=False).kinds(), Surface(wild=True).kinds())


@settings(drawn, max_examples=100)
@given(MEANT)
def test_what_is_said_as_it_is_meant_is_a_request_that_the_service_takes_unless_props_exclude_each_other(
    props: dict[str, Any],
) -> None:
    check_what_is_meant(props)


@settings(drawn, max_examples=200)
@given(ANYTHING)
def test_whatever_is_said_is_a_request_that_the_service_takes_or_a_prop_to_change(props: dict[str, Any]) -> None:
    check_anything(props)


@settings(drawn, max_examples=100)
@given(JOBS)
def test_each_kind_of_job_makes_requests_that_the_service_takes_or_names_a_prop_to_change(job: Any) -> None:
    check_job(job)


@pytest.mark.soak
@settings(drawn, max_examples=7_000)
@given(MEANT)
def test_thousands_of_jobs_as_they_are_meant_are_requests_that_the_service_takes(props: dict[str, Any]) -> None:
    check_what_is_meant(props)


@pytest.mark.soak
@settings(drawn, max_examples=15_000)
@given(ANYTHING)
def test_thousands_of_jobs_of_anything_are_requests_that_the_service_takes_or_name_a_prop(
    props: dict[str, Any],
) -> None:
    check_anything(props)


@pytest.mark.soak
@settings(drawn, max_examples=5_000)
@given(JOBS)
def test_thousands_of_jobs_of_each_kind_make_requests_that_the_service_takes_or_name_a_prop(job: Any) -> None:
    check_job(job)


def check_broken(job: Any, broken: dict[str, Any], props: dict[str, Any]) -> None:
    """That what breaks a rule is refused beside any props."""
    # The rows are about a job without a network that may run for an hour.
    refusal = request_or_refusal({**props, "network": None, "max_runtime": 3_600, "job": job, **broken})
    assert isinstance(refusal, str)
    assert names_a_prop(refusal), refusal


BROKEN = [(job, broken) for job, broken, _, _ in REQUESTS]
BEGIN = [begins for _, _, begins, _ in REQUESTS]


@pytest.mark.parametrize(("job", "broken"), BROKEN, ids=BEGIN)
@settings(drawn, max_examples=5)
@given(props=MEANT)
def test_a_broken_rule_is_refused_whatever_else_is_said(job: Any, broken: Any, props: dict[str, Any]) -> None:
    check_broken(job, broken, props)


@pytest.mark.soak
@pytest.mark.parametrize(("job", "broken"), BROKEN, ids=BEGIN)
@settings(drawn, max_examples=100)
@given(props=MEANT)
def test_a_broken_rule_is_refused_beside_a_hundred_sets_of_props(job: Any, broken: Any, props: dict[str, Any]) -> None:
    check_broken(job, broken, props)
