"""Jobs that SageMaker runs on the first of several types that it has capacity of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sdk_recordings import recorded_v3
from stacks import RenderedWorkflow, message_of
from whole_requests import BUCKET, PLAN, key_at, request_of

from cdk_sagemaker_training import (
    CompiledJob,
    DataParallelJob,
    HeterogeneousJob,
    InstanceGroup,
    InstancePreference,
    ModelParallelJob,
    NativeParallelism,
    S3Prefix,
    SmDdp,
    Spot,
    Torchrun,
    TorchXla,
    UltraServers,
)
from cdk_sagemaker_training.resources.networking.addresses import check_addresses

P5, P4D, G5 = "ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.g5.12xlarge"
EITHER = InstanceGroup([P5, P4D], 2)
EACH = InstanceGroup([InstancePreference(P5, 1, PLAN), InstancePreference(G5, 2)])


def test_types_are_sent_in_their_order_with_one_count_for_the_job() -> None:
    config = request_of(DataParallelJob(EITHER, Torchrun()))["ResourceConfig"]
    assert config == {
        "InstanceCount": 2,
        "InstancePreferences": [{"InstanceType": P5}, {"InstanceType": P4D}],
        "VolumeSizeInGB": 30,
    }


def test_types_are_sent_with_a_count_and_a_plan_of_their_own() -> None:
    assert request_of(DataParallelJob(EACH))["ResourceConfig"] == {
        "InstancePreferences": [
            {"InstanceType": P5, "InstanceCount": 1, "TrainingPlanArns": [PLAN]},
            {"InstanceType": G5, "InstanceCount": 2},
        ],
        "VolumeSizeInGB": 30,
    }


@pytest.mark.parametrize(
    ("case", "group"),
    [
        ("preferences_one_count", EITHER),
        ("preferences_own_counts", InstanceGroup([InstancePreference(P5, 1), InstancePreference(G5, 2)])),
        ("preferences_own_plan", EACH),
    ],
)
def test_a_request_is_that_of_version_3_of_the_sdk(case: str, group: InstanceGroup) -> None:
    ours = request_of(DataParallelJob(group), output=S3Prefix(BUCKET, "models/"), max_runtime=86_400)
    of_sdk = recorded_v3(case)["request"]
    same = ("ResourceConfig", "StoppingCondition")
    assert {name: ours[name] for name in same} == {name: of_sdk[name] for name in same}
    # GZIP is the service's default (API, OutputDataConfig).
    assert {"CompressionType": "GZIP", **ours["OutputDataConfig"]} == of_sdk["OutputDataConfig"]
    assert "EnableManagedSpotTraining" not in {**ours, **of_sdk}


@pytest.mark.parametrize(
    ("case", "make"),
    [
        ("preferences_refused_twice", lambda: InstanceGroup([P5, P4D, P5], 2)),
        ("preferences_refused_one_without_count", lambda: InstanceGroup([InstancePreference(P5, 1), P4D])),
        (
            "preferences_refused_both_counts",
            lambda: InstanceGroup([InstancePreference(P5, 1), InstancePreference(P4D, 2)], 2),
        ),
        (
            "preferences_refused_spot",
            lambda: request_of(DataParallelJob(EITHER), spot=Spot(S3Prefix(BUCKET), 7200)),
        ),
    ],
)
def test_what_version_3_of_the_sdk_refuses_is_refused(case: str, make: Callable[[], Any]) -> None:
    assert "instance_" in recorded_v3(case)["refused"]
    message_of(make)


def test_degrees_must_fit_each_of_the_types() -> None:
    fits = InstanceGroup([InstancePreference(P5, 1), InstancePreference(G5, 2)])
    [request] = ModelParallelJob(fits, NativeParallelism(data_shard=8)).requests()
    assert "InstancePreferences" in request.resource_config
    message = message_of(lambda: ModelParallelJob(InstanceGroup([P5, G5]), NativeParallelism(data_shard=8)))
    assert message.startswith("parallelism must have degrees that multiply to 4 processes (instance_count 1 x 4 ")


@pytest.mark.parametrize(
    ("make", "begins", "ends"),
    [
        (lambda: InstanceGroup([]), "instance_type must be a type or a list of 1 to 5", "got 0"),
        (lambda: InstanceGroup([P5, P4D, P5]), "instance_type must list each type once", f"got {P5!r} twice"),
        (
            lambda: InstanceGroup([InstancePreference(P5, 1), P4D]),
            "instance_count must be set on each InstancePreference, or once for the job",
            "got [1, None] with None for the job",
        ),
        (
            lambda: InstanceGroup([InstancePreference(P5, 1), InstancePreference(P4D, 2)], 2),
            "instance_count must be set on each InstancePreference, or once for the job",
            "got [1, 2] with 2 for the job",
        ),
        (
            lambda: InstanceGroup([P5, "p4d.24xlarge"]),
            "instance_type must be a SageMaker training type",
            "'p4d.24xlarge'",
        ),
        (lambda: InstancePreference(P5, 0), "instance_count must be a whole number of at least 1", "got 0"),
        (lambda: InstancePreference(P5, training_plan=""), "training_plan must be text", "got ''"),
        (
            lambda: DataParallelJob(EITHER, SmDdp(launch_by="torchrun")),
            "instance_type must list types on which the job is the same",
            """'sagemaker_torch_distributed_enabled': 'true'}""",
        ),
        (
            lambda: CompiledJob(InstanceGroup([P5, G5]), compiler=TorchXla()),
            "instance_type must list types on which the job is the same",
            "'GPU_NUM_DEVICES': '4'}",
        ),
        (
            lambda: HeterogeneousJob(
                {"data": InstanceGroup(["ml.c5.xlarge", "ml.m5.xlarge"])}, DataParallelJob(InstanceGroup(P5)), "dnn"
            ),
            "groups must have one type each, since InstancePreferences apply to a whole job only",
            "got 2 types for 'data'",
        ),
        (
            lambda: HeterogeneousJob({"data": InstanceGroup("ml.c5.xlarge")}, DataParallelJob(EITHER), "dnn"),
            "train must be a job that can run in one of several groups",
            "(InstancePreferences), which exclude instance groups",
        ),
        (
            lambda: request_of(DataParallelJob(EITHER), spot=Spot(S3Prefix(BUCKET), 7200)),
            "spot must be left out of a job that may run on several types",
            f"with {[P5, P4D]}",
        ),
        (
            lambda: request_of(DataParallelJob(EACH), training_plan=PLAN),
            "training_plan must be left out of a job that may run on types with training plans of their own",
            f"got {PLAN!r} with {[P5, G5]}",
        ),
        (
            lambda: request_of(
                DataParallelJob(InstanceGroup(["ml.p6e-gb200.36xlarge", P5], 18)), ultra_servers=UltraServers([18])
            ),
            "ultra_servers must be left out of a job that may run on several types",
            f"with {['ml.p6e-gb200.36xlarge', P5]}",
        ),
        (
            lambda: request_of(DataParallelJob(InstanceGroup(["ml.c5.xlarge", G5])), volume_key=key_at("key")),
            "volume_key must be left out of a job on machines with local disks",
            f"got a key with {G5!r}",
        ),
        (
            lambda: check_addresses(InstanceGroup([P5, "ml.g5.xlarge"], 3).resource_config(), ["10.0.0.0/28"]),
            "network must have a subnet with addresses for all machines",
            "for 15, got 11 in 10.0.0.0/28 for 3 machines",
        ),
    ],
)
def test_what_a_choice_among_types_excludes_is_refused(make: Callable[[], Any], begins: str, ends: str) -> None:
    message = message_of(make)
    assert message.startswith(begins)
    assert message.endswith(ends)


def test_a_workflow_polls_and_may_use_the_plan_of_a_preference() -> None:
    rendered = RenderedWorkflow(job=DataParallelJob(EACH))
    assert rendered.workflow.integration == "poll"
    preferences = rendered.request["ResourceConfig"]["InstancePreferences"]
    assert [one["InstanceType"] for one in preferences] == [P5, G5]
    creating = [
        one["Resource"]
        for one in rendered.statements("TrainingStateMachineRole")
        if one["Action"] == "sagemaker:CreateTrainingJob"
    ]
    assert creating == [[PLAN, "arn:aws:sagemaker:us-east-1:123456789012:reserved-capacity/*"]]
