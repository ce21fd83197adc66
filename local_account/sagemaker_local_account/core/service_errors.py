"""Errors of the account's services, and validation of requests against botocore's service model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from sagemaker_local_account.core.service_models import service_model

_TYPES: dict[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "double": (int, float),
    "float": (int, float),
}


class ServiceError(Exception):
    """An error response of a service: AWS's error code, the message, and the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def refused(message: str) -> ServiceError:
    """Returns a ValidationException with a message."""
    return ServiceError("ValidationException", message)


def check(operation: str, request: Mapping[str, Any], service: str = "sagemaker") -> None:
    """Validates a request against botocore's model of the service: types, members, lengths, ranges, enums and patterns.

    Args:
        operation: such as "CreateTrainingJob".
        request: its members.
        service: botocore's name of the service.

    Raises:
        ServiceError: ValidationException with all violations, or SerializationException for a wrong type.
    """
    shape = service_model(service).operation_model(operation).input_shape
    assert shape is not None
    problems = list(_problems(shape, request, ""))
    if problems:
        detected = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
        raise refused(f"{detected} detected: {'; '.join(problems)}")


def _problems(shape: Shape, value: Any, path: str) -> Iterator[str]:
    right_type = isinstance(value, _TYPES.get(shape.type_name, object))
    if not right_type or (shape.type_name in ("integer", "long") and isinstance(value, bool)):
        # AWS's services deserialize the whole request before they validate any value.
        raise ServiceError(
            "SerializationException",
            f"{_token(value)} can not be converted to {shape.type_name.capitalize()}: '{path}' must be of type "
            f"{shape.type_name}, got {value!r}",
        )
    for constraint in _constraints(shape, value):
        yield f"Value '{_text(shape, value)}' at '{path}' failed to satisfy constraint: Member must {constraint}"
    if isinstance(shape, StructureShape):
        for name in shape.required_members:
            if value.get(name) is None:
                yield f"Value null at '{_below(path, name)}' failed to satisfy constraint: Member must not be null"
        for name, item in value.items():
            if name not in shape.members:
                yield f"'{_below(path, name)}' is not a member of {shape.name}"
            elif item is not None:
                yield from _problems(shape.members[name], item, _below(path, name))
    elif isinstance(shape, ListShape):
        for number, item in enumerate(value, start=1):
            yield from _problems(shape.member, item, f"{path}.{number}.member")
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            yield from _problems(shape.key, key, f"{path}.{key}")
            yield from _problems(shape.value, item, f"{path}.{key}")


def _text(shape: Shape, value: Any) -> str:
    """A value as the service's own classes print it: `[RoutingConfigurationListItem(weight=100)]`."""
    if isinstance(shape, ListShape):
        return f"[{', '.join(_text(shape.member, item) for item in value)}]"
    if isinstance(shape, StructureShape):
        members = (f"{name}={_text(shape.members[name], it)}" for name, it in value.items() if name in shape.members)
        return f"{shape.name}({', '.join(members)})"
    return str(value)


def _token(value: Any) -> str:
    """The JSON token that a value begins with, as AWS's messages name it."""
    if isinstance(value, bool) or value is None:
        return f"{json.dumps(value).upper()}_VALUE"
    names: dict[type, str] = {str: "STRING_VALUE", dict: "START_OBJECT", list: "START_ARRAY"}
    return names.get(type(value), "NUMBER_VALUE")


def _below(path: str, member: str) -> str:
    name = member[:1].lower() + member[1:]
    return f"{path}.{name}" if path else name


def _constraints(shape: Shape, value: Any) -> Iterator[str]:
    measured = shape.type_name in ("string", "list", "map")
    size, noun = (len(value), "have length") if measured else (value, "have value")
    metadata = shape.metadata
    if "min" in metadata and size < metadata["min"]:
        yield f"{noun} greater than or equal to {metadata['min']}"
    if "max" in metadata and size > metadata["max"]:
        yield f"{noun} less than or equal to {metadata['max']}"
    if metadata.get("enum") and value not in metadata["enum"]:
        yield f"satisfy enum value set: [{', '.join(metadata['enum'])}]"
    if "pattern" in metadata and not _pattern(metadata["pattern"]).fullmatch(value):
        yield f"satisfy regular expression pattern: {metadata['pattern']}"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    r"""Compiles a pattern of the service model; of ``\p{...}``, which ``re`` lacks, marks, symbols and punctuation become ``\S``.

    Two patterns, those of CustomerMetadataProperties, end in ``${1,128}``, which repeats an end: there is one.
    """
    for category, python in _CATEGORIES.items():
        text = text.replace(rf"\p{{{category}}}", python)
    text = re.sub(r"\\p\{\w+\}", r"\\w", text)  # letters and digits, by other names
    try:
        return re.compile(re.sub(r"\$\{[\d,]+\}$", "", text))
    except re.error:  # four of 22 services' models, in Java's syntax: what they exclude is taken
        return re.compile(".*", re.DOTALL)


_CATEGORIES = {"L": r"\w", "N": r"\w", "Z": r"\s", "M": r"\S", "P": r"\S", "S": r"\S", "Alnum": "a-zA-Z0-9"}
