"""What SageMaker's service model says of a CreateTrainingJob request, by validators that are not this library's.

botocore checks what an SDK checks before it sends: types, required and unknown members, least values. jsonschema checks besides
what botocore leaves to the service: greatest values, enums and patterns, which `regex` reads with their Unicode classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import aws_cdk as cdk
import regex
from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape
from botocore.validate import ParamValidator
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

from cdk_sagemaker_training.core.tokens import is_unresolved

_MODEL = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
INPUT = _MODEL.operation_model("CreateTrainingJob").input_shape
# The keywords of JSON Schema for a shape's least and greatest size, by its type.
_LIMITS = {
    "string": ("minLength", "maxLength"),
    "list": ("minItems", "maxItems"),
    "map": ("minProperties", "maxProperties"),
    "integer": ("minimum", "maximum"),
    "long": ("minimum", "maximum"),
}


def breaches(request: Mapping[str, Any], newer_types: frozenset[str] = frozenset()) -> list[str]:
    """What a request breaks of the service model, empty where it is taken.

    What is a token is passed by: the service reads it only once it is filled in. ``newer_types`` are taken though the model's
    enum lacks them.
    """
    found = [
        f"{error.json_path}: {error.message}"
        for error in _VALIDATOR.iter_errors(request)
        if not cdk.Token.is_unresolved(error.instance)
        and not (error.validator == "enum" and error.instance in newer_types)
    ]
    if holds_token(request):  # of which botocore's validator knows nothing
        return found
    report = ParamValidator().validate(request, INPUT)
    return [*found, *report.generate_report().splitlines()]


def holds_token(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(holds_token, value.values() if isinstance(value, dict) else value))
    return is_unresolved(value)


def _schema(shape: Shape) -> dict[str, Any]:
    """A shape of the service model in JSON Schema."""
    schema: dict[str, Any] = {name: shape.metadata[name] for name in ("enum", "pattern") if name in shape.metadata}
    for name, keyword in zip(("min", "max"), _LIMITS.get(shape.type_name, ()), strict=False):
        if name in shape.metadata:
            schema[keyword] = shape.metadata[name]
    match shape.type_name:
        case "structure":
            members = {name: _schema(member) for name, member in shape.members.items()}
            required = {"required": shape.required_members, "additionalProperties": False}
            return {"type": "object", "properties": members, **required}
        case "list":
            return {"type": "array", "items": _schema(shape.member), **schema}
        case "map":
            names = {"propertyNames": _schema(shape.key), "additionalProperties": _schema(shape.value)}
            return {"type": "object", **names, **schema}
        case "integer" | "long":
            return {"type": "integer", **schema}
    return {"type": shape.type_name, **schema}


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not regex.fullmatch(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern}")


_Validator: Callable[..., Any] = extend(Draft202012Validator, {"pattern": _pattern})
_VALIDATOR = _Validator(_schema(INPUT))
