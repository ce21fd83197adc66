"""Checks of a workflow's input fields against the members of its requests that take them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.facts.instance_types import check_training_instance_type
from cdk_sagemaker_training.facts.service_model import input_places, problem_of, shape_type
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.workflow.input_fields import ChoiceField, InputField, NumberField, TextField


def check_members(fields: Mapping[str, InputField], requests: Iterable[Mapping[str, Any]]) -> None:
    """Check that the members of a request which take a field as it is take all that the field is known to allow.

    Args:
        fields: Fields by name.
        requests: The rendered requests.

    Raises:
        ValueError: A field allows another type than the member has, or a value that the service refuses.
    """
    for member, shape, path in (place for request in requests for place in input_places(request)):
        name = path.removeprefix("$.")
        field = fields.get(name)
        if field is not None:
            _check_type(name, field, member, shape)
            for value in field.listed:
                _check_value(name, value, member, shape)


def unused_advice(fields: Mapping[str, InputField], readers: Iterable[Any]) -> Iterator[Advice]:
    """Warn of fields that nothing reads, such as ``instance_typ`` where a job's machines are of ``$.instance_type``.

    Args:
        fields: Fields by name.
        readers: What may have their JSONPaths, such as the rendered requests.
    """
    text = "".join(map(str, readers))
    for name in fields:
        if not re.search(rf"\$(\.|\['){name}\b", text):
            yield from advice(
                "unused-input-field",
                f"input_fields[{name!r}] is in no prop of the job, so that an execution must have it to no effect: use it like "
                f"sfn.JsonPath.string_at('$.{name}'), or leave it out.",
            )


def _check_type(name: str, field: InputField, member: str, shape: str) -> None:
    """Check the type, as the service model has it: hyperparameters and variables are text, and no service converts a number."""
    kind = shape_type(shape)
    given = field.listed if isinstance(field, ChoiceField) else ()
    text = isinstance(field, TextField) or (bool(given) and all(isinstance(value, str) for value in given))
    whole = all(isinstance(value, int) for value in given) if given else isinstance(field, NumberField) and field.whole
    if kind in ("integer", "long") and not whole:
        raise ValueError(
            f"input_fields[{name!r}] must be whole numbers, which {member} takes, like NumberField(1, 8, whole=True), got "
            f"{field!r}"
        )
    if kind == "string" and not text:
        raise ValueError(
            f"{member} must be text, as which the number input_fields[{name!r}] is formatted like "
            f"sfn.JsonPath.format('{{}}', sfn.JsonPath.string_at('$.{name}')), got '$.{name}' of {field!r}"
        )


def _check_value(name: str, value: Any, member: str, shape: str) -> None:
    prop = f"input_fields[{name!r}]"
    if shape == "TrainingInstanceType":
        check_training_instance_type(value, prop)
    elif member.endswith("InstanceCount"):
        at_least(1)(prop, value, "2")
    elif problem := problem_of(shape, value):
        raise ValueError(f"{prop} allows what {member} does not: it {problem}")
