"""The support matrix: the resource types and properties that the account's CloudFormation supports.

Other types and properties are rejected when a stack is deployed; moto accepts and ignores them. docs/resource-types.md is
generated from this table (`make docs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["real", "emulated", "inert"]


@dataclass(frozen=True)
class ResourceType:
    """The support of a resource type.

    Args:
        kind: ``real``: its API returns it, and it has its effect. ``emulated``: the account does the work of one of CDK's Lambda
            functions. ``inert``: it has no effect.
        note: its effect, or why it has none.
        properties: the supported properties; empty for any.
    """

    kind: Kind
    note: str
    properties: frozenset[str] = frozenset()


def _real(note: str, properties: str) -> ResourceType:
    return ResourceType("real", note, frozenset(properties.split()))


_RULE = "CidrIp CidrIpv6 Description FromPort GroupId IpProtocol ToPort"

TYPES: dict[str, ResourceType] = {
    "AWS::Batch::JobQueue": _real(
        "of the type SAGEMAKER_TRAINING: its service jobs become training jobs of the account",
        "JobQueueName JobQueueType Priority SchedulingPolicyArn ServiceEnvironmentOrder State Tags",
    ),
    "AWS::Batch::QuotaShare": _real(
        "limits the machines of the jobs of a share, which are lent, borrowed and taken back",
        "CapacityLimits JobQueue PreemptionConfiguration QuotaShareName ResourceSharingConfiguration State Tags",
    ),
    "AWS::Batch::SchedulingPolicy": _real("fair shares, or quota shares", "FairsharePolicy Name QuotaSharePolicy Tags"),
    "AWS::Batch::ServiceEnvironment": _real(
        "limits the machines of running jobs, in NUM_INSTANCES or by type",
        "CapacityLimits ServiceEnvironmentName ServiceEnvironmentType State Tags",
    ),
    "AWS::CDK::Metadata": ResourceType("inert", "CDK's telemetry, which is not sent"),
    "AWS::CloudFormation::CustomResource": ResourceType(
        "emulated",
        "its function is invoked, and puts its response to a URL; also for `Custom::` types that are not in this table",
    ),
    "AWS::CloudFormation::Stack": _real(
        "made, changed and deleted with the stack around it", "Parameters Tags TemplateURL TimeoutInMinutes"
    ),
    "AWS::CloudFormation::WaitConditionHandle": ResourceType(
        "inert", "a URL for signals; a template with a wait condition is rejected"
    ),
    "AWS::CloudWatch::Alarm": _real(
        "evaluated when data of its metric arrive and each second; state changes go to SNS topics and the default event bus; "
        "metric math, percentiles, anomaly detection and actions other than topics are rejected",
        "ActionsEnabled AlarmActions AlarmDescription AlarmName ComparisonOperator DatapointsToAlarm Dimensions "
        "EvaluateLowSampleCountPercentile EvaluationPeriods ExtendedStatistic InsufficientDataActions MetricName Metrics "
        "Namespace OKActions Period Statistic Tags Threshold ThresholdMetricId TreatMissingData Unit",
    ),
    "AWS::CloudWatch::Dashboard": _real("stored; there is no console", "DashboardBody DashboardName"),
    "AWS::CodeBuild::Project": _real(
        "its builds run on this machine, with the stand-in docker; the source must be S3 or none, the image one of CodeBuild's",
        "Artifacts Cache Description EncryptionKey Environment LogsConfig Name ServiceRole Source SourceVersion Tags "
        "TimeoutInMinutes Visibility",
    ),
    "AWS::EC2::EIP": _real("stored; the address is not reachable", "Domain Tags"),
    "AWS::EC2::FlowLog": _real(
        "stored; there is no traffic to log",
        "DeliverLogsPermissionArn LogDestination LogDestinationType LogFormat LogGroupName MaxAggregationInterval "
        "ResourceId ResourceType Tags TrafficType",
    ),
    "AWS::EC2::InternetGateway": _real("stored; jobs can only reach the account", "Tags"),
    "AWS::EC2::NatGateway": _real("stored; jobs can only reach the account", "AllocationId SubnetId Tags"),
    "AWS::EC2::Route": _real(
        "stored; not applied to a job's network",
        "DestinationCidrBlock GatewayId InstanceId NatGatewayId NetworkInterfaceId RouteTableId VpcPeeringConnectionId",
    ),
    "AWS::EC2::RouteTable": _real("stored; not applied to a job's network", "Tags VpcId"),
    "AWS::EC2::SecurityGroup": _real(
        "stored; a job's VpcConfig must name an existing one; its rules apply to file systems, not to the job's network",
        "GroupDescription GroupName SecurityGroupEgress SecurityGroupIngress Tags VpcId",
    ),
    "AWS::EC2::SecurityGroupEgress": _real(
        "stored; not applied to a job's network", f"{_RULE} DestinationSecurityGroupId"
    ),
    "AWS::EC2::SecurityGroupIngress": _real("stored; not applied to a job's network", f"{_RULE} SourceSecurityGroupId"),
    "AWS::EC2::Subnet": _real(
        "stored; a job's VpcConfig must name an existing one",
        "AvailabilityZone CidrBlock MapPublicIpOnLaunch Tags VpcId",
    ),
    "AWS::EC2::SubnetRouteTableAssociation": _real("stored; not applied to a job's network", "RouteTableId SubnetId"),
    "AWS::EC2::VPC": _real(
        "stored; a job's hosts have a separate network",
        "CidrBlock EnableDnsHostnames EnableDnsSupport InstanceTenancy Tags",
    ),
    "AWS::EC2::VPCEndpoint": _real(
        "gateway and interface endpoints; stored, jobs reach the account without one",
        "PolicyDocument PrivateDnsEnabled RouteTableIds SecurityGroupIds ServiceName SubnetIds Tags VpcEndpointType VpcId",
    ),
    "AWS::EC2::VPCGatewayAttachment": _real("stored; not applied to a job's network", "InternetGatewayId VpcId"),
    "AWS::ECR::Repository": _real(
        "jobs run its images; images are not scanned, and the lifecycle policy is stored and not applied",
        "EmptyOnDelete EncryptionConfiguration ImageScanningConfiguration ImageTagMutability "
        "ImageTagMutabilityExclusionFilters LifecyclePolicy RepositoryName RepositoryPolicyText Tags",
    ),
    "AWS::EFS::AccessPoint": _real(
        "stored; training jobs mount file systems without one, so its root directory is not created for them",
        "AccessPointTags ClientToken FileSystemId PosixUser RootDirectory",
    ),
    "AWS::EFS::FileSystem": _real(
        "a folder of the account, which jobs mount; its policy is evaluated; without encryption, backups and "
        "lifecycle policies",
        "AvailabilityZoneName BackupPolicy Encrypted FileSystemPolicy FileSystemTags KmsKeyId LifecyclePolicies "
        "PerformanceMode ProvisionedThroughputInMibps ThroughputMode",
    ),
    "AWS::EFS::MountTarget": _real(
        "allows jobs in its VPC to mount the file system, if its security groups do",
        "FileSystemId IpAddress SecurityGroups SubnetId",
    ),
    "AWS::Events::EventBus": _real("matches events to its rules", "Name"),
    "AWS::Events::Rule": _real(
        "delivers to state machines, functions, topics, queues, log groups and buses, also on a schedule by the account's clock; "
        "other targets are rejected",
        "Description EventBusName EventPattern Name RoleArn ScheduleExpression State Tags Targets",
    ),
    "AWS::FSx::DataRepositoryAssociation": _real(
        "imports a prefix in S3 when a job starts; changes of jobs are exported when they end",
        "BatchImportMetaDataOnCreate DataRepositoryPath FileSystemId FileSystemPath ImportedFileChunkSize S3 Tags",
    ),
    "AWS::FSx::FileSystem": _real(
        "Lustre only: a folder of the account, which jobs mount; capacity and speed are those of this machine's disk, without "
        "encryption and backups",
        "FileSystemType FileSystemTypeVersion KmsKeyId LustreConfiguration SecurityGroupIds StorageCapacity StorageType "
        "SubnetIds Tags",
    ),
    "AWS::IAM::AccessKey": _real("signs requests to the account", "Status UserName"),
    "AWS::IAM::InstanceProfile": _real("stored; there are no instances", "InstanceProfileName Path Roles"),
    "AWS::IAM::ManagedPolicy": _real(
        "evaluated", "Description Groups ManagedPolicyName Path PolicyDocument Roles Users"
    ),
    "AWS::IAM::Policy": _real("evaluated", "Groups PolicyDocument PolicyName Roles Users"),
    "AWS::IAM::Role": _real(
        "assumed by jobs, executions, builds and functions; its permissions are evaluated",
        "AssumeRolePolicyDocument Description ManagedPolicyArns MaxSessionDuration Path PermissionsBoundary Policies "
        "RoleName Tags",
    ),
    "AWS::IAM::User": _real("can have access keys", "Path UserName"),
    "AWS::KMS::Alias": _real("names a key", "AliasName TargetKeyId"),
    "AWS::KMS::Key": _real(
        "encrypts and decrypts while it is enabled; a deleted key is pending deletion; keys are not rotated",
        "Description EnableKeyRotation Enabled KeyPolicy KeySpec KeyUsage MultiRegion PendingWindowInDays Tags",
    ),
    "AWS::Lambda::Function": ResourceType(
        "emulated",
        "runs in the account's own Python, with boto3, with the function's role; other languages, and properties other than "
        "Architectures, Code (inline or in S3), Description, Environment, FunctionName, Handler, LoggingConfig, MemorySize, "
        "Role, Runtime, Tags and Timeout are rejected, except for functions of the custom resources in this table",
    ),
    "AWS::Lambda::Permission": _real(
        "a statement of the function's policy; evaluated",
        "Action FunctionName Principal SourceAccount SourceArn",
    ),
    "AWS::Logs::LogGroup": _real(
        "stores log events, without encryption and retention",
        "KmsKeyId LogGroupName RetentionInDays Tags",
    ),
    "AWS::Logs::ResourcePolicy": _real("stored; not evaluated", "PolicyDocument PolicyName"),
    "AWS::S3::Bucket": _real(
        "stores objects, and writes access logs; its lifecycle rules are stored and not applied",
        "AccessControl BucketEncryption BucketName LifecycleConfiguration LoggingConfiguration OwnershipControls "
        "PublicAccessBlockConfiguration Tags VersioningConfiguration",
    ),
    "AWS::S3::BucketPolicy": _real("evaluated", "Bucket PolicyDocument"),
    "AWS::SNS::Subscription": _real(
        "delivers to queues and to HTTP endpoints of this machine; messages to e-mail, SMS and other machines are logged and not "
        "delivered; other protocols are rejected",
        "DeliveryPolicy Endpoint FilterPolicy FilterPolicyScope Protocol RawMessageDelivery TopicArn",
    ),
    "AWS::SNS::Topic": _real(
        "delivers to its subscriptions; without encryption, but its key's policy is evaluated",
        "ContentBasedDeduplication DisplayName FifoTopic KmsMasterKeyId Subscription Tags TopicName",
    ),
    "AWS::SNS::TopicPolicy": _real("evaluated", "PolicyDocument Topics"),
    "AWS::SQS::Queue": _real(
        "stores messages, without encryption; ApproximateNumberOfMessagesVisible is the only metric of SQS",
        "ContentBasedDeduplication DeduplicationScope DelaySeconds FifoQueue FifoThroughputLimit "
        "KmsDataKeyReusePeriodSeconds KmsMasterKeyId MaximumMessageSize MessageRetentionPeriod QueueName "
        "ReceiveMessageWaitTimeSeconds RedrivePolicy SqsManagedSseEnabled Tags VisibilityTimeout",
    ),
    "AWS::SQS::QueuePolicy": _real("evaluated", "PolicyDocument Queues"),
    "AWS::SSM::Parameter": _real(
        "stores a value", "AllowedPattern DataType Description Name Policies Tags Tier Type Value"
    ),
    "AWS::SageMaker::ModelPackageGroup": _real(
        "holds the versions of models that are registered in it; with versions it cannot be deleted",
        "ModelPackageGroupDescription ModelPackageGroupName Tags",
    ),
    "AWS::Scheduler::Schedule": _real(
        "invokes state machines, functions, topics and queues by the account's clock, at the start of a flexible time window and "
        "without a second attempt; other targets are rejected",
        "Description EndDate FlexibleTimeWindow GroupName KmsKeyArn Name ScheduleExpression ScheduleExpressionTimezone StartDate "
        "State Target",
    ),
    "AWS::Scheduler::ScheduleGroup": _real("holds schedules, which are deleted with it", "Name Tags"),
    "AWS::StepFunctions::Activity": _real("holds tasks for workers outside", "EncryptionConfiguration Name Tags"),
    "AWS::StepFunctions::StateMachine": _real(
        "runs; executions are logged in the account's log only",
        "Definition DefinitionString DefinitionSubstitutions LoggingConfiguration RoleArn StateMachineName "
        "StateMachineType Tags TracingConfiguration",
    ),
    "Custom::CDKContainerImageBuild": ResourceType("emulated", "runs the build of deploy-time-build's image"),
    "Custom::CloudwatchLogResourcePolicy": ResourceType("emulated", "allows rules to write to a log group"),
    "Custom::S3AutoDeleteObjects": ResourceType("emulated", "empties the bucket before it is deleted"),
    "Custom::VpcRestrictDefaultSG": ResourceType("emulated", "removes the rules of a VPC's default security group"),
}


def unsupported(resource_type: str, properties: dict[str, object]) -> list[str]:
    """Returns the unsupported properties of a resource."""
    known = TYPES.get(resource_type)
    if known is None or not known.properties:
        return []
    return sorted(name for name in properties if name not in known.properties)
