"""The whole surface at once: whatever is said, there is a request that SageMaker's model takes, or a prop to change."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from drawn_jobs import Surface, made
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_refusals import REQUESTS
from whole_requests import request_of

import cdk_sagemaker_training
from cdk_sagemaker_training.props import PROPS
from cdk_sagemaker_training.request import PROP_NAMES, create_training_job
from cdk_sagemaker_training.service_model import check_request
from cdk_sagemaker_training.tokens import is_unresolved

MODEL = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
INPUT = MODEL.operation_model("CreateTrainingJob").input_shape
# The props of the constructs, and those of the values that they take.
VALUES = [getattr(cdk_sagemaker_training, name) for name in cdk_sagemaker_training.__all__]
FIELDS = {field.name for value in VALUES if is_dataclass(value) for field in fields(value)}
NAMED = PROPS | FIELDS | {prop.split(".")[0] for prop in PROP_NAMES.values()}
NAMED |= {*inspect.signature(create_training_job).parameters}

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


def check_with_botocore(request: dict[str, Any]) -> None:
    """What an SDK checks before it sends (types, required members, ranges), and what it leaves to the service besides.

    A request with a token in it goes to Step Functions, of whose placeholders the SDK's check knows nothing.
    """
    check_request(request, newer_values=frozenset({"ml.p7.48xlarge"}))
    if not holds_token(request):
        report = ParamValidator().validate(request, INPUT)
        assert not report.has_errors(), report.generate_report()


def holds_token(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(holds_token, value.values() if isinstance(value, dict) else value))
    return is_unresolved(value)


@settings(drawn, max_examples=700)
@given(Surface(wild=False).props())
def test_what_is_said_as_it_is_meant_is_a_request_that_botocore_takes_unless_props_exclude_each_other(
    props: dict[str, Any],
) -> None:
    result = request_or_refusal(props)
    if isinstance(result, dict):
        check_with_botocore(result)
    else:
        # Alone each of these props is right, so that only a rule between two of them can have been broken.
        assert re.match(
            r"(warm_pool|training_plan|ultra_servers|remote_debug|volume_key) must |rules must each have a name", result
        )


@settings(drawn, max_examples=1_500)
@given(Surface(wild=True).props())
def test_whatever_is_said_is_a_request_that_botocore_takes_or_a_prop_to_change(props: dict[str, Any]) -> None:
    result = request_or_refusal(props)
    if isinstance(result, dict):
        check_with_botocore(result)
    else:
        assert names_a_prop(result), result


@settings(drawn, max_examples=500)
@given(st.one_of(Surface(wild=False).kinds(), Surface(wild=True).kinds()))
def test_each_kind_of_job_makes_requests_that_botocore_takes_or_names_a_prop_to_change(job: Any) -> None:
    result = requests_or_refusal(job)
    if isinstance(result, str):
        assert names_a_prop(result), result
    else:
        for request in result:
            check_with_botocore(request)


@pytest.mark.parametrize(("job", "broken", "begins", "ends"), REQUESTS, ids=[row[2] for row in REQUESTS])
@settings(drawn, max_examples=10)
@given(props=Surface(wild=False).props())
def test_a_broken_rule_is_refused_whatever_else_is_said(
    job: Any, broken: dict[str, Any], begins: str, ends: str, props: dict[str, Any]
) -> None:
    refusal = request_or_refusal({**props, "vpc_config": None, "job": job, **broken})
    assert isinstance(refusal, str), begins
    assert names_a_prop(refusal), refusal
