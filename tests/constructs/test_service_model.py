from typing import Any

import pytest
from service_rules import INPUT, breaches

from cdk_sagemaker_training.facts.service_model import check_request, training_instance_types

LEAST: dict[str, Any] = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {"TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/models/"},
    "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


def refusal_of(request: dict[str, Any]) -> str | None:
    """What is said to a request; None where it is taken."""
    try:
        check_request(request)
    except ValueError as refusal:
        return str(refusal)
    return None


def test_the_least_request_is_taken_and_without_any_of_its_members_it_is_not() -> None:
    assert (refusal_of(LEAST), breaches(LEAST)) == (None, [])
    assert {*INPUT.required_members} < {*LEAST}
    for member in INPUT.required_members:
        rest = {name: value for name, value in LEAST.items() if name != member}
        assert str(refusal_of(rest)).startswith(f"{member} must be set")
        assert breaches(rest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"TrainingJobName": "a b"}, "TrainingJobName must match"),
        ({"TrainingJobName": "a" * 64}, "TrainingJobName must be at most 63 characters, got 64 characters"),
        ({"TrainingJobNames": "a"}, "TrainingJobNames must be one of TrainingJobName, "),
        ({"AlgorithmSpecification": {}}, "AlgorithmSpecification.TrainingInputMode must be set"),
        (
            {"AlgorithmSpecification": {"TrainingInputMode": "Fast"}},
            "AlgorithmSpecification.TrainingInputMode must be one of",
        ),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": "60"}}, "must be an integer, got '60'"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": True}}, "must be an integer, got True"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "must be at least 1"),
        ({"Tags": [{"Key": "a", "Value": "b" * 257}]}, "Tags.0.Value must be at most 256 characters"),
    ],
)
def test_what_the_service_would_refuse_is_refused_by_its_path(change: dict[str, Any], message: str) -> None:
    assert message in str(refusal_of({**LEAST, **change}))
    assert breaches({**LEAST, **change})


def test_the_prop_is_named_where_it_is_known() -> None:
    with pytest.raises(ValueError, match=r"^max_runtime \(StoppingCondition.MaxRuntimeInSeconds\) must be"):
        check_request({**LEAST, "StoppingCondition": {"MaxRuntimeInSeconds": 0}}, {"StoppingCondition": "max_runtime"})


def test_what_is_known_only_later_is_passed_by_and_what_is_known_now_is_not() -> None:
    later = {name: value for name, value in LEAST.items() if name != "TrainingJobName"}
    later |= {"TrainingJobName.$": "$.name", "RoleArn": "${Token[RoleArn.1]}"}
    assert refusal_of(later) is None
    assert str(refusal_of({**later, "RoleArn": "Token[RoleArn.1]"})).startswith("RoleArn must ")


def test_the_instance_types_are_those_of_the_service_model() -> None:
    assert {"ml.m5.xlarge", "ml.p5.48xlarge", "ml.trn1.32xlarge"} <= training_instance_types()
