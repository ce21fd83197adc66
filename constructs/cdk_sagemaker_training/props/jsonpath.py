"""Step Functions' JSONPath: expressions as values, and text as an argument of intrinsic functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from aws_cdk import aws_stepfunctions as sfn

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import JSONATA, is_unresolved
from cdk_sagemaker_training.props.execution_input import is_jsonpath

NAME = "JSONPath"
EXAMPLE = "sfn.JsonPath.string_at('$.value')"
EXECUTION_ID = "$$.Execution.Id"

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"(\$\{Token\[[^\]]*\]\})")


@cache
def path(expression: str) -> str:
    """The token that stands for a JSONPath expression in a value.

    Args:
        expression: A path or an intrinsic function, like ``"$.Training.JobName"``.

    Returns:
        Text, the same for the same expression, since each token costs a call into Node.
    """
    return sfn.JsonPath.string_at(expression)


def expression(text: str) -> str:
    """``text`` as an argument of an intrinsic function.

    Args:
        text: Text, or a token of JSONPath.

    Returns:
        A literal, or the path that the token stands for.
    """
    rendered = sfn.FieldUtils.render_object({"text": text}) or {}
    return str(rendered["text.$"]) if "text.$" in rendered else quoted(text)


def quoted(text: str) -> str:
    """``text`` as a literal in an intrinsic function.

    Returns:
        The text in quotes, with what the Amazon States Language escapes (Intrinsic functions, "Reserved characters") escaped.
    """
    parts = _TOKEN.split(text)
    parts[::2] = map(_escaped, parts[::2])
    return f"'{''.join(parts)}'"


def below(uri: str, folder: str) -> str:
    """A place below another, as a value.

    Args:
        uri: The other, with its last slash.
        folder: An expression of what follows, without a slash at its end.
    """
    return path(f"States.Format('{{}}{{}}/', {quoted(uri)}, {folder})")


def is_other(value: Any) -> bool:
    """Whether a value has an expression of JSONata, which a state in JSONPath does not evaluate."""
    return isinstance(value, str) and "{%" in value and JSONATA.search(value) is not None


def render(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """``request`` as the Parameters of a Task state, in JSONPath.

    Args:
        request: A request, in which text may hold places in the execution's input.

    Returns:
        The request, in which the name of a member that has such a place ends in ``.$``.
    """
    try:
        return sfn.FieldUtils.render_object(request) or {}
    except RuntimeError:
        # CDK renders such a place only where it is the whole of a member; only here the request is looked through.
        return sfn.FieldUtils.render_object(_with_intrinsics(request)) or {}


def _with_intrinsics(value: Any) -> Any:
    """``value`` with `States.Format` for text that a place in the input is part of, and `States.Array` for lists with one."""
    if isinstance(value, Mapping):
        return dict(_member(name, item) for name, item in value.items())
    if isinstance(value, str):
        return _formatted(value)
    if not isinstance(value, list | tuple) or is_unresolved(value):
        return value
    return [_with_intrinsics(item) for item in value]


def _member(name: str, value: Any) -> tuple[str, Any]:
    """A member of a request, by its name: a list of text with a place in the input has one that ends in ``.$``."""
    texts = value if isinstance(value, list | tuple) and not is_unresolved(value) else ()
    if any(isinstance(item, str) and any(map(is_jsonpath, _TOKEN.findall(item))) for item in texts):
        return f"{name}.$", f"States.Array({', '.join(expression(_formatted(item)) for item in texts)})"
    return name, _with_intrinsics(value)


def _formatted(text: str) -> str:
    parts = _TOKEN.split(text)
    places = [part for part in parts[1::2] if is_jsonpath(part)]
    if not places or parts == ["", text, ""]:
        return text
    parts[::2] = map(_escaped, parts[::2])
    template = "".join("{}" if part in places else part for part in parts)
    return path(f"States.Format('{template}', {', '.join(map(expression, places))})")


def _escaped(literal: str) -> str:
    return re.sub(r"([\\'{}])", r"\\\1", literal)


def result_path(step: str) -> str:
    """Return the JSONPath at which an execution of several jobs keeps the result of a step.

    Args:
        step: The step's id; of a workflow, that of the workflow.

    Raises:
        ValueError: The id has characters that a path does not take.
    """
    if not _ID.fullmatch(step):
        raise must(
            "id of a step",
            "be letters, digits and underscores, since it is part of the path of its result",
            "'Pretraining'",
            repr(step),
        )
    return f"$.Steps.{step}"
