"""Members of CreateTrainingJob that are no props yet, which a user adds to the request by their paths."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.unlisted import is_unlisted
from cdk_sagemaker_training.facts.service_model import check_request, shapes
from cdk_sagemaker_training.props.prop import Known, Prop
from cdk_sagemaker_training.request.props import prop_names, table

_PATH = re.compile(r"[A-Z][A-Za-z0-9]*(\.[A-Z][A-Za-z0-9]*)*")
_EXAMPLE = "{'ModelPackageConfig.ModelPackageGroupArn': 'arn:aws:sagemaker:...'}"

OVERRIDES = Prop(known=Known("execution", "values, not paths"), example=_EXAMPLE)


def overridden(
    request: Mapping[str, Any], overrides: Mapping[str, Any], newer_values: frozenset[str]
) -> Mapping[str, Any]:
    """Return a request with members that are no props, checked against the service model once more.

    Args:
        request: The request of CreateTrainingJob that the props make.
        overrides: Values by the paths of their members, like ``"ModelPackageConfig.ModelPackageGroupArn"``; a dict is a
            structure. A path that is ``unlisted`` is not checked.
        newer_values: As of ``check_request``.

    Raises:
        ValueError: A path is none, a prop sets it, two of them overlap, or the service takes no such value.
    """
    if not overrides:
        return request
    members = [(path, *leaf) for path, value in overrides.items() for leaf in _leaves(path, value)]
    listed = copy.deepcopy(dict(request))
    for key, path, value in members:
        _check(path, value, [other for _, other, _ in members])
        if not is_unlisted(key):
            _put(listed, path, value)
    structures = {path.rpartition(".")[0]: "request_overrides" for _, path, _ in members}
    names = {path: f"request_overrides[{key!r}]" for key, path, _ in members}
    check_request(listed, {**structures, **prop_names(), **names}, newer_values)
    for key, path, value in members:
        if is_unlisted(key):
            _put(listed, path, value)
    return listed


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The paths of what is no structure, with the values."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _leaves(f"{path}.{name}", item)
    else:
        yield path, value


def _check(path: str, value: Any, paths: list[str]) -> None:
    if not _PATH.fullmatch(path):
        raise must("request_overrides", "be by the paths of members", _EXAMPLE, repr(path))
    if value is None:
        raise must(f"request_overrides[{path!r}]", "have a value", _EXAMPLE, "None")
    if sum(_is_below(path, other) or _is_below(other, path) for other in paths) > 1:
        raise must("request_overrides", "set each member once", _EXAMPLE, f"{path!r} twice")
    prop = _prop_that_sets(path)
    if prop is not None:
        got = f"{path!r}, which the prop {prop} sets"
        raise must("request_overrides", "have members that no prop sets", _EXAMPLE, got)


def _prop_that_sets(path: str) -> str | None:
    """The prop that sets a member, what is above it, or what is below it; a structure may have members that no prop sets."""
    for name, prop in table().items():
        for outer in prop.members:
            for member in (outer, *outer.leaves()):
                below = _is_below(path, member.path)
                partial = bool(member.parts) or not _is_in_model(path)
                if _is_below(member.path, path) or (below and not (partial and _is_structure(member.path))):
                    return name
    return None


def _is_below(path: str, other: str) -> bool:
    """Whether a path is another one, or below it."""
    return f"{path}.".startswith(f"{other}.")


def _shape(path: str) -> Mapping[str, Any] | None:
    """The shape of a member in the service model; None where it has none."""
    shape = shapes()["CreateTrainingJobRequest"]
    for name in path.split("."):
        if name not in shape.get("members", {}):
            return None
        shape = shapes()[shape["members"][name]["shape"]]
    return dict(shape)


def _is_in_model(path: str) -> bool:
    return _shape(path) is not None


def _is_structure(path: str) -> bool:
    shape = _shape(path)
    return shape is not None and shape["type"] == "structure"


def _put(request: dict[str, Any], path: str, value: Any) -> None:
    *outer, name = path.split(".")
    for structure in outer:
        request = request.setdefault(structure, {})
    request[name] = value
