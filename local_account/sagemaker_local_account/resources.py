"""CloudFormation's resource types: what moto lacks or does by halves, and what does nothing here, with the reason.

A type that is neither in `resource_types.TYPES` nor here is refused when its stack is deployed. Where moto can create a
resource but not delete it, its deletion is here; a stack whose resource nobody can delete does not end as DELETE_COMPLETE.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_ip_addresses import ElasticAddress
from moto.ec2.models.flow_logs import FlowLogs
from moto.ec2.models.internet_gateways import InternetGateway
from moto.ec2.models.nat_gateways import NatGateway
from moto.ec2.models.route_tables import Route, RouteTable
from moto.ec2.models.subnets import SubnetRouteTableAssociation
from moto.ec2.models.vpcs import VPC, VPCEndPoint
from moto.ec2.models.vpn_gateway import VPCGatewayAttachment
from moto.ecr.models import Repository
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.iam.models import ManagedPolicy, Role, iam_backends
from moto.logs.models import LogGroup, logs_backends
from moto.s3.models import FakeBucket, s3_backends
from moto.stepfunctions import models as stepfunctions_models
from moto.stepfunctions.models import StateMachine

from . import completion, efs_resources, event_rules, iam_resources, keys, observability, repositories, security_groups
from .custom_resources import CustomResource, is_custom
from .emulated import Emulated, Properties
from .resource_types import TYPES

# Types that a stack makes as soon as what they depend on is there, before anything else: FSx refuses a file system unless its
# security groups have rules, which are resources of their own.
CREATED_FIRST = {"AWS::FSx::FileSystem"}


def supported(resource_type: str) -> bool:
    """Whether a stack with such a resource can be deployed."""
    return resource_type in TYPES or resource_type in NATIVE or is_custom(resource_type)


def class_of(resource_type: str) -> Any:
    """The class that makes a resource of a type.

    moto gives None, and a line in the log, for a type it does not have, and starts a container for any `Custom::` type.
    """
    if resource_type in NATIVE:
        return NATIVE[resource_type]
    if is_custom(resource_type):
        return CustomResource
    if resource_type not in TYPES:
        raise ValidationError(message=f"the local account does not have the resource type {resource_type}")
    return parsing.get_model_map().get(resource_type, Inert)


class Inert(Emulated):
    """A resource that nothing here makes anything of; `TYPES` has the reason."""


class AutoDeleteObjects(Emulated):
    """`auto_delete_objects=True` of a CDK bucket: on AWS a Lambda function of CDK's empties the bucket before it is deleted."""

    def delete(self, account_id: str, region_name: str) -> None:
        buckets = s3_backends[account_id]["aws"]
        bucket = buckets.buckets.get(self.properties["BucketName"])
        for name, versions in [] if bucket is None else bucket.keys.lists():
            for version in [*versions] if bucket.is_versioned else [None]:
                buckets.delete_object(bucket.name, name, version_id=version and version.version_id)


class RestrictDefaultSecurityGroup(Emulated):
    """CDK's feature flag `restrictDefaultSecurityGroup`: on AWS a Lambda function of CDK's takes the VPC's default rules away."""

    def create(self) -> None:
        group_id = self.properties["DefaultSecurityGroupId"]
        ec2 = ec2_backends[self.account_id][self.region_name]
        group = ec2.get_security_group_from_id(group_id)
        if group is None:
            raise ValidationError(message=f"there is no security group {group_id}")
        group.ingress_rules.clear()
        group.egress_rules.clear()


class BucketPolicy(Emulated):
    """The policy of a bucket."""

    def create(self) -> None:
        self.physical_resource_id = self.properties["Bucket"]
        policy = json.dumps(self.properties["PolicyDocument"]).encode()
        s3_backends[self.account_id]["aws"].put_bucket_policy(self.physical_resource_id, policy)

    @classmethod
    def update_from_cloudformation_json(cls, original_resource: Any, cloudformation_json: Any, **details: Any) -> Any:
        if original_resource.physical_resource_id != cloudformation_json["Properties"]["Bucket"]:
            raise NotImplementedError
        return cls.create_from_cloudformation_json("", cloudformation_json, **_place(details))

    def delete(self, account_id: str, region_name: str) -> None:
        s3_backends[account_id]["aws"].delete_bucket_policy(self.physical_resource_id)


def _get_permission(self: FakeBucket, action: str, resource: str) -> Any:
    """moto takes each statement of a bucket's policy for everybody's and for unconditional: the usual "Deny * unless by
    TLS" would deny everything. Only statements that are so are evaluated; the way over loopback counts as secure."""
    if self.policy is None:
        return PermissionResult.NEUTRAL
    policy = json.loads(self.policy)
    statements = policy["Statement"] if isinstance(policy["Statement"], list) else [policy["Statement"]]
    plain = [
        statement
        for statement in statements
        if "Condition" not in statement and statement.get("Principal") in ("*", {"AWS": "*"}, {"AWS": ["*"]})
    ]
    return IAMPolicy(json.dumps({**policy, "Statement": plain})).is_action_permitted(action, resource)


# Types that moto lacks or does by halves, and custom resources whose Lambda functions CDK brings along: there is no
# Lambda here, so their work is done here.
NATIVE: dict[str, Any] = {
    "AWS::S3::BucketPolicy": BucketPolicy,
    "Custom::S3AutoDeleteObjects": AutoDeleteObjects,
    "Custom::VpcRestrictDefaultSG": RestrictDefaultSecurityGroup,
    **efs_resources.NATIVE,
    **event_rules.NATIVE,
    **keys.NATIVE,
    **observability.NATIVE,
    **security_groups.NATIVE,
}


def _place(details: dict[str, Any]) -> dict[str, Any]:
    return {name: details[name] for name in ("account_id", "region_name")}


def _create_association(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> SubnetRouteTableAssociation:
    """moto notes the association where neither DescribeRouteTables nor DeleteRouteTable looks."""
    properties = cloudformation_json["Properties"]
    ec2 = ec2_backends[account_id][region_name]
    association = Association(properties["RouteTableId"], properties["SubnetId"])
    association.association_id = ec2.associate_route_table(
        route_table_id=properties["RouteTableId"], subnet_id=properties["SubnetId"]
    )
    return association


class Association(SubnetRouteTableAssociation):
    """A route table's association with a subnet, known by its own id as on AWS."""

    association_id: str

    @property
    def physical_resource_id(self) -> str:
        return self.association_id


def _create_state_machine(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> StateMachine:
    """moto takes the name, the DefinitionString, the role and the tags, and drops the rest."""
    properties = cloudformation_json["Properties"]
    machines = stepfunctions_models.stepfunctions_backends[account_id][region_name]
    machine: StateMachine = machines.create_state_machine(
        properties.get("StateMachineName", resource_name),
        _definition(properties),
        properties["RoleArn"],
        tags=stepfunctions_models.cfn_to_api_tags(properties.get("Tags", [])),
        loggingConfiguration=_camel(properties.get("LoggingConfiguration")),
        tracingConfiguration=_camel(properties.get("TracingConfiguration")),
        sm_type=properties.get("StateMachineType"),
    )
    return machine


def _update_state_machine(
    cls: Any,
    original_resource: StateMachine,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> StateMachine:
    properties = cloudformation_json["Properties"]
    machines = stepfunctions_models.stepfunctions_backends[account_id][region_name]
    if properties.get("StateMachineName", original_resource.name) != original_resource.name:
        machine = _create_state_machine(cls, new_resource_name, cloudformation_json, account_id, region_name)
        machines.delete_state_machine(original_resource.arn)
        return machine
    updated: StateMachine = machines.update_state_machine(
        original_resource.arn,
        definition=_definition(properties),
        role_arn=properties["RoleArn"],
        logging_configuration=_camel(properties.get("LoggingConfiguration")),
        tracing_configuration=_camel(properties.get("TracingConfiguration")),
    )
    return updated


def _definition(properties: Properties) -> str:
    definition = properties.get("DefinitionString") or json.dumps(properties.get("Definition", {}))
    for name, value in properties.get("DefinitionSubstitutions", {}).items():
        definition = definition.replace(f"${{{name}}}", str(value))
    return str(definition)


def _camel(value: Any) -> Any:
    """CloudFormation's PascalCase in the API's camelCase."""
    if isinstance(value, dict):
        return {name[:1].lower() + name[1:]: _camel(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_camel(item) for item in value]
    return value


def _state_machine_attribute(self: StateMachine, attribute_name: str) -> Any:
    """moto does not know GetAtt Arn."""
    if attribute_name == "Arn":
        return self.arn
    return _moto_state_machine_attribute(self, attribute_name)


_moto_state_machine_attribute = StateMachine.get_cfn_attribute


def _update_log_group(
    cls: Any,
    original_resource: LogGroup,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> LogGroup:
    """moto cannot update a log group."""
    properties = cloudformation_json["Properties"]
    if properties.get("LogGroupName", original_resource.name) != original_resource.name:
        raise NotImplementedError
    retention = properties.get("RetentionInDays")
    original_resource.set_retention_policy(None if retention is None else int(retention))
    original_resource.kms_key_id = properties.get("KmsKeyId")
    logs = logs_backends[account_id][region_name]
    logs.untag_resource(original_resource.arn, [*logs.list_tags_for_resource(original_resource.arn)])
    logs.tag_resource(original_resource.arn, {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])})
    return original_resource


def _log_group_attribute(self: LogGroup, attribute_name: str) -> str:
    """moto's Arn is without the :* that AWS ends it with."""
    arn: str = _moto_log_group_attribute(self, attribute_name)
    return f"{arn}:*" if attribute_name == "Arn" else arn


_moto_log_group_attribute = LogGroup.get_cfn_attribute


def _update_policy(
    cls: Any,
    original_resource: ManagedPolicy,
    new_resource_name: str,
    cloudformation_json: Any,
    account_id: str,
    region_name: str,
) -> ManagedPolicy:
    """moto cannot update a managed policy, and one that has a name cannot be made anew beside itself."""
    properties = cloudformation_json["Properties"]
    policy = original_resource
    if properties.get("ManagedPolicyName", policy.name) != policy.name:
        raise NotImplementedError
    iam = iam_backends[account_id]["aws"]
    for version in [version for version in policy.versions if version.version_id != policy.default_version_id]:
        iam.delete_policy_version(policy.arn, version.version_id)
    iam.create_policy_version(policy.arn, json.dumps(properties["PolicyDocument"]), "true")
    for kind, holders in (("Roles", iam.roles), ("Users", iam.users), ("Groups", iam.groups)):
        for holder in holders.values():
            wanted = holder.name in properties.get(kind, [])
            if policy.arn in holder.managed_policies and not wanted:
                policy.detach_from(holder)
            elif wanted and policy.arn not in holder.managed_policies:
                policy.attach_to(holder)
    return policy


def _delete_bucket(bucket: FakeBucket, account_id: str, region_name: str) -> None:
    """moto keeps a bucket that is not empty and says that it is deleted."""
    buckets = s3_backends[account_id]["aws"]
    if bucket.name in buckets.buckets and buckets.delete_bucket(bucket.name) is None:
        raise ValidationError(message=f"The bucket you tried to delete is not empty: {bucket.name}")


def _delete_policy(policy: ManagedPolicy, account_id: str, region_name: str) -> None:
    iam = iam_backends[account_id]["aws"]
    for holder in [*iam.roles.values(), *iam.users.values(), *iam.groups.values()]:
        if policy.arn in holder.managed_policies:
            policy.detach_from(holder)
    iam.delete_policy(policy.arn)


def _delete_endpoint(endpoint: VPCEndPoint, account_id: str, region_name: str) -> None:
    ec2 = ec2_backends[account_id][region_name]
    ec2.delete_vpc_endpoints([endpoint.id])
    ec2.vpc_end_points.pop(endpoint.id, None)


def _delete_nat_gateway(gateway: NatGateway, account_id: str, region_name: str) -> None:
    ec2 = ec2_backends[account_id][region_name]
    ec2.delete_nat_gateway(gateway.id)
    for address in gateway.address_set:
        if "publicIp" in address:
            ec2.disassociate_address(address=address["publicIp"])
    ec2.delete_network_interface(gateway._eni.id)


def _delete_vpc(vpc: VPC, account_id: str, region_name: str) -> None:
    """moto leaves the network ACL behind that came with the VPC."""
    ec2 = ec2_backends[account_id][region_name]
    ec2.delete_vpc(vpc.id)
    for acl in [acl for acl in ec2.network_acls.values() if acl.vpc_id == vpc.id]:
        del ec2.network_acls[acl.id]


# How resources are deleted that moto's CloudFormation creates and then leaves behind, or deletes otherwise than AWS.
DELETE: dict[type, Callable[[Any, str, str], object]] = {
    FakeBucket: _delete_bucket,
    ElasticAddress: lambda address, account, region: ec2_backends[account][region].release_address(
        allocation_id=address.allocation_id
    ),
    InternetGateway: lambda gateway, account, region: ec2_backends[account][region].delete_internet_gateway(gateway.id),
    NatGateway: _delete_nat_gateway,
    VPC: _delete_vpc,
    Route: lambda route, account, region: route.route_table._routes.pop(route.id, None),
    RouteTable: lambda table, account, region: ec2_backends[account][region].delete_route_table(table.id),
    Association: lambda association, account, region: ec2_backends[account][region].disassociate_route_table(
        association.association_id
    ),
    VPCGatewayAttachment: lambda attachment, account, region: ec2_backends[account][region].detach_internet_gateway(
        attachment.gateway_id, attachment.vpc_id
    ),
    VPCEndPoint: _delete_endpoint,
    FlowLogs: lambda log, account, region: ec2_backends[account][region].delete_flow_logs([log.id]),
    ManagedPolicy: _delete_policy,
    Repository: repositories.delete,
    Role: iam_resources.delete_role,
}


# The longest name of each type whose name CloudFormation makes of the stack's name, the logical id and a suffix, where that is
# shorter than all three may be; each is the maximum of the service's own API.
_LONGEST_NAMES = {
    "AWS::Events::Rule": 64,
    "AWS::IAM::Role": 64,
    "AWS::Lambda::Function": 64,
    "AWS::SQS::Queue": 80,
    "AWS::StepFunctions::StateMachine": 80,
}
_generated_name = parsing.generate_resource_name


def _name_that_fits(resource_type: str, stack_name: str, logical_id: str) -> str:
    """The name that CloudFormation makes for a resource that has none: moto's, but never too long for its type."""
    name: str = _generated_name(resource_type, stack_name, logical_id)
    rest, _, suffix = name.rpartition("-")
    most = _LONGEST_NAMES.get(resource_type, len(name)) - len(suffix) - 1
    return f"{rest[:most].rstrip('-')}-{suffix}"


def install() -> None:
    """Teach moto's own types what they lack; the types of this module register by being defined."""
    parsing.resource_class_from_type = class_of
    parsing.generate_resource_name = _name_that_fits
    # Its table of types is made once, at the first use.
    for table in (parsing.get_model_list, parsing.get_model_map, parsing.get_name_type_map):
        table.cache_clear()
    SubnetRouteTableAssociation.create_from_cloudformation_json = classmethod(_create_association)  # type: ignore
    StateMachine.create_from_cloudformation_json = classmethod(_create_state_machine)  # type: ignore
    StateMachine.update_from_cloudformation_json = classmethod(_update_state_machine)
    StateMachine.get_cfn_attribute = _state_machine_attribute
    StateMachine.has_cfn_attr = classmethod(lambda cls, attr: attr in ("Arn", "Name"))
    LogGroup.update_from_cloudformation_json = classmethod(_update_log_group)
    FakeBucket.get_permission = _get_permission
    LogGroup.get_cfn_attribute = _log_group_attribute
    ManagedPolicy.update_from_cloudformation_json = classmethod(_update_policy)
    completion.install()
    iam_resources.install()
    repositories.install()
    security_groups.install()
