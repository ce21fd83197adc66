"""Writes docs/members.md, every member of CreateTrainingJob and who can say it: `make docs`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from cdk_sagemaker_training import execution_input
from cdk_sagemaker_training.service_model import shapes
from cdk_sagemaker_training.unlisted import LISTS

# By a member's path, or that of the structure it is in: the longest path that fits counts. Members of lists have no index.
OURS: Mapping[str, str] = {
    "AlgorithmSpecification.ContainerArguments": "`container_arguments`",
    "AlgorithmSpecification.ContainerEntrypoint": "`container_entrypoint`",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "`metrics_time_series`",
    "AlgorithmSpecification.MetricDefinitions": "`metric_definitions`, several expressions of one metric too",
    "AlgorithmSpecification.TrainingImage": "`image`",
    "AlgorithmSpecification.TrainingImageConfig": "`private_registry`",
    "AlgorithmSpecification.TrainingInputMode": "always `File`; each channel says its own",
    "CheckpointConfig.LocalPath": "`checkpoint_local_path`, `Spot(local_path=)`",
    "CheckpointConfig.S3Uri": "`checkpoints`, `Spot(checkpoints=)`",
    "DebugHookConfig": "`debugger`",
    "DebugRuleConfigurations": "`Debugger(rules=)`",
    "EnableInterContainerTrafficEncryption": "`inter_container_encryption`",
    "EnableManagedSpotTraining": "`spot`",
    "EnableNetworkIsolation": "`network_isolation`",
    "Environment": "`environment`, and the job's compiler",
    "ExperimentConfig": "`experiment`",
    "HyperParameters": "`hyperparameters`, an `S3Prefix` (TensorFlow's `model_dir`) too, and the job's launcher",
    "InfraCheckConfig": "`infra_check`",
    "InputDataConfig.ChannelName": "`channels`",
    "InputDataConfig.CompressionType": "`S3Channel(compression=)`",
    "InputDataConfig.ContentType": "`content_type=` of each channel",
    "InputDataConfig.DataSource.FileSystemDataSource": "`FsxLustreChannel`, `EfsChannel`",
    "InputDataConfig.DataSource.S3DataSource.AttributeNames": "`S3Channel(attribute_names=)`",
    "InputDataConfig.DataSource.S3DataSource.InstanceGroupNames": "`S3Channel(groups=)`",
    "InputDataConfig.DataSource.S3DataSource.ModelAccessConfig": "`S3Channel(accept_eula=)`",
    "InputDataConfig.DataSource.S3DataSource.S3DataDistributionType": "`S3Channel(distribution=)`",
    "InputDataConfig.DataSource.S3DataSource.S3DataType": "`S3Channel(data_type=)`",
    "InputDataConfig.DataSource.S3DataSource.S3Uri": "`S3Channel(bucket, prefix)`, also of an `S3AccessPoint`",
    "InputDataConfig.InputMode": "`S3Channel(input_mode=)`",
    "InputDataConfig.RecordWrapperType": "`S3Channel(record_wrapper=)`",
    "InputDataConfig.ShuffleConfig": "`S3Channel(shuffle_seed=)`",
    "MlflowConfig": "`mlflow`",
    "OutputDataConfig.CompressionType": "`output_compression`",
    "OutputDataConfig.KmsKeyId": "`output_key`",
    "OutputDataConfig.S3OutputPath": "`output`",
    "ProfilerConfig": "`profiler`",
    "ProfilerRuleConfigurations": "`Profiler(rules=)`",
    "RemoteDebugConfig": "`remote_debug`",
    "ResourceConfig.InstanceCount": "`job`: `InstanceGroup`",
    "ResourceConfig.InstanceGroups": "`job`: `HeterogeneousJob`, in its `order`; also of one group",
    "ResourceConfig.InstancePlacementConfig": "`ultra_servers`",
    "ResourceConfig.InstancePreferences": "`job`: `InstanceGroup` of several types",
    "ResourceConfig.InstanceType": "`job`: `InstanceGroup`",
    "ResourceConfig.KeepAlivePeriodInSeconds": "`warm_pool`",
    "ResourceConfig.TrainingPlanArn": "`training_plan`",
    "ResourceConfig.VolumeKmsKeyId": "`volume_key`",
    "ResourceConfig.VolumeSizeInGB": "`volume_size`",
    "RetryStrategy": "`maximum_retry_attempts`",
    "RoleArn": "`role`",
    "SessionChainingConfig": "`session_tag_chaining`",
    "StoppingCondition.MaxPendingTimeInSeconds": "`max_pending`",
    "StoppingCondition.MaxRuntimeInSeconds": "`max_runtime`",
    "StoppingCondition.MaxWaitTimeInSeconds": "`Spot(max_wait=)`",
    "Tags": "`tags`",
    "TensorBoardOutputConfig": "`tensorboard`",
    "TrainingJobName": "`job_name_prefix`",
    "VpcConfig": "`network`",
    "VpcConfig.SecurityGroupIds": "`network`: `TrainingNetwork(security_groups=)`",
}
LEFT_OUT: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "is another's algorithm, of SageMaker's or the Marketplace's, in place of an image; "
    "what sets our kinds apart is what their own script does",
    "InputDataConfig.DataSource.DatasetSource": "is a data set of SageMaker's hub, for its serverless jobs",
    "InputDataConfig.DataSource.S3DataSource.HubAccessConfig": "is leave from a private hub to fetch a JumpStart model; a model "
    "in a bucket of one's own needs none",
    "ModelPackageConfig": "registers what SageMaker's serverless jobs tuned; a state after the workflow registers ours",
    "ResourceConfig.SelectedInstanceCount": "is read-only, in the answer of DescribeTrainingJob",
    "ResourceConfig.SelectedInstanceType": "is read-only, in the answer of DescribeTrainingJob",
    "ServerlessJobConfig": "is a job on no machines of one's own and without a script: SageMaker's fine-tuning of its models",
}
# Props of aws_stepfunctions_tasks.SageMakerCreateTrainingJob; a test holds them against the installed CDK.
CDK: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "`algorithm_specification.algorithm_name`",
    "AlgorithmSpecification.MetricDefinitions": "`algorithm_specification.metric_definitions`",
    "AlgorithmSpecification.TrainingImage": "`algorithm_specification.training_image`",
    "AlgorithmSpecification.TrainingInputMode": "`algorithm_specification.training_input_mode`",
    "EnableNetworkIsolation": "`enable_network_isolation`",
    "Environment": "`environment`",
    "HyperParameters": "`hyperparameters`, numbers not turned to text",
    "InputDataConfig.ChannelName": "`input_data_config.channel_name`",
    "InputDataConfig.CompressionType": "`input_data_config.compression_type`",
    "InputDataConfig.ContentType": "`input_data_config.content_type`",
    "InputDataConfig.DataSource.S3DataSource.AttributeNames": "`data_source.s3_data_source.attribute_names`",
    "InputDataConfig.DataSource.S3DataSource.S3DataDistributionType": "`data_source.s3_data_source.s3_data_distribution_type`",
    "InputDataConfig.DataSource.S3DataSource.S3DataType": "`data_source.s3_data_source.s3_data_type`",
    "InputDataConfig.DataSource.S3DataSource.S3Uri": "`data_source.s3_data_source.s3_location`",
    "InputDataConfig.InputMode": "`input_data_config.input_mode`",
    "InputDataConfig.RecordWrapperType": "`input_data_config.record_wrapper_type`",
    "InputDataConfig.ShuffleConfig": "`input_data_config.shuffle_config`, dropped from the request",
    "OutputDataConfig.KmsKeyId": "`output_data_config.encryption_key`",
    "OutputDataConfig.S3OutputPath": "`output_data_config.s3_output_location`",
    "ResourceConfig.InstanceCount": "`resource_config.instance_count`",
    "ResourceConfig.InstanceType": "`resource_config.instance_type`",
    "ResourceConfig.VolumeKmsKeyId": "`resource_config.volume_encryption_key`",
    "ResourceConfig.VolumeSizeInGB": "`resource_config.volume_size`",
    "RoleArn": "`role`",
    "StoppingCondition.MaxRuntimeInSeconds": "`stopping_condition.max_runtime`",
    "Tags": "`tags`",
    "TrainingJobName": "`training_job_name`",
    "VpcConfig": "`vpc_config`",
}
# Read in the SDK's sources: ModelTrainer of 3.27.0, and, where that cannot say it, Estimator of 2.257.7.
SDK: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "`algorithm_name`",
    "AlgorithmSpecification.ContainerArguments": "set from `source_code`",
    "AlgorithmSpecification.ContainerEntrypoint": "set from `source_code`",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "v2: `enable_sagemaker_metrics`",
    "AlgorithmSpecification.MetricDefinitions": "`with_metric_definitions`",
    "AlgorithmSpecification.TrainingImage": "`training_image`",
    "AlgorithmSpecification.TrainingImageConfig": "`training_image_config`",
    "AlgorithmSpecification.TrainingInputMode": "`training_input_mode`",
    "CheckpointConfig": "`checkpoint_config`",
    "DebugHookConfig": "v2: `debugger_hook_config`",
    "DebugRuleConfigurations": "v2: `rules`",
    "EnableInterContainerTrafficEncryption": "`Networking`",
    "EnableManagedSpotTraining": "`Compute`",
    "EnableNetworkIsolation": "`Networking`",
    "Environment": "`environment`",
    "ExperimentConfig": "v2: `fit(experiment_config=)`",
    "HyperParameters": "`hyperparameters`",
    "InfraCheckConfig": "`with_infra_check_config`",
    "InputDataConfig": "`input_data_config`",
    "InputDataConfig.DataSource.DatasetSource": "serverless trainers",
    "MlflowConfig": "serverless trainers",
    "ModelPackageConfig": "`model_package_config`",
    "OutputDataConfig": "`output_data_config`",
    "ProfilerConfig": "v2: `profiler_config`",
    "ProfilerRuleConfigurations": "v2: `rules`",
    "RemoteDebugConfig": "`with_remote_debug_config`",
    "ResourceConfig": "`Compute`",
    "ResourceConfig.SelectedInstanceCount": "",
    "ResourceConfig.SelectedInstanceType": "",
    "RetryStrategy": "`with_retry_strategy`",
    "RoleArn": "`role`",
    "ServerlessJobConfig": "serverless trainers",
    "SessionChainingConfig": "`with_session_chaining_config`",
    "StoppingCondition": "`stopping_condition`",
    "Tags": "`tags`",
    "TensorBoardOutputConfig": "`with_tensorboard_output_config`",
    "TrainingJobName": "`base_job_name`",
    "VpcConfig": "`Networking`",
}

_PAGE = """# Every member of CreateTrainingJob

<!-- Written by `make docs`; a test holds it against the code and against botocore's model of the service. -->

What of a training job can be said here, with CDK's own task (`SageMakerCreateTrainingJob`), and with SageMaker's Python SDK
(`ModelTrainer` of version 3, and `Estimator` of version 2 where that alone can). Members of lists are written without an index.
An empty field says that it cannot be said.

| member | here | CDK | SDK |
|---|---|---|---|"""
_REASONS = """
## Left out, and why

| member | which |
|---|---|"""

_LISTS = """
## Lists that age

Some of what AWS takes is known here from a list, and what a list lacks is refused at synth. What AWS has by now, `unlisted` says:
`InstanceGroup(unlisted("ml.p9.48xlarge"))`. No list is held against such a value, and a warning
(`cdk-sagemaker-training:unlisted`) takes the place of the refusal. For an image there is `TrainingImage.from_dlc` too, with any
repository, tag and account.

| list, and its source |
|---|"""


def members() -> list[str]:
    """The path of each member of the request that holds a value, not a structure, as botocore's model has them."""
    return list(_members("CreateTrainingJobRequest", ()))


def said(by: Mapping[str, str], member: str) -> str:
    """What a table has of a member, or of what it is in; nothing where it has neither."""
    names = member.split(".")
    paths = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((by[path] for path in paths if path in by), "")


def page() -> str:
    """The text of docs/members.md."""
    ours = {**OURS, **dict.fromkeys(LEFT_OUT, "")}
    rows = [f"| `{name}` | {said(ours, name)} | {said(CDK, name)} | {said(SDK, name)} |" for name in members()]
    reasons = [f"| `{name}` | {why} |" for name, why in LEFT_OUT.items()]
    lists = [f"| {text} |" for text in LISTS.values()]
    return "\n".join([_PAGE, *rows, _REASONS, *reasons, _LISTS, *lists]) + "\n" + execution_input.page()


def _members(shape_name: str, path: tuple[str, ...]) -> Iterator[str]:
    shape = shapes()[shape_name]
    while shape["type"] == "list":
        shape = shapes()[shape["member"]["shape"]]
    if shape["type"] != "structure":
        yield ".".join(path)
        return
    for name, member in shape["members"].items():
        yield from _members(member["shape"], (*path, name))


if __name__ == "__main__":
    Path(sys.argv[1], "members.md").write_text(page())
