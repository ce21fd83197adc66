"""What Lambda functions of this library have alike: cdk-nag suppressions, and a place in a VPC where one is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aws_cdk import aws_iam as iam
from constructs import Construct, IConstruct

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.nag import Reasons, acknowledge, compliance_reasons

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_lambda as lambda_

# Members of the Python objects of scopes.
_PLACE, _IS_FUNCTION = "_training_functions_place", "_has_training_function"
_WHY = "Lambda creates interfaces whose ids are not known, in subnets that it checks by describing all"


_WAITS = "what calls the function waits for its result, and handles its failure"
_REASONS: Reasons = {
    **compliance_reasons(
        {
            "CloudWatchLogGroupEncrypted": "CloudWatch encrypts it with a key of its own",
            "IAMNoInlinePolicy": "the policy is that of one role, with which it is deleted, and can be attached to no other",
            "LambdaConcurrency": "a reserved concurrency would be taken from the account's, of which the function needs little",
            "LambdaDLQ": _WAITS,
        }
    ),
    "Serverless-LambdaDLQ": _WAITS,
    "Serverless-LambdaStarPermissions": "of the actions that it has on each resource, none has a narrower one",
    "Serverless-LambdaTracing": "a call is one function, whose log has all that a trace would have",
}
_OUTSIDE_A_VPC: Reasons = compliance_reasons(
    {
        "LambdaInsideVPC": "the function calls AWS's services alone; with vpc it runs in a VPC from which they can be reached"
    }
)


class _Place(NamedTuple):
    vpc: ec2.IVpc
    vpc_subnets: ec2.SubnetSelection | None
    security_groups: Sequence[ec2.ISecurityGroup] | None


class TrainingFunctions:
    """The Lambda functions of this library below a scope, such as those that stop jobs when their workflow is deleted."""

    def __init__(self, scope: IConstruct) -> None:
        """Refer to them.

        Args:
            scope: An app, a stage, a stack or another construct.
        """
        self._scope = scope

    @staticmethod
    def of(scope: IConstruct) -> TrainingFunctions:
        """Return the functions below a scope, as ``Tags.of`` and ``Aspects.of`` do.

        Args:
            scope: An app, a stage, a stack or another construct.
        """
        return TrainingFunctions(scope)

    def in_vpc(
        self,
        vpc: ec2.IVpc,
        *,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] | None = None,
    ) -> None:
        """Run them in a VPC, from which they must reach the AWS services that they call. It goes before the first workflow.

        Args:
            vpc: The VPC.
            vpc_subnets: Selects among its subnets. Default: the private ones.
            security_groups: Existing security groups. Default: a new one for each function, that allows HTTPS out.

        Raises:
            ValueError: There is a function below the scope already.
        """
        functions = [child.node.path for child in self._scope.node.find_all() if getattr(child, _IS_FUNCTION, False)]
        if functions:
            raise must("in_vpc", "go before what has functions", "the first workflow", repr(functions[0]))
        setattr(self._scope, _PLACE, _Place(vpc, vpc_subnets, security_groups))


def place_of(scope: IConstruct) -> _Place | None:
    """Return where the functions of a scope run, as the nearest of its parents says it; None outside a VPC.

    Args:
        scope: The construct below which a function is, which from now on is one that has a function.
    """
    setattr(scope, _IS_FUNCTION, True)
    found = (getattr(parent, _PLACE, None) for parent in reversed(scope.node.scopes))
    return next((place for place in found if place is not None), None)


def function_reasons(*, in_vpc: bool) -> Reasons:
    """Return the justification of each finding on a function, its role and its log that is suppressed.

    Args:
        in_vpc: Whether it runs in a VPC; outside one, that is justified too.
    """
    return _REASONS if in_vpc else {**_REASONS, **_OUTSIDE_A_VPC}


def place_in_vpc(
    scope: Construct,
    function: lambda_.CfnFunction,
    role: iam.IRole,
    vpc: ec2.IVpc,
    vpc_subnets: ec2.SubnetSelection | None = None,
    security_groups: Sequence[ec2.ISecurityGroup] | None = None,
) -> None:
    """Place a function in a VPC, from which it must reach the AWS services that it calls.

    Args:
        scope: The construct below which a security group, "SecurityGroup", and a policy, "InterfacesPolicy", are created.
        function: The function.
        role: Its role, which gets the permissions for its network interfaces.
        vpc: The VPC.
        vpc_subnets: Selects among its subnets; the private ones by default.
        security_groups: Existing security groups; by default a new one that allows HTTPS out.
    """
    from aws_cdk import aws_lambda as lambda_

    groups = security_groups or [_security_group(scope, vpc)]
    function.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
        subnet_ids=vpc.select_subnets(**({} if vpc_subnets is None else vpc_subnets._values)).subnet_ids,
        security_group_ids=[group.security_group_id for group in groups],
    )
    # What AWS's policy AWSLambdaVPCAccessExecutionRole allows beside logs; no resource narrows it.
    interfaces = iam.PolicyStatement(
        actions=[
            "ec2:AssignPrivateIpAddresses",
            "ec2:CreateNetworkInterface",
            "ec2:DeleteNetworkInterface",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:UnassignPrivateIpAddresses",
        ],
        resources=["*"],
    )
    policy = iam.Policy(scope, "InterfacesPolicy", roles=[role], statements=[interfaces])
    acknowledge(policy, {"AwsSolutions-IAM5[Resource::*]": _WHY})
    function.node.add_dependency(policy)


def _security_group(scope: Construct, vpc: ec2.IVpc) -> ec2.SecurityGroup:
    from aws_cdk import aws_ec2 as ec2

    group = ec2.SecurityGroup(
        scope, "SecurityGroup", vpc=vpc, description="A function: HTTPS out", allow_all_outbound=False
    )
    group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "AWS services")
    return group
