"""The values of a template's parameters: checked when they are given, and of their types when they are used.

The sentences are AWS's, recorded by LocalStack (localstack/localstack at 8b9a79f, tests/aws/services/cloudformation) where a test
names one, and otherwise of the template reference, "Parameters".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.ssm.models import ssm_backends

_SSM = "AWS::SSM::Parameter::Value<"


def check(template: Mapping[str, Any], given: Mapping[str, Any], account_id: str, region: str) -> None:
    """Raises ``ValidationError`` for parameters that a template lacks, that have no value, or one that it does not allow."""
    slots = template.get("Parameters", {})
    if unknown := sorted(given.keys() - slots.keys()):
        raise ValidationError(message=f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    values = given_or_default(template, given)
    if lacking := [name for name, value in values.items() if value is None]:
        raise ValidationError(message=f"Parameters: [{', '.join(lacking)}] must have values")
    for name, value in values.items():
        _check_one(name, slots[name], text(value))
        if is_stored(slots[name]):
            typed(slots[name], value, account_id, region)


def given_or_default(template: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a template's parameters: those that are given, and otherwise their defaults, or None."""
    slots = template.get("Parameters", {})
    return {name: slot.get("Default") if given.get(name) is None else given[name] for name, slot in slots.items()}


def is_stored(slot: Mapping[str, Any]) -> bool:
    """Whether a parameter's value names a parameter of Systems Manager, which has the value."""
    return str(slot.get("Type", "")).startswith(_SSM)


def _check_one(name: str, slot: Mapping[str, Any], value: str) -> None:
    items = [item.strip() for item in value.split(",")] if _is_list(slot["Type"]) else [value]
    for item in items:
        allowed = [text(one) for one in slot.get("AllowedValues", [item])]
        if item not in allowed:
            raise _refused(name, slot, f"Parameter '{name}' must be one of AllowedValues: [{', '.join(allowed)}]")
        if not re.fullmatch(slot.get("AllowedPattern", ".*"), item, re.DOTALL):
            raise _refused(name, slot, f"Parameter '{name}' must match pattern {slot['AllowedPattern']}")
        if slot["Type"] in ("Number", "List<Number>") and not _is_number(item):
            raise ValidationError(message=f"Parameter '{name}' must be a number.")
    least, most = slot.get("MinLength"), slot.get("MaxLength")
    if least is not None and len(value) < int(least):
        raise ValidationError(message=f"Parameter '{name}' must contain at least {least} characters")
    if most is not None and len(value) > int(most):
        raise ValidationError(message=f"Parameter '{name}' must contain at most {most} characters")
    if slot["Type"] == "Number":
        if "MinValue" in slot and float(value) < float(slot["MinValue"]):
            raise ValidationError(message=f"Parameter '{name}' must be a number not less than {slot['MinValue']}")
        if "MaxValue" in slot and float(value) > float(slot["MaxValue"]):
            raise ValidationError(message=f"Parameter '{name}' must be a number not greater than {slot['MaxValue']}")


def _refused(name: str, slot: Mapping[str, Any], why: str) -> ValidationError:
    about = slot.get("ConstraintDescription")
    return ValidationError(message=f"Parameter {name} failed to satisfy constraint: {about}" if about else why)


def typed(slot: Mapping[str, Any], value: Any, account_id: str, region: str) -> Any:
    """Returns the value that a reference to a parameter has: a text, a number, or a list of them.

    Raises:
        ValidationError: it names a parameter of Systems Manager that does not exist.
    """
    kind = str(slot.get("Type", "String"))
    if is_stored(slot):
        stored: Any = ssm_backends[account_id][region].get_parameter(str(value))
        if stored is None:
            raise ValidationError(
                message=f"Unable to fetch parameters [{value}] from parameter store for this account."
            )
        kind, value = kind.removeprefix(_SSM)[:-1], stored.value
    if _is_list(kind):
        items = [item.strip() for item in str(value).split(",")]
        return [_number(item) for item in items] if kind == "List<Number>" else items
    return _number(str(value)) if kind == "Number" else text(value)


def _is_list(kind: str) -> bool:
    return kind == "CommaDelimitedList" or "List<" in kind


def text(value: Any) -> str:
    """Returns a value as the text that it is described with."""
    if isinstance(value, list):
        return ",".join(map(text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
