"""Ranges of hyperparameters, in the words of SageMaker's SDK, and the request of a tuning job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cdk_sagemaker_training.facts.service_model import check_request, shapes
from cdk_sagemaker_training.props.prop import LITERAL, Prop
from cdk_sagemaker_training.props.prop_types import check_fields
from cdk_sagemaker_training.request.props import prop_names

Scaling = Literal["Auto", "Linear", "Logarithmic", "ReverseLogarithmic"]

_DEFINITION, _ALGORITHM = "HyperParameterTrainingJobDefinition", "HyperParameterAlgorithmSpecification"


@dataclass(frozen=True)
class ContinuousParameter:
    """A hyperparameter that is any number of a range.

    Args:
        min_value: The least.
        max_value: The most.
        scaling_type: How the range is searched: ``"Logarithmic"`` where it spans orders of magnitude (SageMaker's guide,
            "Hyperparameter scaling"). Default: SageMaker chooses.

    Raises:
        ValueError: ``min_value`` is not below ``max_value``, or the range is outside of that of its scaling (API,
            ContinuousParameterRange.ScalingType).
    """

    min_value: Annotated[float, LITERAL]
    max_value: Annotated[float, LITERAL]
    scaling_type: Annotated[Scaling, LITERAL] = "Auto"

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self)


@dataclass(frozen=True)
class IntegerParameter:
    """A hyperparameter that is a whole number of a range.

    Args:
        min_value: The least.
        max_value: The most.
        scaling_type: As of ``ContinuousParameter``.

    Raises:
        ValueError: ``min_value`` is not below ``max_value``.
    """

    min_value: Annotated[int, LITERAL]
    max_value: Annotated[int, LITERAL]
    scaling_type: Annotated[Scaling, LITERAL] = "Auto"

    def __post_init__(self) -> None:
        check_fields(self)
        _check_range(self)


@dataclass(frozen=True)
class CategoricalParameter:
    """A hyperparameter that is one of several values.

    Args:
        values: The values, written as hyperparameters are: text as JSON.

    Raises:
        ValueError: There are none.
    """

    values: Annotated[Sequence[str | float], Prop(known=LITERAL, example="['adam', 'sgd']")]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.values:
            raise ValueError(f"values must be at least one, like ['adam', 'sgd'], got {self.values!r}")


ParameterRange = ContinuousParameter | IntegerParameter | CategoricalParameter


def parameter_ranges(ranges: Mapping[str, ParameterRange]) -> dict[str, list[dict[str, Any]]]:
    """Return ParameterRanges of the API.

    Args:
        ranges: Ranges by the hyperparameters' names.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, one in ranges.items():
        if isinstance(one, CategoricalParameter):
            # As SageMaker's SDK has them for its frameworks (CategoricalParameter.as_json_range).
            member = {"Name": name, "Values": [json.dumps(value) for value in one.values]}
            found.setdefault("CategoricalParameterRanges", []).append(member)
            continue
        kind = "Integer" if isinstance(one, IntegerParameter) else "Continuous"
        found.setdefault(f"{kind}ParameterRanges", []).append(
            {
                "Name": name,
                "MinValue": str(one.min_value),
                "MaxValue": str(one.max_value),
                "ScalingType": one.scaling_type,
            }
        )
    return found


def tuning_request(
    training: Mapping[str, Any], *, name: str, config: Mapping[str, Any], ranges: Mapping[str, ParameterRange]
) -> dict[str, Any]:
    """Return the Parameters of a state that creates a tuning job.

    Args:
        training: The Parameters of a state that creates one training job.
        name: The tuning job's name, an expression of JSONPath.
        config: HyperParameterTuningJobConfig, without the ranges.
        ranges: Ranges by the hyperparameters' names.

    Raises:
        ValueError: The training job has a member that a tuning job has not, or a hyperparameter that has a range, or the request
            breaks a rule of the service model.
    """
    definition: dict[str, Any] = {}
    for key, value in training.items():
        member = key.removesuffix(".$")
        if member in ("TrainingJobName", "Tags"):
            continue
        if member == "HyperParameters":
            key = "StaticHyperParameters"
        elif member == "AlgorithmSpecification":
            _check_members(value, _ALGORITHM, "AlgorithmSpecification.")
        else:
            _check_members([key], _DEFINITION, "")
        definition[key] = value
    both = sorted(set(ranges) & set(definition.get("StaticHyperParameters", {})))
    if both:
        raise ValueError(
            f"ranges must be of hyperparameters that have no value, like 'learning_rate', got {both[0]!r}, which "
            "hyperparameters has too"
        )
    request = {
        "HyperParameterTuningJobName.$": name,
        "HyperParameterTuningJobConfig": {**config, "ParameterRanges": parameter_ranges(ranges)},
        "TrainingJobDefinition": definition,
        "Tags": training["Tags"],
    }
    check_request(request, shape="CreateHyperParameterTuningJobRequest")
    return request


def _check_members(members: Any, shape: str, path: str) -> None:
    """Check that the training jobs of a tuning job have members."""
    for member in (key.removesuffix(".$") for key in members):
        if member not in shapes()[shape]["members"]:
            place = f"{path}{member}"
            prop = next((prop for one, prop in prop_names().items() if f"{one}.".startswith(f"{place}.")), place)
            raise ValueError(
                f"{prop} must be left out of a tuning job, whose training jobs have no {place} (API, {shape}), like "
                f"{prop}=None: use a TrainingSweep, got one"
            )


def _check_range(one: ContinuousParameter | IntegerParameter) -> None:
    if one.min_value >= one.max_value:
        raise ValueError(f"min_value must be below max_value, like 0 and 1, got {one.min_value} and {one.max_value}")
    if one.scaling_type == "Logarithmic" and one.min_value <= 0:
        raise ValueError(f"min_value must be above 0 with scaling_type='Logarithmic', like 1e-5, got {one.min_value}")
    if one.scaling_type == "ReverseLogarithmic" and not 0 <= one.min_value < one.max_value < 1:
        raise ValueError(
            "min_value and max_value must be from 0 to below 1 with scaling_type='ReverseLogarithmic', like 0.9 and 0.999, got "
            f"{one.min_value} and {one.max_value}"
        )
