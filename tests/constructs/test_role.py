from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template
from rendered import resolved

from cdk_sagemaker_training import TrainingNetwork, TrainingRole


class Role:
    """A role in a stack of its own, and what its policy says."""

    def __init__(self) -> None:
        self.stack = cdk.Stack()
        self.bucket = s3.Bucket.from_bucket_name(self.stack, "Bucket", "data")
        self.role = TrainingRole(self.stack, "Role")

    def statements(self) -> list[dict[str, Any]]:
        [policy] = Template.from_stack(self.stack).find_resources("AWS::IAM::Policy").values()
        return list(policy["Properties"]["PolicyDocument"]["Statement"])

    def resources_of(self, action: str) -> list[str]:
        return [
            resource if isinstance(resource, str) else "".join(p for p in resource["Fn::Join"][1] if isinstance(p, str))
            for statement in self.statements()
            if action in statement["Action"] or action == statement["Action"]
            for resource in (
                statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
            )
        ]


@pytest.fixture
def role() -> Role:
    return Role()


def test_only_sagemaker_in_this_account_may_take_the_role_on(role: Role) -> None:
    [resource] = Template.from_stack(role.stack).find_resources("AWS::IAM::Role").values()
    [statement] = resource["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement == {
        "Action": "sts:AssumeRole",
        "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
        "Effect": "Allow",
        "Principal": {"Service": "sagemaker.amazonaws.com"},
    }


def test_the_role_has_no_managed_policy(role: Role) -> None:
    [resource] = Template.from_stack(role.stack).find_resources("AWS::IAM::Role").values()
    assert "ManagedPolicyArns" not in resource["Properties"]


def test_reading_a_prefix_reads_and_lists_that_prefix_only(role: Role) -> None:
    role.role.grant_read(role.bucket, "images/")
    assert role.resources_of("s3:GetObject") == ["arn::s3:::data/images/*"]
    [listing] = [statement for statement in role.statements() if statement["Action"] == "s3:ListBucket"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["images/*"]}}


def test_writing_a_prefix_does_not_read_it(role: Role) -> None:
    role.role.grant_write(role.bucket, "models/")
    assert role.resources_of("s3:PutObject") == ["arn::s3:::data/models/*"]
    # Parts of an upload that failed are billed until it is aborted.
    assert role.resources_of("s3:AbortMultipartUpload") == ["arn::s3:::data/models/*"]
    assert role.resources_of("s3:GetObject") == []


def test_checkpoints_may_be_deleted_under_their_prefix_only(role: Role) -> None:
    role.role.grant_checkpoints(role.bucket, "checkpoints/")
    assert role.resources_of("s3:DeleteObject") == ["arn::s3:::data/checkpoints/*"]


def test_what_is_written_may_not_be_deleted(role: Role) -> None:
    role.role.grant_read_write(role.bucket, "cache/")
    assert role.resources_of("s3:DeleteObject") == []


def test_a_bucket_with_a_key_may_be_read_with_it() -> None:
    role = Role()
    key = kms.Key(role.stack, "Key")
    role.role.grant_read(s3.Bucket(role.stack, "Encrypted", encryption_key=key), "")
    assert [statement for statement in role.statements() if statement["Action"] == "kms:Decrypt"]


def test_logs_go_to_the_log_group_of_training_jobs_only(role: Role) -> None:
    assert role.resources_of("logs:PutLogEvents") == ["arn::logs:::log-group:/aws/sagemaker/TrainingJobs:*"]


def test_passing_the_role_is_allowed_to_sagemaker_only(role: Role) -> None:
    other = iam.Role(role.stack, "Other", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
    role.role.grant_pass_role(other)
    policies = Template.from_stack(role.stack).find_resources("AWS::IAM::Policy")
    [policy] = [value for name, value in policies.items() if name.startswith("Other")]
    [statement] = policy["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Action"] == "iam:PassRole"
    assert statement["Condition"] == {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    assert statement["Resource"]["Fn::GetAtt"][0].startswith("Role")


def test_a_role_that_there_is_already_gets_the_permissions_too() -> None:
    stack = cdk.Stack()
    own = iam.Role(stack, "Own", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    TrainingRole(stack, "Role", role=own)
    [policy] = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    assert policy["Properties"]["Roles"][0]["Ref"].startswith("Own")


def test_what_is_encrypted_with_a_key_may_be_read_and_written_with_it() -> None:
    role = Role()
    role.role.grant_key(kms.Key.from_key_arn(role.stack, "Key", "arn:aws:kms:us-east-1:123456789012:key/1"))
    [keys] = [statement for statement in role.statements() if "kms:Decrypt" in statement["Action"]]
    assert keys["Action"] == ["kms:Decrypt", "kms:Encrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*"]
    assert keys["Resource"] == "arn:aws:kms:us-east-1:123456789012:key/1"


def test_a_bucket_with_a_key_may_be_written_with_it_and_its_parts_read_back() -> None:
    role = Role()
    key = kms.Key(role.stack, "Key")
    role.role.grant_write(s3.Bucket(role.stack, "Encrypted", encryption_key=key), "models/")
    [keys] = [statement for statement in role.statements() if "kms:GenerateDataKey*" in statement["Action"]]
    assert "kms:Decrypt" in keys["Action"]
    assert role.stack.resolve(key.key_arn) == keys["Resource"]


def test_a_new_role_reaches_no_further_than_its_boundary() -> None:
    stack = cdk.Stack()
    boundary = iam.ManagedPolicy.from_managed_policy_name(stack, "Boundary", "boundary")
    TrainingRole(stack, "Role", permissions_boundary=boundary)
    [role] = Template.from_stack(stack).find_resources("AWS::IAM::Role").values()
    assert role["Properties"]["PermissionsBoundary"]["Fn::Join"][1][-1] == ":policy/boundary"


def test_a_boundary_for_a_role_that_there_is_already_is_refused() -> None:
    stack = cdk.Stack()
    own = iam.Role(stack, "Own", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    with pytest.raises(ValueError, match=r"^permissions_boundary must be left out with an existing role"):
        TrainingRole(stack, "Role", role=own, permissions_boundary=iam.ManagedPolicy(stack, "Boundary"))


class OnANetwork(Role):
    """A role that is granted a network, in a VPC that is new or was imported."""

    def __init__(self, new: bool) -> None:
        super().__init__()
        vpc = ec2.Vpc.from_vpc_attributes(
            self.stack,
            "Vpc",
            vpc_id="vpc-1",
            availability_zones=["us-east-1a"],
            private_subnet_ids=["subnet-1"],
            private_subnet_route_table_ids=["rtb-1"],
        )
        self.network = TrainingNetwork(self.stack, "Network", vpc=None if new else vpc)
        self.role.grant_network(self.network)

    def statements(self) -> list[dict[str, Any]]:
        policies = Template.from_stack(self.stack).find_resources("AWS::IAM::Policy").items()
        [own] = [policy for name, policy in policies if name.startswith("Role")]
        return [resolved(one) for one in own["Properties"]["PolicyDocument"]["Statement"]]

    def of(self, action: str) -> dict[str, Any]:
        [statement] = [one for one in self.statements() if one["Action"] == action]
        return statement


EC2 = "arn:aws:ec2:us-east-1:123456789012:"
# A VPC that was imported does not say whose it is.
OF_ANY = "arn:aws:ec2:us-east-1:*:"


@pytest.mark.parametrize("new", [True, False])
def test_interfaces_may_be_made_in_the_networks_subnets_and_security_group_only(new: bool) -> None:
    role = OnANetwork(new)
    subnets = [resolved(role.stack.resolve(id)) for id in role.network.subnets.subnet_ids]
    group = resolved(role.stack.resolve(role.network.security_group.security_group_id))
    assert role.of("ec2:CreateNetworkInterface")["Resource"] == [
        f"{EC2}network-interface/*",
        f"{EC2}security-group/{group}",
        *(f"{EC2 if new else OF_ANY}subnet/{subnet}" for subnet in subnets),
    ]


@pytest.mark.parametrize("new", [True, False])
def test_interfaces_may_be_handed_to_sagemaker_in_the_networks_subnets_only(new: bool) -> None:
    role = OnANetwork(new)
    handing = role.of("ec2:CreateNetworkInterfacePermission")
    ec2 = EC2 if new else OF_ANY
    subnets = [f"{ec2}subnet/{resolved(role.stack.resolve(id))}" for id in role.network.subnets.subnet_ids]
    assert handing["Condition"] == {"ArnEquals": {"ec2:Subnet": subnets}}
