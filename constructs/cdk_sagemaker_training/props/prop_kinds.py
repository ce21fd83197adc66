"""Objects that props take, by the attributes that they are known by, and an example of each prop for its message."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """What a prop must be, by the attributes that it is known by.

    CDK's interfaces have no class in Python that all implementations are instances of, and to import them takes longer than all
    checks together; a kind of job, a launcher or a channel may be a user's own.

    Args:
        must: What it must be, in messages.
        example: A value, as Python source, for messages.
        has: Attributes that a value has. None: a class of this library, of which a value must be an instance.
        lacks: Attributes that a value does not have.
    """

    must: str
    example: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


# By the name in the annotations. A kind without attributes is a class of ours, of which a value must be an instance.
KINDS: Mapping[str, Kind] = {
    "Channel": Kind("a channel", "S3Channel(bucket, 'images/')", ("channel_config",)),
    "Compiler": Kind("a compiler", "TorchCompile()", ("compiled",)),
    "Construct": Kind("a construct", "self", ("node",)),
    "Duration": Kind("a Duration", "Duration.hours(6)", ("to_seconds",)),
    "IBucket": Kind("a bucket", "s3.Bucket(self, 'Bucket')", ("bucket_name",)),
    "IEfsFileSystem": Kind("a file system of EFS", "efs.FileSystem(self, 'Files', vpc=vpc)", ("file_system_id",)),
    "IFsxFileSystem": Kind("a file system of FSx", "LustreFileSystem(self, 'Lustre', ...)", ("file_system_id",)),
    "IFunction": Kind("a function", "lambda_.Function(self, 'Credentials', ...)", ("function_arn",)),
    "Launcher": Kind("a launcher", "Torchrun()", ("hyperparameters", "advice", "alone_because"), ("environment",)),
    "Parallelism": Kind(
        "a parallelism",
        "NativeParallelism(data_shard=8)",
        ("hyperparameters", "environment", "advice", "alone_because"),
    ),
    "Size": Kind("a Size", "Size.gibibytes(100)", ("to_gibibytes",)),
    "TrainingImage": Kind(
        "a TrainingImage",
        "TrainingImage.from_dlc(self, 'Image', 'pytorch-training', '2.6.0-gpu-py312')",
        ("image_uri", "grant_pull"),
    ),
    "TrainingJob": Kind("a kind of job", "DataParallelJob(InstanceGroup('ml.g5.xlarge'))", ("requests",)),
    "TrainingNetwork": Kind("a TrainingNetwork", "TrainingNetwork(self, 'Network')", ("vpc_config",)),
    "TrainingRole": Kind("a role, not its ARN", "TrainingRole(self, 'Role')", ("role_arn", "grant_checkpoints")),
    "ec2.ISecurityGroup": Kind(
        "a security group", "ec2.SecurityGroup(self, 'Group', vpc=vpc)", ("security_group_id", "connections")
    ),
    "ec2.IVpc": Kind("a VPC", "ec2.Vpc.from_lookup(self, 'Vpc', is_default=True)", ("vpc_id", "select_subnets")),
    "ec2.SubnetSelection": Kind(
        "a SubnetSelection",
        "ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)",
        ("subnet_type", "subnet_filters"),
    ),
    "ecr.IRepository": Kind("a repository of ECR", "ecr.Repository(self, 'Repository')", ("repository_arn",)),
    "ecr_assets.Platform": Kind("a Platform", "ecr_assets.Platform.LINUX_AMD64", ("platform",)),
    "sns.ITopic": Kind("a topic", "sns.Topic(self, 'Topic')", ("topic_arn",)),
    "iam.IManagedPolicy": Kind(
        "a managed policy",
        "iam.ManagedPolicy.from_aws_managed_policy_name('PowerUserAccess')",
        ("managed_policy_arn",),
    ),
    "iam.IRole": Kind("a role, not its ARN", "TrainingRole(self, 'Role')", ("role_arn",)),
    "kms.IKey": Kind("a key, not its ARN", "kms.Key(self, 'Key')", ("key_arn",)),
    "Alternative": Kind("an Alternative", "Alternative(DataParallelJob(InstanceGroup('ml.p4d.24xlarge')))"),
    "Advice": Kind("an Advice", "Advice('team:slow', 'Use a larger machine.')"),
    "Debugger": Kind("a Debugger", "Debugger(S3Prefix(bucket, 'tensors/'))"),
    "DebuggerRule": Kind("a DebuggerRule", "DebuggerRule('LossNotDecreasing', image_uri)"),
    "Experiment": Kind("an Experiment", "Experiment('digits')"),
    "InstancePreference": Kind("an InstancePreference", "InstancePreference('ml.p5.48xlarge', 2)"),
    "Ec2InstanceType": Kind("an ec2.InstanceType", "ec2.InstanceType('g5.xlarge')"),
    "InstanceGroup": Kind("an InstanceGroup", "InstanceGroup('ml.g5.xlarge')"),
    "IChainable": Kind("states", "sfn.Succeed(self, 'NotGoodEnough')", ("start_state", "end_states")),
    "LogOptions": Kind("a LogOptions", "sfn.LogOptions(destination=group, level=sfn.LogLevel.ALL)"),
    "MetricLimit": Kind("a MetricLimit", "MetricLimit('loss', above=10.0, readings=3)"),
    "Plateau": Kind("a Plateau", "Plateau('loss', patience=Duration.hours(1), min_delta=0.01)"),
    "Silence": Kind("a Silence", "Silence(Duration.hours(2))"),
    "Mlflow": Kind("an Mlflow", "Mlflow('arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits')"),
    "PrivateRegistry": Kind("a PrivateRegistry", "PrivateRegistry()"),
    "Profiler": Kind("a Profiler", "Profiler(interval_milliseconds=500)"),
    "RemovalPolicy": Kind("a RemovalPolicy", "RemovalPolicy.DESTROY"),
    "S3Prefix": Kind("an S3Prefix", "S3Prefix(bucket, 'models/')"),
    "Spot": Kind("a Spot", "Spot(S3Prefix(bucket, 'checkpoints/'), max_wait=Duration.hours(12))"),
    "TensorBoard": Kind("a TensorBoard", "TensorBoard(S3Prefix(bucket, 'tensorboard/'))"),
    "Model": Kind("a Model", "Model(parameters=8_030_261_248)"),
    "Budget": Kind("a Budget", "Budget(hours=48)"),
    "TrainingQueue": Kind("a TrainingQueue", "TrainingQueue(self, 'Queue', capacity=8)", ("queue_arn",)),
    "ITrainingQueue": Kind("a TrainingQueue", "TrainingQueue(self, 'Queue', capacity=8)", ("queue_arn", "share")),
    "QueueShare": Kind("a QueueShare", "queue.share('vision')"),
    "QuotaShare": Kind("a QuotaShare", "QuotaShare({'ml.p5.48xlarge': 4})"),
    "ChoiceField": Kind("a ChoiceField", "ChoiceField(['ml.g5.xlarge', 'ml.g5.2xlarge'])"),
    "Grid": Kind("a Grid", "Grid({'learning_rate': [0.1, 0.01]})"),
    "Rows": Kind("a Rows", "Rows([{'learning_rate': 0.1}])"),
    "RowsFile": Kind("a RowsFile", "RowsFile(bucket, 'rows.csv')"),
    "Objective": Kind("an Objective", "Objective('loss', 'Minimize')"),
    "TrainingWorkflow": Kind("a TrainingWorkflow", "TrainingWorkflow(self, 'Training', ...)"),
    "NumberField": Kind("a NumberField", "NumberField(minimum=0, maximum=1)"),
    "TextField": Kind("a TextField", "TextField('images-*')"),
    "Cause": Kind("a Cause", "Cause.CAPACITY"),
    "Retry": Kind("a Retry", "Retry(attempts=3, first_wait=Duration.minutes(5))"),
    "UltraServers": Kind("an UltraServers", "UltraServers([18])"),
    "WarmPool": Kind("a WarmPool", "WarmPool(Duration.minutes(30))"),
}

# Props that take one of several texts of AWS's or PyTorch's, and the list (`unlisted.LISTS`) that has these. A prop whose record
# has members of the request (`prop.Prop`) is held against "service-values" without a row here.
LISTED: Mapping[str, str] = {
    "compression": "service-values",
    "data_type": "service-values",
    "distribution": "service-values",
    "input_mode": "service-values",
    "mode": "torch-compile-modes",
    "record_wrapper": "service-values",
}

# Of a prop whose record has no example, or of one with its owner where another has the same name. A value inside a dict or a
# list has its kind's.
EXAMPLES: Mapping[str, str] = {
    "query_language": "sfn.QueryLanguage.JSONATA",
    "request_overrides": "{'ModelPackageConfig.ModelPackageGroupArn': 'arn:aws:sagemaker:...'}",
    "attempts": "3",
    "Model.parameters": "8_030_261_248",
    "bytes_per_parameter": "16",
    "Grid.values": "{'learning_rate': [0.1, 0.01]}",
    "Rows.values": "[{'learning_rate': 0.1}]",
    "key": "'sweeps/rows.csv'",
    "NumberField.default": "0.1",
    "ChoiceField.default": "'ml.g5.xlarge'",
    "TextField.default": "'images-1'",
    "goal": "'Minimize'",
    "over": "Grid({'learning_rate': [0.1, 0.01]})",
    "concurrency": "8",
    "tolerated_failure_count": "5",
    "tolerated_failure_percentage": "5",
    "results": "S3Prefix(bucket, 'sweeps/rate/')",
    "hours": "48",
    "after": "Duration.hours(2)",
    "metric": "'loss'",
    "above": "10.0",
    "below": "0.0",
    "readings": "3",
    "dollars": "500",
    "prices": "{'ml.g5.xlarge': 1.41}",
    "least": "600",
    "values": "['ml.g5.xlarge', 'ml.g5.2xlarge']",
    "attribute_names": "['source-ref', 'label']",
    "availability_zones": "['us-east-1a']",
    "batch_size": "64",
    "build_args": "{'VERSION': '2'}",
    "cache": "S3Prefix(bucket, 'neuron-cache/')",
    "TrainingImage.from_asset.cache": "True",
    "TrainingImage.from_codebuild.cache": "True",
    "cache_directory": "'/opt/ml/checkpoints/compiler-cache'",
    "checkpoints": "S3Prefix(bucket, 'checkpoints/')",
    "queue_arn": "'arn:aws:batch:us-east-1:123456789012:job-queue/jobs'",
    "QuotaShare.capacity": "{'ml.p5.48xlarge': 4}",
    "borrow_limit": "100",
    "sharing": "'LEND'",
    "cidr": "'10.1.0.0/16'",
    "collections": "{'losses': {'save_interval': '100'}}",
    "content_type": "'application/x-parquet'",
    "counts": "[18]",
    "custom_mpi_options": "'-x NCCL_DEBUG=WARN'",
    "directory": "'/images'",
    "TrainingImage.from_asset.directory": "'training_code'",
    "TrainingImage.from_codebuild.directory": "'training_code'",
    "endpoints": "['sts', 'logs']",
    "environment": "{'NCCL_DEBUG': 'INFO'}",
    "evaluator_image": "'503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules'",
    "experiment_name": "'digits'",
    "file": "'heterogeneous/Dockerfile'",
    "groups": "{'data_group': InstanceGroup('ml.c5.xlarge')}",
    "S3Channel.groups": "['data_group']",
    "hook_parameters": "{'save_interval': '500'}",
    "hyperparameters": "{'epochs': 3}",
    "id": "'Training'",
    "image_uri": "'123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1'",
    "instance_type": "'ml.g5.xlarge'",
    "local_path": "'/opt/ml/checkpoints'",
    "integration": "'poll'",
    "max_azs": "1",
    "max_images": "10",
    "mode": "'default'",
    "mount_name": "'x7jq3bmv'",
    "name": "'LossNotDecreasing'",
    "owner_account": "'123456789012'",
    "parameters": "{'rule_to_invoke': 'LossNotDecreasing'}",
    "preferences": "[InstancePreference('ml.p5.48xlarge', 2)]",
    "prefix": "'images/'",
    "precision": "'bf16'",
    "schedule": "'gpipe'",
    "launch_by": "'mpi'",
    "order": "['data_group', 'dnn_group']",
    "timeout": "Duration.days(2)",
    "waiting_longer_than": "Duration.hours(2)",
    "base": "'pytorch-training:2.6.0-gpu-py312'",
    "account_id": "'763104351884'",
    "framework": "'pytorch'",
    "version": "'1.13.1'",
    "arn": "'arn:aws:s3:us-east-1:123456789012:accesspoint/images'",
    "alias": "'images-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias'",
    "TrainingImage.from_dlc.repository": "'pytorch-training'",
    "resource_arn": "'arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/digits'",
    "resume_from": "'monday'",
    "rules": "[DebuggerRule('LossNotDecreasing', image_uri)]",
    "run_name": "'first'",
    "storage_gib": "1_200",
    "subfolder": "'digits/'",
    "tag": "'2.6.0-gpu-py312'",
    "throughput": "125",
    "train_group": "'dnn_group'",
    "training_plan": "'arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring'",
    "trial": "{'steps': 10}",
    "trial_name": "'first'",
    "unique_by": "sfn.JsonPath.string_at('$.index')",
}


@cache
def kind_names() -> Mapping[str, Any]:
    """Stand-ins for kinds whose modules are imported by type checkers only.

    Returns:
        Stand-ins, and namespaces of these for modules such as ``iam``, by the names that annotations use.
    """
    names: dict[str, Any] = {}
    for name, kind in KINDS.items():
        if not kind.has:
            continue
        module, _, attribute = name.rpartition(".")
        stand_in = type(attribute, (), {"kind": name})
        if module:
            setattr(names.setdefault(module, SimpleNamespace()), attribute, stand_in)
        else:
            names[name] = stand_in
    return names
