from typing import Any

import pytest
from stacks import message_of

from cdk_sagemaker_training import (
    DataParallelJob,
    InstanceGroup,
    Mpi,
    MultiWorkerMirrored,
    ParameterServer,
    SmDdp,
    Torchrun,
)


def advice_of(job: DataParallelJob) -> dict[str, str]:
    [request] = job.requests()
    return {advice.id.removeprefix("cdk-sagemaker-training:"): advice.text for advice in request.advice}


def test_mpi_starts_a_process_for_each_accelerator_unless_told() -> None:
    [request] = DataParallelJob(InstanceGroup("ml.p4d.24xlarge", 2), Mpi()).requests()
    assert request.hyperparameters == {
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_custom_mpi_options": '""',
    }


def test_mpi_starts_any_number_of_processes_on_cpus() -> None:
    [request] = DataParallelJob(InstanceGroup("ml.c5.xlarge", 2), Mpi(4)).requests()
    assert request.hyperparameters["sagemaker_mpi_num_of_processes_per_host"] == "4"


@pytest.mark.parametrize("launcher", [Mpi(), MultiWorkerMirrored(), ParameterServer(), SmDdp()])
def test_trainium_takes_torchrun_only(launcher: Any) -> None:
    message = message_of(lambda: DataParallelJob(InstanceGroup("ml.trn1.32xlarge"), launcher))
    assert "Torchrun()" in message
    assert "ml.trn1.32xlarge" in message


@pytest.mark.parametrize("launcher", [Torchrun(), Torchrun(4), Mpi(4)])
def test_a_process_for_each_accelerator_is_what_is_advised(launcher: Any) -> None:
    assert not {
        one for one in advice_of(DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher)) if "acceler" in one
    }


@pytest.mark.parametrize("launcher", [Torchrun(1), Mpi(1), ParameterServer()])
def test_accelerators_without_a_process_are_advised_against(launcher: Any) -> None:
    text = advice_of(DataParallelJob(InstanceGroup("ml.g5.12xlarge"), launcher))["idle-accelerators"]
    assert text.startswith("1 of the 4 accelerators of ml.g5.12xlarge would have a process")


@pytest.mark.parametrize("launcher", [Torchrun(8), Mpi(8)])
def test_more_processes_than_a_machine_without_accelerators_has_processors_are_advised_against(launcher: Any) -> None:
    text = advice_of(DataParallelJob(InstanceGroup("ml.c5.xlarge"), launcher))["more-processes-than-vcpus"]
    assert text.startswith("8 processes share the 4 vCPUs of ml.c5.xlarge")
    assert advice_of(DataParallelJob(InstanceGroup("ml.c5.2xlarge"), launcher)) == {}


@pytest.mark.parametrize(
    "group", [InstanceGroup("ml.g5.xlarge"), InstanceGroup("ml.p4d.24xlarge"), InstanceGroup("ml.p4d.24xlarge", 2)]
)
def test_one_gpu_one_machine_and_several_of_the_largest_machines_need_no_advice(group: InstanceGroup) -> None:
    assert advice_of(DataParallelJob(group, Torchrun())) == {}


def test_several_machines_are_advised_to_be_one_larger_machine_with_the_familys_sizes() -> None:
    text = advice_of(DataParallelJob(InstanceGroup("ml.g7e.12xlarge", 2), Torchrun()))["scale-up-first"]
    assert text == (
        "instance_count=2 of ml.g7e.12xlarge has 4 accelerators on 2 machines, where one ml.g7e.24xlarge has 4: a larger "
        "machine trains faster than several small ones, since gradients stay inside it. Accelerators by size: "
        "ml.g7e.2xlarge 1, ml.g7e.4xlarge 1, ml.g7e.8xlarge 1, ml.g7e.12xlarge 2, ml.g7e.24xlarge 4, ml.g7e.48xlarge 8"
    )


def test_more_accelerators_than_any_size_of_the_family_has_are_several_machines() -> None:
    assert "scale-up-first" not in advice_of(DataParallelJob(InstanceGroup("ml.g5.48xlarge", 2), Torchrun()))


def test_an_uneven_number_of_machines_is_advised_to_be_the_next_larger_one() -> None:
    text = advice_of(DataParallelJob(InstanceGroup("ml.g5.8xlarge", 3), Torchrun()))["scale-up-first"]
    assert "where one ml.g5.12xlarge has 4" in text


def test_several_small_machines_are_advised_on_efa_too() -> None:
    found = advice_of(DataParallelJob(InstanceGroup("ml.g5.xlarge", 2), Torchrun()))
    assert set(found) == {"scale-up-first", "no-efa"}
    assert "over TCP at each step, at 10 Gbit/s at most: use a type with EFA" in found["no-efa"]
