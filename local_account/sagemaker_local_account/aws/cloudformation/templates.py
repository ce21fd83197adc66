"""Templates of stacks: parsed, checked against what the account supports, and summarized."""

from __future__ import annotations

import json
from typing import Any

import yaml
from moto.cloudformation.exceptions import ValidationError

from sagemaker_local_account.aws.awslambda import configuration
from sagemaker_local_account.aws.cloudformation import intrinsics, resource_registry
from sagemaker_local_account.aws.cloudformation.provisioner import references

# The resources that need CAPABILITY_IAM, and the property that makes it CAPABILITY_NAMED_IAM: "Acknowledging IAM resources in
# CloudFormation templates" (control-access-with-iam.html of CloudFormation's guide).
_IAM_NAMES = {
    "AWS::IAM::AccessKey": None,
    "AWS::IAM::Group": "GroupName",
    "AWS::IAM::InstanceProfile": "InstanceProfileName",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
    "AWS::IAM::Policy": None,
    "AWS::IAM::Role": "RoleName",
    "AWS::IAM::User": "UserName",
    "AWS::IAM::UserToGroupAddition": None,
}

# Of AWS's transforms those whose functions are evaluated here; there are no macros of users.
_TRANSFORMS = frozenset({"AWS::Include", "AWS::LanguageExtensions"})


class _Loader(yaml.CSafeLoader):
    """Loads YAML with CloudFormation's tags, such as `!Ref`; dates, such as a policy's Version, are texts."""


def _function(loader: Any, tag: str, node: yaml.Node) -> dict[str, Any]:
    """The long form of a function: `!GetAtt Nested.Outputs.Name` has its resource before the first dot."""
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if tag == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _function)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def parsed(template: str | None) -> dict[str, Any]:
    """Parses a template in JSON or YAML. moto parses both with PyYAML's loader in Python, which takes a second.

    Raises:
        ValidationError: it is neither, or there is none.
    """
    if template is None:
        raise ValidationError(message="Either Template URL or Template Body must be specified.")
    try:
        found: dict[str, Any] = json.loads(template)
    except json.JSONDecodeError as error:
        if template.lstrip().startswith("{"):
            place = f"(line {error.lineno}, column {error.colno})"
            raise ValidationError(message=f"Template format error: JSON not well-formed. {place}") from error
        try:
            found = yaml.load(template, _Loader)
        except yaml.YAMLError as error:
            raise ValidationError(message="Template format error: YAML not well-formed.") from error
    if not isinstance(found, dict):
        raise ValidationError(message="Template format error: unsupported structure.")
    return found


def check(template: dict[str, Any]) -> None:
    """Raises ``ValidationError`` for what the account does not support, by name and logical id, or for what is no template."""
    _check_format(template)
    resources = template["Resources"]
    _refuse(
        "does not support these resource types",
        [
            f"{definition['Type']} ({name})"
            for name, definition in resources.items()
            if not resource_registry.supported(definition["Type"])
        ],
    )
    _refuse(
        "does not support these transforms and macros",
        [
            str(one)
            for one in _transforms(template)
            if (one.get("Name") if isinstance(one, dict) else one) not in _TRANSFORMS
        ],
    )
    _refuse(
        "does not support these functions",
        [
            f"{function} ({name})"
            for name, definition in resources.items()
            for function in intrinsics.unknown({**definition, "Metadata": None})
        ],
    )
    _refuse(
        "supports Lambda functions in Python, without these properties",
        [
            f"{property_name} of AWS::Lambda::Function ({name})"
            for name, definition in resources.items()
            if definition["Type"] == "AWS::Lambda::Function" and name not in _emulated(template)
            for property_name in configuration.unsupported(definition.get("Properties", {}), name)
        ],
    )
    _refuse(
        "does not support these properties",
        [
            f"{property_name} of {definition['Type']} ({name})"
            for name, definition in resources.items()
            for property_name in resource_registry.unsupported(definition["Type"], definition.get("Properties", {}))
        ],
    )


def _transforms(template: dict[str, Any]) -> list[Any]:
    found = template.get("Transform", [])
    return [found] if isinstance(found, str | dict) else list(found)


def _refuse(why: str, found: list[str]) -> None:
    if found:
        raise ValidationError(message=f"Template format error: the local account {why}: {', '.join(found)}")


def _emulated(template: dict[str, Any]) -> set[str]:
    """The logical ids of the functions of custom resources that the account implements itself."""
    return {
        name
        for definition in template["Resources"].values()
        if definition["Type"].startswith("Custom::") and resource_registry.is_known(definition["Type"])
        for name in references(definition["Properties"]["ServiceToken"])
    }


def _check_format(template: dict[str, Any]) -> None:
    """In the service's words, "How do I resolve CloudFormation template validation or template format errors?" of re:Post."""
    resources = template.get("Resources")
    if not isinstance(resources, dict) or not resources:
        raise ValidationError(message="Template format error: At least one Resources member must be defined.")
    for name, one in resources.items():
        if not isinstance(one, dict) or not isinstance(one.get("Type"), str):
            raise ValidationError(
                message=f"Template format error: [/Resources/{name}] Every Resources object must contain a Type member."
            )
        if not isinstance(one.get("Properties", {}), dict):
            raise ValidationError(message=f"Template format error: [/Resources/{name}/Properties] must be an object.")


def summary(template: str | None) -> dict[str, Any]:
    """Returns the members of ValidateTemplate's answer.

    Raises:
        ValidationError: it is no template, or has what the account does not support.
    """
    found = parsed(template)
    check(found)
    needed = capabilities(found)
    answer = {
        "Description": found.get("Description", ""),
        "Parameters": [
            {
                "ParameterKey": name,
                "DefaultValue": about.get("Default"),
                "NoEcho": str(about.get("NoEcho", False)).lower() == "true",
                "Description": about.get("Description"),
            }
            for name, about in found.get("Parameters", {}).items()
        ],
        "Capabilities": needed,
        "DeclaredTransforms": [one["Name"] if isinstance(one, dict) else one for one in _transforms(found)],
    }
    if needed:
        types = ", ".join(sorted({one["Type"] for one in _of_iam(found)}))
        answer["CapabilitiesReason"] = f"The following resource(s) require capabilities: [{types}]"
    return answer


def capabilities(template: dict[str, Any]) -> list[str]:
    """Returns what a request has to acknowledge for a template."""
    named = any(_IAM_NAMES[one["Type"]] in one.get("Properties", {}) for one in _of_iam(template))
    return [] if not _of_iam(template) else ["CAPABILITY_NAMED_IAM" if named else "CAPABILITY_IAM"]


def _of_iam(template: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in template["Resources"].values() if one["Type"] in _IAM_NAMES]
