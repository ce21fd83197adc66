"""cdk-nag suppressions and their justification, for the rules of its packs.

Suppressions of findings on permissions contain the resource, like `AwsSolutions-IAM5[Resource::*]`, so that a permission that a
user adds to a role of this library is still reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jsii
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import IConstruct, IValidation

# The packs whose rules have the same names: NIST.800.53.R5-LambdaDLQ, HIPAA.Security-LambdaDLQ and so on.
_COMPLIANCE_PACKS = ("NIST.800.53.R5", "HIPAA.Security", "PCI.DSS.321")
# Of permissions about all workflows of a stack.
OF_THE_STACK = "their names, or a tag of them, begin as those of the state machines of the stack's workflows do"
# The justification of each suppressed finding, by the id of the finding.
Reasons = Mapping[str, str]
# `Validations.ACKNOWLEDGED_RULES_METADATA_KEY`, which aws-cdk-lib has since 2.257.
ACKNOWLEDGED = "aws:cdk:acknowledged-rules"


def acknowledge(scope: IConstruct, reasons: Reasons) -> None:
    """Suppress findings on a construct and on its children.

    Args:
        scope: The construct.
        reasons: The justification of each suppressed finding, by the id of the finding.
    """
    # The same metadata as `Validations.acknowledge` writes, without its search of the whole tree for a warning of that id.
    scope.node.add_metadata(ACKNOWLEDGED, dict(reasons))


def compliance_reasons(reasons: Reasons) -> Reasons:
    """Return justifications for the rules of the packs NIST 800-53 R5, HIPAA Security and PCI DSS 3.2.1.

    Args:
        reasons: The justifications by the rules' names without that of the pack, such as ``LambdaDLQ``.
    """
    return {f"{pack}-{rule}": reason for rule, reason in reasons.items() for pack in _COMPLIANCE_PACKS}


# Of every construct with roles, log groups and alarms.
_COMMON: Reasons = {
    **compliance_reasons(
        {
            "IAMNoInlinePolicy": "the policy is that of one role, with which it is deleted, and can be attached to no other",
            "CloudWatchLogGroupEncrypted": "CloudWatch encrypts it with a key of its own; it has no data of executions",
            "CloudWatchAlarmAction": "the topics of notify get the alarm's events from a rule of EventBridge",
        }
    ),
    "Serverless-EventBusDLQ": "an event that is not delivered is a notification; the rule that stops jobs has a queue",
    "Serverless-StepFunctionStateMachineXray": "an execution waits for one job, whose hosts do not emit traces",
    "Serverless-SQSRedrivePolicy": "it is the dead-letter queue of a rule, and has an alarm",
}


@jsii.implements(IValidation)
class Suppressions:
    """Collects the suppressions of one construct and adds them when the app is synthesized.

    Only then are the names known by which a template refers to resources of other stacks, and adding all suppressions in one
    call takes a third of the time.
    """

    def __init__(self, scope: IConstruct) -> None:
        """Register the suppressions as a validation of ``scope``, which CDK runs at synthesis."""
        self._scope = scope
        self._reasons: dict[str, str] = {}
        self._wide: list[tuple[str, str]] = []
        scope.node.add_validation(self)

    def add(self, reasons: Reasons) -> None:
        """Suppress the findings with these ids."""
        self._reasons.update(reasons)

    def add_wildcards(self, resources: Iterable[str], reason: str) -> None:
        """Suppress the findings on the wildcards in ``resources``.

        Findings on resources with brackets are not suppressed, because brackets are syntax in a suppression's id.

        Args:
            resources: Resources of a policy statement; those without ``*`` are ignored.
            reason: The justification.
        """
        self._wide += [(resource, reason) for resource in resources]

    @jsii.member(jsii_name="validate")
    def validate(self) -> list[str]:
        """Add the suppressions to the construct; reports no errors."""
        resources = [resource for resource, _ in self._wide]
        flat = map(_flat, Stack.of(self._scope).resolve(resources))
        found = {
            f"AwsSolutions-IAM5[Resource::{resource}]": reason
            for resource, (_, reason) in zip(flat, self._wide, strict=True)
            if "*" in resource and not set(resource) & set("[](){}")
        }
        acknowledge(self._scope, {**_COMMON, **found, **self._reasons})
        return []


def _documents(construct: IConstruct) -> list[Any]:
    """The policy documents of a policy, or of a role itself."""
    if isinstance(construct, iam.CfnPolicy):
        return [construct.policy_document]
    if isinstance(construct, iam.CfnRole):
        policies = Stack.of(construct).resolve(construct.policies) or []
        return [policy["policyDocument"] for policy in policies]
    return []


def acknowledge_policies(scope: IConstruct, reason: str) -> None:
    """Suppress the findings on wildcards in every policy that exists below a construct when this is called, and common ones."""
    wide: dict[str, None] = {}
    for child in scope.node.find_all():
        for document in _documents(child):
            for statement in Stack.of(scope).resolve(document)["Statement"]:
                for kind in ("Action", "Resource"):
                    flat = [f"{kind}::{_flat(text)}" for text in _list(statement[kind])]
                    wide.update(dict.fromkeys(text for text in flat if "*" in text))
    acknowledge(scope, {**_COMMON, **{f"AwsSolutions-IAM5[{text}]": reason for text in wide}})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _flat(value: Any) -> str:
    """Render a resolved ARN in the format of cdk-nag's findings (`flattenCfnReference` in its source)."""
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
