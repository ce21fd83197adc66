"""Validates a request against botocore's service model of CreateTrainingJob, patterns and enums included."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import is_unlisted, unlisted_hint

_TYPES: dict[str, tuple[type, ...]] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "boolean": (bool,),
}
# Where a value breaks its shape: the path, the rule, an example where the rule has one, and what it got.
_Problem = tuple[tuple[str, ...], str, str, str]
_MEASURED = {"string": "characters", "list": "members", "map": "entries"}


def check_request(
    request: Mapping[str, Any],
    prop_names: Mapping[str, str] | None = None,
    newer_values: frozenset[str] = frozenset(),
    *,
    shape: str = "CreateTrainingJobRequest",
) -> None:
    """Check a request, of CreateTrainingJob unless said otherwise, against the service model.

    Checks types, required and unknown members, lengths and ranges, patterns and enums. Skips values that are not known at
    synthesis: tokens, and members whose key ends in ``.$`` (Step Functions' JSONPath).

    Args:
        request: The request, in the service's member names.
        prop_names: The prop that a member comes from, by the member's path in the request, like
            ``{"AlgorithmSpecification.MetricDefinitions": "metric_definitions"}``. The message names the prop of the longest
            path that matches.
        newer_values: Values that are accepted although an enum lacks them, as ``unlisted`` values are.
        shape: The name of the request's shape.
    """
    for path, rule, example, got in _problems(shape, request, ()):
        value = _value_at(request, path)
        if rule.startswith("be one of ") and (is_unlisted(value) or value in newer_values):
            continue
        member = ".".join(path)
        prop = _prop(path, prop_names or {})
        raise must(f"{prop} ({member})" if prop else member or "the request", rule, example, got)


@cache
def shapes() -> dict[str, Any]:
    """Return the shapes of SageMaker's newest service model in the installed botocore, by name.

    Raises:
        ModuleNotFoundError: botocore is not installed.
    """
    # Read as a file: importing botocore and its loader takes three times as long, on every synthesis.
    spec = importlib.util.find_spec("botocore")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("botocore is needed for its model of SageMaker, as in `pip install botocore`")
    models = Path(spec.submodule_search_locations[0]).glob("data/sagemaker/*/service-2.json*")
    newest = max(models, key=lambda path: path.parent.name)
    content = newest.read_bytes()
    model = json.loads(gzip.decompress(content) if newest.suffix == ".gz" else content)
    return dict(model["shapes"])


def input_places(request: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the members of a CreateTrainingJob request that have a JSONPath, the names of their shapes, and the JSONPaths.

    Args:
        request: The request, of which members whose key ends in ``.$`` have a JSONPath.
    """
    yield from _input_places("CreateTrainingJobRequest", request, ())


def _input_places(shape_name: str, value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    shape = shapes()[shape_name]
    if isinstance(value, list) and shape["type"] == "list":
        for index, item in enumerate(value):
            yield from _input_places(shape["member"]["shape"], item, (*path, str(index)))
    elif isinstance(value, Mapping) and shape["type"] in ("structure", "map"):
        for key, item in value.items():
            name = key.removesuffix(".$")
            inner = shape["value"] if shape["type"] == "map" else shape["members"].get(name, {"shape": shape_name})
            if name == key:
                yield from _input_places(inner["shape"], item, (*path, name))
            else:
                yield ".".join((*path, name)), inner["shape"], item


def shape_type(shape: str) -> str:
    """Return the type of a shape, like ``"integer"``."""
    return str(shapes()[shape]["type"])


def problem_of(shape: str, value: Any) -> str | None:
    """Return what a value breaks of its shape, like ``"must be at least 1, got 0"``; None where it breaks nothing.

    Args:
        shape: The shape's name.
        value: The value; ``unlisted`` ones are in every enum.
    """
    for _, rule, _, got in _problems(shape, value, ()):
        if not (is_unlisted(value) and rule.startswith("be one of ")):
            return f"must {rule}, got {got}"
    return None


@cache
def training_instance_types() -> frozenset[str]:
    """Return the instance types of the service model's TrainingInstanceType."""
    return frozenset(shapes()["TrainingInstanceType"]["enum"])


@cache
def instance_sizes() -> frozenset[str]:
    """Return the sizes of all instance types in the service model, like ``"48xlarge"``: those of clusters and endpoints too."""
    names = (name for shape in shapes().values() for name in shape.get("enum", ()))
    return frozenset(name.rpartition(".")[2] for name in names if name.startswith("ml."))


def _problems(shape_name: str, value: Any, path: tuple[str, ...]) -> Iterator[_Problem]:
    if is_unresolved(value):
        return
    shape = shapes()[shape_name]
    kind = shape["type"]
    a_bool_for_a_number = kind in ("integer", "long") and isinstance(value, bool)
    right_type = isinstance(value, _TYPES[kind]) and not a_bool_for_a_number
    if not right_type:
        yield path, f"be {'an' if kind == 'integer' else 'a'} {kind}", "", repr(value)
        return
    yield from ((path, *breach) for breach in _breaches(shape, value))
    if kind == "structure":
        yield from _member_problems(shape, value, path)
    elif kind == "list":
        for index, item in enumerate(value):
            yield from _problems(shape["member"]["shape"], item, (*path, str(index)))
    elif kind == "map":
        for key, item in value.items():
            if str(key).endswith(".$"):
                # In the Parameters of a state such a key has a path of JSONPath for its value (Amazon States Language).
                rule = "have no key that ends in '.$', whose value Step Functions evaluates as a path"
                yield path, rule, repr(key.removesuffix(".$")), repr(key)
            yield from _problems(shape["key"]["shape"], key, (*path, str(key)))
            yield from _problems(shape["value"]["shape"], item, (*path, str(key)))


def _member_problems(shape: Mapping[str, Any], value: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[_Problem]:
    members = shape["members"]
    given = {key.removesuffix(".$"): key for key in value}
    for name in shape.get("required", ()):
        if name not in given:
            yield (*path, name), "be set", "", "None"
    for name, key in given.items():
        if name not in members:
            yield (*path, name), f"be one of {', '.join(members)}", "", f"{name!r}, which the service does not have"
        elif name == key:
            yield from _problems(members[name]["shape"], value[key], (*path, name))


def _breaches(shape: Mapping[str, Any], value: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the violations of the range, enum and pattern of a value's shape: the rule, an example, and what it got."""
    kind = shape["type"]
    size = len(value) if kind in _MEASURED else value
    unit = f" {_MEASURED[kind]}" if kind in _MEASURED else ""
    got = f"{size}{unit}" if unit else repr(value)
    if "min" in shape and size < shape["min"]:
        yield f"be at least {shape['min']}{unit}", "" if unit else str(shape["min"]), got
    if "max" in shape and size > shape["max"]:
        yield f"be at most {shape['max']}{unit}", "" if unit else str(shape["max"]), got
    if "enum" in shape and value not in shape["enum"]:
        choices = shape["enum"]
        shown = ", ".join(map(repr, choices[:5])) + (", ..." if len(choices) > 5 else "")
        yield f"be one of {shown}", f"{choices[0]!r}{unlisted_hint(value)}", repr(value)
    if "pattern" in shape and not _pattern(shape["pattern"]).fullmatch(value):
        yield f"match {shape['pattern']}", "", repr(value)


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern of the service model; translates Unicode classes that Python's ``re`` lacks."""
    separators = "\u0020\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
    translated = (
        text.replace(r"\p{Alnum}", "a-zA-Z0-9")
        .replace(r"\p{L}", r"\w")
        .replace(r"\p{N}", r"\w")
        .replace(r"\p{Z}", separators)
    )
    return re.compile(translated)


def _value_at(request: Any, path: tuple[str, ...]) -> str | None:
    """Return the text at a path; None if there is none."""
    value = request
    for name in path:
        value = value[int(name)] if isinstance(value, list) else value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else None


def _prop(path: tuple[str, ...], prop_names: Mapping[str, str]) -> str | None:
    for length in range(len(path), 0, -1):
        prop = prop_names.get(".".join(path[:length]))
        if prop:
            return prop
    return None
