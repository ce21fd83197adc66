"""Patches of moto: each is checked against the signature it was written for, and undone when the account closes.

The patched parts are internal to moto and change between its versions. Where one is missing or has other parameters, ``patch``
raises ``PatchError`` with its name, which stops the account's start.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from importlib.metadata import version
from typing import Any

# The parameters of the class methods that moto's CloudFormation calls.
CREATE = "cls, resource_name, cloudformation_json, account_id, region_name, **kwargs"
UPDATE = "cls, original_resource, new_resource_name, cloudformation_json, account_id, region_name"

_MISSING = object()
_undo: list[Callable[[], None]] = []
_misfits: list[str] | None = None  # a list: they are collected instead of raised


class PatchError(RuntimeError):
    """A patched part of moto is missing or has another signature than the patch was written for."""


def patch(owner: Any, name: str, replacement: Any, parameters: str | None = None) -> None:
    """Replaces ``owner.name``, an attribute of a class, module or object, until ``undo_all``.

    Args:
        owner: the class, module or object.
        name: the attribute, which is ``owner``'s own or inherited.
        replacement: a function (also of a classmethod, for which it takes the class first), property, class or value.
        parameters: the parameter names of the original, as in ``"self, name, *args"``: required for callables.
            A class is replaced by a subclass of it, and a property by a property.

    Raises:
        PatchError: ``owner`` has no such attribute, or it does not match ``parameters`` and ``replacement``.
    """
    original = inspect.getattr_static(owner, name, _MISSING)
    if isinstance(original, classmethod):
        replacement = classmethod(replacement)
    if why := _misfit(original, replacement, parameters):
        _unfit(owner, name, why)
    _set(owner, name, replacement)


def add(owner: Any, name: str, value: Any) -> None:
    """Adds an attribute to ``owner`` until ``undo_all``.

    Raises:
        PatchError: ``owner`` already has an attribute of that name.
    """
    if inspect.getattr_static(owner, name, _MISSING) is not _MISSING:
        _unfit(owner, name, "exists, and did not in the version that this account is written for")
    _set(owner, name, value)


def patch_item(mapping: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Replaces ``mapping[key]`` until ``undo_all``.

    Raises:
        PatchError: the mapping has no such key.
    """
    if key not in mapping:
        _unfit(mapping, key, "does not exist")
    original = mapping.get(key)
    _undo.append(lambda: mapping.__setitem__(key, original))
    mapping[key] = value


def undo_all() -> None:
    """Restores what was replaced, in reverse order."""
    while _undo:
        _undo.pop()()


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Collects the mismatches as texts instead of raising ``PatchError``."""
    global _misfits
    _misfits = []
    try:
        yield _misfits
    finally:
        _misfits = None


def _set(owner: Any, name: str, value: Any) -> None:
    if name in vars(owner):
        original = vars(owner)[name]
        _undo.append(lambda: setattr(owner, name, original))
    else:
        _undo.append(lambda: delattr(owner, name))
    setattr(owner, name, value)


def _misfit(original: Any, replacement: Any, parameters: str | None) -> str:
    """Why a replacement does not fit; "" where it does."""
    if original is _MISSING:
        return "does not exist"
    if inspect.isclass(original):
        extended = inspect.isclass(replacement) and issubclass(replacement, original)
        return "" if extended else f"is the class {original.__qualname__}, which the replacement does not extend"
    if isinstance(original, property) != isinstance(replacement, property):
        return f"is a {type(original).__name__}, and its replacement a {type(replacement).__name__}"
    if not isinstance(original, classmethod | staticmethod) and not callable(original):
        return ""
    found = _parameters(original)
    return "" if found == parameters else f"takes ({found}), and was replaced when it took ({parameters})"


def _parameters(function: Any) -> str:
    """The parameters of the innermost function below functools.wraps."""
    given = inspect.signature(getattr(function, "__func__", function)).parameters.values()
    return ", ".join(
        str(one.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)) for one in given
    )


def _unfit(owner: Any, name: str, why: str) -> None:
    where = owner.__name__ if inspect.ismodule(owner) else getattr(owner, "__qualname__", type(owner).__qualname__)
    misfit = f"{where}.{name} {why}"
    if _misfits is None:
        raise PatchError(
            f"moto {version('moto')} does not fit this account: {misfit}; install the version that sagemaker-local-account "
            "requires"
        )
    _misfits.append(misfit)
