"""What a security review asks of what this library makes, and the reasons where the answer is no.

The rules are those of cdk-nag's pack AwsSolutions. Its findings on permissions name the resource, like
`AwsSolutions-IAM5[Resource::*]`, so that what a user adds to a role of ours is still found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct

# What is acknowledged, and why.
Reasons = Mapping[str, str]


def acknowledge(scope: IConstruct, reasons: Reasons) -> None:
    """Answer findings on a construct, and on those in it, with a reason each."""
    Validations.of(scope).acknowledge(*(Acknowledgment(id=id, reason=reason) for id, reason in reasons.items()))


def acknowledge_wildcards(scope: IConstruct, resources: Iterable[str], reason: str) -> None:
    """Answer the findings on those resources of a policy that have a wildcard.

    A bucket of another stack is called something else in the template than here, so its findings stay; and so do those on
    brackets, which an acknowledgement takes for its own.
    """
    flat = [_flat(resource) for resource in Stack.of(scope).resolve(list(resources))]
    wide = [resource for resource in flat if "*" in resource and not set(resource) & set("[](){}")]
    if wide:
        acknowledge(scope, {f"AwsSolutions-IAM5[Resource::{resource}]": reason for resource in wide})


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
