"""Writes docs/members.md, every member of CreateTrainingJob and what supports it: `make docs`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, is_typeddict

import cdk_sagemaker_training
from cdk_sagemaker_training.core.unlisted import LISTS
from cdk_sagemaker_training.facts.service_model import shapes
from cdk_sagemaker_training.props import execution_input
from cdk_sagemaker_training.props.prop import Known
from cdk_sagemaker_training.props.prop_types import table_of
from cdk_sagemaker_training.request.props import leaves, table

# By a member's path, or that of the structure it is in: the longest path that fits counts. Members of lists have no index.
LEFT_OUT: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "names an algorithm of SageMaker or of the Marketplace in place of an image; "
    "the kinds of job of this library run a script of yours in an image",
    "InputDataConfig.DataSource.DatasetSource": "is a data set of SageMaker's hub, for its serverless jobs",
    "InputDataConfig.DataSource.S3DataSource.HubAccessConfig": "permits fetching a JumpStart model from a private hub; a model "
    "in a bucket of yours needs none",
    "ModelPackageConfig": "registers what SageMaker's serverless jobs tuned; `RegisterModel` registers the model of a workflow",
    "ResourceConfig.SelectedInstanceCount": "is read-only, in the response of DescribeTrainingJob",
    "ResourceConfig.SelectedInstanceType": "is read-only, in the response of DescribeTrainingJob",
    "ServerlessJobConfig": "is a job without machines and without a script: SageMaker's fine-tuning of its models",
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
# Read in the SDK's sources: ModelTrainer of 3.27.0, and, for what that lacks, Estimator of 2.257.7.
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

Which members of a training job's request this library supports, beside CDK's own task (`SageMakerCreateTrainingJob`) and
SageMaker's Python SDK (`ModelTrainer` of version 3, and `Estimator` of version 2 where that alone can). Members of lists are
written without an index. An empty field: not supported.

| member | here | CDK | SDK |
|---|---|---|---|"""
_REASONS = """
## Left out, and why

| member | reason |
|---|---|"""

_LISTS = """
## Lists that become outdated

This library has lists of some values that AWS accepts, and a value that is not in its list is an error at synth. For values
that AWS has added since there is `unlisted`: `InstanceGroup(unlisted("ml.p9.48xlarge"))`. Such a value is not compared with the
list, and a warning (`cdk-sagemaker-training:unlisted`) replaces the error. For an image there is also `TrainingImage.from_dlc`,
with any repository, tag and account.

| list, and its source |
|---|"""


def ours() -> dict[str, str]:
    """The text of a member that this library supports, by the member's path or that of the structure it is in."""
    return {member.path: member.docs or f"`{prop}`" for prop, member in leaves()}


def known() -> dict[str, Known]:
    """When props must be known, by ``"Owner.prop"``: those of jobs, whose owner is ``TrainingProps``, and of values."""
    rows: dict[str, Known] = {}
    tables = {owner: table_of(annotated) for owner, annotated in _takers()}
    for owner, records in {**tables, "TrainingProps": table()}.items():
        rows |= {f"{owner}.{prop}": record.known for prop, record in records.items() if record.known is not None}
    return rows


def _takers() -> Iterator[tuple[str, Any]]:
    """What takes props, by its public name: values, and the constructors of constructs."""
    for name in cdk_sagemaker_training.__all__:
        if name in ("Attempt", "Feature", "Seam"):  # of authors of features, without props
            continue
        public = getattr(cdk_sagemaker_training, name)
        if not inspect.isclass(public):
            yield name, public
            continue
        constructed = is_dataclass(public) and not hasattr(public.__init__, "__wrapped__")
        yield name, public if constructed or is_typeddict(public) else public.__init__
        for method, member in vars(public).items():
            if isinstance(member, staticmethod) and method.startswith("from_"):
                yield f"{name}.{method}", member.__func__


def members() -> list[str]:
    """The paths of the members of a request.

    Returns:
        Each that holds a value, not a structure, in the order of botocore's model; members of lists have no index.
    """
    return list(_members("CreateTrainingJobRequest", ()))


def cell(by: Mapping[str, str], member: str) -> str:
    """The text of a member's cell in a column.

    Args:
        by: Texts by the paths of members or structures.
        member: The path of a member.

    Returns:
        The text of the longest path that fits; empty where none does.
    """
    names = member.split(".")
    paths = (".".join(names[:length]) for length in range(len(names), 0, -1))
    return next((by[path] for path in paths if path in by), "")


def page() -> str:
    """The text of docs/members.md."""
    here = {**ours(), **dict.fromkeys(LEFT_OUT, "")}
    rows = [f"| `{name}` | {cell(here, name)} | {cell(CDK, name)} | {cell(SDK, name)} |" for name in members()]
    reasons = [f"| `{name}` | {why} |" for name, why in LEFT_OUT.items()]
    lists = [f"| {text} |" for text in LISTS.values()]
    return "\n".join([_PAGE, *rows, _REASONS, *reasons, _LISTS, *lists]) + "\n" + execution_input.page(known())


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
