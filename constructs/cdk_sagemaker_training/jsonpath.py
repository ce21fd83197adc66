"""Step Functions' JSONPath: expressions as values, and text as an argument of intrinsic functions."""

from __future__ import annotations

import re
from functools import cache

from aws_cdk import aws_stepfunctions as sfn

_TOKEN = re.compile(r"(\$\{Token\[[^\]]*\]\})")


@cache
def path(expression: str) -> str:
    """The token that stands for an expression in a value; one for each expression, since each costs a call into Node."""
    return sfn.JsonPath.string_at(expression)


def expression(text: str) -> str:
    """``text`` as an argument of an intrinsic function: a literal, or the path that a JSONPath token stands for."""
    rendered = sfn.FieldUtils.render_object({"text": text}) or {}
    return str(rendered["text.$"]) if "text.$" in rendered else quoted(text)


def quoted(text: str) -> str:
    """``text`` as a literal in an intrinsic function; CDK's tokens in it stay whole."""
    parts = _TOKEN.split(text)
    parts[::2] = [re.sub(r"([\\'{}])", r"\\\1", part) for part in parts[::2]]
    return f"'{''.join(parts)}'"
