"""Jobs that run where AWS has no capacity for the first: their requests, and the order in which they are tried."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from rendered import lint
from stacks import RenderedWorkflow, UserStack, message_of
from state_walk import Walk

from cdk_sagemaker_training import (
    Alternative,
    Cause,
    CompiledJob,
    DataParallelJob,
    InstanceGroup,
    ModelParallelJob,
    NativeParallelism,
    Neuron,
    Retry,
    S3Prefix,
    Torchrun,
    TrainingImage,
)

P5, P4D, G5, TRN1, GB200 = (
    "ml.p5.48xlarge",
    "ml.p4d.24xlarge",
    "ml.g5.48xlarge",
    "ml.trn1.32xlarge",
    "ml.p6e-gb200.36xlarge",
)
CAPACITY = "CapacityError: Unable to provision requested ML compute capacity."
LOST = "InternalServerError: We encountered an internal error."
INTEGRATIONS = ("sync", "poll")
ON_P5 = DataParallelJob(InstanceGroup(P5, 2))
ON_P4D = Alternative(DataParallelJob(InstanceGroup(P4D, 4)), hyperparameters={"batch-size": 16})
ON_G5 = DataParallelJob(InstanceGroup(G5, 4))


@cache
def rendered(integration: str = "poll", *, retried: int = 0) -> RenderedWorkflow:
    retries = {Cause.CAPACITY: Retry(attempts=retried, first_wait=60, backoff=1)} if retried else {}
    return RenderedWorkflow(
        job=ON_P5,
        hyperparameters={"batch-size": 64, "steps": 100},
        environment={"NCCL_DEBUG": "INFO"},
        alternatives=[ON_P4D, ON_G5],
        retries={**retries, Cause.HOST_LOST: Retry(attempts=1)},
        integration=integration,
    )


def creates(visited: list[str]) -> list[str]:
    return [name for name in visited if name.startswith("Create")]


def walk(workflow: RenderedWorkflow, reason: str) -> Walk:
    [poller] = workflow.pollers.values() or [{}]
    return Walk(workflow.definition, poller, 1, "Failed", reason).run()


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_jobs_without_capacity_are_tried_in_order_and_at_once(integration: str) -> None:
    visited = walk(rendered(integration), CAPACITY).visited
    assert creates(visited) == ["Create", "CreateAlternative1", "CreateAlternative2"]
    assert visited[-1] == "FailedCapacity"


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_a_retry_waits_once_all_were_tried_and_begins_with_the_first(integration: str) -> None:
    visited = walk(rendered(integration, retried=1), CAPACITY).visited
    assert creates(visited) == 2 * ["Create", "CreateAlternative1", "CreateAlternative2"]
    assert visited.count("WaitAfterCapacity") == 1


def test_a_job_that_is_run_again_for_another_cause_runs_on_the_machines_that_it_had() -> None:
    states = rendered().states
    assert states["RetryHostLost"]["Next"] == "NextAttempt"
    assert states["NextAttempt"]["Parameters"]["Turn.$"] == "$.Training.Turn"
    assert creates(walk(rendered(), LOST).visited) == ["Create", "Create"]


def test_no_alternative_is_tried_for_what_other_machines_do_not_mend() -> None:
    assert creates(walk(rendered(), "AlgorithmError: , exit code: 1").visited) == ["Create"]


def test_a_request_has_what_its_alternative_says_and_the_workflows_values_else() -> None:
    first, second, third = (
        rendered().states[name]["Parameters"] for name in ("Create", "CreateAlternative1", "CreateAlternative2")
    )
    assert [
        (one["ResourceConfig"]["InstanceType"], one["ResourceConfig"]["InstanceCount"]) for one in (second, third)
    ] == [
        (P4D, 4),
        (G5, 4),
    ]
    assert [one["HyperParameters"] for one in (first, second, third)] == [
        {"batch-size": "64", "steps": "100"},
        {"batch-size": "16", "steps": "100"},
        {"batch-size": "64", "steps": "100"},
    ]
    changed = {"ResourceConfig", "HyperParameters"}
    assert {k: v for k, v in second.items() if k not in changed} == {k: v for k, v in first.items() if k not in changed}


def test_degrees_are_those_of_each_alternative() -> None:
    def split(machine: str, count: int, shards: int) -> ModelParallelJob:
        return ModelParallelJob(InstanceGroup(machine, count), NativeParallelism(data_shard=shards))

    states = RenderedWorkflow(job=split(P5, 1, 8), alternatives=[split(G5, 2, 16)]).states
    shards = [states[name]["Parameters"]["Environment"] for name in ("Create", "CreateAlternative1")]
    assert shards[0] != shards[1]


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_the_machines_pass_the_check_of_amazon_states_language(integration: str) -> None:
    assert lint(rendered(integration, retried=2).machines) == []


def test_each_try_has_time_to_wait_for_its_machines() -> None:
    day, upload = 86_400, 3_600
    workflow = RenderedWorkflow(
        job=ON_P5,
        alternatives=[ON_P4D, ON_G5],
        retries={Cause.CAPACITY: Retry(attempts=1, first_wait=60)},
        integration="sync",
    )
    assert workflow.definition["TimeoutSeconds"] == 2 * day + upload + 5 * day + 60


def test_the_image_of_an_alternative_may_be_pulled() -> None:
    stack = UserStack()
    workflow = RenderedWorkflow(
        stack,
        job=ON_P5,
        alternatives=[Alternative(DataParallelJob(InstanceGroup(TRN1)), image=stack.image_from("for-neuron"))],
    )
    assert workflow.states["CreateAlternative1"]["Parameters"]["AlgorithmSpecification"]["TrainingImage"].endswith(
        "/for-neuron:1"
    )
    pulled = [one["Resource"] for one in workflow.statements("TrainingRole") if "ecr:BatchGetImage" in one["Action"]]
    assert [name.rpartition("/")[2] for name in pulled] == ["images", "for-neuron"]


def test_a_workflow_without_alternatives_has_the_states_it_had() -> None:
    states = RenderedWorkflow(job=ON_P5, retries={}).states
    assert states["FirstAttempt"]["Next"] == "Create"
    assert not {"WhichJob", "NextJob", "FirstJob"} & states.keys()


STACK = UserStack()
FOR_X86 = TrainingImage.from_asset(
    STACK, "ForX86", directory=str(Path(__file__).parents[1] / "end_to_end" / "a_quick_job")
)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one equal to the first": (
        {"alternatives": [DataParallelJob(InstanceGroup(P5, 2))]},
        "alternatives[0] must differ from the jobs before it, like another instance type, got one equal to job",
    ),
    "one equal to another": (
        {"alternatives": [ON_G5, DataParallelJob(InstanceGroup(G5, 4))]},
        "alternatives[1] must differ from the jobs before it, like another instance type, got one equal to alternatives[0]",
    ),
    "other accelerators": (
        {"alternatives": [DataParallelJob(InstanceGroup(TRN1))]},
        f"alternatives[0].image must be an image for the processors and accelerators of {TRN1}, like ",
    ),
    "other processors": (
        {"alternatives": [DataParallelJob(InstanceGroup(GB200, 2))]},
        f"alternatives[0].image must be an image for the processors and accelerators of {GB200}, like ",
    ),
    "an image of their own for other processors": (
        {"alternatives": [Alternative(DataParallelJob(InstanceGroup(GB200, 2)), image=FOR_X86)]},
        f"image must be built for the processors of {GB200}, like TrainingImage.from_asset(..., "
        "platform=Platform.custom('linux/arm64')), got one for 'linux/amd64'",
    ),
    "an image for other accelerators": (
        {
            "alternatives": [
                Alternative(ON_G5, image=STACK.image_from("some", base="pytorch-training-neuronx:2.9.0-neuronx-py312"))
            ]
        },
        f"alternatives[0].image must be an image for the processors and accelerators of {G5}, like ",
    ),
    "several jobs": (
        {
            "alternatives": [
                CompiledJob(
                    InstanceGroup(TRN1),
                    launcher=Torchrun(),
                    compiler=Neuron(cache=S3Prefix(STACK.bucket, "cache/"), trial={"steps": 1}),
                )
            ]
        },
        "alternatives must be of jobs that make one request, and beside one, like ",
    ),
    "retries whatever the cause beside them": (
        {"alternatives": [ON_G5], "retries": 2},
        "retries must be by cause where alternatives are given",
    ),
    "too many": (
        {"alternatives": [DataParallelJob(InstanceGroup(G5, count)) for count in range(1, 12)]},
        "alternatives must be at most 10, like ",
    ),
    "too many tries": (
        {"alternatives": [ON_P4D, ON_G5], "retries": {Cause.CAPACITY: Retry(attempts=100)}},
        "retries must be at most 300 of all causes together",
    ),
    "no job": ({"alternatives": [InstanceGroup(G5)]}, "alternatives[0] must be a kind of job or an Alternative, like "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_alternatives_that_cannot_be_are_refused(case: str) -> None:
    props, message = REFUSED[case]
    said = message_of(lambda: UserStack().workflow(job=ON_P5, **props))
    assert said.startswith(message)


def test_an_image_for_gpus_may_be_that_of_an_alternative_without_any() -> None:
    stack = UserStack()
    for_gpus = stack.image_from("gpus", base="pytorch-training:2.6.0-gpu-py312")
    on_cpu = Alternative(DataParallelJob(InstanceGroup("ml.c5.18xlarge", 2)), image=for_gpus)
    assert len(stack.workflow(job=ON_P5, alternatives=[on_cpu]).requests) == 2


def test_a_capacity_reservation_of_an_alternative_may_be_used() -> None:
    workflow = RenderedWorkflow(
        job=DataParallelJob(InstanceGroup(["ml.p5.48xlarge", "ml.p5e.48xlarge"], 2)), alternatives=[ON_P4D]
    )
    assert workflow.workflow.integration == "poll"
    assert workflow.definition["TimeoutSeconds"] > cdk.Duration.days(3).to_seconds()
