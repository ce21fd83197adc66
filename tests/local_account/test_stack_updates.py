"""An update of a resource leaves what a creation with the same properties makes: of each type whose resources moto keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, ids
from running_account import Running
from test_resource_types import ANYBODY, DOCUMENT, EXAMPLES, MACHINES, ROLE, SHARES, TRUST, VPC, att, of, ref, trusting

Client = Callable[[str], Any]
Shown = Callable[[Client, str], Any]
# What differs between two resources with the same properties: ids, times, and what is counted.
_OF_EACH = re.compile(
    r"(Creat|Updat|Modif|LastChanged|LastModif)\w*(Date|Time|Timestamp|At)?|\w*(CreateDate|Timestamp|RevisionId|revisionId)|"
    r"(Role|User|Policy|AccessKey|InstanceProfile|SecurityGroupRule|Association)Id|(creation|lastUpdated)(Time|Date)|createdAt|"
    r"created|lastModified|lastEvaluatedAt|StateReason(Data)?|Version|etag|ETag|SecretAccessKey|ResponseMetadata"
)


@dataclass(frozen=True)
class Case:
    """Properties of a resource before and after an update, what stands beside it, and what its API shows of it."""

    type: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    shown: Shown
    beside: Mapping[str, Any] = field(default_factory=dict)


def calls(service: str, *operations: str, by: str) -> Shown:
    """The answers of operations, to which the resource's id is given as a member."""

    def shown(client: Client, id: str) -> Any:
        return {operation: answer_of(getattr(client(service), operation), **{by: id}) for operation in operations}

    return shown


def denying(action: str) -> dict[str, Any]:
    """The policy of a resource on which nobody may do something."""
    statement = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


def answer_of(call: Callable[..., Any], **members: str) -> Any:
    """An answer, or the code of its error."""
    try:
        return call(**members)
    except ClientError as error:
        return error.response["Error"]["Code"]


def inline_policies(client: Client, name: str) -> Any:
    iam = client("iam")
    names = iam.list_role_policies(RoleName=name)["PolicyNames"]
    return {one: iam.get_role_policy(RoleName=name, PolicyName=one)["PolicyDocument"] for one in names}


def role(client: Client, name: str) -> Any:
    attached = client("iam").list_attached_role_policies(RoleName=name)["AttachedPolicies"]
    return [client("iam").get_role(RoleName=name)["Role"], inline_policies(client, name), attached]


def of_roles(client: Client, _: str) -> Any:
    """The policies of the roles that stand beside a policy."""
    pages = client("iam").get_paginator("list_roles").paginate()
    beside = [
        one["RoleName"]
        for page in pages
        for one in page["Roles"]
        if "-Role" in one["RoleName"] or "-Other" in one["RoleName"]
    ]
    attached = {name: client("iam").list_attached_role_policies(RoleName=name)["AttachedPolicies"] for name in beside}
    return {name: [inline_policies(client, name), attached[name]] for name in beside}


BUCKET_OPERATIONS = (
    "get_bucket_versioning",
    "get_bucket_encryption",
    "get_public_access_block",
    "get_bucket_lifecycle_configuration",
    "get_bucket_logging",
    "get_bucket_ownership_controls",
    "get_bucket_tagging",
)
REPOSITORY = calls("ecr", "get_repository_policy", "get_lifecycle_policy", by="repositoryName")
PASS = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}})
WAIT = json.dumps({"StartAt": "B", "States": {"B": {"Type": "Wait", "Seconds": 1, "End": True}}})
OTHER_DOCUMENT = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "sqs:*", "Resource": "*"}]}
TAGS, OTHER_TAGS = [{"Key": "a", "Value": "b"}, {"Key": "c", "Value": "d"}], [{"Key": "a", "Value": "e"}]
MACHINE_ROLE = of("AWS::IAM::Role", AssumeRolePolicyDocument=trusting("states.amazonaws.com"))
RULE = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "CidrIp": "10.0.0.0/8"}
EXPIRING = {"Rules": [{"Id": "one", "Status": "Enabled", "ExpirationInDays": 3, "Prefix": "a/"}]}
ENCRYPTED = {"ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
PRIVATE = {"BlockPublicAcls": True, "BlockPublicPolicy": True, "IgnorePublicAcls": True, "RestrictPublicBuckets": True}
KEEPING = json.dumps(
    {
        "rules": [
            {
                "rulePriority": 1,
                "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 3},
                "action": {"type": "expire"},
            }
        ]
    }
)
ALLOWING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "ecr:BatchGetImage"}],
}

OF_BUCKET = denying("s3:PutObject")
OF_TOPIC = denying("sns:Publish")
OF_KEY = {"Version": "2012-10-17", "Statement": [{**ANYBODY["Statement"][0], "Action": "kms:*"}]}
ALARM = EXAMPLES["AWS::CloudWatch::Alarm"].properties
PROJECT = EXAMPLES["AWS::CodeBuild::Project"].properties
SCHEDULER_ROLE = of("AWS::IAM::Role", AssumeRolePolicyDocument=trusting("scheduler.amazonaws.com"))
IN_ONE_ZONE = {"VpcId": ref("Vpc"), "AvailabilityZone": "us-east-1a", "CidrBlock": "10.9.0.0/24"}

CASES = {
    "role": Case(
        "AWS::IAM::Role",
        {
            "AssumeRolePolicyDocument": TRUST,
            "Description": "first",
            "MaxSessionDuration": 7200,
            "Policies": [
                {"PolicyName": "one", "PolicyDocument": DOCUMENT},
                {"PolicyName": "two", "PolicyDocument": DOCUMENT},
            ],
            "ManagedPolicyArns": ["arn:aws:iam::aws:policy/ReadOnlyAccess"],
            "PermissionsBoundary": "arn:aws:iam::aws:policy/ReadOnlyAccess",
            "Tags": TAGS,
        },
        {
            "AssumeRolePolicyDocument": trusting("sqs.amazonaws.com"),
            "Policies": [{"PolicyName": "two", "PolicyDocument": OTHER_DOCUMENT}],
            "Tags": OTHER_TAGS,
        },
        role,
    ),
    "policy": Case(
        "AWS::IAM::Policy",
        {"PolicyName": "mine", "PolicyDocument": DOCUMENT, "Roles": [ref("Role")]},
        {"PolicyName": "mine", "PolicyDocument": OTHER_DOCUMENT, "Roles": [ref("Other")]},
        of_roles,
        {"Role": ROLE, "Other": ROLE},
    ),
    "policy of another name": Case(
        "AWS::IAM::Policy",
        {"PolicyName": "mine", "PolicyDocument": DOCUMENT, "Roles": [ref("Role"), ref("Other")]},
        {"PolicyName": "yours", "PolicyDocument": DOCUMENT, "Roles": [ref("Other")]},
        of_roles,
        {"Role": ROLE, "Other": ROLE},
    ),
    "managed policy": Case(
        "AWS::IAM::ManagedPolicy",
        {"PolicyDocument": DOCUMENT, "Roles": [ref("Role")]},
        {"PolicyDocument": OTHER_DOCUMENT, "Roles": [ref("Other")]},
        of_roles,
        {"Role": ROLE, "Other": ROLE},
    ),
    "access key": Case(
        "AWS::IAM::AccessKey",
        {"UserName": ref("User")},
        {"UserName": ref("User"), "Status": "Inactive"},
        lambda client, id: [
            key["Status"]
            for user in client("iam").list_users()["Users"]
            for key in client("iam").list_access_keys(UserName=user["UserName"])["AccessKeyMetadata"]
            if key["AccessKeyId"] == id
        ],
        {"User": of("AWS::IAM::User")},
    ),
    "instance profile": Case(
        "AWS::IAM::InstanceProfile",
        {"Roles": [ref("Role")]},
        {"Roles": [ref("Other")]},
        lambda client, id: [
            one["RoleName"]
            for one in client("iam").get_instance_profile(InstanceProfileName=id)["InstanceProfile"]["Roles"]
        ],
        {"Role": ROLE, "Other": ROLE},
    ),
    "bucket": Case(
        "AWS::S3::Bucket",
        {
            "VersioningConfiguration": {"Status": "Enabled"},
            "BucketEncryption": ENCRYPTED,
            "PublicAccessBlockConfiguration": PRIVATE,
            "LifecycleConfiguration": EXPIRING,
            "LoggingConfiguration": {"DestinationBucketName": ref("Logs"), "LogFilePrefix": "a/"},
            "OwnershipControls": {"Rules": [{"ObjectOwnership": "ObjectWriter"}]},
            "Tags": TAGS,
        },
        {"VersioningConfiguration": {"Status": "Suspended"}, "Tags": OTHER_TAGS},
        calls("s3", *BUCKET_OPERATIONS, by="Bucket"),
        {
            "Logs": {
                **of(
                    "AWS::S3::Bucket",
                    OwnershipControls={"Rules": [{"ObjectOwnership": "ObjectWriter"}]},
                    AccessControl="LogDeliveryWrite",
                ),
                "DeletionPolicy": "Retain",
            }
        },
    ),
    "bucket that gets what it lacked": Case(
        "AWS::S3::Bucket",
        {},
        {
            "BucketEncryption": ENCRYPTED,
            "PublicAccessBlockConfiguration": PRIVATE,
            "LifecycleConfiguration": EXPIRING,
            "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
            "Tags": TAGS,
        },
        calls("s3", *BUCKET_OPERATIONS, by="Bucket"),
    ),
    "repository": Case(
        "AWS::ECR::Repository",
        {
            "ImageScanningConfiguration": {"ScanOnPush": True},
            "ImageTagMutability": "IMMUTABLE",
            "LifecyclePolicy": {"LifecyclePolicyText": KEEPING},
            "RepositoryPolicyText": ALLOWING,
            "Tags": TAGS,
        },
        {"Tags": OTHER_TAGS},
        lambda client, id: [
            REPOSITORY(client, id),
            client("ecr").describe_repositories(repositoryNames=[id])["repositories"],
        ],
    ),
    "repository that gets what it lacked": Case(
        "AWS::ECR::Repository",
        {},
        {
            "ImageScanningConfiguration": {"ScanOnPush": True},
            "ImageTagMutability": "IMMUTABLE",
            "LifecyclePolicy": {"LifecyclePolicyText": KEEPING},
            "RepositoryPolicyText": ALLOWING,
        },
        lambda client, id: [
            REPOSITORY(client, id),
            client("ecr").describe_repositories(repositoryNames=[id])["repositories"],
        ],
    ),
    "queue": Case(
        "AWS::SQS::Queue",
        {
            "VisibilityTimeout": 7,
            "DelaySeconds": 3,
            "MessageRetentionPeriod": 600,
            "MaximumMessageSize": 2048,
            "ReceiveMessageWaitTimeSeconds": 4,
            "RedrivePolicy": {"deadLetterTargetArn": att("Dead", "Arn"), "maxReceiveCount": 3},
            "Tags": TAGS,
        },
        {"VisibilityTimeout": 9, "Tags": OTHER_TAGS},
        lambda client, id: [
            client("sqs").get_queue_attributes(QueueUrl=id, AttributeNames=["All"])["Attributes"],
            client("sqs").list_queue_tags(QueueUrl=id).get("Tags"),
        ],
        {"Dead": of("AWS::SQS::Queue")},
    ),
    "log group": Case(
        "AWS::Logs::LogGroup",
        {"RetentionInDays": 7, "Tags": TAGS},
        {"Tags": OTHER_TAGS},
        lambda client, id: [
            client("logs").describe_log_groups(logGroupNamePrefix=id)["logGroups"],
            client("logs").list_tags_log_group(logGroupName=id)["tags"],
        ],
    ),
    "log group with another retention": Case(
        "AWS::Logs::LogGroup",
        {},
        {"RetentionInDays": 14},
        lambda client, id: client("logs").describe_log_groups(logGroupNamePrefix=id)["logGroups"],
    ),
    "parameter": Case(
        "AWS::SSM::Parameter",
        {"Type": "String", "Value": "a", "Description": "first", "AllowedPattern": "^[ab]$"},
        {"Type": "String", "Value": "c"},
        lambda client, id: [
            client("ssm").get_parameter(Name=id)["Parameter"]["Value"],
            client("ssm").describe_parameters(Filters=[{"Key": "Name", "Values": [id]}])["Parameters"],
        ],
    ),
    "dashboard": Case(
        "AWS::CloudWatch::Dashboard",
        {"DashboardBody": "{}"},
        {"DashboardBody": '{"widgets": []}'},
        lambda client, id: client("cloudwatch").get_dashboard(DashboardName=id)["DashboardBody"],
    ),
    "log resource policy": Case(
        "AWS::Logs::ResourcePolicy",
        {"PolicyName": "mine", "PolicyDocument": json.dumps(ANYBODY)},
        {"PolicyName": "mine", "PolicyDocument": json.dumps(OTHER_DOCUMENT)},
        lambda client, id: client("logs").describe_resource_policies()["resourcePolicies"],
    ),
    "state machine": Case(
        "AWS::StepFunctions::StateMachine",
        {
            "RoleArn": att("Role", "Arn"),
            "DefinitionString": PASS,
            "LoggingConfiguration": {
                "Level": "ALL",
                "IncludeExecutionData": True,
                "Destinations": [{"CloudWatchLogsLogGroup": {"LogGroupArn": att("Logs", "Arn")}}],
            },
            "TracingConfiguration": {"Enabled": True},
            "Tags": TAGS,
        },
        {"RoleArn": att("Other", "Arn"), "DefinitionString": WAIT, "Tags": OTHER_TAGS},
        lambda client, id: [
            client("stepfunctions").describe_state_machine(stateMachineArn=id),
            [
                tag
                for tag in client("stepfunctions").list_tags_for_resource(resourceArn=id)["tags"]
                if ":" not in tag["key"]
            ],
        ],
        {"Role": MACHINE_ROLE, "Other": MACHINE_ROLE, "Logs": of("AWS::Logs::LogGroup")},
    ),
    "security group": Case(
        "AWS::EC2::SecurityGroup",
        {
            "VpcId": ref("Vpc"),
            "GroupDescription": "hosts",
            "SecurityGroupIngress": [RULE, {**RULE, "FromPort": 3, "ToPort": 4}],
            "SecurityGroupEgress": [RULE],
            "Tags": TAGS,
        },
        {
            "VpcId": ref("Vpc"),
            "GroupDescription": "hosts",
            "SecurityGroupIngress": [{**RULE, "FromPort": 3, "ToPort": 5}],
            "SecurityGroupEgress": [{**RULE, "ToPort": 9}],
            "Tags": OTHER_TAGS,
        },
        lambda client, id: client("ec2").describe_security_groups(GroupIds=[id])["SecurityGroups"],
        {"Vpc": VPC},
    ),
    "subnet": Case(
        "AWS::EC2::Subnet",
        {
            "VpcId": ref("Vpc"),
            "AvailabilityZone": "us-east-1a",
            "CidrBlock": "10.9.0.0/24",
            "MapPublicIpOnLaunch": True,
            "Tags": TAGS,
        },
        {"VpcId": ref("Vpc"), "AvailabilityZone": "us-east-1a", "CidrBlock": "10.9.0.0/24", "Tags": OTHER_TAGS},
        lambda client, id: client("ec2").describe_subnets(SubnetIds=[id])["Subnets"],
        {"Vpc": VPC},
    ),
    "network": Case(
        "AWS::EC2::VPC",
        {"CidrBlock": "10.9.0.0/16", "EnableDnsHostnames": True, "Tags": TAGS},
        {"CidrBlock": "10.9.0.0/16", "EnableDnsSupport": False, "Tags": OTHER_TAGS},
        lambda client, id: [
            client("ec2").describe_vpcs(VpcIds=[id])["Vpcs"],
            [
                client("ec2").describe_vpc_attribute(VpcId=id, Attribute=name)
                for name in ("enableDnsHostnames", "enableDnsSupport")
            ],
        ],
    ),
    "endpoint": Case(
        "AWS::EC2::VPCEndpoint",
        {
            "ServiceName": "com.amazonaws.us-east-1.s3",
            "VpcId": ref("Vpc"),
            "RouteTableIds": [ref("Table")],
            "PolicyDocument": ANYBODY,
        },
        {
            "ServiceName": "com.amazonaws.us-east-1.s3",
            "VpcId": ref("Vpc"),
            "RouteTableIds": [ref("Table"), ref("Second")],
        },
        lambda client, id: client("ec2").describe_vpc_endpoints(VpcEndpointIds=[id])["VpcEndpoints"],
        {
            "Vpc": VPC,
            "Table": of("AWS::EC2::RouteTable", VpcId=ref("Vpc")),
            "Second": of("AWS::EC2::RouteTable", VpcId=ref("Vpc")),
        },
    ),
    "route": Case(
        "AWS::EC2::Route",
        {"RouteTableId": ref("Table"), "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": ref("Gateway")},
        {"RouteTableId": ref("Table"), "DestinationCidrBlock": "10.1.0.0/16", "GatewayId": ref("Gateway")},
        lambda client, id: sorted(
            route["DestinationCidrBlock"]
            for table in client("ec2").describe_route_tables()["RouteTables"]
            for route in table["Routes"]
            if route.get("GatewayId", "").startswith("igw")
        ),
        {
            "Vpc": VPC,
            "Table": of("AWS::EC2::RouteTable", VpcId=ref("Vpc")),
            "Gateway": of("AWS::EC2::InternetGateway"),
            "Attached": of("AWS::EC2::VPCGatewayAttachment", VpcId=ref("Vpc"), InternetGatewayId=ref("Gateway")),
        },
    ),
    "bucket policy": Case(
        "AWS::S3::BucketPolicy",
        {"Bucket": ref("Bucket"), "PolicyDocument": ANYBODY},
        {"Bucket": ref("Bucket"), "PolicyDocument": OF_BUCKET},
        lambda client, id: [
            answer_of(client("s3").get_bucket_policy, Bucket=one["Name"])
            for one in client("s3").list_buckets()["Buckets"]
        ],
        {"Bucket": of("AWS::S3::Bucket")},
    ),
    "bucket policy of another bucket": Case(
        "AWS::S3::BucketPolicy",
        {"Bucket": ref("Bucket"), "PolicyDocument": OF_BUCKET},
        {"Bucket": ref("Second"), "PolicyDocument": OF_BUCKET},
        lambda client, id: [
            [one["Name"], answer_of(client("s3").get_bucket_policy, Bucket=one["Name"])]
            for one in client("s3").list_buckets()["Buckets"]
        ],
        {"Bucket": of("AWS::S3::Bucket"), "Second": of("AWS::S3::Bucket")},
    ),
    "queue policy": Case(
        "AWS::SQS::QueuePolicy",
        {"Queues": [ref("Queue")], "PolicyDocument": ANYBODY},
        {"Queues": [ref("Second")], "PolicyDocument": OTHER_DOCUMENT},
        lambda client, id: [
            [url, client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"]).get("Attributes")]
            for url in client("sqs").list_queues()["QueueUrls"]
        ],
        {"Queue": of("AWS::SQS::Queue"), "Second": of("AWS::SQS::Queue")},
    ),
    "topic policy": Case(
        "AWS::SNS::TopicPolicy",
        {"Topics": [ref("Topic")], "PolicyDocument": ANYBODY},
        {"Topics": [ref("Topic")], "PolicyDocument": OF_TOPIC},
        lambda client, id: [
            client("sns").get_topic_attributes(TopicArn=one["TopicArn"])["Attributes"]["Policy"]
            for one in client("sns").list_topics()["Topics"]
        ],
        {"Topic": of("AWS::SNS::Topic")},
    ),
    "topic": Case(
        "AWS::SNS::Topic",
        {"DisplayName": "first", "KmsMasterKeyId": "alias/aws/sns", "Tags": TAGS},
        {"Tags": OTHER_TAGS},
        lambda client, id: [
            client("sns").get_topic_attributes(TopicArn=id)["Attributes"],
            client("sns").list_tags_for_resource(ResourceArn=id)["Tags"],
        ],
    ),
    "subscription": Case(
        "AWS::SNS::Subscription",
        {
            "TopicArn": ref("Topic"),
            "Protocol": "sqs",
            "Endpoint": att("Queue", "Arn"),
            "FilterPolicy": {"a": ["b"]},
            "RawMessageDelivery": True,
            "RedrivePolicy": {"deadLetterTargetArn": att("Queue", "Arn")},
        },
        {"TopicArn": ref("Topic"), "Protocol": "sqs", "Endpoint": att("Queue", "Arn")},
        lambda client, id: client("sns").get_subscription_attributes(SubscriptionArn=id)["Attributes"],
        {"Topic": of("AWS::SNS::Topic"), "Queue": of("AWS::SQS::Queue")},
    ),
    "rule": Case(
        "AWS::Events::Rule",
        {
            "EventPattern": {"source": ["mine"]},
            "Description": "first",
            "State": "DISABLED",
            "Targets": [{"Id": "one", "Arn": att("Queue", "Arn")}, {"Id": "two", "Arn": att("Second", "Arn")}],
        },
        {"ScheduleExpression": "rate(1 day)", "Targets": [{"Id": "two", "Arn": att("Second", "Arn"), "Input": "{}"}]},
        lambda client, id: [
            client("events").describe_rule(Name=id),
            client("events").list_targets_by_rule(Rule=id)["Targets"],
        ],
        {"Queue": of("AWS::SQS::Queue"), "Second": of("AWS::SQS::Queue")},
    ),
    "alarm": Case(
        "AWS::CloudWatch::Alarm",
        {
            **ALARM,
            "AlarmDescription": "first",
            "AlarmActions": [ref("Topic")],
            "OKActions": [ref("Topic")],
            "Dimensions": [{"Name": "a", "Value": "b"}],
            "DatapointsToAlarm": 2,
            "EvaluationPeriods": 3,
            "TreatMissingData": "breaching",
            "ActionsEnabled": False,
        },
        {**ALARM, "Threshold": 5},
        lambda client, id: client("cloudwatch").describe_alarms(AlarmNames=[id])["MetricAlarms"],
        {"Topic": of("AWS::SNS::Topic")},
    ),
    "key": Case(
        "AWS::KMS::Key",
        {"KeyPolicy": ANYBODY, "Description": "first", "EnableKeyRotation": True, "Tags": TAGS},
        {"KeyPolicy": OF_KEY, "Enabled": False, "Tags": OTHER_TAGS},
        lambda client, id: [
            client("kms").describe_key(KeyId=id)["KeyMetadata"],
            answer_of(client("kms").get_key_policy, KeyId=id, PolicyName="default"),
            answer_of(client("kms").get_key_rotation_status, KeyId=id),
            client("kms").list_resource_tags(KeyId=id)["Tags"],
        ],
    ),
    "alias": Case(
        "AWS::KMS::Alias",
        {"AliasName": "alias/updated", "TargetKeyId": ref("Key")},
        {"AliasName": "alias/updated", "TargetKeyId": ref("Second")},
        lambda client, id: [
            one["TargetKeyId"] for one in client("kms").list_aliases()["Aliases"] if one["AliasName"] == "alias/updated"
        ],
        {"Key": of("AWS::KMS::Key", KeyPolicy=ANYBODY), "Second": of("AWS::KMS::Key", KeyPolicy=ANYBODY)},
    ),
    "schedule": Case(
        "AWS::Scheduler::Schedule",
        {
            "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 5},
            "ScheduleExpression": "rate(365 days)",
            "ScheduleExpressionTimezone": "Europe/Berlin",
            "Description": "first",
            "StartDate": "2126-01-01T00:00:00Z",
            "State": "DISABLED",
            "Target": {"Arn": att("Queue", "Arn"), "RoleArn": att("Role", "Arn"), "Input": "{}"},
        },
        {
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "ScheduleExpression": "rate(300 days)",
            "Target": {"Arn": att("Queue", "Arn"), "RoleArn": att("Role", "Arn")},
        },
        lambda client, id: client("scheduler").get_schedule(Name=id),
        {"Queue": of("AWS::SQS::Queue"), "Role": SCHEDULER_ROLE},
    ),
    "file system": Case(
        "AWS::EFS::FileSystem",
        {
            "Encrypted": True,
            "FileSystemPolicy": ANYBODY,
            "BackupPolicy": {"Status": "ENABLED"},
            "LifecyclePolicies": [{"TransitionToIA": "AFTER_7_DAYS"}],
            "FileSystemTags": TAGS,
        },
        {"Encrypted": True, "FileSystemTags": OTHER_TAGS},
        lambda client, id: [
            client("efs").describe_file_systems(FileSystemId=id)["FileSystems"],
            answer_of(client("efs").describe_file_system_policy, FileSystemId=id),
            answer_of(client("efs").describe_backup_policy, FileSystemId=id),
            answer_of(client("efs").describe_lifecycle_configuration, FileSystemId=id),
        ],
    ),
    "machines of a queue of jobs": Case(
        "AWS::Batch::ServiceEnvironment",
        {**MACHINES["Properties"], "Tags": {"a": "b", "c": "d"}},
        {
            "ServiceEnvironmentType": "SAGEMAKER_TRAINING",
            "CapacityLimits": [{"MaxCapacity": 3, "CapacityUnit": "NUM_INSTANCES"}],
            "Tags": {"a": "e"},
        },
        lambda client, id: client("batch").describe_service_environments(serviceEnvironments=[id])[
            "serviceEnvironments"
        ],
    ),
    "shares": Case(
        "AWS::Batch::SchedulingPolicy",
        SHARES["Properties"],
        {"FairsharePolicy": {"ShareDecaySeconds": 100}},
        lambda client, id: client("batch").describe_scheduling_policies(arns=[id])["schedulingPolicies"],
    ),
    "project": Case(
        "AWS::CodeBuild::Project",
        {**PROJECT, "Description": "first", "TimeoutInMinutes": 20, "Tags": TAGS},
        {**PROJECT, "Source": {"Type": "NO_SOURCE", "BuildSpec": "version: 0.2\nphases: {}"}, "Tags": OTHER_TAGS},
        lambda client, id: client("codebuild").batch_get_projects(names=[id])["projects"],
        {"Role": ROLE},
    ),
    "permission of a function": Case(
        "AWS::Lambda::Permission",
        {"FunctionName": ref("Code"), "Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com"},
        {"FunctionName": ref("Code"), "Action": "lambda:InvokeFunction", "Principal": "sns.amazonaws.com"},
        lambda client, id: [
            [statement["Principal"], statement["Action"]]
            for function in client("lambda").list_functions()["Functions"]
            for statement in json.loads(client("lambda").get_policy(FunctionName=function["FunctionName"])["Policy"])[
                "Statement"
            ]
        ],
        EXAMPLES["AWS::Lambda::Permission"].beside,
    ),
    "rule of a security group": Case(
        "AWS::EC2::SecurityGroupIngress",
        {"GroupId": att("Group", "GroupId"), **RULE},
        {"GroupId": att("Group", "GroupId"), **RULE, "ToPort": 7, "Description": "seven"},
        lambda client, id: [
            group["IpPermissions"]
            for group in client("ec2").describe_security_groups()["SecurityGroups"]
            if group["GroupName"] != "default"
        ],
        {"Vpc": VPC, "Group": of("AWS::EC2::SecurityGroup", VpcId=ref("Vpc"), GroupDescription="hosts")},
    ),
    "group of schedules": Case(
        "AWS::Scheduler::ScheduleGroup",
        {"Name": "updated", "Tags": TAGS},
        {"Name": "updated", "Tags": OTHER_TAGS},
        lambda client, id: client("scheduler").list_tags_for_resource(
            ResourceArn=client("scheduler").get_schedule_group(Name=id)["Arn"]
        )["Tags"],
    ),
    "group of models": Case(
        "AWS::SageMaker::ModelPackageGroup",
        {"ModelPackageGroupName": "updated", "Tags": TAGS},
        {"ModelPackageGroupName": "updated", "Tags": OTHER_TAGS},
        lambda client, id: client("sagemaker").describe_model_package_group(ModelPackageGroupName="updated"),
    ),
    "activity": Case(
        "AWS::StepFunctions::Activity",
        {"Name": "updated", "Tags": TAGS},
        {"Name": "updated", "Tags": OTHER_TAGS},
        lambda client, id: client("stepfunctions").list_tags_for_resource(resourceArn=id)["tags"],
    ),
}


def plain(value: Any, names: Mapping[str, str]) -> Any:
    """An answer without what differs between two resources with the same properties."""
    if isinstance(value, Mapping):
        return {plain(key, names): plain(one, names) for key, one in value.items() if not _OF_EACH.fullmatch(str(key))}
    if isinstance(value, list | tuple):
        return sorted(
            (plain(one, names) for one in value), key=lambda one: json.dumps(one, default=str, sort_keys=True)
        )
    if isinstance(value, str):
        for id, name in names.items():
            value = value.replace(id, name)
        if value.startswith("{"):
            return plain(json.loads(value), names)
        value = re.sub(r"\b(sgr|eipalloc|rtbassoc|acl|dopt)-[0-9a-f]+", r"\1", value)
        value = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "uuid", value)
        value = re.sub(r"(?<=-)[A-Z0-9]{10,14}\b", "suffix", value)
    return value


def shown(running: Running, case: Case, stack: str) -> Any:
    """What the API shows of a stack's resource, with ids as logical ones."""
    made = ids(running, stack)
    names = {id: logical for logical, id in sorted(made.items(), key=lambda one: -len(one[1]))}
    short = {id.rsplit("/", 1)[-1]: logical for id, logical in names.items()}
    return plain(case.shown(running.client, made["It"]), {**names, **short, stack: "stack"})


@pytest.mark.parametrize("name", CASES)
def test_an_update_leaves_what_a_creation_makes(running: Running, name: str) -> None:
    case = CASES[name]
    stacks = [f"{kind}-{re.sub('[^a-z]', '-', name)}" for kind in ("updated", "created")]
    try:
        deploy(running, stacks[0], {**case.beside, "It": of(case.type, **case.before)})
        deploy(running, stacks[0], {**case.beside, "It": of(case.type, **case.after)})
        updated = shown(running, case, stacks[0])
        destroy(running, stacks[0])
        deploy(running, stacks[1], {**case.beside, "It": of(case.type, **case.after)})
        assert updated == shown(running, case, stacks[1])
    finally:
        for stack in stacks:
            destroy(running, stack)


@pytest.mark.soak  # of each resource once more
@pytest.mark.parametrize("name", CASES)
def test_an_update_that_fails_leaves_what_was_there(running: Running, name: str) -> None:
    case = CASES[name]
    stack = f"failed-{re.sub('[^a-z]', '-', name)}"
    taken = {**of("AWS::IAM::Role", RoleName="taken", AssumeRolePolicyDocument=TRUST), "DependsOn": "It"}
    try:
        deploy(running, stack, {**case.beside, "It": of(case.type, **case.before)})
        before = shown(running, case, stack)
        with pytest.raises(WaiterError):
            deploy(running, stack, {**case.beside, "It": of(case.type, **case.after), "Once": taken, "Twice": taken})
        [described] = running.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        assert described["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
        assert shown(running, case, stack) == before
    finally:
        destroy(running, stack)
