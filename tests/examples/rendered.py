"""What a template's state machines say, with its tokens resolved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import yaml

PSEUDO_PARAMETERS = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "us-east-1",
    "AWS::StackName": "Stack",
    "AWS::URLSuffix": "amazonaws.com",
}

# What cfn-lint says of CDK's own way to write a template, the same in every one of CDK's.
OF_CDKS_WAY = {
    "I1022": "CDK joins text where one could substitute in it",
    "I4010": "describing the architecture in the metadata is for templates that a person writes",
    "W3005": "CDK has what uses a role wait for its policies, and for the role by name too",
}


def resolved(value: Any, pseudo: dict[str, str] = PSEUDO_PARAMETERS) -> Any:
    """``value`` with its intrinsic functions filled in; what deployment would fill in is named in braces."""
    if isinstance(value, list):
        return [resolved(item, pseudo) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(function, argument)] = value.items()
        match function:
            case "Ref":
                return pseudo.get(argument, f"{{{argument}}}")
            case "Fn::GetAtt" | "Fn::FindInMap":
                return f"{{{'.'.join(resolved(argument, pseudo))}}}"
            case "Fn::Select" | "Fn::Split":
                return f"{{{' '.join([function, *(str(part) for part in resolved(argument, pseudo))])}}}"
            case "Fn::Join":
                return argument[0].join(resolved(argument[1], pseudo))
            case "Fn::Sub":
                for name, text in pseudo.items():
                    argument = argument.replace(f"${{{name}}}", text)
                return argument
    return {key: resolved(item, pseudo) for key, item in value.items()}


def definitions(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The definitions of a template's state machines, by logical id."""
    return {
        name: json.loads(resolved(resource["Properties"]["DefinitionString"]))
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::StepFunctions::StateMachine"
    }


def snapshot(template: dict[str, Any]) -> str:
    """A whole template as text whose diff is read in review: definitions of state machines as such, hashes of assets masked."""
    shown = resolved(template, {})
    for resource in shown["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::StepFunctions::StateMachine":
            properties["DefinitionString"] = json.loads(properties["DefinitionString"])
        elif "ZipFile" in properties.get("Code", ()):
            properties["Code"]["ZipFile"] = "{inline code}"  # which is a file of its own
    text: str = yaml.safe_dump(shown, sort_keys=False, default_flow_style=None, width=140, allow_unicode=True)
    return re.sub(r"\b[0-9a-f]{64}\b", "{hash}", text)


def create_requests(template: dict[str, Any]) -> dict[str, Any]:
    """Each CreateTrainingJob request of a template, by state machine and state, with images' hashes left out."""
    return {
        f"{machine}.{name}": json.loads(re.sub(r":[0-9a-f]{64}\b", ":{hash}", json.dumps(state["Parameters"])))
        for machine, definition in definitions(template).items()
        for name, state in _states(definition)
        if "createTrainingJob" in state.get("Resource", "")
    }


def linted(template: str) -> set[str]:
    """The rules of cfn-lint's that a template breaks, those that only inform among them."""
    return {match.rule.id for match in _cfn_lint()(template)}


@cache
def _cfn_lint() -> Callable[[str], list[Any]]:
    """Checks a template by all rules, which cfn-lint otherwise makes anew each time, in twenty times as long as the check."""
    import cfnlint.api  # type: ignore[import-untyped]
    import cfnlint.helpers  # type: ignore[import-untyped]

    cfnlint.helpers.load_plugins = cache(cfnlint.helpers.load_plugins)
    check: Callable[[str], list[Any]] = cfnlint.api.lint_all
    return check


def lint(machines: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong with definitions of state machines: the shape of each state, and where each goes next.

    cfn-lint's rule E3601 checks the shape, of literal text only, which is why the tokens are resolved first. Where a state
    goes it leaves unchecked.
    """
    template = {
        "Resources": {
            name: {
                "Type": "AWS::StepFunctions::StateMachine",
                "Properties": {
                    "RoleArn": "arn:aws:iam::123456789012:role/StateMachine",
                    "DefinitionString": json.dumps(definition),
                },
            }
            for name, definition in machines.items()
        }
    }
    matches = _cfn_lint()(json.dumps(template))
    shapes = [str(match) for match in matches if match.rule.id == "E3601"]
    return shapes + [problem for definition in machines.values() for problem in _wrong_ways(definition)]


def _wrong_ways(definition: dict[str, Any]) -> list[str]:
    states = definition["States"]
    targets = [definition["StartAt"]]
    for state in states.values():
        choices = [*state.get("Choices", []), *state.get("Catch", []), state]
        targets += [choice["Next"] for choice in choices if "Next" in choice]
        targets += [state["Default"]] if "Default" in state else []
    inner = [processor for state in states.values() if (processor := state.get("ItemProcessor"))]
    return (
        [f"no state {target!r} to go to" for target in targets if target not in states]
        + [f"no state goes to {name!r}" for name in states if name not in targets]
        + [problem for processor in inner for problem in _wrong_ways(processor)]
    )


def _states(definition: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, state in definition["States"].items():
        found.append((name, state))
        for inner in (state.get("ItemProcessor"), *state.get("Branches", [])):
            if inner:
                found += _states(inner)
    return found
