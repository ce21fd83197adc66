"""Kinds, launchers and compilers from outside the library: those of docs/extending.md, in stacks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rendered import create_requests
from stacks import UserStack

import cdk_sagemaker_training
from cdk_sagemaker_training import Advice, DataParallelJob, InstanceGroup, NativeParallelism

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def requests_of(name: str) -> list[dict[str, Any]]:
    """The requests of the stack of the snippet that defines a name."""
    [snippet] = [
        one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if f"class {name}:" in one
    ]
    stack = UserStack()
    names = {public: getattr(cdk_sagemaker_training, public) for public in cdk_sagemaker_training.__all__}
    exec(snippet, {**names, "stack": stack, "bucket": stack.bucket, "image": stack.image})
    return [dict(request) for request in create_requests(stack.template()).values()]


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


@pytest.mark.parametrize("name", ["Compiler", "Launcher", "Parallelism", "TrainingJob"])
def test_the_protocols_are_public(name: str) -> None:
    assert getattr(getattr(cdk_sagemaker_training, name), "_is_protocol", False)
