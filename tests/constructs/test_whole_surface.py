"""The whole surface at once: whatever is said, there is a request that SageMaker's model takes, or a prop to change."""

from __future__ import annotations

import re
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from drawn_jobs import Surface, made
from hypothesis import HealthCheck, given, settings
from test_refusals import REQUESTS
from whole_requests import request_of

from cdk_sagemaker_training.props import PROPS
from cdk_sagemaker_training.request import PROP_NAMES
from cdk_sagemaker_training.service_model import check_request
from cdk_sagemaker_training.tokens import is_unresolved

MODEL = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
INPUT = MODEL.operation_model("CreateTrainingJob").input_shape
# The props of the constructs, and those of the values that they take.
FIELDS = {
    *("accept_eula", "attribute_names", "compression", "content_type", "counts", "data_type", "directory", "disable"),
    *("distribution", "evaluator_image", "experiment_name", "groups", "input_mode", "instance_count", "instance_type"),
    *(
        "interval_milliseconds",
        "keep_alive",
        "local_path",
        "max_wait",
        "mount_name",
        "multiple_jobs",
        "name",
        "objects",
    ),
    *("prefix", "read_only", "record_wrapper", "resource_arn", "rules", "shuffle_seed", "train", "train_group"),
}
NAMED = PROPS | FIELDS | {prop.split(".")[0] for prop in PROP_NAMES.values()}

drawn = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def request_or_refusal(props: dict[str, Any]) -> dict[str, Any] | str:
    """The request, or what ``ValueError`` says; any other error is the test's."""
    try:
        drawn_props = {name: made(value) for name, value in props.items()}
        return request_of(**drawn_props)
    except ValueError as refusal:
        return str(refusal)


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


@settings(drawn, max_examples=1_000)
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


@settings(drawn, max_examples=1_000)
@given(Surface(wild=True).props())
def test_whatever_is_said_is_a_request_that_botocore_takes_or_a_prop_to_change(props: dict[str, Any]) -> None:
    result = request_or_refusal(props)
    if isinstance(result, dict):
        check_with_botocore(result)
    else:
        prop = re.match(r"\w+", result)
        assert prop is not None, result
        assert prop[0] in NAMED, result


@pytest.mark.parametrize(("job", "broken", "begins", "ends"), REQUESTS, ids=[row[2] for row in REQUESTS])
@settings(drawn, max_examples=10)
@given(props=Surface(wild=False).props())
def test_a_broken_rule_is_refused_whatever_else_is_said(
    job: Any, broken: dict[str, Any], begins: str, ends: str, props: dict[str, Any]
) -> None:
    refusal = request_or_refusal({**props, "vpc_config": None, "job": job, **broken})
    assert isinstance(refusal, str), begins
    assert re.match(r"\w+", refusal)[0] in NAMED  # type: ignore[index]
