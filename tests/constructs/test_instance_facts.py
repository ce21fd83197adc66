import pytest
from aws_cdk import CfnParameter, Stack

from cdk_sagemaker_training.instance_facts import family, instance_facts
from cdk_sagemaker_training.service_model import training_instance_types


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


def test_nothing_is_known_of_a_type_that_a_parameter_decides() -> None:
    assert instance_facts(CfnParameter(Stack(), "Type").value_as_string) is None
