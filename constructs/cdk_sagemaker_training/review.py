"""What a security review asks of what this library makes, and the reasons where the answer is no.

The rules are those of cdk-nag's pack AwsSolutions. Its findings on permissions name the resource, like
`AwsSolutions-IAM5[Resource::*]`, so that what a user adds to a role of ours is still found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jsii
from aws_cdk import Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct, IValidation

# What is acknowledged, and why.
Reasons = Mapping[str, str]


def acknowledge(scope: IConstruct, reasons: Reasons) -> None:
    """Answer findings on a construct, and on those in it, with a reason each."""
    # What `Validations.acknowledge` writes too, but after it has looked for a warning of that name through the whole tree below.
    scope.node.add_metadata(Validations.ACKNOWLEDGED_RULES_METADATA_KEY, dict(reasons))


@jsii.implements(IValidation)
class Answers:
    """Reasons for what a review finds in a construct, told when the app is synthesized.

    Only then are the names known by which a template calls what lies in another stack, and to tell all reasons at once takes a
    third of the time.
    """

    def __init__(self, scope: IConstruct) -> None:
        self._scope = scope
        self._reasons: dict[str, str] = {}
        self._wide: list[tuple[str, str]] = []
        scope.node.add_validation(self)

    def add(self, reasons: Reasons) -> None:
        self._reasons.update(reasons)

    def add_wildcards(self, resources: Iterable[str], reason: str) -> None:
        """Answer the findings on those resources of a policy that have a wildcard.

        Those on brackets stay, which an acknowledgement takes for its own.
        """
        self._wide += [(resource, reason) for resource in resources]

    @jsii.member(jsii_name="validate")
    def validate(self) -> list[str]:
        resources = [resource for resource, _ in self._wide]
        flat = map(_flat, Stack.of(self._scope).resolve(resources))
        found = {
            f"AwsSolutions-IAM5[Resource::{resource}]": reason
            for resource, (_, reason) in zip(flat, self._wide, strict=True)
            if "*" in resource and not set(resource) & set("[](){}")
        }
        acknowledge(self._scope, {**found, **self._reasons})
        return []


def acknowledge_policies(scope: IConstruct, reason: str) -> None:
    """Answer the findings on wildcards of every policy that there is below a construct by now."""
    wide: dict[str, None] = {}
    for child in scope.node.find_all():
        if isinstance(child, iam.CfnPolicy):
            for statement in Stack.of(scope).resolve(child.policy_document)["Statement"]:
                for kind in ("Action", "Resource"):
                    flat = [f"{kind}::{_flat(one)}" for one in _list(statement[kind])]
                    wide.update(dict.fromkeys(one for one in flat if "*" in one))
    acknowledge(scope, {f"AwsSolutions-IAM5[{one}]": reason for one in wide})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _flat(value: Any) -> str:
    """A resolved ARN in the words of cdk-nag's findings (`flattenCfnReference` in its source)."""
    if isinstance(value, str):
        return value.replace("${", "<").replace("}", ">")
    [(function, argument)] = value.items()
    match function:
        case "Fn::Join":
            separator, items = argument
            return str(separator).join(map(_flat, items))
        case "Fn::GetAtt":
            return f"<{'.'.join(map(_flat, argument))}>"
        case "Ref":
            return f"<{argument}>"
        case _:
            return _flat(argument) if isinstance(argument, str) else str(value)
