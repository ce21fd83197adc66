"""A cloud assembly (``cdk.out``): its stacks' templates, and the requests and permissions in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ASSET_HASH = re.compile(r"\b[0-9a-f]{64}\b")  # of an image or a file: the SHA-256 of what is in it


@dataclass(frozen=True)
class Stack:
    """A stack's template.

    Args:
        name: Its construct path, as ``cdk deploy`` takes it, such as ``Prod/Training``.
        template: The template.
    """

    name: str
    template: Mapping[str, Any]

    def resources(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns the resources by logical id."""
        return dict(self.template.get("Resources", {}))

    def requests(self) -> dict[str, dict[str, dict[str, str]]]:
        """Returns the members of each CreateTrainingJob request: by state machine (logical id) and state, values by path."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for name, resource in self.resources().items():
            if resource["Type"] == "AWS::StepFunctions::StateMachine":
                requests = {state: dict(_members(request)) for state, request in _requests(_definition(resource))}
                if requests:
                    found[name] = requests
        return found


def read_assembly(folder: Path) -> dict[str, Stack]:
    """Read the stacks of a cloud assembly, with those of its stages (nested assemblies), by name.

    The manifest's members are those of the package aws-cdk.cloud-assembly-schema.

    Args:
        folder: What ``cdk synth --output`` wrote.

    Raises:
        ValueError: The folder holds no cloud assembly.
    """
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise ValueError(
            f"{folder} must be a folder that `cdk synth --output FOLDER` wrote, but it has no manifest.json"
        )
    stacks: dict[str, Stack] = {}
    for name, artifact in json.loads(manifest.read_text()).get("artifacts", {}).items():
        properties = artifact.get("properties", {})
        if artifact["type"] == "aws:cloudformation:stack":
            template = json.loads((folder / properties["templateFile"]).read_text())
            path = artifact.get("displayName", name)
            stacks[path] = Stack(path, template)
        if artifact["type"] == "cdk:cloud-assembly":
            stacks |= read_assembly(folder / properties["directoryName"])
    return stacks


def text(value: Any) -> str:
    """Return a value of a template as text in which assets' hashes are left out, so that equal values have equal texts.

    Args:
        value: A value, with intrinsic functions.
    """
    return _ASSET_HASH.sub("{hash}", value if isinstance(value, str) else json.dumps(value, sort_keys=True))


def _definition(machine: Mapping[str, Any]) -> Any:
    """The definition of a state machine, with intrinsic functions as texts; None where it is no JSON of the template."""
    properties = machine.get("Properties", {})
    definition = properties.get("Definition") or properties.get("DefinitionString")
    if isinstance(definition, Mapping) and "Fn::Join" in definition:
        separator, parts = definition["Fn::Join"]
        # A function's text stands within a JSON string of the definition.
        texts = (
            part if isinstance(part, str) else json.dumps(json.dumps(part, sort_keys=True))[1:-1] for part in parts
        )
        definition = separator.join(texts)
    if not isinstance(definition, str):
        return definition
    try:
        return json.loads(definition)
    except ValueError:
        return None


def _requests(definition: Any) -> Iterator[tuple[str, Any]]:
    """The states that create a training job, with what they send."""
    if not isinstance(definition, Mapping):
        return
    for name, state in definition.get("States", {}).items():
        if "createTrainingJob" in str(state.get("Resource", "")):
            yield name, state.get("Parameters", state.get("Arguments", {}))
        for inner in (state.get("ItemProcessor"), state.get("Iterator"), *state.get("Branches", [])):
            yield from _requests(inner)


def _members(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a request by path, such as ``ResourceConfig.InstanceGroups[0].InstanceType``."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _members(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _members(inner, f"{path}[{index}]")
    else:
        yield path, text(value)
