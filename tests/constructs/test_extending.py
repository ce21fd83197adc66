"""Kinds, launchers and compilers from outside the library: those of docs/extending.md, in stacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rendered import create_requests, lint
from stacks import RenderedWorkflow, UserStack

import cdk_sagemaker_training
from cdk_sagemaker_training import (
    Advice,
    Budget,
    Cause,
    DataParallelJob,
    InstanceGroup,
    NativeParallelism,
    Retry,
    default_retries,
)

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def run_snippet(name: str, stack: UserStack) -> dict[str, Any]:
    """Run the snippet that defines a class in a stack, and return its names."""
    [snippet] = [
        one
        for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if re.search(rf"class {name}\W", one)
    ]
    public = {name: getattr(cdk_sagemaker_training, name) for name in cdk_sagemaker_training.__all__}
    names = {**public, "stack": stack, "bucket": stack.bucket, "image": stack.image}
    exec(snippet, names)
    return names


def requests_of(name: str) -> list[dict[str, Any]]:
    """The requests of the stack of the snippet that defines a name."""
    stack = UserStack()
    run_snippet(name, stack)
    return [dict(request) for request in create_requests(stack.template()).values()]


@cache
def with_deadline() -> RenderedWorkflow:
    """A workflow with the feature of the page beside retries, an alternative and a budget."""
    deadline = run_snippet("Deadline", UserStack())["Deadline"]("2030-12-24T18:00:00Z")
    return RenderedWorkflow(
        features=[deadline],
        retries=default_retries(),
        alternatives=[DataParallelJob(InstanceGroup("ml.g5.2xlarge"))],
        budget=Budget(hours=48),
    )


def test_a_launcher_of_a_users_own_has_its_hyperparameters_in_the_request() -> None:
    [request] = requests_of("MpiOver")
    assert (
        request["HyperParameters"].items()
        >= {
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": "1",
            "sagemaker_mpi_custom_mpi_options": '"--mca btl_tcp_if_include eth0"',
        }.items()
    )


class LauncherWithAnEnvironment:
    """A launcher whose other attributes have the names of a parallelism's."""

    alone_because = ""
    environment: ClassVar[dict[str, str]] = {}

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        return {"sagemaker_mpi_enabled": "true"}

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        return ()


def test_a_launcher_may_have_attributes_that_are_no_part_of_the_protocol() -> None:
    job = DataParallelJob(InstanceGroup("ml.c5.4xlarge", 2), launcher=LauncherWithAnEnvironment())
    assert job.requests()[0].hyperparameters == {"sagemaker_mpi_enabled": "true"}


class LauncherOfNoMachines(LauncherWithAnEnvironment):
    def hyperparameters(self) -> Mapping[str, str]:  # type: ignore[override]
        return {}


@pytest.mark.parametrize("launcher", [NativeParallelism(), LauncherOfNoMachines()])
def test_a_launcher_whose_methods_take_other_arguments_is_refused(launcher: Any) -> None:
    with pytest.raises(ValueError, match=r"^launcher must be a launcher"):
        DataParallelJob(InstanceGroup("ml.c5.4xlarge", 2), launcher=launcher)


def test_a_compiler_of_a_users_own_has_its_environment_in_the_request() -> None:
    [request] = requests_of("JaxJit")
    assert request["Environment"]["JAX_COMPILATION_CACHE_DIR"] == "/opt/ml/checkpoints/jax-cache"


def test_a_kind_of_a_users_own_runs_its_requests_in_order() -> None:
    first, then = requests_of("PreparedJob")
    assert (first["ResourceConfig"]["InstanceType"], first["Environment"]["STAGE"]) == ("ml.c5.xlarge", "prepare")
    assert (then["ResourceConfig"]["InstanceType"], then["Environment"]["STAGE"]) == ("ml.g5.xlarge", "train")


def test_a_feature_of_a_users_own_stands_before_each_further_attempt() -> None:
    states = with_deadline().states
    [late] = states["IsInTime"]["Choices"]
    assert (late["Next"], states["IsInTime"]["Default"]) == ("DeadlinePassed", "IsBudgetLeft")
    assert {states[name]["Next"] for name in ("RetryHostLost", "NextJob", "FirstJob")} == {"IsInTime"}
    onward = {name for name, state in states.items() if "NextAttempt" in (state.get("Next"), state.get("Default"))}
    assert onward == {"IsBudgetLeft", "LimitToBudget"}


def test_a_definition_with_a_users_feature_is_states_language() -> None:
    assert lint(with_deadline().machines) == []


@pytest.mark.parametrize("name", ["Compiler", "Launcher", "Parallelism", "TrainingJob"])
def test_the_protocols_are_public(name: str) -> None:
    assert getattr(getattr(cdk_sagemaker_training, name), "_is_protocol", False)


def test_each_state_that_writes_the_execution_data_keeps_that_of_all_features() -> None:
    workflow = RenderedWorkflow(
        integration="poll",
        max_runtime=600,
        retries={Cause.HOST_LOST: Retry(attempts=1)},
        alternatives=[DataParallelJob(InstanceGroup("ml.g5.2xlarge"))],
        budget=Budget(hours=1),
    )
    writing = {name: state for name, state in workflow.states.items() if state.get("ResultPath") == "$.Training"}
    assert writing.keys() == {"FirstAttempt", "NextAttempt", "WaitLonger"}
    for name, state in writing.items():
        assert {key.removesuffix(".$") for key in state["Parameters"]} >= {"Retries", "Turn", "Budget"}, name
