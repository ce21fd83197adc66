"""Tuning jobs of SageMaker: the request, its permissions, what is refused, and what SageMaker's SDK sends for the same."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template
from rendered import definitions, lint
from stacks import ON_ONE_GPU, UserStack, message_of, statements_of

from cdk_sagemaker_training import (
    CategoricalParameter,
    ContinuousParameter,
    HyperparameterTuning,
    IntegerParameter,
    Objective,
    Spot,
)

RECORDED = Path(__file__).parents[1] / "sdk_requests" / "tuning.json"
RANGES = {
    "learning-rate": ContinuousParameter(0.001, 0.1, "Logarithmic"),
    "layers": IntegerParameter(2, 8),
    "optimizer": CategoricalParameter(["adam", "sgd"]),
}


def tuning(stack: UserStack, **props: Any) -> HyperparameterTuning:
    least = {
        "job": ON_ONE_GPU,
        "image": stack.image,
        "output": stack.place("models/"),
        "hyperparameters": {"epochs": 3},
        "metric_definitions": {"loss": "loss=([0-9.]+)"},
        "max_runtime": 3_600,
        "ranges": RANGES,
        "objective": Objective("loss", "Minimize"),
        "max_jobs": 20,
        "max_parallel_jobs": 2,
    }
    return HyperparameterTuning(stack, "Tuning", **{**least, **props})


@cache
def template() -> dict[str, Any]:
    stack = UserStack()
    tuning(stack)
    return dict(Template.from_stack(stack).to_json())


def parameters() -> dict[str, Any]:
    [definition] = definitions(template()).values()
    return dict(definition["States"]["Tune"]["Parameters"])


def test_one_state_creates_the_tuning_job_and_waits_for_it() -> None:
    [definition] = definitions(template()).values()
    assert list(definition["States"]) == ["Tune"]
    state = definition["States"]["Tune"]
    assert state["Resource"] == "arn:aws:states:::sagemaker:createHyperParameterTuningJob.sync"
    assert state["End"] is True
    assert lint({"Tune": definition}) == []


def test_the_request_searches_the_ranges_of_a_job_for_the_objective() -> None:
    config = parameters()["HyperParameterTuningJobConfig"]
    assert config["Strategy"] == "Bayesian"
    assert config["HyperParameterTuningJobObjective"] == {"Type": "Minimize", "MetricName": "loss"}
    assert config["ResourceLimits"] == {"MaxNumberOfTrainingJobs": 20, "MaxParallelTrainingJobs": 2}
    job = parameters()["TrainingJobDefinition"]
    assert job["StaticHyperParameters"] == {"epochs": "3"}
    assert job["ResourceConfig"]["InstanceType"] == "ml.g5.xlarge"
    assert job["StoppingCondition"] == {"MaxRuntimeInSeconds": 3_600}
    assert not {"TrainingJobName.$", "HyperParameters", "Tags"} & job.keys()


def test_ranges_objective_limits_and_strategy_are_those_that_sagemakers_sdk_sends() -> None:
    recorded = json.loads(RECORDED.read_text())["request"]
    ours = parameters()
    assert ours["HyperParameterTuningJobConfig"] == recorded["HyperParameterTuningJobConfig"]
    job, theirs = ours["TrainingJobDefinition"], recorded["TrainingJobDefinition"]
    # Machines may be said in either, and Step Functions' own example says them as a training job does.
    machines = theirs.pop("HyperParameterTuningResourceConfig")
    assert {name: job["ResourceConfig"][name] for name in machines} == machines
    assert job.keys() - {"ResourceConfig"} == theirs.keys()
    for name in ("StaticHyperParameters", "StoppingCondition"):
        assert job[name] == theirs[name]
    assert job["AlgorithmSpecification"]["MetricDefinitions"] == theirs["AlgorithmSpecification"]["MetricDefinitions"]


def test_the_name_is_a_hash_of_the_execution_and_its_redrives() -> None:
    assert parameters()["HyperParameterTuningJobName.$"] == (
        "States.Hash(States.Format('{}/{}', $$.Execution.Id, $$.Execution.RedriveCount), 'MD5')"
    )


def test_the_permissions_are_those_of_step_functions_example() -> None:
    statements = statements_of(template(), "TuningStateMachineRole")
    granted = {
        action: one["Resource"]
        for one in statements
        for action in (one["Action"] if isinstance(one["Action"], list) else [one["Action"]])
        if not action.startswith("logs:")
    }
    jobs = "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/*"
    rule = "arn:aws:events:us-east-1:123456789012:rule/StepFunctionsGetEventsForSageMakerTuningJobsRule"
    of_jobs = [f"{verb}HyperParameterTuningJob" for verb in ("Create", "Describe", "Stop")]
    assert {name: resource for name, resource in granted.items() if name != "iam:PassRole"} == {
        **{f"sagemaker:{name}": jobs for name in (*of_jobs, "AddTags", "ListTags")},
        **{f"events:{name}": rule for name in ("DescribeRule", "PutRule", "PutTargets")},
    }
    assert "iam:PassRole" in granted


@pytest.mark.parametrize(
    ("props", "said"),
    [
        ({"ranges": {}}, "ranges must be of at least one hyperparameter, like "),
        ({"max_parallel_jobs": 21}, "max_parallel_jobs must be 1 to max_jobs, like 2, got 21 of 20"),
        ({"max_jobs": 0, "max_parallel_jobs": 0}, "max_parallel_jobs must be 1 to max_jobs, like 2, got 0 of 0"),
        (
            {"objective": Objective("accuracy", "Maximize")},
            "objective.metric must be one of metric_definitions, loss, like ",
        ),
        ({"hyperparameters": {"layers": 4}}, "ranges must be of hyperparameters that have no value, like "),
        (
            {"container_entrypoint": ["python3", "train.py"]},
            "container_entrypoint must be left out of a tuning job, whose training jobs have no ",
        ),
        ({"remote_debug": True}, "remote_debug must be left out of a tuning job, whose training jobs have no "),
    ],
)
def test_what_a_tuning_job_does_not_have_is_refused(props: dict[str, Any], said: str) -> None:
    assert message_of(lambda: tuning(UserStack(), **props)).startswith(said)


def test_jobs_that_would_share_their_checkpoints_are_refused() -> None:
    stack = UserStack()
    spot = Spot(checkpoints=stack.place("checkpoints/"), max_wait=7_200)
    for name, value in {"checkpoints": stack.place("checkpoints/"), "spot": spot}.items():
        said = message_of(lambda name=name, value=value: tuning(UserStack(), **{name: value}))  # type: ignore[misc]
        assert said.startswith(f"{name} must be left out of a tuning job, ")


@pytest.mark.parametrize(
    ("low", "high", "scale", "said"),
    [
        (0, 1, "Logarithmic", "min_value must be above 0 with scaling_type='Logarithmic', like 1e-5, got 0"),
        (0.5, 1, "ReverseLogarithmic", "min_value and max_value must be from 0 to below 1 with scaling_type="),
        (-0.5, 0.9, "ReverseLogarithmic", "min_value and max_value must be from 0 to below 1 with scaling_type="),
    ],
)
def test_a_range_that_its_scaling_excludes_is_refused(low: float, high: float, scale: Any, said: str) -> None:
    assert message_of(lambda: ContinuousParameter(low, high, scale)).startswith(said)
    assert ContinuousParameter(0.9, 0.999, "ReverseLogarithmic").max_value == 0.999
    assert ContinuousParameter(1e-5, 1, "Logarithmic").min_value == 1e-5


@pytest.mark.parametrize("kind", [ContinuousParameter, IntegerParameter])
def test_a_range_of_nothing_is_refused(kind: Any) -> None:
    assert message_of(lambda: kind(8, 2)) == "min_value must be below max_value, like 0 and 1, got 8 and 2"
