"""Distinguishes values that are known at synthesis from tokens that are resolved later, and from expressions of JSONata."""

from __future__ import annotations

import re
import struct
from typing import Any

# An expression of JSONata in text, as Step Functions has it: one with a variable, so that a template such as Jinja's is none.
# No part of the pattern takes what the next one does, nor another beginning: text that is almost one takes linear time.
JSONATA = re.compile(r"\{%((?:(?!%\}|\{%)[^$])*\$(?:(?!%\}|\{%).)*)%\}", re.DOTALL)
# The first bytes of a number token, a float of about -1.9e289 (aws-cdk-lib core/lib/private/encoding.ts).
_NUMBER_TOKEN = b"\xfb\xff"
# What `StringParameter.value_from_lookup` is until the CLI has looked the parameter up (aws-cdk-lib aws-ssm/lib/parameter.ts).
_PENDING_PARAMETER = "dummy-value-for-"
# What `Stack.availability_zones` are until then (aws-cdk-lib core/lib/stack.ts).
_PENDING_ZONES = ("dummy1a", "dummy1b", "dummy1c")


def is_unresolved(value: Any) -> bool:
    """Return whether ``value`` is or contains a CDK token, or an expression of JSONata, which checks at synthesis skip.

    The placeholder of an SSM parameter that the CLI has not looked up yet counts as a token: the CLI looks values up only after
    a synthesis without errors. For tokens in text and numbers the result is that of ``aws_cdk.Token.is_unresolved``, without its
    call into Node for each value. An ``IResolvable`` is a token too.
    """
    if isinstance(value, str):
        is_expression = "{%" in value and JSONATA.search(value) is not None
        return "${Token[" in value or _PENDING_PARAMETER in value or is_expression
    if isinstance(value, float):
        return struct.pack(">d", value).startswith(_NUMBER_TOKEN)
    if isinstance(value, int) or value is None:
        return False
    if isinstance(value, list | tuple):
        return any(isinstance(item, str) and "#{Token[" in item for item in value)
    return hasattr(type(value), "creation_stack")  # an IResolvable; reading the attribute of an instance may raise


def is_pending_zone(zone: str) -> bool:
    """Return whether the name of an availability zone is CDK's placeholder of a zone that the CLI has not looked up yet."""
    return zone in _PENDING_ZONES or is_unresolved(zone)
