"""Our requests beside those of AWS's SDK for the same configuration, member by member (tests/sdk_requests/cases_members.py)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Template
from member_cases import PLAN, SAME, Stack, beside_data, paths_of, report
from rendered import create_requests
from sdk_recordings import as_read, canonical, cases_of, recorded

from cdk_sagemaker_training import (
    DataParallelJob,
    EfsChannel,
    InstanceGroup,
    PrivateRegistry,
    Profiler,
    S3Channel,
    TrainingWorkflow,
    WarmPool,
)
from cdk_sagemaker_training.docs_generator import cell, members
from cdk_sagemaker_training.docs_generator import ours as ours_by_path

# Requests that differ on purpose, each with a test of its own below; all others are equal.
DIFFERENT: dict[str, Any] = {
    "members_said_nothing": lambda stack: {"profiler": None},
    "members_generic_values": lambda stack: {
        "hyperparameters": {"shuffle": True, "sizes": [1, 2], "note": "None", "digits": "5"}
    },
    "members_groups_some_channels": lambda stack: {
        "job": beside_data(),
        "hyperparameters": {"epochs": 3},
        "channels": {
            "images": S3Channel(stack.bucket, "images/", groups=["data_group"]),
            "labels": S3Channel(stack.bucket, "labels/"),
        },
    },
    "members_refused_groups_without_launcher": lambda stack: {"job": beside_data(launcher=None)},
}


WORKFLOWS_IN_A_STACK = 15


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
    """The requests of all jobs that the SDK makes too, from few templates, by the recording's name."""
    cases = {**SAME, **DIFFERENT}
    found: dict[str, dict[str, Any]] = {}
    for names in batched(cases, WORKFLOWS_IN_A_STACK):
        stack = Stack()
        ids = {name: f"Job{number}" for number, name in enumerate(names)}
        for name, id in ids.items():
            stack.workflow(id, **cases[name](stack))
        requests = create_requests(dict(Template.from_stack(stack).to_json()))
        found |= {
            name: request
            for name, id in ids.items()
            for state, request in requests.items()
            if state.startswith(f"{id}StateMachine")
        }
    return found


def batched(names: Iterable[str], count: int) -> Iterator[list[str]]:
    rest = iter(names)
    while some := list(itertools.islice(rest, count)):
        yield some


@pytest.mark.parametrize("case", SAME)
def test_a_request_is_that_of_the_sdk(case: str, ours: dict[str, dict[str, Any]]) -> None:
    assert canonical(ours[case]) == canonical(recorded(case)["request"])


def test_a_job_that_says_nothing_of_it_is_not_watched_as_the_sdk_has_it_watched(ours: dict[str, Any]) -> None:
    theirs = canonical(recorded("members_said_nothing")["request"])
    assert theirs.pop("DebugHookConfig") == {"CollectionConfigurations": [], "S3OutputPath": "s3://bucket/models/"}
    assert theirs.pop("ProfilerConfig") == {"DisableProfiler": False, "S3OutputPath": "s3://bucket/models/"}
    assert canonical(ours["members_said_nothing"]) == theirs


def test_the_script_reads_the_values_that_were_given_of_which_the_sdk_sends_pythons_text(ours: dict[str, Any]) -> None:
    request = ours["members_generic_values"]
    theirs = recorded("members_generic_values")["request"]["HyperParameters"]
    read = {name: as_read(text) for name, text in request["HyperParameters"].items()}
    assert read == {"shuffle": True, "sizes": [1, 2], "note": "None", "digits": "5"}
    assert {name: as_read(text) for name, text in theirs.items()} == {**read, "shuffle": "True", "digits": 5}


def test_groups_named_on_one_channel_are_named_on_all_where_the_sdk_sends_what_the_service_refuses(
    ours: dict[str, Any],
) -> None:
    theirs = canonical(recorded("members_groups_some_channels")["request"])
    labels = theirs["InputDataConfig"][1]["DataSource"]["S3DataSource"]
    assert "InstanceGroupNames" not in labels
    labels["InstanceGroupNames"] = ["data_group", "label_group", "dnn_group"]
    assert canonical(ours["members_groups_some_channels"]) == theirs


def test_a_group_may_train_without_a_launcher_which_the_sdk_refuses_and_the_toolkit_reads(ours: dict[str, Any]) -> None:
    assert "no distribution strategies" in recorded("members_refused_groups_without_launcher")["refused"]
    hyperparameters = ours["members_refused_groups_without_launcher"]["HyperParameters"]
    assert hyperparameters == {"sagemaker_distribution_instance_groups": '["dnn_group"]'}


# The prop that our refusal names, and what it is said of.
REFUSED: dict[str, tuple[str, Any]] = {
    "members_refused_profiler_rules": (
        "disable",
        lambda stack: {"profiler": Profiler(disable=True, rules=[report(stack)])},
    ),
    "loose_spot_wait": ("spot.max_wait", lambda stack: stack.spot(1800)),
    "loose_spot_warm_pool": ("warm_pool", lambda stack: stack.spot(warm_pool=WarmPool(1800))),
    "loose_spot_training_plan": (
        "training_plan",
        lambda stack: stack.spot(
            job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2)), training_plan=PLAN, channels=None
        ),
    ),
    "loose_long": ("max_runtime", lambda stack: {"max_runtime": cdk.Duration.days(30)}),
    "loose_volume_key": (
        "volume_key",
        lambda stack: {"job": DataParallelJob(InstanceGroup("ml.g5.xlarge", 2)), "volume_key": stack.key},
    ),
    "loose_file_system_without_network": (
        "network",
        lambda stack: {"channels": {"training": EfsChannel(stack.efs, "/images")}},
    ),
    "loose_registry_without_network": (
        "network",
        lambda stack: {"image": stack.in_registry, "private_registry": PrivateRegistry()},
    ),
    "loose_registry_not_said": (
        "private_registry",
        lambda stack: {"image": stack.in_registry, "network": stack.network},
    ),
    "loose_isolated_remote_debug": ("remote_debug", lambda stack: {"network_isolation": True, "remote_debug": True}),
    "loose_compressed_file": ("compression", lambda stack: {"channels": stack.s3(compression="Gzip")}),
    "loose_augmented_manifest": (
        "attribute_names",
        lambda stack: {
            "channels": stack.s3("labels.manifest", data_type="AugmentedManifestFile", objects=stack.place("images/"))
        },
    ),
    "loose_channel_of_no_group": (
        r"channels\['images'\].groups",
        lambda stack: {
            "job": beside_data(),
            "channels": {"images": S3Channel(stack.bucket, "images/", groups=["data-group"])},
        },
    ),
    "loose_tag": ("tags", lambda stack: {"tags": {"aws:team": "vision"}}),
    "loose_misspelt_type": ("instance_type", lambda stack: {"job": DataParallelJob(InstanceGroup("ml.c5.xlrage", 2))}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_sdk_refuses_or_lets_the_service_refuse_is_refused_at_synth(case: str) -> None:
    assert ("refused" in recorded(case)) == ("_refused_" in case)
    prop, props = REFUSED[case]
    stack = Stack()
    with pytest.raises(ValueError, match=f"^{prop} must "):
        stack.workflow("Training", **props(stack))


# What nobody can say here: the time that a spot job may take is a part of Spot, which asks for it.
UNSAID = {"loose_wait_without_spot", "loose_spot_without_wait"}
# What neither refuses, and is warned of: tests/constructs/test_quiet_mistakes.py.
WARNED = {"loose_metric_without_value"}


def test_a_longest_wait_goes_with_spot_and_spot_with_a_longest_wait() -> None:
    assert "max_wait" not in TrainingWorkflow.__init__.__annotations__
    stack = Stack()
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_wait'"):
        stack.workflow("Training", max_wait=cdk.Duration.days(2))
    assert recorded("loose_spot_without_wait")["request"]["StoppingCondition"] == {"MaxRuntimeInSeconds": 86_400}


def test_each_recording_is_compared() -> None:
    assert cases_of("cases_members") == {*SAME, *DIFFERENT, *REFUSED, *UNSAID, *WARNED}


# Members of ours that version 2 of the SDK has no word for.
NOT_IN_THE_SDK = {
    "MlflowConfig.MlflowExperimentName",
    "MlflowConfig.MlflowResourceArn",
    "MlflowConfig.MlflowRunName",
    "ResourceConfig.InstancePreferences.InstanceCount",
    "ResourceConfig.InstancePreferences.InstanceType",
    "ResourceConfig.InstancePreferences.TrainingPlanArns",
    "StoppingCondition.MaxPendingTimeInSeconds",
}


def test_each_member_of_ours_is_in_a_request_that_was_compared_but_for_those_that_the_sdk_lacks() -> None:
    supported = {member for member in members() if cell(ours_by_path(), member)}
    compared = {path for case in SAME for path in paths_of(recorded(case)["request"])}
    assert supported - compared == NOT_IN_THE_SDK
