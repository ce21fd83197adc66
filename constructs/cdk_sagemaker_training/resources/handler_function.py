"""A Lambda function of this library: its code, its role, its log, and its place in a VPC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from cdk_sagemaker_training.core.nag import acknowledge, acknowledge_policies
from cdk_sagemaker_training.resources.functions import function_reasons, place_in_vpc, place_of

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_

_RUNTIME = "python3.14"
_TIMEOUT = Duration.minutes(15)  # Lambda's longest


def handler_function(
    scope: Construct,
    module: str,
    description: str,
    memory_mib: int = 128,
    statements: Sequence[iam.PolicyStatement] = (),
    group: logs.ILogGroup | None = None,
) -> tuple[lambda_.CfnFunction, iam.Role]:
    """Create a function, "Resource", with its "Role".

    It is a ``CfnFunction``, by which aspects, tags and cdk-nag's rules find it, in the VPC that ``TrainingFunctions`` has for it.

    Args:
        scope: The parent construct.
        module: The name of the module in `handlers/` with the code, whose ``handler`` is called.
        description: What it does.
        memory_mib: Its memory, in MiB; by default Lambda's own default.
        statements: What it is allowed, beside writing to its log.
        group: The group of its log. Default: one of its own, for three months.
    """
    # Here and not above, since only what has a function needs it.
    from aws_cdk import aws_lambda as lambda_

    group = group or logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
    )
    writing = iam.PolicyStatement(
        actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[group.log_group_arn]
    )
    # Its own document and not a policy beside it: it is there before the function is, and until after that was deleted.
    role = iam.Role(
        scope,
        "Role",
        description=description,
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        inline_policies={"Function": iam.PolicyDocument(statements=[writing, *statements])},
    )
    function = lambda_.CfnFunction(
        scope,
        "Resource",
        code=lambda_.CfnFunction.CodeProperty(zip_file=_code(module)),
        description=description,
        handler="index.handler",
        logging_config=lambda_.CfnFunction.LoggingConfigProperty(log_group=group.log_group_name),
        memory_size=memory_mib,
        role=role.role_arn,
        runtime=_RUNTIME,
        timeout=_TIMEOUT.to_seconds(),
    )
    place = place_of(scope)
    acknowledge(scope, function_reasons(in_vpc=place is not None))
    if place is not None:
        place_in_vpc(scope, function, role, *place)
    return function, role


class StackFunction(Construct):
    """A function that all workflows of a stack share, and its role.

    Attributes:
        function: The function.
        role: Its role.
    """

    def __init__(
        self,
        stack: Stack,
        id: str,
        module: str,
        description: str,
        statements: Callable[[], Sequence[iam.PolicyStatement]],
        group: logs.ILogGroup | None,
    ) -> None:
        """Create the function; the parameters are those of ``stack_function``."""
        super().__init__(stack, id)
        self.function, self.role = handler_function(self, module, description, statements=statements(), group=group)


def stack_function(
    stack: Stack,
    id: str,
    module: str,
    description: str,
    statements: Callable[[], Sequence[iam.PolicyStatement]],
    why: str,
    group: logs.ILogGroup | None = None,
) -> StackFunction:
    """Return the function that all workflows of a stack share; the first creates it.

    Args:
        stack: The stack.
        id: The id of the construct below which they are.
        module: The name of the module in `handlers/` with the code.
        description: What it does.
        statements: Returns what it is allowed, whichever workflow it is called for. Called by the first alone.
        why: Why that has wildcards.
        group: As of ``handler_function``.
    """
    shared = stack.node.try_find_child(id)
    if shared is None:
        shared = StackFunction(stack, id, module, description, statements, group)
        acknowledge_policies(shared, why)
    assert isinstance(shared, StackFunction)
    return shared


@cache
def _code(module: str) -> str:
    return (Path(__file__).parents[1] / "handlers" / f"{module}.py").read_text()
