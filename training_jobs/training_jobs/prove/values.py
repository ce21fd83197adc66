"""JSONPath and the intrinsic functions of Step Functions, on plain JSON, without side effects.

Source: "Amazon States Language", "Intrinsic functions for JSONPath states in Step Functions" (AWS's guide). What is not here is
refused by name, so that nothing is evaluated in another way than AWS does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from training_jobs.client.errors import TrainingError

_FILTER = re.compile(r"\[\?\(@\.(\w+) ?(==|!=) ?'([^']*)'\)\]")
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']*)'\]|\[(-?\d+)\]|\[(\d*):(\d*)\]|(\[\*\]|\.\*)")
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:\\.|[^'\\])*')|(?P<call>States\.\w+)\(|(?P<path>\$[^,()\s]*)|(?P<word>[^,()\s]+))"
)


class UnsupportedError(TrainingError):
    """A definition uses what the evaluator does not know; the message names it."""


class StateError(Exception):
    """An error of Step Functions, with the name that a Retry or a Catch compares."""

    def __init__(self, error: str, cause: str) -> None:
        """Name the error and say its cause."""
        super().__init__(f"{error}: {cause}")
        self.error, self.cause = error, cause


class Scope:
    """What paths refer to: a state's input, the context object and the variables."""

    def __init__(self, data: Any, context: Mapping[str, Any], variables: Mapping[str, Any]) -> None:
        """Refer ``$`` to the input, ``$$`` to the context object and ``$name`` to a variable."""
        self.data, self.context, self.variables = data, context, variables

    def found(self, path: str) -> Any:
        """The value at a path; raises ``StateError`` "States.Runtime" where there is none."""
        root: Any
        if path.startswith("$$"):
            root, rest = self.context, path[2:]
        elif re.match(r"\$[A-Za-z_]", path):
            name = re.match(r"\$(\w+)", path)
            assert name is not None
            root, rest = self.variables, f".{name[1]}{path[name.end() :]}"
        else:
            root, rest = self.data, path[1:]
        steps = _steps(rest, path)
        try:
            return _walk(root, steps)
        except (KeyError, IndexError, TypeError):
            if any(map(_finds_several, steps)):
                return []
            raise StateError("States.Runtime", f"the JSONPath {path!r} could not be found in the input") from None


class _Filter(NamedTuple):
    """A step to the items with a member that is or is not a text."""

    name: str
    equal: bool
    value: str


Step = str | int | slice | _Filter | None


def _finds_several(step: Step) -> bool:
    return step is None or isinstance(step, slice | _Filter)


@cache
def _steps(rest: str, path: str) -> list[Step]:
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        if chosen := _FILTER.match(rest, at):
            steps.append(_Filter(chosen[1], chosen[2] == "==", chosen[3]))
            at = chosen.end()
            continue
        match = _STEP.match(rest, at)
        if match is None:
            raise UnsupportedError(f"the JSONPath {path!r} must consist of names, indexes and slices, like '$.a[0]'")
        name, quoted, index, first, last, wild = match.groups()
        if name is not None or quoted is not None:
            steps.append(name if name is not None else quoted)
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(None if wild else slice(int(first) if first else None, int(last) if last else None))
        at = match.end()
    return steps


def _walk(value: Any, steps: list[Step]) -> Any:
    for at, step in enumerate(steps):
        if isinstance(step, _Filter):
            return [_walk(item, steps[at + 1 :]) for item in value if (item.get(step.name) == step.value) is step.equal]
        if step is None or isinstance(step, slice):
            items = list(value.values()) if isinstance(value, dict) else value[step or slice(None)]
            found = [_walk(item, steps[at + 1 :]) for item in items]
            # Of several, what further such steps find is one list.
            return list(chain.from_iterable(found)) if any(map(_finds_several, steps[at + 1 :])) else found
        if isinstance(step, str) and not isinstance(value, dict):
            raise KeyError(step)
        value = value[step]
    return value


def put(data: Any, path: str | None, value: Any) -> Any:
    """``data`` with ``value`` at a ResultPath; ``data`` itself is not changed."""
    if path is None:
        return data
    steps = _steps(path[1:], path)
    if not steps:
        return value
    copied = dict(data) if isinstance(data, dict) else {}
    at = copied
    for step in steps[:-1]:
        if not isinstance(step, str):
            raise UnsupportedError(f"the ResultPath {path!r} must consist of names, like '$.a.b'")
        inner = at.get(step)
        at[step] = dict(inner) if isinstance(inner, dict) else {}
        at = at[step]
    last = steps[-1]
    if not isinstance(last, str):
        raise UnsupportedError(f"the ResultPath {path!r} must consist of names, like '$.a.b'")
    at[last] = value
    return copied


def filled(template: Any, scope: Scope) -> Any:
    """A payload template with the members whose names end with ``.$`` evaluated."""
    if isinstance(template, dict):
        return {
            name.removesuffix(".$"): evaluated(value, scope) if name.endswith(".$") else filled(value, scope)
            for name, value in template.items()
        }
    return [filled(item, scope) for item in template] if isinstance(template, list) else template


def evaluated(expression: str, scope: Scope) -> Any:
    """The value of a path or of an intrinsic function."""
    if expression.startswith("$"):
        return scope.found(expression)
    value, end = _expression(expression, 0, scope)
    if expression[end:].strip():
        raise UnsupportedError(f"{expression!r} must be a path or an intrinsic function, like 'States.Format(...)'")
    return value


def _expression(text: str, at: int, scope: Scope) -> tuple[Any, int]:
    token = _TOKEN.match(text, at)
    if token is None:
        raise UnsupportedError(f"{text!r} must be a path or an intrinsic function, like 'States.Format(...)'")
    if token["text"]:
        return "{}".join(_around_places(token["text"])), token.end()
    if token["path"]:
        return scope.found(token["path"]), token.end()
    if token["word"]:
        return json.loads(token["word"]), token.end()
    name, arguments, at = token["call"], [], token.end()
    first = _TOKEN.match(text, at)
    while not text[at:].lstrip().startswith(")"):
        value, at = _expression(text, at, scope)
        arguments.append(value)
        rest = text[at:].lstrip()
        if rest.startswith(","):
            at = text.index(",", at) + 1
        elif not rest.startswith(")"):
            raise UnsupportedError(f"{text!r} must be an intrinsic function with its brackets closed")
    if name not in FUNCTIONS:
        raise UnsupportedError(f"the intrinsic function {name} is not known, in {text!r}")
    if name == "States.Format" and arguments:
        # Of a text as it is written: one that comes by a path has no escapes.
        arguments[0] = _around_places(first["text"]) if first and first["text"] else str(arguments[0]).split("{}")
    try:
        return FUNCTIONS[name](*arguments), text.index(")", at) + 1
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise StateError("States.IntrinsicFailure", f"{name}: {error}") from None


def _around_places(quoted: str) -> list[str]:
    """What is around each `{}` of a text in quotes of which neither brace is escaped."""
    parts = [""]
    for piece in re.findall(r"\\.|\{\}|.", quoted[1:-1], re.DOTALL):
        if piece == "{}":
            parts.append("")
        else:
            parts[-1] += piece[-1]
    return parts


def _format(parts: list[str], *values: Any) -> str:
    if len(parts) != len(values) + 1:
        raise ValueError("as many arguments as places are needed")
    return "".join(part + text for part, text in zip(parts, [*map(_in_java, values), ""], strict=True))


def _in_java(value: Any) -> str:
    """A value as Java writes it, which is how AWS formats it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}={_in_java(it)}' for name, it in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_in_java, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _add(first: float, second: float) -> int:
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (first, second)):
        raise ValueError("numbers are needed")
    return math.floor(first + 0.5) + math.floor(second + 0.5)


def _unique(items: list[Any]) -> list[Any]:
    return [item for at, item in enumerate(items) if item not in items[:at]]


# MathRandom is its largest value and UUID is one text: each is one of the values that AWS may give.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "States.Format": _format,
    "States.MathAdd": _add,
    "States.MathRandom": lambda start, end, seed=None: round(end),
    "States.UUID": lambda: "00000000-0000-4000-8000-000000000000",
    "States.Hash": lambda text, algorithm: hashlib.new(algorithm.replace("-", "").lower(), _text(text)).hexdigest(),
    "States.Array": lambda *items: list(items),
    "States.ArrayGetItem": lambda items, index: items[index],
    "States.ArrayLength": len,
    "States.ArrayContains": lambda items, item: item in items,
    "States.ArrayUnique": _unique,
    "States.ArrayRange": lambda first, last, step: list(range(first, last + (1 if step > 0 else -1), step)),
    "States.ArrayPartition": lambda items, size: [items[at : at + size] for at in range(0, len(items), size)],
    "States.StringSplit": lambda text, marks: [part for part in re.split(f"[{re.escape(marks)}]", text) if part],
    "States.StringToJson": lambda text: json.loads(text) if text.strip() else None,
    "States.JsonToString": lambda value: json.dumps(value, separators=(",", ":")),
    "States.JsonMerge": lambda first, second, deep: {**first, **second},
    "States.Base64Encode": lambda text: base64.b64encode(text.encode()).decode(),
    "States.Base64Decode": lambda text: base64.b64decode(text).decode(),
}


def _text(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))).encode()


_BOTH = {
    "Equals": lambda value, other: value == other,
    "LessThan": lambda value, other: value < other,
    "LessThanEquals": lambda value, other: value <= other,
    "GreaterThan": lambda value, other: value > other,
    "GreaterThanEquals": lambda value, other: value >= other,
}
_KINDS = {"String": str, "Numeric": int | float, "Boolean": bool, "Timestamp": str}
_COMPARISON = re.compile(r"(String|Numeric|Boolean|Timestamp)(\w+?)(Path)?")


def holds(rule: Mapping[str, Any], scope: Scope) -> bool:
    """Whether a rule of a Choice state holds."""
    if "And" in rule:
        return all(holds(each, scope) for each in rule["And"])
    if "Or" in rule:
        return any(holds(each, scope) for each in rule["Or"])
    if "Not" in rule:
        return not holds(rule["Not"], scope)
    [operator] = (name for name in rule if name not in ("Variable", "Next", "Comment", "Assign"))
    wanted = rule[operator]
    if operator == "IsPresent":
        try:
            scope.found(rule["Variable"])
        except StateError:
            return not wanted
        return bool(wanted)
    value = scope.found(rule["Variable"])
    number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {"IsNull": value is None, "IsBoolean": isinstance(value, bool), "IsString": isinstance(value, str)}
    kinds["IsNumeric"] = number
    if operator in kinds:
        return kinds[operator] is wanted
    if operator == "StringMatches":
        pattern = "".join(".*" if part == "*" else re.escape(part.replace("\\*", "*")) for part in _parts(wanted))
        return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
    found = _COMPARISON.fullmatch(operator)
    if found is None or found[2] not in _BOTH:
        raise UnsupportedError(f"the comparison {operator} is not known")
    other = scope.found(wanted) if found[3] else wanted
    right = number if found[1] == "Numeric" else isinstance(value, _KINDS[found[1]])
    return right and isinstance(other, _KINDS[found[1]]) and bool(_BOTH[found[2]](value, other))


def _parts(pattern: str) -> list[str]:
    return [part for part in re.split(r"((?<!\\)\*)", pattern) if part]
