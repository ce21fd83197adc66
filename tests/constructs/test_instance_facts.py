import gzip
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import CfnParameter, Stack

from cdk_sagemaker_training.facts.instance_facts import family, instance_facts
from cdk_sagemaker_training.facts.service_model import training_instance_types


@pytest.mark.parametrize(
    ("instance_type", "kind", "devices", "processes", "efa_interfaces"),
    [
        ("ml.g5.xlarge", "gpu", 1, 1, 0),
        ("ml.g5.48xlarge", "gpu", 8, 8, 1),
        ("ml.p3.8xlarge", "gpu", 4, 4, 0),
        ("ml.p4d.24xlarge", "gpu", 8, 8, 4),
        ("ml.trn1.32xlarge", "neuron", 16, 32, 8),
        ("ml.trn2.48xlarge", "neuron", 16, 64, 16),
        ("ml.c5.xlarge", None, 0, 1, 0),
        ("ml.c5n.18xlarge", None, 0, 1, 1),
    ],
)
def test_a_type_has_these_devices_and_interfaces(
    instance_type: str, kind: str | None, devices: int, processes: int, efa_interfaces: int
) -> None:
    facts = instance_facts(instance_type)
    assert facts is not None
    assert (facts.kind, facts.devices, facts.processes, facts.efa_interfaces) == (
        kind,
        devices,
        processes,
        efa_interfaces,
    )


def test_each_type_of_an_accelerated_family_is_known() -> None:
    accelerated = {name for name in training_instance_types() if family(name).startswith(("p", "g", "trn"))}
    without_device = {name for name in accelerated if (facts := instance_facts(name)) and facts.kind is None}
    assert without_device == set()


@pytest.mark.parametrize(
    ("instance_type", "vcpus", "host_memory_gib", "local_storage_gb", "network_gbps"),
    [
        ("ml.c5.xlarge", 4, 8, 0, 10),
        ("ml.g6e.48xlarge", 192, 1536, 7600, 400),
        ("ml.p4d.24xlarge", 96, 1152, 8000, 400),
        ("ml.p3.8xlarge", 32, 244, 0, 10),
        ("ml.m4.xlarge", 4, 16, 0, None),
        ("ml.p6e-gb200.36xlarge", None, None, None, None),
    ],
)
def test_a_type_is_this_machine(
    instance_type: str,
    vcpus: int | None,
    host_memory_gib: float | None,
    local_storage_gb: int | None,
    network_gbps: float | None,
) -> None:
    facts = instance_facts(instance_type)
    assert facts is not None
    assert (facts.vcpus, facts.host_memory_gib) == (vcpus, host_memory_gib)
    assert (facts.local_storage_gb, facts.network_gbps) == (local_storage_gb, network_gbps)


def test_the_machine_of_each_type_is_what_ec2_was_recorded_to_say_but_for_those_that_it_was_not_asked_of() -> None:
    recorded = described_by_ec2()
    for name in training_instance_types() & recorded.keys():
        facts, said = instance_facts(name), recorded[name]
        assert facts is not None
        assert facts.vcpus == said["VCpuInfo"]["DefaultVCpus"], name
        assert facts.host_memory_gib == said["MemoryInfo"]["SizeInMiB"] / 1024, name
        assert facts.local_storage_gb == said.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0), name
        assert facts.network_gbps == gigabits(said["NetworkInfo"]["NetworkPerformance"]), name
        interfaces = said["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        assert facts.efa_interfaces == interfaces, name
    assert {family(name) for name in training_instance_types() - recorded.keys()} == {"p2", "p3", "p6e-gb200"}


def described_by_ec2() -> dict[str, Any]:
    """EC2's DescribeInstanceTypes as moto recorded it, by SageMaker's names."""
    spec = find_spec("moto")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "ec2" / "resources" / "instance_types.json.gz"
    return {f"ml.{name}": said for name, said in json.loads(gzip.decompress(file.read_bytes())).items()}


def gigabits(performance: str) -> float | None:
    """ "Up to 25 Gigabit" or "4x 100 Gigabit" as a number, None of what is none, like "High"."""
    parts = re.fullmatch(r"(?:Up to )?(?:(\d+)x )?([\d.]+) Gigabit", performance)
    return None if parts is None else int(parts[1] or 1) * float(parts[2])


def test_nothing_is_known_of_a_type_that_a_parameter_decides() -> None:
    assert instance_facts(CfnParameter(Stack(), "Type").value_as_string) is None
