"""The properties of AWS::Lambda::Function, of which moto takes some when a function is made and fewer when it is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moto.awslambda.models import LambdaFunction, lambda_backends
from moto.cloudformation.exceptions import ValidationError
from moto.ec2.models import ec2_backends

from sagemaker_local_account.aws.awslambda.execution_role import refusal
from sagemaker_local_account.aws.ec2.authorization import subnet_arn
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.authorizer import Authorizer

HONOURED = frozenset(
    {
        "Architectures",
        "Code",
        "DeadLetterConfig",
        "Description",
        "Environment",
        "EphemeralStorage",
        "FunctionName",
        "Handler",
        "Layers",
        "LoggingConfig",
        "MemorySize",
        "ReservedConcurrentExecutions",
        "Role",
        "Runtime",
        "Tags",
        "Timeout",
        "TracingConfig",
        "VpcConfig",
    }
)
# Of properties that a template leaves out (template reference, AWS::Lambda::Function).
_DEFAULTS: dict[str, Any] = {
    "DeadLetterConfig": None,
    "Description": "",
    "Environment": {"Variables": {}},
    "EphemeralStorage": None,
    "Layers": [],
    "MemorySize": 128,
    "Timeout": 3,
    "TracingConfig": None,
    "VpcConfig": None,
}


# The handlers of `cdk_handlers.py`: of functions by their handlers, and of the CDK's singletons by their logical ids.
_OF_PROVIDERS = {
    "framework.onEvent": "on_event",
    "framework.isComplete": "is_complete",
    "framework.onTimeout": "on_timeout",
}
_OF_SINGLETONS = {
    "AWS679f53fac002430cb0da5b7982bd2287": "aws_custom_resource",
    "AWSb4cf1abd4e4f4bc699441af7ccd9ec37": "aws_api",
    "LogRetentionaae0aa3c5b4d4f87b02d85b201efdd8a": "log_retention",
    "AWSCDKTriggerCustomResourceProvider": "trigger",
}


def in_python(properties: Mapping[str, Any], logical_id: str) -> str | None:
    """Returns the name of the handler in Python of a function that the CDK has for Node.js; None for any other function.

    Args:
        properties: of the resource.
        logical_id: of the resource.
    """
    if not str(properties.get("Runtime")).startswith("nodejs"):
        return None
    singletons = (handler for start, handler in _OF_SINGLETONS.items() if logical_id.startswith(start))
    return _OF_PROVIDERS.get(str(properties.get("Handler"))) or next(singletons, None)


def unsupported(properties: Mapping[str, Any], logical_id: str) -> list[str]:
    """Returns the properties that are not supported, with the value where that is the reason.

    Args:
        properties: of the resource.
        logical_id: of the resource.
    """
    found = sorted(set(properties) - HONOURED)
    runtime = properties.get("Runtime")
    if not str(runtime).startswith("python3.") and not in_python(properties, logical_id):
        found.append(f"Runtime {runtime!r}")
    code = properties.get("Code", {})
    return found + [f"Code.{name}" for name in sorted(set(code) - {"S3Bucket", "S3Key", "S3ObjectVersion", "ZipFile"})]


def check(properties: Mapping[str, Any], location: Location, authorizer: Authorizer) -> None:
    """Raises ValidationError for what Lambda refuses before it makes or changes a function.

    Args:
        properties: of the resource.
        location: of the function.
        authorizer: evaluates the permissions of the function's role.
    """
    layers = lambda_backends[location.account][location.region]
    for arn in properties.get("Layers") or []:
        found = layers.layers_versions_by_arn(arn)
        if found is None or found.arn != arn:
            raise ValidationError(message=f"Layer version {arn} does not exist.")
    needs: list[tuple[str, list[str]]] = []
    if target := (properties.get("DeadLetterConfig") or {}).get("TargetArn"):
        needs.append(("sqs:SendMessage" if ":sqs:" in target else "sns:Publish", [target]))
    if network := properties.get("VpcConfig"):
        needs += _needs_in_vpc(network.get("SubnetIds") or [], network.get("SecurityGroupIds") or [], location)
    for action, resources in needs:
        if why := refusal(authorizer, properties["Role"], action, resources):
            raise ValidationError(message=why)


def _needs_in_vpc(subnets: list[str], groups: list[str], location: Location) -> list[tuple[str, list[str]]]:
    """What a function's role must be allowed in its subnets (Lambda guide, "Required IAM permissions"): actions and resources.

    Raises:
        ValidationError: a subnet or a security group does not exist.
    """
    ec2 = ec2_backends[location.account][location.region]
    for kind, call, code, ids, known in (
        ("subnet", "DescribeSubnets", "InvalidSubnetID", subnets, ec2.describe_subnets()),
        ("security group", "DescribeSecurityGroups", "InvalidGroup", groups, ec2.describe_security_groups()),
    ):
        for one in sorted({*ids} - {it.id for it in known}):
            raise ValidationError(
                message=f"Error occurred while {call}. EC2 Error Code: {code}.NotFound. EC2 Error Message: The {kind} "
                f"'{one}' does not exist"
            )
    base = f"arn:aws:ec2:{location.region}:{location.account}:"
    interface = f"{base}network-interface/*"
    inside = [*(subnet_arn(it, location) for it in subnets), *(f"{base}security-group/{it}" for it in groups)]
    needed = [
        ("ec2:CreateNetworkInterface", [interface, *inside]),
        ("ec2:DescribeNetworkInterfaces", ["*"]),
        ("ec2:DeleteNetworkInterface", [interface]),
    ]
    return needed if subnets else []


def apply(function: LambdaFunction, properties: Mapping[str, Any]) -> None:
    """Gives a function that exists all of its configuration; what a template leaves out has its default.

    Args:
        function: moto's.
        properties: of the resource.
    """
    function.update_configuration({**_DEFAULTS, **properties})
    function.reserved_concurrency = properties.get("ReservedConcurrentExecutions")
    function.account_log_group = (properties.get("LoggingConfig") or {}).get("LogGroup")


def set_further(function: LambdaFunction, members: Mapping[str, Any]) -> None:
    """Sets those members of a configuration that moto sets when a function is made, or not at all.

    Args:
        function: moto's.
        members: those that are set; None for their defaults.
    """
    if "DeadLetterConfig" in members:
        function.account_dead_letters = members["DeadLetterConfig"]
    if "TracingConfig" in members:
        function.tracing_config = members["TracingConfig"] or {"Mode": "PassThrough"}
    if "EphemeralStorage" in members:
        function.ephemeral_storage = int((members["EphemeralStorage"] or {}).get("Size", 512))


def vpc_config(function: LambdaFunction) -> dict[str, Any]:
    """The VpcConfig of an answer, with the VPC of its subnets; empty members without one."""
    given = {"SubnetIds": [], "SecurityGroupIds": [], **(function._vpc_config or {})}
    vpcs = [
        it.vpc_id
        for it in ec2_backends[function.account_id][function.region].describe_subnets()
        if it.id in given["SubnetIds"]
    ]
    return {**given, "VpcId": vpcs[0] if vpcs else "", "Ipv6AllowedForDualStack": False}
