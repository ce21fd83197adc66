"""The resource types that docs/resource-types.md lists: each is made by CloudFormation, shown by its API, and deleted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import deploy, destroy, ids
from running_account import Running

from sagemaker_local_account.aws.registry import RESOURCE_TYPES as TYPES

DOCUMENT = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}


def trusting(service: str) -> dict[str, Any]:
    """The trust policy of a role that a service may assume."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [statement]}


TRUST = trusting("ec2.amazonaws.com")
ANYBODY = {**DOCUMENT, "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}]}


def ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def att(name: str, attribute: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [name, attribute]}


def of(resource_type: str, **properties: Any) -> dict[str, Any]:
    return {"Type": resource_type, "Properties": properties}


VPC = of("AWS::EC2::VPC", CidrBlock="10.9.0.0/16", EnableDnsHostnames=True)
SUBNET = of("AWS::EC2::Subnet", VpcId=ref("Vpc"), CidrBlock="10.9.0.0/24", MapPublicIpOnLaunch=True)
GROUP = of("AWS::EC2::SecurityGroup", VpcId=ref("Vpc"), GroupDescription="hosts")
TABLE = of("AWS::EC2::RouteTable", VpcId=ref("Vpc"), Tags=[{"Key": "a", "Value": "b"}])
GATEWAY = of("AWS::EC2::InternetGateway")
ADDRESS = of("AWS::EC2::EIP", Domain="vpc")
ROLE = of("AWS::IAM::Role", AssumeRolePolicyDocument=TRUST)
TOPIC = of("AWS::SNS::Topic", DisplayName="mine")
QUEUE = of("AWS::SQS::Queue", VisibilityTimeout=7)
BUCKET = of("AWS::S3::Bucket")
KEY = of("AWS::KMS::Key", KeyPolicy=ANYBODY)
MACHINES = of(
    "AWS::Batch::ServiceEnvironment",
    ServiceEnvironmentType="SAGEMAKER_TRAINING",
    CapacityLimits=[{"MaxCapacity": 8, "CapacityUnit": "NUM_INSTANCES"}],
)
SHARES = of(
    "AWS::Batch::SchedulingPolicy",
    FairsharePolicy={"ShareDecaySeconds": 600, "ShareDistribution": [{"ShareIdentifier": "a", "WeightFactor": 0.5}]},
)

EFS = of("AWS::EFS::FileSystem", Encrypted=True, FileSystemTags=[{"Key": "Name", "Value": "mine"}])
SERVERS = of(
    "AWS::EC2::SecurityGroup",
    VpcId=ref("Vpc"),
    GroupDescription="file system",
    SecurityGroupIngress=[{"IpProtocol": "tcp", "FromPort": 988, "ToPort": 1023, "CidrIp": "10.0.0.0/8"}],
)
LUSTRE = of(
    "AWS::FSx::FileSystem",
    FileSystemType="LUSTRE",
    StorageCapacity=1200,
    SubnetIds=[ref("Subnet")],
    SecurityGroupIds=[att("Group", "GroupId")],
    LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
)

Found = Callable[[Callable[[str], Any], dict[str, str]], Any]


@dataclass(frozen=True)
class Example:
    """A resource of a type, what it needs beside it, and what its API shows of it: nothing once it is deleted."""

    properties: dict[str, Any]
    found: Found
    beside: dict[str, Any] = field(default_factory=dict)


def ec2(operation: str, answer: str, of_resource: str) -> Found:
    """By an operation of EC2 that takes ids."""

    def found(client: Callable[[str], Any], ids: dict[str, str]) -> Any:
        described = getattr(client("ec2"), operation)(**{of_resource: [ids["It"]]})[answer]
        return [one for one in described if one.get("State") != "deleted"]

    return found


KEYED = {
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
}
FUNCTION = {
    "Role": ROLE,
    "Code": of(
        "AWS::Lambda::Function",
        Code={"ZipFile": "def handler(event, context): pass"},
        Handler="index.handler",
        Role=att("Role", "Arn"),
        Runtime="python3.13",
    ),
}

EXAMPLES: dict[str, Example] = {
    "AWS::Batch::JobQueue": Example(
        {
            "JobQueueType": "SAGEMAKER_TRAINING",
            "Priority": 1,
            "SchedulingPolicyArn": att("Shares", "Arn"),
            "ServiceEnvironmentOrder": [
                {"Order": 1, "ServiceEnvironment": att("Machines", "ServiceEnvironmentArn")},
            ],
        },
        lambda client, ids: client("batch").describe_job_queues(jobQueues=[ids["It"]])["jobQueues"],
        {"Machines": MACHINES, "Shares": SHARES},
    ),
    "AWS::Batch::QuotaShare": Example(
        {
            "QuotaShareName": "a",
            "JobQueue": att("Queue", "JobQueueArn"),
            "CapacityLimits": [{"MaxCapacity": 4, "CapacityUnit": "ml.m5.large"}],
            "ResourceSharingConfiguration": {"Strategy": "LEND_AND_BORROW", "BorrowLimit": 50},
            "PreemptionConfiguration": {"InSharePreemption": "ENABLED"},
        },
        lambda client, ids: client("batch").list_quota_shares(jobQueue=ids["Queue"])["quotaShares"],
        {
            "Machines": of(
                "AWS::Batch::ServiceEnvironment",
                ServiceEnvironmentType="SAGEMAKER_TRAINING",
                CapacityLimits=[{"MaxCapacity": 8, "CapacityUnit": "ml.m5.large"}],
            ),
            "Quotas": of("AWS::Batch::SchedulingPolicy", QuotaSharePolicy={"IdleResourceAssignmentStrategy": "FIFO"}),
            "Queue": of(
                "AWS::Batch::JobQueue",
                JobQueueType="SAGEMAKER_TRAINING",
                Priority=1,
                SchedulingPolicyArn=att("Quotas", "Arn"),
                ServiceEnvironmentOrder=[{"Order": 1, "ServiceEnvironment": att("Machines", "ServiceEnvironmentArn")}],
            ),
        },
    ),
    "AWS::Batch::SchedulingPolicy": Example(
        SHARES["Properties"],
        lambda client, ids: client("batch").describe_scheduling_policies(arns=[ids["It"]])["schedulingPolicies"],
    ),
    "AWS::Batch::ServiceEnvironment": Example(
        MACHINES["Properties"],
        lambda client, ids: client("batch").describe_service_environments(serviceEnvironments=[ids["It"]])[
            "serviceEnvironments"
        ],
    ),
    "AWS::CodeBuild::Project": Example(
        {
            "Artifacts": {"Type": "NO_ARTIFACTS"},
            "Environment": {
                "ComputeType": "BUILD_GENERAL1_SMALL",
                "Image": "aws/codebuild/standard:7.0",
                "Type": "LINUX_CONTAINER",
            },
            "ServiceRole": att("Role", "Arn"),
            "Source": {"Type": "NO_SOURCE", "BuildSpec": "version: 0.2"},
        },
        lambda client, ids: client("codebuild").batch_get_projects(names=[ids["It"]])["projects"],
        {"Role": ROLE},
    ),
    "AWS::CloudWatch::Alarm": Example(
        {
            "Namespace": "n",
            "MetricName": "m",
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "ComparisonOperator": "GreaterThanThreshold",
            "Threshold": 1,
        },
        lambda client, ids: client("cloudwatch").describe_alarms(AlarmNames=[ids["It"]])["MetricAlarms"],
    ),
    "AWS::CloudWatch::Dashboard": Example(
        {"DashboardBody": "{}"},
        lambda client, ids: client("cloudwatch").get_dashboard(DashboardName=ids["It"])["DashboardBody"],
    ),
    "AWS::EC2::EIP": Example(
        {"Domain": "vpc"},
        lambda client, ids: [
            one for one in client("ec2").describe_addresses()["Addresses"] if one["PublicIp"] == ids["It"]
        ],
    ),
    "AWS::EC2::FlowLog": Example(
        {
            "ResourceId": ref("Vpc"),
            "ResourceType": "VPC",
            "TrafficType": "ALL",
            "LogDestinationType": "s3",
            "LogDestination": att("Bucket", "Arn"),
        },
        ec2("describe_flow_logs", "FlowLogs", "FlowLogIds"),
        {"Vpc": VPC, "Bucket": BUCKET},
    ),
    "AWS::EC2::InternetGateway": Example(
        {}, ec2("describe_internet_gateways", "InternetGateways", "InternetGatewayIds")
    ),
    "AWS::EC2::NatGateway": Example(
        {"SubnetId": ref("Subnet"), "AllocationId": att("Address", "AllocationId")},
        ec2("describe_nat_gateways", "NatGateways", "NatGatewayIds"),
        {"Vpc": VPC, "Subnet": SUBNET, "Address": ADDRESS},
    ),
    "AWS::EC2::Route": Example(
        {"RouteTableId": ref("Table"), "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": ref("Gateway")},
        lambda client, ids: [
            route
            for table in client("ec2").describe_route_tables()["RouteTables"]
            for route in table["Routes"]
            if route.get("GatewayId") == ids["Gateway"]
        ],
        {
            "Vpc": VPC,
            "Table": TABLE,
            "Gateway": GATEWAY,
            "Attached": of("AWS::EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway")),
        },
    ),
    "AWS::EC2::RouteTable": Example(
        TABLE["Properties"], ec2("describe_route_tables", "RouteTables", "RouteTableIds"), {"Vpc": VPC}
    ),
    "AWS::EC2::SecurityGroup": Example(
        GROUP["Properties"], ec2("describe_security_groups", "SecurityGroups", "GroupIds"), {"Vpc": VPC}
    ),
    "AWS::EC2::SecurityGroupEgress": Example(
        {"GroupId": att("Group", "GroupId"), "CidrIp": "10.0.0.0/8", "IpProtocol": "tcp", "FromPort": 1, "ToPort": 2},
        ec2("describe_security_group_rules", "SecurityGroupRules", "SecurityGroupRuleIds"),
        {"Vpc": VPC, "Group": GROUP},
    ),
    "AWS::EC2::SecurityGroupIngress": Example(
        {"GroupId": att("Group", "GroupId"), "CidrIp": "10.0.0.0/8", "IpProtocol": "tcp", "FromPort": 1, "ToPort": 2},
        ec2("describe_security_group_rules", "SecurityGroupRules", "SecurityGroupRuleIds"),
        {"Vpc": VPC, "Group": GROUP},
    ),
    "AWS::EC2::Subnet": Example(SUBNET["Properties"], ec2("describe_subnets", "Subnets", "SubnetIds"), {"Vpc": VPC}),
    "AWS::EC2::SubnetRouteTableAssociation": Example(
        {"SubnetId": ref("Subnet"), "RouteTableId": ref("Table")},
        lambda client, ids: [
            association
            for table in client("ec2").describe_route_tables()["RouteTables"]
            for association in table["Associations"]
            if association["RouteTableAssociationId"] == ids["It"]
        ],
        {"Vpc": VPC, "Subnet": SUBNET, "Table": TABLE},
    ),
    "AWS::EC2::VPC": Example(VPC["Properties"], ec2("describe_vpcs", "Vpcs", "VpcIds")),
    "AWS::EC2::VPCEndpoint": Example(
        {
            "ServiceName": "com.amazonaws.us-east-1.ecr.api",
            "VpcEndpointType": "Interface",
            "VpcId": ref("Vpc"),
            "SubnetIds": [ref("Subnet")],
            "SecurityGroupIds": [att("Group", "GroupId")],
            "PrivateDnsEnabled": True,
        },
        ec2("describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointIds"),
        {
            "Vpc": VPC,
            "Subnet": SUBNET,
            "Group": GROUP,
            "Table": TABLE,
            "OfS3": of(
                "AWS::EC2::VPCEndpoint",
                ServiceName="com.amazonaws.us-east-1.s3",
                VpcEndpointType="Gateway",
                VpcId=ref("Vpc"),
                RouteTableIds=[ref("Table")],
            ),
        },
    ),
    "AWS::EC2::VPCGatewayAttachment": Example(
        {"VpcId": ref("Vpc"), "InternetGatewayId": ref("Gateway")},
        lambda client, ids: [
            gateway
            for gateway in client("ec2").describe_internet_gateways()["InternetGateways"]
            if gateway["InternetGatewayId"] == ids["Gateway"] and gateway["Attachments"]
        ],
        {"Vpc": VPC, "Gateway": GATEWAY},
    ),
    "AWS::ECR::Repository": Example(
        {"ImageScanningConfiguration": {"ScanOnPush": True}},
        lambda client, ids: client("ecr").describe_repositories(repositoryNames=[ids["It"]])["repositories"],
    ),
    "AWS::EFS::AccessPoint": Example(
        {"FileSystemId": ref("Efs"), "RootDirectory": {"Path": "/data"}, "PosixUser": {"Uid": "1", "Gid": "1"}},
        lambda client, ids: client("efs").describe_access_points(AccessPointId=ids["It"])["AccessPoints"],
        {"Efs": EFS},
    ),
    "AWS::EFS::FileSystem": Example(
        {**EFS["Properties"], "FileSystemPolicy": ANYBODY, "BackupPolicy": {"Status": "ENABLED"}},
        lambda client, ids: client("efs").describe_file_system_policy(FileSystemId=ids["It"])["Policy"],
    ),
    "AWS::EFS::MountTarget": Example(
        {"FileSystemId": ref("Efs"), "SubnetId": ref("Subnet"), "SecurityGroups": [att("Group", "GroupId")]},
        lambda client, ids: client("efs").describe_mount_targets(MountTargetId=ids["It"])["MountTargets"],
        {"Vpc": VPC, "Subnet": SUBNET, "Group": GROUP, "Efs": EFS},
    ),
    "AWS::Events::EventBus": Example(
        {"Name": "mine"}, lambda client, ids: client("events").describe_event_bus(Name=ids["It"])["Arn"]
    ),
    "AWS::Events::Rule": Example(
        {"EventPattern": {"source": ["mine"]}},
        lambda client, ids: client("events").describe_rule(Name=ids["It"])["Arn"],
    ),
    "AWS::FSx::DataRepositoryAssociation": Example(
        {
            "FileSystemId": ref("Lustre"),
            "FileSystemPath": "/",
            "DataRepositoryPath": {"Fn::Sub": "s3://${Bucket}/images/"},
            "S3": {"AutoImportPolicy": {"Events": ["NEW"]}},
        },
        lambda client, ids: client("fsx").describe_data_repository_associations(AssociationIds=[ids["It"]])[
            "Associations"
        ],
        {"Vpc": VPC, "Subnet": SUBNET, "Group": SERVERS, "Bucket": BUCKET, "Lustre": LUSTRE},
    ),
    "AWS::FSx::FileSystem": Example(
        LUSTRE["Properties"],
        lambda client, ids: client("fsx").describe_file_systems(FileSystemIds=[ids["It"]])["FileSystems"],
        {"Vpc": VPC, "Subnet": SUBNET, "Group": SERVERS},
    ),
    "AWS::IAM::AccessKey": Example(
        {"UserName": ref("User")},
        lambda client, ids: client("iam").list_access_keys(UserName=ids["User"])["AccessKeyMetadata"],
        {"User": of("AWS::IAM::User")},
    ),
    "AWS::IAM::InstanceProfile": Example(
        {"Roles": [ref("Role")]},
        lambda client, ids: client("iam").get_instance_profile(InstanceProfileName=ids["It"])["InstanceProfile"],
        {"Role": ROLE},
    ),
    "AWS::IAM::ManagedPolicy": Example(
        {"PolicyDocument": DOCUMENT, "Roles": [ref("Role")]},
        lambda client, ids: client("iam").get_policy(PolicyArn=ids["It"])["Policy"],
        {"Role": ROLE},
    ),
    "AWS::IAM::Policy": Example(
        {"PolicyName": "mine", "PolicyDocument": DOCUMENT, "Roles": [ref("Role")]},
        lambda client, ids: client("iam").list_role_policies(RoleName=ids["Role"])["PolicyNames"],
        {"Role": ROLE},
    ),
    "AWS::IAM::Role": Example(
        ROLE["Properties"], lambda client, ids: client("iam").get_role(RoleName=ids["It"])["Role"]
    ),
    "AWS::IAM::User": Example({}, lambda client, ids: client("iam").get_user(UserName=ids["It"])["User"]),
    "AWS::KMS::Alias": Example(
        {"AliasName": "alias/example", "TargetKeyId": ref("Key")},
        lambda client, ids: client("kms").list_aliases(KeyId=ids["Key"])["Aliases"],
        {"Key": KEY},
    ),
    "AWS::KMS::Key": Example(
        KEY["Properties"],
        lambda client, ids: client("kms").describe_key(KeyId=ids["It"])["KeyMetadata"]["KeyState"] == "Enabled",
    ),
    "AWS::Logs::LogGroup": Example(
        {"RetentionInDays": 7},
        lambda client, ids: client("logs").describe_log_groups(logGroupNamePrefix=ids["It"])["logGroups"],
    ),
    "AWS::Logs::ResourcePolicy": Example(
        {"PolicyName": "mine", "PolicyDocument": json.dumps(ANYBODY)},
        lambda client, ids: client("logs").describe_resource_policies()["resourcePolicies"],
    ),
    "AWS::S3::Bucket": Example(
        {"VersioningConfiguration": {"Status": "Enabled"}},
        lambda client, ids: client("s3").get_bucket_versioning(Bucket=ids["It"])["Status"],
    ),
    "AWS::S3::BucketPolicy": Example(
        {"Bucket": ref("Bucket"), "PolicyDocument": ANYBODY},
        lambda client, ids: client("s3").get_bucket_policy(Bucket=ids["Bucket"])["Policy"],
        {"Bucket": BUCKET},
    ),
    "AWS::SNS::Subscription": Example(
        {"TopicArn": ref("Topic"), "Protocol": "email", "Endpoint": "me@example.com"},
        lambda client, ids: client("sns").get_subscription_attributes(SubscriptionArn=ids["It"])["Attributes"],
        {"Topic": TOPIC},
    ),
    "AWS::SNS::Topic": Example(
        TOPIC["Properties"], lambda client, ids: client("sns").get_topic_attributes(TopicArn=ids["It"])["Attributes"]
    ),
    "AWS::SNS::TopicPolicy": Example(
        {"Topics": [ref("Topic")], "PolicyDocument": ANYBODY},
        lambda client, ids: (
            json.loads(client("sns").get_topic_attributes(TopicArn=ids["Topic"])["Attributes"]["Policy"]) == ANYBODY
        ),
        {"Topic": TOPIC},
    ),
    "AWS::SQS::Queue": Example(
        QUEUE["Properties"],
        lambda client, ids: client("sqs").get_queue_attributes(QueueUrl=ids["It"], AttributeNames=["All"])[
            "Attributes"
        ],
    ),
    "AWS::SQS::QueuePolicy": Example(
        {"Queues": [ref("Queue")], "PolicyDocument": ANYBODY},
        lambda client, ids: (
            client("sqs").get_queue_attributes(QueueUrl=ids["Queue"], AttributeNames=["Policy"]).get("Attributes")
        ),
        {"Queue": QUEUE},
    ),
    "AWS::SSM::Parameter": Example(
        {"Name": "/mine", "Type": "String", "Value": "a"},
        lambda client, ids: client("ssm").get_parameter(Name=ids["It"])["Parameter"],
    ),
    "AWS::Lambda::Permission": Example(
        {"FunctionName": ref("Code"), "Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com"},
        lambda client, ids: json.loads(client("lambda").get_policy(FunctionName=ids["Code"])["Policy"])["Statement"],
        FUNCTION,
    ),
    "AWS::Lambda::Version": Example(
        {"FunctionName": ref("Code")},
        lambda client, ids: client("lambda").get_function(FunctionName=ids["It"])["Configuration"]["Version"] == "1",
        FUNCTION,
    ),
    "AWS::Lambda::Alias": Example(
        {"FunctionName": ref("Code"), "FunctionVersion": "$LATEST", "Name": "live"},
        lambda client, ids: client("lambda").get_alias(FunctionName=ids["Code"], Name="live")["AliasArn"] == ids["It"],
        FUNCTION,
    ),
    "AWS::Lambda::EventInvokeConfig": Example(
        {"FunctionName": ref("Code"), "Qualifier": "$LATEST", "MaximumRetryAttempts": 1},
        lambda client, ids: client("lambda").get_function_event_invoke_config(FunctionName=ids["Code"]),
        FUNCTION,
    ),
    "AWS::Lambda::EventSourceMapping": Example(
        {"FunctionName": ref("Code"), "EventSourceArn": att("Queue", "Arn")},
        lambda client, ids: client("lambda").get_event_source_mapping(UUID=ids["It"])["State"] == "Enabled",
        {
            **FUNCTION,
            "Queue": QUEUE,
            "Role": of(
                "AWS::IAM::Role",
                AssumeRolePolicyDocument=TRUST,
                ManagedPolicyArns=["arn:aws:iam::aws:policy/service-role/AWSLambdaSQSQueueExecutionRole"],
            ),
        },
    ),
    "AWS::DynamoDB::Table": Example(
        {**KEYED, "BillingMode": "PAY_PER_REQUEST"},
        lambda client, ids: client("dynamodb").describe_table(TableName=ids["It"])["Table"]["KeySchema"],
    ),
    "AWS::DynamoDB::GlobalTable": Example(
        {**KEYED, "BillingMode": "PAY_PER_REQUEST", "Replicas": [{"Region": "us-east-1"}]},
        lambda client, ids: client("dynamodb").describe_table(TableName=ids["It"])["Table"]["KeySchema"],
    ),
    "AWS::SecretsManager::Secret": Example(
        {"SecretString": "it"},
        lambda client, ids: client("secretsmanager").get_secret_value(SecretId=ids["It"])["SecretString"] == "it",
    ),
    "AWS::SecretsManager::ResourcePolicy": Example(
        {"SecretId": ref("Secret"), "ResourcePolicy": ANYBODY},
        lambda client, ids: client("secretsmanager").get_resource_policy(SecretId=ids["Secret"]).get("ResourcePolicy"),
        {"Secret": of("AWS::SecretsManager::Secret")},
    ),
    "AWS::Scheduler::Schedule": Example(
        {
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "ScheduleExpression": "rate(365 days)",
            "StartDate": "2126-01-01T00:00:00Z",
            "Target": {"Arn": att("Queue", "Arn"), "RoleArn": att("Role", "Arn")},
        },
        lambda client, ids: client("scheduler").get_schedule(Name=ids["It"])["Target"],
        {
            "Queue": QUEUE,
            "Role": of(
                "AWS::IAM::Role",
                AssumeRolePolicyDocument={
                    "Version": "2012-10-17",
                    "Statement": [{**TRUST["Statement"][0], "Principal": {"Service": "scheduler.amazonaws.com"}}],
                },
            ),
        },
    ),
    "AWS::Scheduler::ScheduleGroup": Example(
        {"Name": "mine", "Tags": [{"Key": "a", "Value": "b"}]},
        lambda client, ids: client("scheduler").get_schedule_group(Name=ids["It"])["Arn"],
    ),
    "AWS::SageMaker::ModelPackageGroup": Example(
        {"ModelPackageGroupName": "mine"},
        lambda client, ids: client("sagemaker").describe_model_package_group(ModelPackageGroupName="mine"),
    ),
    "AWS::StepFunctions::Activity": Example(
        {"Name": "mine", "Tags": [{"Key": "a", "Value": "b"}]},
        lambda client, ids: client("stepfunctions").describe_activity(activityArn=ids["It"])["name"],
    ),
    "AWS::StepFunctions::StateMachine": Example(
        {
            "RoleArn": att("Role", "Arn"),
            "DefinitionString": json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}}),
        },
        lambda client, ids: client("stepfunctions").describe_state_machine(stateMachineArn=ids["It"])["name"],
        {"Role": of("AWS::IAM::Role", AssumeRolePolicyDocument=trusting("states.amazonaws.com"))},
    ),
}


def test_every_real_type_has_an_example() -> None:
    # What is in a bucket before: test_nested_stacks.py, test_users_stack.py.
    elsewhere = {"AWS::CloudFormation::Stack", "AWS::Lambda::LayerVersion"}
    assert {*EXAMPLES, *elsewhere} == {name for name, about in TYPES.items() if about.kind == "real"}


@pytest.mark.parametrize("resource_type", EXAMPLES)
def test_a_resource_is_made_shown_by_its_api_and_gone_once_it_is_deleted(running: Running, resource_type: str) -> None:
    example = EXAMPLES[resource_type]
    name = resource_type.replace("::", "-")
    it = of(resource_type, **example.properties)
    deploy(running, name, {**example.beside, "It": it})
    made = ids(running, name)
    assert example.found(running.client, made)
    # What is beside it stays for a moment, so that it is this resource's own deletion that is looked at.
    deploy(running, name, example.beside or {"Other": of("AWS::CDK::Metadata")})
    with contextlib.suppress(ClientError):
        assert not example.found(running.client, made)
    destroy(running, name)


ALLOWED = {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}
# The longest names of their APIs.
LONGEST = {
    "AWS::DynamoDB::Table": 255,
    "AWS::IAM::InstanceProfile": 128,
    "AWS::IAM::ManagedPolicy": 128,
    "AWS::IAM::Role": 64,
    "AWS::IAM::User": 64,
    "AWS::Lambda::Function": 64,
    "AWS::S3::Bucket": 63,
    "AWS::SNS::Topic": 256,
    "AWS::SQS::Queue": 80,
    "AWS::StepFunctions::StateMachine": 80,
}


def test_generated_names_of_long_logical_ids_fit_their_apis_and_differ(running: Running) -> None:
    """Logical ids of the CDK have up to 255 characters, and those of one construct often begin alike."""
    beside = {
        "Role": ROLE,
        "Code": FUNCTION["Code"],
        "Runs": EXAMPLES["AWS::StepFunctions::StateMachine"].beside["Role"],
    }
    machine = {**EXAMPLES["AWS::StepFunctions::StateMachine"].properties, "RoleArn": att("Runs", "Arn")}
    properties: dict[str, Any] = {
        "AWS::DynamoDB::Table": EXAMPLES["AWS::DynamoDB::Table"].properties,
        "AWS::IAM::InstanceProfile": {"Roles": [ref("Role")]},
        "AWS::IAM::ManagedPolicy": {"PolicyDocument": {"Version": "2012-10-17", "Statement": [ALLOWED]}},
        "AWS::IAM::Role": ROLE["Properties"],
        "AWS::Lambda::Function": FUNCTION["Code"]["Properties"],
        "AWS::StepFunctions::StateMachine": machine,
    }
    long = {
        f"{kind.replace(':', '')}{'OfALongLogicalId' * 14}{number}": of(kind, **properties.get(kind, {}))
        for kind in LONGEST
        for number in range(2)
    }
    stack = "a-stack-with-a-long-name-" * 4 + "end"
    deploy(running, stack, {**beside, **long})
    made = ids(running, stack)
    names = {logical: made[logical].rpartition("/")[2].rpartition(":")[2] for logical in long}
    for kind, most in LONGEST.items():
        first, second = [name for logical, name in names.items() if logical.startswith(kind.replace(":", ""))]
        assert first != second
        assert max(len(first), len(second)) <= most
        if kind == "AWS::S3::Bucket":
            assert f"{first}{second}".islower()
    destroy(running, stack)
