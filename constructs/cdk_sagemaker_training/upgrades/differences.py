"""The differences of two cloud assemblies, each breaking or not by the library's promise (docs/upgrading.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_sagemaker_training.upgrades.assembly import Stack, text
from cdk_sagemaker_training.upgrades.permissions import permissions
from cdk_sagemaker_training.upgrades.replacement import CREATE_ONLY

# Types that get a new logical id with each change of what they stand for, and keep nothing.
_NEW_EACH_TIME = {"AWS::CDK::Metadata", "AWS::Lambda::Version", "AWS::ApiGateway::Deployment"}


@dataclass(frozen=True)
class Difference:
    """One difference of a stack.

    Args:
        stack: The stack's name.
        kind: ``stack``, ``resource``, ``request``, ``permission``, ``output``.
        breaking: Whether a release that is not a major one may not make it.
        what: What is different, with the value before and after.
    """

    stack: str
    kind: str
    breaking: bool
    what: str


def differences(old: Mapping[str, Stack], new: Mapping[str, Stack]) -> list[Difference]:
    """Return what is different between two assemblies, breaking ones first.

    Args:
        old: The stacks as the version in use synthesizes them, by name.
        new: The same app's stacks, as the newer version does.
    """
    found = [Difference(name, "stack", True, "is not there any more") for name in old.keys() - new.keys()]
    found += [Difference(name, "stack", False, "is new") for name in new.keys() - old.keys()]
    for name in old.keys() & new.keys():
        for compare in (_resources, _requests, _permissions, _outputs):
            found += [Difference(name, *one) for one in compare(old[name], new[name])]
    return sorted(found, key=lambda one: (not one.breaking, one.stack, one.kind, one.what))


_Found = Iterator[tuple[str, bool, str]]


def _resources(old: Stack, new: Stack) -> _Found:
    before, after = old.resources(), new.resources()
    for name in before.keys() - after.keys():
        kind = before[name]["Type"]
        yield "resource", kind not in _NEW_EACH_TIME, f"{_named(name, before[name])} is removed: the update deletes it"
    for name in after.keys() - before.keys():
        yield "resource", False, f"{_named(name, after[name])} is new"
    for name in before.keys() & after.keys():
        one, other = before[name], after[name]
        if one["Type"] != other["Type"]:
            yield "resource", True, f"{_named(name, one)} becomes a {other['Type']}, which CloudFormation refuses"
            continue
        changed = _changed(one.get("Properties", {}), other.get("Properties", {}))
        replacing = sorted(changed & CREATE_ONLY.get(one["Type"], set()))
        if replacing:
            yield "resource", True, f"{_named(name, one)} is replaced, since {', '.join(replacing)} changes"
        elif changed:
            yield "resource", False, f"{_named(name, one)} changes in place: {', '.join(sorted(changed))}"


def _requests(old: Stack, new: Stack) -> _Found:
    before, after = old.requests(), new.requests()
    # A state machine that is removed or new is a difference of resources.
    for machine in before.keys() & after.keys():
        pairs = _paired(before[machine], after[machine])
        for state, one, other in pairs:
            if one is None or other is None:
                yield "request", True, f"{machine}: {state} {'is new' if one is None else 'creates no job any more'}"
                continue
            for path in sorted(one.keys() | other.keys()):
                if one.get(path) != other.get(path):
                    shown = f"{_value(one.get(path))} -> {_value(other.get(path))}"
                    yield "request", True, f"{machine}: {state}: {path}: {shown}"


_Members = Mapping[str, str]


def _paired(
    old: Mapping[str, _Members], new: Mapping[str, _Members]
) -> Iterator[tuple[str, _Members | None, _Members | None]]:
    """Requests of the same state; a state machine's only one is the same whatever its state is called."""
    if len(old) == len(new) == 1:
        [(name, one)], [other] = old.items(), new.values()
        yield name, one, other
        return
    for name in sorted(old.keys() | new.keys()):
        yield name, old.get(name), new.get(name)


def _permissions(old: Stack, new: Stack) -> _Found:
    before, after = permissions(old), permissions(new)
    for name in sorted(before.keys() | after.keys()):
        if name not in old.resources() or name not in new.resources():
            continue  # comes or goes with its resource
        for row in sorted(after.get(name, set()) - before.get(name, set())):
            yield "permission", True, f"{name}: new: {row}"
        for row in sorted(before.get(name, set()) - after.get(name, set())):
            yield "permission", True, f"{name}: removed: {row}"


def _outputs(old: Stack, new: Stack) -> _Found:
    before, after = (dict(one.template.get("Outputs", {})) for one in (old, new))
    for name in before.keys() - after.keys():
        yield "output", True, f"{name} is removed"
    for name in after.keys() - before.keys():
        yield "output", False, f"{name} is new"
    for name in before.keys() & after.keys():
        if before[name].get("Export") != after[name].get("Export"):
            yield "output", True, f"{name}: the name of its export changes"


def _changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    """The properties that differ in more than the hashes of images and files."""
    return {name for name in one.keys() | other.keys() if text(one.get(name)) != text(other.get(name))}


def _named(name: str, resource: Mapping[str, Any]) -> str:
    path = str(resource.get("Metadata", {}).get("aws:cdk:path", ""))
    return f"{name} ({resource['Type']}{', ' + path if path else ''})"


def _value(value: str | None) -> str:
    return "nothing" if value is None else value
