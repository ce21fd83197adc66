"""A Lambda function of this library: its code, its role and its log."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from aws_cdk import CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

_RUNTIME = "python3.13"
_TIMEOUT = Duration.minutes(15)  # Lambda's longest


def handler_function(
    scope: Construct, module: str, description: str, memory_mib: int | None = None
) -> tuple[CfnResource, iam.Role]:
    """Create a function, "Resource", with its "Role".

    It is made without aws_lambda, whose import takes longer than creating a workflow.

    Args:
        scope: The parent construct.
        module: The name of the module beside this one with the code, whose ``handler`` is called.
        description: What it does.
        memory_mib: Its memory, in MiB; None for Lambda's default, 128.
    """
    group = logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
    )
    role = iam.Role(scope, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    writing = iam.Policy(scope, "LogsPolicy", roles=[role])
    writing.add_statements(
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn])
    )
    function = CfnResource(
        scope,
        "Resource",
        type="AWS::Lambda::Function",
        properties={
            "Code": {"ZipFile": _code(module)},
            "Description": description,
            "Handler": "index.handler",
            "LoggingConfig": {"LogGroup": group.log_group_name},
            **({} if memory_mib is None else {"MemorySize": memory_mib}),
            "Role": role.role_arn,
            "Runtime": _RUNTIME,
            "Timeout": _TIMEOUT.to_seconds(),
        },
    )
    function.node.add_dependency(writing)
    return function, role


@cache
def _code(module: str) -> str:
    return Path(__file__).with_name(f"{module}.py").read_text()
