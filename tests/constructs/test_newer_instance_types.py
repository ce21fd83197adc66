"""Types that AWS added since botocore's model was made, and types that are misspelt."""

import pytest
from stacks import reads
from whole_requests import request_of

from cdk_sagemaker_training import DataParallelJob, HeterogeneousJob, InstanceGroup
from cdk_sagemaker_training.facts.instance_types import has_local_storage, is_newer


@pytest.mark.parametrize(
    "instance_type",
    [
        "ml.p7.48xlarge",
        "ml.p7e.48xlarge",
        "ml.g8.xlarge",
        "ml.trn3.48xlarge",
        "ml.p6-b400.48xlarge",
        "ml.c9i-flex.large",
        "ml.p5.24xlarge",
        "ml.trn2.3xlarge",
        "ml.g6e.96xlarge",
    ],
)
def test_a_newer_generation_or_size_of_a_line_that_is_known_is_taken(instance_type: str) -> None:
    request = request_of(DataParallelJob(InstanceGroup(instance_type, 2)))
    assert request["ResourceConfig"]["InstanceType"] == instance_type


def test_a_newer_type_is_taken_for_a_group_beside_others() -> None:
    job = HeterogeneousJob(
        {"data": InstanceGroup("ml.c5.xlarge")}, DataParallelJob(InstanceGroup("ml.g8.xlarge")), "dnn"
    )
    groups = request_of(job)["ResourceConfig"]["InstanceGroups"]
    assert [group["InstanceType"] for group in groups] == ["ml.c5.xlarge", "ml.g8.xlarge"]


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("ml.g5.xlarg", "ml.g5.xlarge"),
        ("ml.g55.xlarge", "ml.g5.xlarge"),
        ("ml.p4e.24xlarge", "ml.p4de.24xlarge"),
        ("ml.gg5.xlarge", "ml.g5.xlarge"),
        ("ml.c8i-flexx.xlarge", "ml.c8i-flex.xlarge"),
        ("ml.trn2.48xlrage", "ml.trn2.48xlarge"),
        # A size of a family to which AWS adds none.
        ("ml.g5.3xlarge", "ml.g5.xlarge"),
        # Sizes that no type has.
        ("ml.g5.42xlarge", "ml.g5.4xlarge"),
        ("ml.p5.49xlarge", "ml.p5.4xlarge"),
        ("ml.p7.84xlarge", "ml.p5.4xlarge"),
        ("ml.c5.metal", "ml.c5.xlarge"),
    ],
)
def test_a_misspelt_type_is_refused_with_the_nearest_name(misspelt: str, meant: str) -> None:
    assert not is_newer(misspelt)
    with pytest.raises(ValueError) as raised:
        InstanceGroup(misspelt)
    assert reads(
        str(raised.value), f"instance_type must be a type that SageMaker trains on ... {meant!r} ... got {misspelt!r}"
    )


def test_a_line_of_types_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a type that SageMaker trains on"):
        InstanceGroup("ml.h1.48xlarge")


@pytest.mark.parametrize(
    ("instance_type", "local"),
    [
        ("ml.g5.xlarge", True),
        ("ml.p4d.24xlarge", True),
        ("ml.trn1.2xlarge", True),
        ("ml.c5.xlarge", False),
        ("ml.p3.2xlarge", False),
        ("ml.p7.48xlarge", False),
        ("${Token[TOKEN.1]}", False),
    ],
)
def test_a_type_has_disks_of_its_own_or_a_volume(instance_type: str, local: bool) -> None:
    assert has_local_storage(instance_type) is local
