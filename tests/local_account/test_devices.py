import re
import subprocess
from pathlib import Path

import botocore.session
import pytest
from sagemaker_training import environment

from sagemaker_local_account.runtime.devices import accelerators, write_stand_ins


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are found in: empty but for a shell's."""
    for command in ("sh", "cat"):
        found = next(Path(folder) / command for folder in ("/bin", "/usr/bin") if (Path(folder) / command).exists())
        (tmp_path / command).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_the_accelerators_of_every_training_instance_type_are_those_of_its_family():
    sagemaker = botocore.session.get_session().get_service_model("sagemaker")
    kinds: dict[str, set[str | None]] = {}
    for instance_type in sagemaker.shape_for("TrainingInstanceType").enum:
        family = re.match(r"ml\.([a-z]+)", instance_type)
        found = accelerators(instance_type)
        assert family
        assert (found.count > 0) == (found.kind is not None), instance_type
        kinds.setdefault(family[1], set()).add(found.kind)
    accelerated = {"g": {"gpu"}, "p": {"gpu"}, "trn": {"neuron"}}
    assert kinds == {**{family: {None} for family in kinds}, **accelerated}


def test_a_p4d_has_eight_gpus():
    found = accelerators("ml.p4d.24xlarge")
    assert (found.kind, found.name, found.count, found.memory_gib) == ("gpu", "NVIDIA A100", 8, 40.0)


def test_a_trn1_has_sixteen_devices_of_two_cores():
    found = accelerators("ml.trn1.32xlarge")
    assert (found.kind, found.count, found.cores_per_device) == ("neuron", 16, 2)


def test_a_c5_has_none():
    found = accelerators("ml.c5.18xlarge")
    assert (found.kind, found.name, found.count) == (None, None, 0)


def test_the_override_scales_its_type_down_and_the_real_count_stays_known():
    found = accelerators("ml.p4d.24xlarge", {"ml.p4d.24xlarge": 2, "ml.g5.xlarge": 0})
    assert (found.count, found.real_count) == (2, 8)


def test_an_override_above_what_the_type_has_is_refused():
    with pytest.raises(ValueError, match=r"devices of ml\.g5\.xlarge must be 0 to 1, which is what it has, got 4"):
        accelerators("ml.g5.xlarge", {"ml.g5.xlarge": 4})


@pytest.mark.parametrize("instance_type", ["g5.xlarge", "ml.x9.large", "ml.g5.3xlarge", ""])
def test_a_type_that_is_not_known_is_refused(instance_type: str):
    with pytest.raises(ValueError, match="instance_type must be one whose accelerators are known"):
        accelerators(instance_type)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_toolkit_counts_the_gpus_that_were_written(path: Path, count: int):
    write_stand_ins(path, "ml.p4d.24xlarge", count)
    assert environment.num_gpus() == count


def test_the_toolkit_counts_no_gpu_on_a_machine_without_any(path: Path):
    write_stand_ins(path, "ml.c5.18xlarge", 0)
    assert environment.num_gpus() == 0


def test_the_toolkit_counts_no_gpu_where_they_were_scaled_down_to_none(path: Path):
    write_stand_ins(path, "ml.p4d.24xlarge", 0)
    assert environment.num_gpus() == 0


def test_the_toolkit_counts_the_cores_of_neuron_devices(path: Path):
    write_stand_ins(path, "ml.trn1.32xlarge", 16)
    assert environment.num_neurons("ml.trn1.32xlarge") == 32


def test_the_toolkit_takes_a_trn2_for_as_many_cores_as_its_devices_have():
    found = accelerators("ml.trn2.48xlarge")
    assert environment.num_neurons("ml.trn2.48xlarge") == found.count * found.cores_per_device


def test_a_gpu_machine_has_no_neuron_devices(path: Path):
    write_stand_ins(path, "ml.p4d.24xlarge", 8)
    assert environment.num_neurons("ml.p4d.24xlarge") == 0


def test_gpus_have_the_types_name_and_a_uuid_each(path: Path):
    write_stand_ins(path, "ml.g5.12xlarge", 2)
    lines = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines()
    assert [line.split(" (UUID: GPU-")[0] for line in lines] == ["GPU 0: NVIDIA A10G", "GPU 1: NVIDIA A10G"]
    assert len({line.split("UUID: ")[1] for line in lines}) == 2


def test_the_stand_in_fails_on_what_it_does_not_know(path: Path):
    write_stand_ins(path, "ml.g5.xlarge", 1)
    result = subprocess.run(["nvidia-smi", "--query-gpu=name"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "supports -L | --list-gpus only, got: --query-gpu=name" in result.stderr


@pytest.mark.parametrize(
    ("instance_type", "kind", "count"), [("ml.p9e.48xlarge", "gpu", 16), ("ml.trn5.48xlarge", "neuron", 4)]
)
def test_a_type_that_is_newer_has_what_is_said_of_it(instance_type: str, kind: str, count: int):
    found = accelerators(instance_type, {instance_type: count})
    assert (found.kind, found.count, found.real_count) == (kind, count, count)


@pytest.mark.parametrize("instance_type", ["p9.48xlarge", "ml.p9.48xlrage", "ml.gpu.large"])
def test_a_name_that_is_spelt_like_no_type_is_refused_with_devices_too(instance_type: str):
    with pytest.raises(ValueError, match="instance_type must be one whose accelerators are known"):
        accelerators(instance_type, {instance_type: 8})
