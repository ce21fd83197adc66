"""JSONata in Step Functions: expressions as values, and text with expressions in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.core.tokens import JSONATA
from cdk_sagemaker_training.props.execution_input import is_jsonpath, tokens_in

NAME = "JSONata"
EXAMPLE = "'{% $states.input.value %}'"
EXECUTION_ID = "$states.context.Execution.Id"


def path(expression: str) -> str:
    """``expression`` as a value.

    Args:
        expression: An expression, like ``"$states.input.steps"``.
    """
    return f"{{% {expression} %}}"


def whole(text: str) -> str | None:
    """Return the expression that a text is as a whole; None for other text.

    Args:
        text: Such as ``"{% $states.input.steps %}"``, without blanks around it ("Transforming data with JSONata").
    """
    return text[2:-2].strip() if text.startswith("{%") and text.endswith("%}") else None


def expression(text: str) -> str:
    """``text`` as an operand in an expression.

    Args:
        text: Text, in which each ``{% ... %}`` with a variable is an expression.

    Returns:
        A literal, an expression in parentheses, or their concatenation; operands of ``&`` that are numbers become text.
    """
    parts = JSONATA.split(text)
    operands = [f"({part.strip()})" if index % 2 else quoted(part) for index, part in enumerate(parts) if part]
    return " & ".join(operands) or "''"


def quoted(text: str) -> str:
    """``text`` as a literal in an expression, in which CDK's tokens stay whole.

    Args:
        text: Text. What would begin or end an expression of Step Functions is taken apart.
    """
    # JSON's escapes are those of JSONata, which has none for a single quote (JSONata, "String literals").
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace("'", "\\u0027")
    return f"'{escaped}'".replace("{%", "{' & '%").replace("%}", "%' & '}")


def below(uri: str, folder: str) -> str:
    """A place below another, as a value.

    Args:
        uri: The other, with its last slash.
        folder: An expression of what follows, without a slash at its end.
    """
    return path(f"{quoted(uri)} & {folder} & '/'")


def is_other(value: Any) -> bool:
    """Whether a value is a JSONPath, which a state in JSONata does not evaluate."""
    return any(map(is_jsonpath, tokens_in(value)))


def render(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """``request`` as the Arguments of a Task state, in JSONata.

    Args:
        request: A request, in which text may hold expressions. Step Functions evaluates text that is one as a whole.
    """
    return {name: _rendered(value) for name, value in request.items()}


def _rendered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return render(value)
    if isinstance(value, list):
        return [_rendered(item) for item in value]
    if not isinstance(value, str):
        return value
    is_one = JSONATA.fullmatch(value) is not None
    evaluated = JSONATA.search(value) is not None or whole(value) is not None
    return path(expression(value)) if evaluated and not is_one else value
