"""Parses a buildspec; an unsupported key is rejected by name.

Source: "Build specification reference for CodeBuild" in CodeBuild's user guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

PHASES = ("install", "pre_build", "build", "post_build")


class BuildspecError(Exception):
    """A buildspec is invalid or not supported; the message names the key and the reason."""


@dataclass(frozen=True)
class Phase:
    """A phase: its commands, and those of its ``finally``."""

    name: str  # as in BatchGetBuilds, such as PRE_BUILD
    commands: list[str]
    finally_: list[str]


@dataclass(frozen=True)
class Buildspec:
    """A buildspec: its shell, variables and phases."""

    shell: str
    variables: dict[str, str]
    phases: list[Phase]


def is_inline(text: str) -> bool:
    """Whether a project's `buildspec` is inline YAML, and not the name of a file."""
    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return "\n" in text


def parse(text: str) -> Buildspec:
    """Parses a buildspec.

    Raises:
        BuildspecError: it is not YAML, has another version than 0.2, or an unsupported key.
    """
    try:
        spec = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BuildspecError(f"buildspec must be YAML or JSON: {error}") from None
    if not isinstance(spec, dict) or str(spec.get("version")) != "0.2":
        version = spec.get("version") if isinstance(spec, dict) else spec
        raise BuildspecError(f"buildspec: version must be 0.2, got {version!r}")
    _known("", spec, ("version", "env", "phases"))
    env = _mapping("env", spec.get("env"))
    _known("env.", env, ("shell", "variables"))
    if env.get("shell", "sh") not in ("sh", "bash"):
        raise BuildspecError(f"buildspec: env.shell must be sh or bash, got {env['shell']!r}")
    phases = _mapping("phases", spec.get("phases"))
    _known("phases.", phases, PHASES)
    return Buildspec(
        shell=env.get("shell", "sh"),
        variables={str(name): str(value) for name, value in _mapping("env.variables", env.get("variables")).items()},
        phases=[_phase(name, _mapping(f"phases.{name}", phases.get(name))) for name in PHASES],
    )


def _phase(name: str, given: Mapping[str, Any]) -> Phase:
    _known(f"phases.{name}.", given, ("commands", "finally"))
    commands, finally_ = (_commands(f"phases.{name}.{part}", given.get(part)) for part in ("commands", "finally"))
    return Phase(name.upper(), commands, finally_)


def _commands(where: str, value: Any) -> list[str]:
    listed = [value] if isinstance(value, str) else value or []
    if not isinstance(listed, list) or not all(isinstance(command, str) for command in listed):
        raise BuildspecError(f"buildspec: {where} must be a list of commands, like ['docker build .'], got {value!r}")
    return listed


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise BuildspecError(f"buildspec: {where} must be a mapping, got {value!r}")
    return value or {}


def _known(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise BuildspecError(
                f"buildspec: {where}{name} is not supported by the local account; it supports {', '.join(known)}"
            )
