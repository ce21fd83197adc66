"""How long the inline policies of a template's roles are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def policies(template: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The characters of all inline policies by their role, each reference to a resource counted as 64."""
    sizes: dict[str, int] = {}
    for id, one in template["Resources"].items():
        of = one.get("Properties", {})
        if one["Type"] == "AWS::IAM::Policy":
            held = [(role["Ref"], of["PolicyDocument"]) for role in of["Roles"]]
        elif one["Type"] == "AWS::IAM::Role":
            held = [(id, policy["PolicyDocument"]) for policy in of.get("Policies", [])]
        else:
            continue
        for role, document in held:
            sizes[role] = sizes.get(role, 0) + len(json.dumps(_filled(document), separators=(",", ":")))
    yield from sizes.items()


def _filled(value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(one) for one in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        return "".join(map(str, _filled(value["Fn::Join"][1])))
    return "x" * 64 if set(value) & {"Ref", "Fn::GetAtt"} else {key: _filled(one) for key, one in value.items()}
