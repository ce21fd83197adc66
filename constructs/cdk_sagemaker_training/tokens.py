"""Telling values that are known at synth from those that CloudFormation or Step Functions fills in later."""

from __future__ import annotations

from typing import Any

# CDK encodes a number token as a negative float of this magnitude (aws-cdk-lib core/lib/private/encoding.ts).
_NUMBER_TOKEN_BELOW = -1e288
# What `StringParameter.value_from_lookup` is until the CLI has looked the parameter up (aws-cdk-lib aws-ssm/lib/parameter.ts).
_PENDING_PARAMETER = "dummy-value-for-"
# What `Stack.availability_zones` are until then (aws-cdk-lib core/lib/stack.ts).
_PENDING_ZONES = ("dummy1a", "dummy1b", "dummy1c")


def is_unresolved(value: Any) -> bool:
    """Whether ``value`` is, or contains, a CDK token, so that a check at synth has to pass it by.

    So does text that stands for a parameter which the CLI has yet to look up: an error in its place would keep the CLI from it.

    Answers as ``aws_cdk.Token.is_unresolved`` does for text and numbers, without its call into Node for each value. An
    ``IResolvable`` is a token too.
    """
    if isinstance(value, str):
        return "${Token[" in value or _PENDING_PARAMETER in value
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, int | float):
        return value < _NUMBER_TOKEN_BELOW
    if isinstance(value, list | tuple):
        return any(isinstance(item, str) and "#{Token[" in item for item in value)
    return hasattr(type(value), "creation_stack")  # an IResolvable; its instances may fail to say


def is_pending_zone(zone: str) -> bool:
    """Whether the name of an availability zone stands for one that the CLI has yet to look up."""
    return zone in _PENDING_ZONES or is_unresolved(zone)
