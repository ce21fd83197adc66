"""Every prop of every public value and construct, given things that it does not take: the error begins with the prop's name."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from takers import NEEDED, PLACE, PROPS, STACK, TAKERS, WITHOUT, is_whole, refusal_of

import cdk_sagemaker_training as library
from cdk_sagemaker_training import (
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
)


class AClass:
    pass


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
CYCLIC_DICT: dict[str, Any] = {}
CYCLIC_DICT["again"] = CYCLIC_DICT
# Things that no prop takes.
NOTHING_TAKES = {
    "an object": object(),
    "a class": AClass,
    "the class of a value": S3Prefix,
    "the class of a construct": s3.Bucket,
    "an L1 construct": s3.CfnBucket(STACK, "L1"),
    "a decimal": Decimal("1.5"),
    "a set": {1, 2},
    "bytes": b"text",
    "a complex number": 1j,
    "a function": lambda: None,
    "a secret": cdk.SecretValue.unsafe_plain_text("secret"),
    "a token that is no text": cdk.Token.as_any({"Ref": "Anything"}),
    "a list that holds itself": CYCLE,
    "a time in fractions of a second": cdk.Duration.millis(1500),
    "a list of an object": [object()],
    "a list of a class": [S3Prefix],
    "a list of bytes": [b"text"],
    "a dict with a number for a name": {1: "text"},
}
# Those that some props take, and the word in the annotation of those.
SOME_TAKE = {
    "None": (None, "None"),
    "text": ("text", "str|Any"),
    "a number": (3, "int|float"),
    "a fraction": (0.5, "float"),
    "a truth": (True, "bool"),
    "a list": ([], "Sequence|tuple"),
    "a list of text": (["text"], r"Sequence\[str|tuple\[str"),
    "a dict": ({}, "Mapping"),
    "a dict of objects": ({"a": object()}, r"Mapping\[str, Any\]"),
    "a dict that holds itself": (CYCLIC_DICT, r"Mapping\[str, Any\]"),
    "a value": (PLACE, "S3Prefix"),
    "a construct": (STACK, "Construct"),
}


def test_every_public_name_that_takes_props_is_among_these() -> None:
    assert {name.split(".")[0] for name in TAKERS} | WITHOUT == set(library.__all__)
    assert {*NEEDED} <= {*TAKERS}
    assert len(PROPS) > 250


@pytest.mark.parametrize("kind", NOTHING_TAKES)
def test_what_no_prop_takes_is_refused_by_the_props_name(kind: str) -> None:
    value = NOTHING_TAKES[kind]
    refusals = {(name, prop): refusal_of(name, prop, value) for name, prop, text in PROPS if text != "Any"}
    assert {at: refusal for at, refusal in refusals.items() if not is_whole(refusal, at[1])} == {}


@pytest.mark.parametrize("kind", SOME_TAKE)
def test_what_some_props_take_is_refused_by_the_names_of_the_others(kind: str) -> None:
    value, taken = SOME_TAKE[kind]
    others = [(name, prop) for name, prop, text in PROPS if not re.search(taken, text)]
    refusals = {(name, prop): refusal_of(name, prop, value) for name, prop in others}
    assert {at: refusal for at, refusal in refusals.items() if not is_whole(refusal, at[1])} == {}


leaves = st.sampled_from([object(), S3Prefix, b"x", Decimal(1), {1}, CYCLE, NOTHING_TAKES["a secret"]])
nested = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, min_size=1, max_size=2), st.dictionaries(st.text(), inner, min_size=1)),
    max_leaves=3,
)


drawn = settings(deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def check_nested(at: tuple[str, str, str], value: Any) -> None:
    """That what holds something which no prop takes is refused by the prop's name."""
    name, prop, text = at
    # A kind of job of a user's own may hold what it likes in the members that the service has; the request is checked. What
    # a branch holds is checked by the pipeline that takes it.
    if not ("Mapping[str, Any]" in text or "Sequence[Sequence[Any]]" in text) or prop == "hyperparameters":
        refusal = refusal_of(name, prop, value)
        assert is_whole(refusal, prop), (name, prop, refusal)


@settings(drawn, max_examples=150)
@given(at=st.sampled_from(PROPS), value=nested)
def test_what_holds_something_that_no_prop_takes_is_refused_by_the_props_name(at: Any, value: Any) -> None:
    check_nested(at, value)


@pytest.mark.soak
@settings(drawn, max_examples=10_000)
@given(at=st.sampled_from(PROPS), value=nested)
def test_thousands_of_values_that_no_prop_takes_are_refused_by_the_props_name(at: Any, value: Any) -> None:
    check_nested(at, value)


def test_a_class_in_place_of_an_image_or_a_network_is_refused() -> None:
    for prop, value in (("image", TrainingImage), ("network", TrainingNetwork)):
        assert is_whole(refusal_of("TrainingWorkflow", prop, value), prop)
