"""What ``training-jobs prove`` finds in the constructs: the known failures, by name, each of which a mended construct removes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from stacks import UserStack

from cdk_sagemaker_training import (
    Approval,
    Budget,
    DataParallelJob,
    Gate,
    Grid,
    InstanceGroup,
    NumberField,
    RegisterModel,
    Silence,
    TrainingPipeline,
    TrainingQueue,
    TrainingSweep,
    TrainingTask,
)
from training_jobs.prove.explorer import Proof, prove

# In every state that a search of this many states reaches; the shortest stories are found first. FEW is for searches that have no
# end within either, and go further in the soak.
SOME, FEW = 6_000, 3_000


def with_workflow(**props: Any) -> UserStack:
    stack = UserStack()
    stack.workflow(**props)
    return stack


def embedded() -> UserStack:
    stack = UserStack()
    stack.machine_of(stack.workflow().as_task(stack, "Train"))
    return stack


def with_task() -> UserStack:
    stack = UserStack()
    stack.machine_of(stack.task())
    return stack


def of_cdk() -> UserStack:
    stack = UserStack()
    place = tasks.S3Location.from_bucket(stack.bucket, "models/")
    state = tasks.SageMakerCreateTrainingJob(
        stack,
        "Train",
        training_job_name="one-name",
        integration_pattern=sfn.IntegrationPattern.RUN_JOB,
        algorithm_specification=tasks.AlgorithmSpecification(algorithm_name="an-algorithm"),
        input_data_config=[
            tasks.Channel(
                channel_name="train", data_source=tasks.DataSource(s3_data_source=tasks.S3DataSource(s3_location=place))
            )
        ],
        output_data_config=tasks.OutputDataConfig(s3_output_location=place),
    )
    stack.machine_of(state)
    return stack


def proofs(stack: UserStack, faults: int = 1, most_states: int = SOME) -> dict[str, Proof]:
    """By the beginning of the state machines' logical ids."""
    return {one.machine[:8]: one for one in prove(stack.template(), faults=faults, most_states=most_states)}


def broken(proof: Proof) -> set[str]:
    return {one.property for one in proof.violations}


def test_a_workflow_without_faults_keeps_every_property() -> None:
    proof = proofs(with_workflow(), faults=0)["Training"]
    assert (broken(proof), proof.complete, proof.jobs) == (set(), True, 1)


def test_executions_of_two_workflows_with_one_place_for_checkpoints_write_to_places_of_their_own() -> None:
    stack = UserStack()
    for id in ("Resnet", "Llama"):
        stack.workflow(id, checkpoints=stack.place("checkpoints/"))
    for proof in proofs(stack, faults=0).values():
        assert (broken(proof), len(proof.checkpoints)) == (set(), 1)


def test_a_polled_workflow_without_faults_keeps_every_property() -> None:
    proof = proofs(with_workflow(integration="poll"), faults=0)["Training"]
    assert (broken(proof), proof.complete, proof.jobs) == (set(), True, 1)


@pytest.mark.parametrize("integration", ["sync", pytest.param("poll", marks=pytest.mark.soak)])
def test_a_workflow_with_one_fault_keeps_every_property(integration: str) -> None:
    proof = proofs(with_workflow(integration=integration), most_states=90_000)["Training"]
    assert (broken(proof), proof.complete) == (set(), True)


def with_task_in_jsonata() -> UserStack:
    stack = UserStack()
    stack.machine_of(TrainingTask.jsonata(stack, "Train", **least(stack)))
    return stack


def least(stack: UserStack) -> dict[str, Any]:
    job = DataParallelJob(InstanceGroup("ml.g5.xlarge"))
    return {"job": job, "image": stack.image, "output": stack.place("models/")}


@pytest.mark.parametrize("make", [with_task, with_task_in_jsonata, of_cdk])
def test_a_task_in_a_machine_of_the_users_own_leaves_a_job_and_ends_by_one_throttled_call(make: Any) -> None:
    [proof] = proofs(make()).values()
    assert broken(proof) == {"left-running", "left-by-deletion", "one-failed-call"}


@pytest.mark.parametrize("make", [UserStack.task, lambda stack: TrainingTask.jsonata(stack, "Train", **least(stack))])
def test_a_guarded_task_leaves_no_job_and_ends_by_one_failed_call(make: Any) -> None:
    stack = UserStack()
    task = make(stack)
    task.guard(stack.machine_of(task))
    for faults in (1, 2):
        [proof] = proofs(stack, faults).values()
        assert (broken(proof), proof.complete) == ({"one-failed-call"}, True)


def facts(proof: Proof, name: str) -> set[str]:
    [found] = [one for one in proof.violations if one.property == name]
    return {step.fact for step in found.story} - {""}


@pytest.mark.soak
def test_an_embedded_workflow_with_a_name_is_started_again_where_the_answer_was_lost() -> None:
    stack = UserStack()
    stack.machine_of(
        stack.workflow().as_task(stack, "Train", name=sfn.JsonPath.format("train-{}", sfn.JsonPath.execution_name))
    )
    [outer] = [one for name, one in proofs(stack).items() if name.startswith("Machine")]
    # Unless the workflow has ended before it is started again: a state of the machine's own has to find that.
    assert facts(outer, "one-failed-call") == {"lost answer", "job ends", "sync waits"}


@pytest.mark.soak
def test_an_embedded_workflow_ends_by_a_start_whose_answer_is_lost_and_may_outlive_its_machine() -> None:
    found = proofs(embedded())
    [outer] = [one for name, one in found.items() if name.startswith("Machine")]
    assert (broken(outer), outer.complete) == ({"one-failed-call", "outlives", "left-by-deletion"}, True)
    assert facts(outer, "one-failed-call") == {"lost answer"}
    assert facts(outer, "outlives") == {"not cancelled"}


@pytest.mark.parametrize(("faults", "bound"), [(1, SOME), pytest.param(2, 60_000, marks=pytest.mark.soak)])
def test_an_embedded_workflow_that_stops_with_its_machine_never_outlives_it(faults: int, bound: int) -> None:
    stack = UserStack()
    workflow = stack.workflow()
    workflow.stop_with(stack.machine_of(workflow.as_task(stack, "Train")))
    [outer] = [one for name, one in proofs(stack, faults, bound).items() if name.startswith("Machine")]
    assert (broken(outer), outer.complete) == ({"one-failed-call"}, True)


@pytest.mark.soak
@pytest.mark.parametrize(("faults", "bound"), [(1, SOME), (2, 100_000)])
def test_neither_a_pipeline_nor_its_workflow_outlives_the_machine_that_it_stops_with(faults: int, bound: int) -> None:
    stack = UserStack()
    pipeline = TrainingPipeline(stack, "Pipeline", steps=[stack.workflow()])
    pipeline.stop_with(stack.machine_of(pipeline.as_task(stack, "Train")))
    [outer] = [one for name, one in proofs(stack, faults, bound).items() if name.startswith("Machine")]
    assert broken(outer) == {"one-failed-call"}


@pytest.mark.soak
def test_neither_a_sweep_nor_its_workflow_outlives_the_machine_that_it_stops_with() -> None:
    stack = UserStack()
    workflow = stack.workflow(input_fields={"rate": NumberField(0, 1)})
    rates, place = Grid({"rate": [0.1]}), stack.place("sweeps/")
    sweep = TrainingSweep(stack, "Sweep", workflow=workflow, over=rates, results=place, concurrency=1)
    sweep.stop_with(stack.machine_of(sweep.as_task(stack, "Train")))
    [outer] = [one for name, one in proofs(stack, 1, 20_000).items() if name.startswith("Machine")]
    assert broken(outer) == {"one-failed-call"}


@pytest.mark.soak
def test_two_faults_break_no_property_of_a_pipeline() -> None:
    stack = UserStack()
    TrainingPipeline(stack, "Pipeline", steps=[stack.workflow()])
    found = proofs(stack, 2, 60_000)["Pipeline"]
    assert (broken(found), found.complete) == (set(), True)


@pytest.mark.soak
def test_a_pipeline_starts_no_workflow_twice_and_no_failed_call_ends_it() -> None:
    stack = UserStack()
    TrainingPipeline(stack, "Pipeline", steps=[stack.workflow()])
    found = proofs(stack)["Pipeline"]
    assert (broken(found), found.complete, found.jobs) == (set(), True, 1)


@pytest.mark.soak  # the longest search
def test_a_sweep_starts_no_workflow_twice_and_no_failed_call_ends_it() -> None:
    stack = UserStack()
    workflow = stack.workflow(input_fields={"rate": NumberField(0, 1)})
    rates = Grid({"rate": [0.1, 0.2]})
    TrainingSweep(stack, "Sweep", workflow=workflow, over=rates, results=stack.place("sweeps/"), concurrency=2)
    found = proofs(stack, most_states=12_000)["SweepSta"]
    assert (broken(found), found.jobs) == (set(), 2)


def test_a_pipeline_with_a_gate_an_approval_and_a_registration_keeps_every_property_without_faults() -> None:
    stack = UserStack()
    workflow = stack.workflow(metric_definitions={"accuracy": "accuracy=([0-9.]+)"})
    steps = [
        workflow,
        Gate(stack, "Good", workflow, metric="accuracy", at_least=0.9),
        Approval(stack, "Ask", topic=sns.Topic(stack, "Topic")),
        RegisterModel(stack, "Register", workflow, group="lines", metrics=["accuracy"]),
    ]
    TrainingPipeline(stack, "Pipeline", steps=steps)
    found = proofs(stack, faults=0)["Pipeline"]
    assert (broken(found), found.complete) == (set(), True)
    assert sorted(found.errors) == ["GateNotPassed", "MetricMissing", "States.Timeout", "TaskRefused"]


def in_a_queue() -> UserStack:
    stack = UserStack()
    stack.workflow(queue=TrainingQueue(stack, "Queue", capacity=8))
    return stack


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("faults", "bound"),
    [(0, FEW), (1, FEW), pytest.param(1, 60_000, marks=SOAK), pytest.param(2, 60_000, marks=SOAK)],
)
def test_a_workflow_in_a_queue_keeps_every_property_as_far_as_the_bound(faults: int, bound: int) -> None:
    proof = proofs(in_a_queue(), faults, most_states=bound)["Training"]
    assert broken(proof) == set()


@pytest.mark.parametrize("bound", [FEW, pytest.param(20_000, marks=SOAK)])
def test_a_rule_that_is_broken_stops_the_job_and_breaks_no_property(bound: int) -> None:
    proof = proofs(with_workflow(stop_when=[Silence()]), most_states=bound)["Training"]
    assert broken(proof) == set()


FEATURES: dict[str, Callable[[UserStack], dict[str, Any]]] = {
    "retries": lambda stack: {"retries": 1},
    "notify": lambda stack: {"notify": [sns.Topic(stack, "Topic")]},
    "job_metrics": lambda stack: {"job_metrics": True},
    "budget": lambda stack: {"budget": Budget(hours=100)},
    "alternatives": lambda stack: {"alternatives": [DataParallelJob(InstanceGroup("ml.g5.48xlarge"))]},
    "input_fields": lambda stack: {"input_fields": {"rate": NumberField(0, 1, default=0.5)}},
    "missing_model": lambda stack: {"missing_model": "fail"},
    "stop_when": lambda stack: {"stop_when": [Silence()]},
}
# By cause alone: its error says so.
REFUSED = {frozenset(("retries", "job_metrics")), frozenset(("retries", "alternatives"))}
PAIRS = [pair for pair in itertools.combinations(FEATURES, 2) if frozenset(pair) not in REFUSED]


@pytest.mark.parametrize(
    "names", [("missing_model",), *(pytest.param(pair, marks=pytest.mark.soak) for pair in PAIRS)], ids="+".join
)
def test_features_and_their_pairs_keep_every_property_with_one_fault(names: tuple[str, ...]) -> None:
    stack = UserStack()
    stack.workflow(**{name: value for feature in names for name, value in FEATURES[feature](stack).items()})
    proof = proofs(stack, most_states=60_000)["Training"]
    # With stop_when, each look at the job of which is a state of its own, as far as the bound.
    assert (broken(proof), proof.complete) == (set(), "stop_when" not in names)
    assert proof.jobs == (2 if "retries" in names else 1)


@pytest.mark.soak
@pytest.mark.parametrize("integration", ["sync", "poll"])
def test_two_faults_break_no_property(integration: str) -> None:
    proof = proofs(with_workflow(integration=integration), faults=2, most_states=400_000)["Training"]
    assert (broken(proof), proof.complete) == (set(), True)
