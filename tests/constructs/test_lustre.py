"""A file system of FSx for Lustre in a job's network, and the environment of a job on EFA."""

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Match, Template
from stacks import reads

from cdk_sagemaker_training import LustreFileSystem, S3Prefix, TrainingNetwork, efa_environment


def file_system(stack: cdk.Stack, *, max_azs: int = 1, **props: Any) -> LustreFileSystem:
    bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "data")
    network = TrainingNetwork(stack, "Network", max_azs=max_azs)
    return LustreFileSystem(stack, "Files", network=network, data=S3Prefix(bucket, "images/"), **props)


def test_a_file_system_shows_what_lies_under_a_prefix_and_follows_it() -> None:
    stack = cdk.Stack()
    file_system(stack)
    Template.from_stack(stack).has_resource_properties(
        "AWS::FSx::DataRepositoryAssociation",
        {
            "FileSystemId": {"Ref": Match.string_like_regexp("Files")},
            "DataRepositoryPath": "s3://data/images/",
            "FileSystemPath": "/",
            "BatchImportMetaDataOnCreate": True,
            "S3": {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}},
        },
    )


def test_a_file_system_writes_to_s3_where_that_is_said() -> None:
    stack = cdk.Stack()
    file_system(stack, export=True)
    Template.from_stack(stack).has_resource_properties(
        "AWS::FSx::DataRepositoryAssociation",
        {"S3": {"AutoExportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}}},
    )


def test_a_file_system_lies_in_the_networks_subnet_and_stays_when_its_stack_goes() -> None:
    stack = cdk.Stack()
    file_system(stack, storage_gib=2_400, throughput=500)
    Template.from_stack(stack).has_resource(
        "AWS::FSx::FileSystem",
        {
            "Properties": {
                "FileSystemType": "LUSTRE",
                "StorageCapacity": 2_400,
                "SubnetIds": [{"Ref": Match.string_like_regexp("NetworkVpcPrivateSubnet1")}],
                "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 500},
            },
            "DeletionPolicy": "Retain",
        },
    )


def test_a_file_system_is_encrypted_with_the_users_key() -> None:
    stack = cdk.Stack()
    file_system(stack, encryption_key=kms.Key(stack, "Key"))
    Template.from_stack(stack).has_resource_properties(
        "AWS::FSx::FileSystem", {"KmsKeyId": {"Ref": Match.string_like_regexp("Key")}}
    )


@pytest.mark.parametrize("export", [False, True])
def test_fsx_may_use_the_key_of_the_bucket_as_far_as_it_reads_and_writes(export: bool) -> None:
    stack = cdk.Stack()
    bucket = s3.Bucket(stack, "Data", encryption_key=kms.Key(stack, "Key"))
    network = TrainingNetwork(stack, "Network", max_azs=1)
    LustreFileSystem(stack, "Files", network=network, data=S3Prefix(bucket), export=export)
    writing = ["kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"] if export else []
    statement = {
        "Action": ["kms:Decrypt", "kms:DescribeKey", *writing],
        "Condition": {
            "ArnLike": {"aws:PrincipalArn": Match.any_value()},
            "StringEquals": {"kms:CallerAccount": {"Ref": "AWS::AccountId"}, "kms:ViaService": Match.any_value()},
        },
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Resource": "*",
    }
    Template.from_stack(stack).has_resource_properties(
        "AWS::KMS::Key", {"KeyPolicy": {"Statement": Match.array_with([statement])}}
    )


HOSTS = {"Fn::GetAtt": [Match.string_like_regexp("NetworkSecurityGroup"), "GroupId"]}
SERVERS = {"Fn::GetAtt": [Match.string_like_regexp("Files.*SecurityGroup"), "GroupId"]}
LUSTRE = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 1_023}


@pytest.mark.parametrize(("to", "source"), [(SERVERS, SERVERS), (SERVERS, HOSTS), (HOSTS, SERVERS)])
def test_servers_of_a_file_system_and_hosts_of_jobs_are_let_in_at_lustres_ports(to: Any, source: Any) -> None:
    stack = cdk.Stack()
    file_system(stack)
    Template.from_stack(stack).has_resource_properties(
        "AWS::EC2::SecurityGroupIngress", {"GroupId": to, "SourceSecurityGroupId": source, **LUSTRE}
    )


def test_the_hosts_of_jobs_are_let_out_to_the_servers_of_a_file_system() -> None:
    stack = cdk.Stack()
    file_system(stack)
    Template.from_stack(stack).has_resource_properties(
        "AWS::EC2::SecurityGroupEgress", {"GroupId": HOSTS, "DestinationSecurityGroupId": SERVERS, **LUSTRE}
    )


def test_a_file_system_is_made_after_what_its_security_group_lets_in() -> None:
    stack = cdk.Stack()
    file_system(stack)
    template = Template.from_stack(stack)
    rules = template.find_resources("AWS::EC2::SecurityGroupIngress", {"Properties": {"GroupId": SERVERS}})
    [files] = template.find_resources("AWS::FSx::FileSystem").values()
    assert len(rules) == 2
    assert {*rules} <= {*files["DependsOn"]}


def test_a_file_system_in_another_stack_than_its_network_has_all_rules_in_its_own() -> None:
    app = cdk.App()
    network = TrainingNetwork(cdk.Stack(app, "Networks"), "Network", max_azs=1)
    stack = cdk.Stack(app, "Stack")
    bucket = s3.Bucket.from_bucket_name(stack, "Bucket", "data")
    LustreFileSystem(stack, "Files", network=network, data=S3Prefix(bucket))
    Template.from_stack(stack).resource_count_is("AWS::EC2::SecurityGroupIngress", 3)


def test_a_file_system_for_a_network_in_two_zones_is_refused() -> None:
    with pytest.raises(ValueError) as raised:
        file_system(cdk.Stack(), max_azs=2)
    assert reads(
        str(raised.value),
        "network must be in one availability zone for a file system of FSx for Lustre ... got one with 2 subnets",
    )


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"throughput": 100},
            "throughput must be one of 125, 250, 500, 1000 MB/s for each TiB ... got 100",
        ),
        *(
            ({"storage_gib": gib}, f"storage_gib must be 1200 or a multiple of 2400 ... got {gib!r}")
            for gib in (0, 1_000, 3_600, -2_400)
        ),
    ],
)
def test_a_size_that_fsx_does_not_have_is_refused(props: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        file_system(cdk.Stack(), **props)
    assert reads(str(raised.value), message)


def test_libraries_of_today_find_efa_by_themselves() -> None:
    assert efa_environment("ml.p5.48xlarge") == {"FI_EFA_USE_HUGE_PAGE": "0"}


@pytest.mark.parametrize("versions", [{"libfabric": "1.17.1"}, {"aws_ofi_nccl": "1.6.0"}])
@pytest.mark.parametrize(("instance_type", "rdma"), [("ml.p4d.24xlarge", "1"), ("ml.g5.48xlarge", "0")])
def test_older_libraries_are_told_the_provider_and_whether_the_type_has_rdma(
    versions: dict[str, str], instance_type: str, rdma: str
) -> None:
    assert efa_environment(instance_type, **versions) == {
        "FI_EFA_USE_HUGE_PAGE": "0",
        "FI_PROVIDER": "efa",
        "FI_EFA_USE_DEVICE_RDMA": rdma,
        "NCCL_PROTO": "simple",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"instance_type": "ml.g5.xlarge"},
            "instance_type must be one with EFA ... got 'ml.g5.xlarge'",
        ),
        (
            {"instance_type": "ml.p5.48xlarge", "libfabric": "new"},
            "libfabric must be a version ... got 'new'",
        ),
        (
            {"instance_type": "ml.p5.48xlarge", "aws_ofi_nccl": ""},
            "aws_ofi_nccl must be a version ... got ''",
        ),
        (
            {"instance_type": "${Token[Type.1]}", "libfabric": "1.17"},
            "instance_type must be known at synthesis for libraries this old ... got a token",
        ),
    ],
)
def test_what_names_no_type_with_efa_or_no_version_is_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as raised:
        efa_environment(**arguments)
    assert reads(str(raised.value), message)
