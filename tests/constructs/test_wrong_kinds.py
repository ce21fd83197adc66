"""Every prop of every public value and construct, given things that it does not take: the error begins with the prop's name."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, ForwardRef

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from member_cases import RULES_IMAGE, Stack

import cdk_sagemaker_training as library
from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    NativeParallelism,
    S3Prefix,
    TrainingImage,
    TrainingNetwork,
    TrainingProps,
    TrainingTask,
    TrainingWorkflow,
)

STACK = Stack()
PLACE = S3Prefix(STACK.bucket, "some/")
GROUP = InstanceGroup("ml.g5.xlarge")
JOB = DataParallelJob(GROUP)
WORKFLOW = {"job": JOB, "image": STACK.image, "output": PLACE}
SCOPED = {"scope": STACK, "id": "New"}
# What is needed of each beside the prop that is wrong.
NEEDED: dict[str, dict[str, Any]] = {
    "Advice": {"id": "team:slow", "text": "Slow."},
    "CompiledJob": {"group": GROUP},
    "DataParallelJob": {"group": GROUP},
    "Debugger": {"output": PLACE},
    "DebuggerRule": {"name": "Loss", "evaluator_image": RULES_IMAGE},
    "EfsChannel": {"file_system": STACK.efs},
    "Experiment": {"experiment_name": "digits"},
    "FsxLustreChannel": {"file_system": STACK.lustre, "mount_name": "fsx"},
    "HeterogeneousJob": {"groups": {"data": GROUP}, "train": JOB, "train_group": "dnn"},
    "InstanceGroup": {"instance_type": "ml.g5.xlarge"},
    "InstancePreference": {"instance_type": "ml.g5.xlarge"},
    "JobRequest": {"resource_config": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1}},
    "LustreFileSystem": {**SCOPED, "network": STACK.network, "data": PLACE},
    "Mlflow": {"resource_arn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits"},
    "ModelParallelJob": {"group": GROUP, "parallelism": NativeParallelism()},
    "Neuron": {"cache": PLACE},
    "S3AccessPoint": {"arn": "arn:aws:s3:us-east-1:123456789012:accesspoint/images"},
    "S3Channel": {"bucket": STACK.bucket, "prefix": "images/"},
    "S3Prefix": {"bucket": STACK.bucket},
    "SmpV1": {"pipeline_parallel_degree": 2},
    "Spot": {"checkpoints": PLACE, "max_wait": 7200},
    "TensorBoard": {"output": PLACE},
    "TrainingBucket": SCOPED,
    "TrainingImage": {**SCOPED, "directory": "training_code"},
    "TrainingImage.from_dlc": {**SCOPED, "repository": "pytorch-training", "tag": "2.6.0-gpu-py312"},
    "TrainingImage.from_ecr_repository": {**SCOPED, "repository": STACK.image.repository, "tag": "1"},
    "TrainingImage.from_neuron": SCOPED,
    "TrainingImage.from_training_compiler": {**SCOPED, "framework": "pytorch", "version": "1.13.1"},
    "TrainingImage.from_uri": {**SCOPED, "image_uri": "registry.example.com/team/training:1"},
    "TrainingNetwork": SCOPED,
    "TrainingNetwork.from_lookup": SCOPED,
    "TrainingNetwork.from_vpc": {**SCOPED, "vpc": STACK.network.vpc},
    "TrainingRole": SCOPED,
    "TrainingRole.from_role": {**SCOPED, "role": STACK.role},
    "TrainingTask": {**SCOPED, **WORKFLOW},
    "TrainingWorkflow": {**SCOPED, **WORKFLOW},
    "UltraServers": {"counts": [1]},
    "WarmPool": {"keep_alive": 600},
    "efa_environment": {"instance_type": "ml.p4d.24xlarge"},
    "rescaled_learning_rate": {"learning_rate": 0.1, "batch_size": 1, "new_batch_size": 2},
    "suggested_batch_sizes": {"model": "gpt2"},
}
# Public names that take no props of their own: protocols, what the library makes, and what is checked with its taker.
WITHOUT = {"Compiler", "SuggestedBatchSize", "TrainingJob", "TrainingProps"}


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
NUMBERS = itertools.count()


def takers() -> dict[str, Callable[..., Any]]:
    """Every public value, construct and function, and what constructs are made by besides."""
    found: dict[str, Callable[..., Any]] = {}
    for name in set(library.__all__) - WITHOUT:
        public = getattr(library, name)
        found[name] = public
        for method, made_by in inspect.getmembers(public, inspect.isfunction):
            is_static = isinstance(inspect.getattr_static(public, method), staticmethod)
            if is_static and method.startswith("from_") and "cdk_sagemaker" in made_by.__module__:
                found[f"{name}.{method}"] = made_by
    return found


def annotations(taker: Callable[..., Any]) -> dict[str, str]:
    """The text of each prop's annotation, by the prop's name."""
    # Of a class of CDK's, whose metaclass hides what its constructor takes.
    parameters = inspect.signature(taker.__init__ if inspect.isclass(taker) else taker).parameters.values()
    own = {one.name: str(one.annotation) for one in parameters if one.kind is not one.VAR_KEYWORD}
    if taker in (TrainingWorkflow, TrainingTask):
        of_jobs = TrainingProps.__annotations__.items()
        own |= {name: one.__forward_arg__ if isinstance(one, ForwardRef) else str(one) for name, one in of_jobs}
    return {name: text for name, text in own.items() if name not in ("self", "kind")}


TAKERS = takers()
PROPS = [(name, prop, text) for name in sorted(TAKERS) for prop, text in sorted(annotations(TAKERS[name]).items())]


def refusal_of(name: str, prop: str, value: Any) -> str | None:
    """What is said to a prop with a value; None where it is taken."""
    props = {**NEEDED.get(name, {}), prop: value}
    if props.get("id") == "New":
        props["id"] = f"New{next(NUMBERS)}"
    try:
        TAKERS[name](**props)
    except (ValueError, TypeError) as refusal:
        return str(refusal)
    return None


def is_whole(refusal: str | None, prop: str) -> bool:
    """Whether a refusal begins with the prop and has the rule, an example and the value."""
    return refusal is not None and bool(re.match(rf"{prop}\b.* must .*( like |one of ).*, got ", refusal, re.DOTALL))


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


@settings(
    max_examples=1_000, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(at=st.sampled_from(PROPS), value=nested)
def test_what_holds_something_that_no_prop_takes_is_refused_by_the_props_name(
    at: tuple[str, str, str], value: Any
) -> None:
    name, prop, text = at
    # A kind of job of a user's own may hold what it likes in the members that the service has; the request is checked.
    if "Mapping[str, Any]" not in text or prop == "hyperparameters":
        refusal = refusal_of(name, prop, value)
        assert is_whole(refusal, prop), (name, prop, refusal)


def test_a_class_in_place_of_an_image_or_a_network_is_refused() -> None:
    for prop, value in (("image", TrainingImage), ("network", TrainingNetwork)):
        assert is_whole(refusal_of("TrainingWorkflow", prop, value), prop)
