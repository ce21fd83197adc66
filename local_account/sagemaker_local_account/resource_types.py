"""The resource types that the account's CloudFormation vouches for: each can be created, described and deleted.

A type that is not here is refused when its stack is deployed, and so is a property that is not: moto takes either, and makes
nothing of it. docs/resource-types.md is made of this table (`make docs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["real", "emulated", "inert"]


@dataclass(frozen=True)
class ResourceType:
    """What a resource of a type is here.

    Args:
        kind: ``real``: its API shows it, and it does its work. ``emulated``: the account does the work that on AWS a function
            of CDK's does. ``inert``: it does nothing.
        note: what it does, or why it does nothing.
        properties: those that are honoured; none of them for any.
    """

    kind: Kind
    note: str
    properties: frozenset[str] = frozenset()


def _real(note: str, properties: str) -> ResourceType:
    return ResourceType("real", note, frozenset(properties.split()))


_RULE = "CidrIp CidrIpv6 Description FromPort GroupId IpProtocol ToPort"

TYPES: dict[str, ResourceType] = {
    "AWS::CDK::Metadata": ResourceType("inert", "tells AWS which constructs an app uses; there is nobody to tell"),
    "AWS::CloudFormation::CustomResource": ResourceType(
        "emulated",
        "its function is called, and puts its response to a URL; so is that of `Custom::` with a name that is not in this table",
    ),
    "AWS::CloudFormation::WaitConditionHandle": ResourceType(
        "inert", "a URL to signal to; a template that waits for the signal is refused"
    ),
    "AWS::CloudWatch::Alarm": _real(
        "evaluated when data of its metric come and each second; tells SNS topics and the default bus; metric math, "
        "percentiles, anomaly detection and actions other than topics are refused",
        "ActionsEnabled AlarmActions AlarmDescription AlarmName ComparisonOperator DatapointsToAlarm Dimensions "
        "EvaluateLowSampleCountPercentile EvaluationPeriods ExtendedStatistic InsufficientDataActions MetricName Metrics "
        "Namespace OKActions Period Statistic Tags Threshold ThresholdMetricId TreatMissingData Unit",
    ),
    "AWS::CloudWatch::Dashboard": _real("kept; there is no console to show it", "DashboardBody DashboardName"),
    "AWS::CodeBuild::Project": _real(
        "its builds run their commands here, with docker's stand-in; the source is S3's or none, the image one of CodeBuild's",
        "Artifacts Cache Description EncryptionKey Environment LogsConfig Name ServiceRole Source SourceVersion Tags "
        "TimeoutInMinutes Visibility",
    ),
    "AWS::EC2::EIP": _real("an address that leads nowhere", "Domain Tags"),
    "AWS::EC2::FlowLog": _real(
        "kept; there is no traffic to log",
        "DeliverLogsPermissionArn LogDestination LogDestinationType LogFormat LogGroupName MaxAggregationInterval "
        "ResourceId ResourceType Tags TrafficType",
    ),
    "AWS::EC2::InternetGateway": _real("kept; jobs reach nothing but the account", "Tags"),
    "AWS::EC2::NatGateway": _real("kept; jobs reach nothing but the account", "AllocationId SubnetId Tags"),
    "AWS::EC2::Route": _real(
        "kept; not applied to a job's network",
        "DestinationCidrBlock GatewayId InstanceId NatGatewayId NetworkInterfaceId RouteTableId VpcPeeringConnectionId",
    ),
    "AWS::EC2::RouteTable": _real("kept; not applied to a job's network", "Tags VpcId"),
    "AWS::EC2::SecurityGroup": _real(
        "kept; jobs have to name one that is there, and its rules are not applied to their network",
        "GroupDescription GroupName SecurityGroupEgress SecurityGroupIngress Tags VpcId",
    ),
    "AWS::EC2::SecurityGroupEgress": _real(
        "kept; not applied to a job's network", f"{_RULE} DestinationSecurityGroupId"
    ),
    "AWS::EC2::SecurityGroupIngress": _real("kept; not applied to a job's network", f"{_RULE} SourceSecurityGroupId"),
    "AWS::EC2::Subnet": _real(
        "kept; jobs have to name one that is there", "AvailabilityZone CidrBlock MapPublicIpOnLaunch Tags VpcId"
    ),
    "AWS::EC2::SubnetRouteTableAssociation": _real("kept; not applied to a job's network", "RouteTableId SubnetId"),
    "AWS::EC2::VPC": _real(
        "kept; a job's hosts have a network of their own in any case",
        "CidrBlock EnableDnsHostnames EnableDnsSupport InstanceTenancy Tags",
    ),
    "AWS::EC2::VPCEndpoint": _real(
        "gateway and interface endpoints; kept, since jobs reach the account without one",
        "PolicyDocument PrivateDnsEnabled RouteTableIds SecurityGroupIds ServiceName SubnetIds Tags VpcEndpointType VpcId",
    ),
    "AWS::EC2::VPCGatewayAttachment": _real("kept; not applied to a job's network", "InternetGatewayId VpcId"),
    "AWS::ECR::Repository": _real(
        "its images are what jobs run; they are not scanned, and the lifecycle policy is kept and not carried out",
        "EmptyOnDelete EncryptionConfiguration ImageScanningConfiguration ImageTagMutability "
        "ImageTagMutabilityExclusionFilters LifecyclePolicy RepositoryName RepositoryPolicyText Tags",
    ),
    "AWS::EFS::AccessPoint": _real(
        "kept; training jobs mount file systems without one, so that its root directory is not made for them",
        "AccessPointTags ClientToken FileSystemId PosixUser RootDirectory",
    ),
    "AWS::EFS::FileSystem": _real(
        "a folder of the account, which jobs mount; its policy is evaluated with --enforce-iam; unencrypted, not backed up, and "
        "nothing moves by its lifecycle policies",
        "AvailabilityZoneName BackupPolicy Encrypted FileSystemPolicy FileSystemTags KmsKeyId LifecyclePolicies "
        "PerformanceMode ProvisionedThroughputInMibps ThroughputMode",
    ),
    "AWS::EFS::MountTarget": _real(
        "by which the jobs reach a file system that are in its VPC and that its security groups let in",
        "FileSystemId IpAddress SecurityGroups SubnetId",
    ),
    "AWS::Events::EventBus": _real("takes events and matches them to its rules", "Name"),
    "AWS::Events::Rule": _real(
        "delivers to state machines, topics, queues, log groups and buses; other targets are refused, and so is a "
        "ScheduleExpression unless the State is DISABLED",
        "Description EventBusName EventPattern Name RoleArn ScheduleExpression State Tags Targets",
    ),
    "AWS::FSx::DataRepositoryAssociation": _real(
        "shows what lies under a prefix in S3, copied when a job starts; what jobs write is exported when they end",
        "BatchImportMetaDataOnCreate DataRepositoryPath FileSystemId FileSystemPath ImportedFileChunkSize S3 Tags",
    ),
    "AWS::FSx::FileSystem": _real(
        "Lustre only: a folder of the account, which the jobs mount that reach it; as large and as fast as this machine's disk, "
        "unencrypted and not backed up",
        "FileSystemType FileSystemTypeVersion KmsKeyId LustreConfiguration SecurityGroupIds StorageCapacity StorageType "
        "SubnetIds Tags",
    ),
    "AWS::IAM::AccessKey": _real("signs requests to the account", "Status UserName"),
    "AWS::IAM::InstanceProfile": _real("kept; there are no instances", "InstanceProfileName Path Roles"),
    "AWS::IAM::ManagedPolicy": _real(
        "evaluated with --enforce-iam", "Description Groups ManagedPolicyName Path PolicyDocument Roles Users"
    ),
    "AWS::IAM::Policy": _real("evaluated with --enforce-iam", "Groups PolicyDocument PolicyName Roles Users"),
    "AWS::IAM::Role": _real(
        "taken on by jobs and executions; its permissions are evaluated with --enforce-iam",
        "AssumeRolePolicyDocument Description ManagedPolicyArns MaxSessionDuration Path PermissionsBoundary Policies "
        "RoleName Tags",
    ),
    "AWS::IAM::User": _real("may have access keys", "Path UserName"),
    "AWS::KMS::Alias": _real("names a key", "AliasName TargetKeyId"),
    "AWS::KMS::Key": _real(
        "encrypts and decrypts while it is enabled; deleted, it is pending deletion; it is not rotated",
        "Description EnableKeyRotation Enabled KeyPolicy KeySpec KeyUsage MultiRegion PendingWindowInDays Tags",
    ),
    "AWS::Lambda::Function": ResourceType(
        "emulated",
        "each call is a process of the account's own Python, with boto3, under the function's role; other languages, and "
        "properties but Architectures, Code (inline or in S3), Description, Environment, FunctionName, Handler, LoggingConfig, "
        "MemorySize, Role, Runtime, Tags and Timeout are refused, unless the account does its work: that of the custom resources "
        "that this table has by their names",
    ),
    "AWS::Logs::LogGroup": _real(
        "takes and gives log events, unencrypted; old ones are kept whatever the retention",
        "KmsKeyId LogGroupName RetentionInDays Tags",
    ),
    "AWS::Logs::ResourcePolicy": _real("kept; not evaluated", "PolicyDocument PolicyName"),
    "AWS::S3::Bucket": _real(
        "holds objects, and writes access logs; its lifecycle rules are kept and not carried out",
        "AccessControl BucketEncryption BucketName LifecycleConfiguration LoggingConfiguration OwnershipControls "
        "PublicAccessBlockConfiguration Tags VersioningConfiguration",
    ),
    "AWS::S3::BucketPolicy": _real("evaluated with --enforce-iam", "Bucket PolicyDocument"),
    "AWS::SNS::Subscription": _real(
        "delivers to queues and to HTTP endpoints of this machine; e-mail, SMS and other machines get nothing, which the "
        "account's log says; other protocols are refused",
        "DeliveryPolicy Endpoint FilterPolicy FilterPolicyScope Protocol RawMessageDelivery TopicArn",
    ),
    "AWS::SNS::Topic": _real(
        "delivers to its subscriptions; unencrypted",
        "ContentBasedDeduplication DisplayName FifoTopic KmsMasterKeyId Subscription Tags TopicName",
    ),
    "AWS::SNS::TopicPolicy": _real("evaluated with --enforce-iam", "PolicyDocument Topics"),
    "AWS::SQS::Queue": _real(
        "holds messages, unencrypted; how many are visible is a metric each minute, the other metrics of SQS are not sent",
        "ContentBasedDeduplication DeduplicationScope DelaySeconds FifoQueue FifoThroughputLimit "
        "KmsDataKeyReusePeriodSeconds KmsMasterKeyId MaximumMessageSize MessageRetentionPeriod QueueName "
        "ReceiveMessageWaitTimeSeconds RedrivePolicy SqsManagedSseEnabled Tags VisibilityTimeout",
    ),
    "AWS::SQS::QueuePolicy": _real("evaluated with --enforce-iam", "PolicyDocument Queues"),
    "AWS::SSM::Parameter": _real(
        "holds a value", "AllowedPattern DataType Description Name Policies Tags Tier Type Value"
    ),
    "AWS::StepFunctions::StateMachine": _real(
        "runs; its executions are logged to the account's log only",
        "Definition DefinitionString DefinitionSubstitutions LoggingConfiguration RoleArn StateMachineName "
        "StateMachineType Tags TracingConfiguration",
    ),
    "Custom::CDKContainerImageBuild": ResourceType(
        "emulated", "starts the build of deploy-time-build's image, and waits for it"
    ),
    "Custom::CloudwatchLogResourcePolicy": ResourceType("emulated", "lets rules write to a log group"),
    "Custom::S3AutoDeleteObjects": ResourceType("emulated", "empties the bucket before it is deleted"),
    "Custom::VpcRestrictDefaultSG": ResourceType("emulated", "takes the rules of a VPC's default security group away"),
}


def unheard(resource_type: str, properties: dict[str, object]) -> list[str]:
    """The properties of a resource that nothing here makes anything of."""
    known = TYPES.get(resource_type)
    if known is None or not known.properties:
        return []
    return sorted(name for name in properties if name not in known.properties)
