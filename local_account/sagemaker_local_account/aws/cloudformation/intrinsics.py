"""Intrinsic functions and dynamic references, evaluated as CloudFormation does.

moto leaves a function that it does not know, and a dynamic reference, in the resource's properties as if it were a value, keeps
`AWS::NoValue` in lists, and takes `us-east-1` for the region of `Fn::GetAZs`. The values are those that AWS gave to LocalStack's
tests (localstack/localstack at 8b9a79f, tests/aws/services/cloudformation: engine, test_template_engine.py).
"""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ExportNotFound, UnformattedGetAttTemplateException, ValidationError
from moto.cloudformation.models import cloudformation_backends
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.secretsmanager.exceptions import SecretsManagerClientError
from moto.secretsmanager.models import secretsmanager_backends
from moto.ssm.models import ssm_backends

from sagemaker_local_account.aws.cloudformation import resource_schemas
from sagemaker_local_account.core.patches import patch

_VARIABLE = re.compile(r"\$\{(!?)([^{}]*)\}")
_DYNAMIC = re.compile(r"\{\{resolve:(ssm|ssm-secure|secretsmanager):([^{}]+)\}\}")


class UnresolvedValue(Exception):
    """A function has no value, or a dynamic reference names nothing."""


def install() -> None:
    """Patches moto's evaluation of intrinsic functions."""
    patch(parsing, "clean_json", evaluated, "resource_json, resources_map")


def evaluated(resource_json: Any, resources_map: Any) -> Any:
    """Returns a template's value with its functions and dynamic references evaluated.

    Args:
        resource_json: the value.
        resources_map: the stack's resources.

    Returns:
        The value; None for `AWS::NoValue`, which is left out of lists and objects.

    Raises:
        UnresolvedValue: a function has no value, such as `Fn::GetStackOutput` of an output that does not exist.
        ValidationError: a function names what the template does not have.
    """
    if isinstance(resource_json, str):
        return _DYNAMIC.sub(lambda found: _dynamic(found, resources_map), resource_json)
    if isinstance(resource_json, list):
        values = (evaluated(item, resources_map) for item in resource_json)
        return [value for value in values if value is not None]
    if not isinstance(resource_json, dict):
        return resource_json
    if len(resource_json) == 1:
        [(name, argument)] = resource_json.items()
        if name in _FUNCTIONS:
            value = _FUNCTIONS[name](argument, resources_map)
            return evaluated(value, resources_map) if isinstance(value, str) else value
    found = {name: evaluated(item, resources_map) for name, item in resource_json.items()}
    return {name: value for name, value in found.items() if value is not None}


def _ref(name: Any, resources: Any) -> Any:
    try:
        found = resources[name]
    except KeyError:
        raise ValidationError(
            message=f"Template format error: Unresolved resource dependencies [{name}] in the Resources block of the template"
        ) from None
    return found.physical_resource_id if hasattr(found, "physical_resource_id") else found


def _get_att(argument: Any, resources: Any) -> Any:
    name, attribute = argument.split(".", 1) if isinstance(argument, str) else (argument[0], argument[1])
    attribute = evaluated(attribute, resources)
    found = resources.get(name)
    definition = resources._resource_json_map.get(name)
    if found is None or definition is None:
        raise ValidationError(message=f"Template error: instance of Fn::GetAtt references undefined resource {name}")
    try:
        return found.get_cfn_attribute(attribute)
    except (AttributeError, KeyError, NotImplementedError, UnformattedGetAttTemplateException):
        # A property is an attribute too, and the id is one by its name.
        if attribute in (given := resources.given.get(name, {})):
            return given[attribute]
        if attribute == resource_schemas.primary_identifier(definition["Type"]):
            return found.physical_resource_id
        raise ValidationError(
            message=f"Template error: resource {name} does not support attribute type {attribute} in Fn::GetAtt"
        ) from None


def _find_in_map(argument: Any, resources: Any) -> Any:
    name, *keys = [evaluated(item, resources) for item in argument[:3]]
    value: Any = resources._template.get("Mappings", {}).get(name)
    if isinstance(value, dict) and "Fn::Transform" in value:
        value = resources  # moto's own, which has what AWS::Include gave
    for key in keys:
        try:
            value = value[key]
        except (KeyError, TypeError):
            if len(argument) > 3 and "DefaultValue" in argument[3]:
                return evaluated(argument[3]["DefaultValue"], resources)
            path = "::".join(map(str, (name, *keys)))
            raise ValidationError(message=f"Template error: Unable to get mapping for {path}") from None
    return value


def _if(argument: Any, resources: Any) -> Any:
    condition, then, otherwise = argument
    return evaluated(then if condition_of(condition, resources) else otherwise, resources)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)


def _join(argument: Any, resources: Any) -> str:
    return str(argument[0]).join(map(_text, evaluated(argument[1], resources)))


def _split(argument: Any, resources: Any) -> list[str]:
    return _text(evaluated(argument[1], resources)).split(str(evaluated(argument[0], resources)))


def _select(argument: Any, resources: Any) -> Any:
    index, listed = int(evaluated(argument[0], resources)), evaluated(argument[1], resources)
    if not isinstance(listed, list) or not 0 <= index < len(listed):
        raise ValidationError(message=f"Template error: Fn::Select cannot select nonexistent value at index {index}")
    return listed[index]


def _sub(argument: Any, resources: Any) -> str:
    text, values = (argument, {}) if isinstance(argument, str) else argument

    def value(found: re.Match[str]) -> str:
        literal, name = found.groups()
        if literal:
            return f"${{{name}}}"
        if name in values:
            return _text(evaluated(values[name], resources))
        return _text(_get_att(name, resources) if "." in name else _ref(name, resources))

    return _VARIABLE.sub(value, text)


def _import_value(argument: Any, resources: Any) -> Any:
    name = evaluated(argument, resources)
    for export in resources.cross_stack_resources.values():
        if export.name == name:
            return export.value
    raise ExportNotFound(name)


def _zones(argument: Any, resources: Any) -> list[str]:
    region = evaluated(argument, resources) or resources._region_name
    return [zone.name for zone in RegionsAndZonesBackend.zones.get(region, [])]


def _base64(argument: Any, resources: Any) -> str:
    return base64.b64encode(_text(evaluated(argument, resources)).encode()).decode()


def _to_json(argument: Any, resources: Any) -> str:
    return json.dumps(evaluated(argument, resources), separators=(",", ":"))


def _length(argument: Any, resources: Any) -> int:
    return len(evaluated(argument, resources))


def _cidr(argument: Any, resources: Any) -> list[str]:
    """Blocks of an address range: how many, and how many bits of their addresses vary (template reference, Fn::Cidr)."""
    block, count, *bits = evaluated(argument, resources)
    network = ipaddress.ip_network(block, strict=False)
    subnets = network.subnets(new_prefix=network.max_prefixlen - int(bits[0] if bits else 8))
    return [str(subnet) for subnet, _ in zip(subnets, range(int(count)), strict=False)]


def _stack_output(argument: Any, resources: Any) -> Any:
    """The value of another stack's output, when it is read (template reference, Fn::GetStackOutput: "a weak reference")."""
    given = {name: evaluated(item, resources) for name, item in argument.items()}
    if "RoleArn" in given:
        raise UnresolvedValue(
            "Fn::GetStackOutput: RoleArn, for stacks of other accounts, is not supported by the local account"
        )
    region = given.get("Region", resources._region_name)
    name, output = given["StackName"], given["OutputName"]
    for stack in cloudformation_backends[resources._account_id][region].stacks.values():
        known = name in (stack.name, stack.stack_id) and output in stack.output_map.outputs
        if known and (found := stack.output_map[output]) is not None:
            return found.value
    raise UnresolvedValue(f"Fn::GetStackOutput: there is no output {output} of a stack {name} in {region}")


def holds(condition: Any, resources: Any) -> bool:
    """Returns whether a condition of a template holds; texts are compared, so that `true` equals "true".

    Raises:
        ValidationError: it names a condition that there is not.
    """
    if isinstance(condition, bool):
        return condition
    [(name, argument)] = condition.items()
    if name == "Condition":
        return condition_of(argument, resources)
    if name == "Fn::Equals":
        if not isinstance(argument, list) or len(argument) != 2:
            raise ValidationError(
                message="Template error: every Fn::Equals object requires a list of 2 string parameters."
            )
        left, right = (_text(evaluated(item, resources)) for item in argument)
        return left == right
    if name == "Fn::Not":
        return not holds(argument[0], resources)
    return (all if name == "Fn::And" else any)(holds(item, resources) for item in argument)


def condition_of(name: str, resources: Any, place: str = "Fn::If") -> bool:
    """Returns whether a named condition holds."""
    if name not in resources.lazy_condition_map:
        raise ValidationError(message=f"Template error: unresolved condition dependency {name} in {place}")
    return bool(resources.lazy_condition_map[name])


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "Ref": _ref,
    "Fn::Base64": _base64,
    "Fn::Cidr": _cidr,
    "Fn::FindInMap": _find_in_map,
    "Fn::GetAZs": _zones,
    "Fn::GetAtt": _get_att,
    "Fn::GetStackOutput": _stack_output,
    "Fn::If": _if,
    "Fn::ImportValue": _import_value,
    "Fn::Join": _join,
    "Fn::Length": _length,
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::Sub": _sub,
    "Fn::ToJsonString": _to_json,
}
# And those of conditions, and of mappings that are included.
_SUPPORTED = frozenset({*_FUNCTIONS, "Fn::And", "Fn::Equals", "Fn::Not", "Fn::Or", "Fn::Transform"})


def _dynamic(found: re.Match[str], resources: Any) -> str:
    """The value of a dynamic reference ("Get values stored in other services using dynamic references")."""
    service, name = found.groups()
    if service == "secretsmanager":
        return _secret(name, resources)
    parameter = ssm_backends[resources._account_id][resources._region_name].get_parameter(name)
    if parameter is None:
        raise UnresolvedValue(f"Parameters: [{service}:{name}] cannot be found.")
    return str(parameter.value)


def _secret(reference: str, resources: Any) -> str:
    """The value of `secret-id:SecretString:json-key:version-stage:version-id`, whose parts after the first may be left out."""
    id, _, rest = reference.partition(":SecretString")
    key, stage, version = [*rest.split(":")[1:], "", "", ""][:3]
    secrets = secretsmanager_backends[resources._account_id][resources._region_name]
    try:
        found = secrets.get_secret_value(id, version or None, stage or None)
    except SecretsManagerClientError as error:
        raise UnresolvedValue(str(error.message)) from None
    text = str(found.get("SecretString", ""))
    if not key:
        return text
    try:
        return str(json.loads(text)[key])
    except ValueError:
        raise UnresolvedValue("Could not parse SecretString JSON") from None
    except (KeyError, TypeError):
        raise UnresolvedValue(f"Could not find a value associated with JSONKey in SecretString: {key}") from None


def targets(value: Any) -> Iterator[tuple[str, str]]:
    """Yields what the functions in a part of a template refer to: a name, and an attribute or "".

    Of a text with variables, those that it defines itself are left out.
    """
    if isinstance(value, list):
        for item in value:
            yield from targets(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "Ref" and isinstance(item, str):
                yield item, ""
            elif name == "Fn::GetAtt":
                resource, _, attribute = item.partition(".") if isinstance(item, str) else (item[0], "", item[1])
                if isinstance(resource, str):
                    yield resource, attribute if isinstance(attribute, str) else ""
            elif name == "Fn::Sub":
                text, values = (item, {}) if isinstance(item, str) else item
                for literal, variable in _VARIABLE.findall(text):
                    if not literal and variable not in values:
                        resource, _, attribute = variable.partition(".")
                        yield resource, attribute
            yield from targets(item)


def functions(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the name and the argument of each function in a template, or in a part of one."""
    if isinstance(value, list):
        for item in value:
            yield from functions(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if len(value) == 1 and str(name).startswith("Fn::"):
                yield name, item
            yield from functions(item)


def unknown(value: Any) -> list[str]:
    """Returns the names of the functions in a part of a template that nothing evaluates."""
    return sorted({name for name, _ in functions(value)} - _SUPPORTED)
