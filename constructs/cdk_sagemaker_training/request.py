"""The CreateTrainingJob request, from a kind of job and what the user says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from cdk_sagemaker_training import rules
from cdk_sagemaker_training.capacity import PrivateRegistry, UltraServers
from cdk_sagemaker_training.data import S3Channel, S3Prefix, Spot, WarmPool
from cdk_sagemaker_training.file_systems import EfsChannel, FsxLustreChannel
from cdk_sagemaker_training.hyperparameters import hyperparameters as hyperparameters_of
from cdk_sagemaker_training.instance_types import is_newer
from cdk_sagemaker_training.jobs import JobRequest
from cdk_sagemaker_training.observability import Debugger, Experiment, Mlflow, Profiler, TensorBoard
from cdk_sagemaker_training.prop_types import checked
from cdk_sagemaker_training.service_model import check_request
from cdk_sagemaker_training.tokens import is_unresolved

Channel = S3Channel | FsxLustreChannel | EfsChannel

_MOST_CHANNELS = 20  # InputDataConfig of the service model
# A job's name has 63 characters, of which a hyphen and a hash of the execution, the attempt and the index take the rest.
_LONGEST_JOB_NAME_PREFIX = 26

# The prop that each member comes from; of several paths that fit the longest counts.
PROP_NAMES = {
    "AlgorithmSpecification.ContainerArguments": "container_arguments",
    "AlgorithmSpecification.ContainerEntrypoint": "container_entrypoint",
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "metrics_time_series",
    "AlgorithmSpecification.MetricDefinitions": "metric_definitions",
    "AlgorithmSpecification.TrainingImage": "image",
    "AlgorithmSpecification.TrainingImageConfig": "private_registry",
    "CheckpointConfig.LocalPath": "checkpoint_local_path",
    "CheckpointConfig.S3Uri": "checkpoints",
    "DebugHookConfig": "debugger",
    "DebugRuleConfigurations": "debugger.rules",
    "EnableInterContainerTrafficEncryption": "inter_container_encryption",
    "EnableManagedSpotTraining": "spot",
    "EnableNetworkIsolation": "network_isolation",
    "Environment": "environment",
    "ExperimentConfig": "experiment",
    "HyperParameters": "hyperparameters",
    "InfraCheckConfig": "infra_check",
    "InputDataConfig": "channels",
    "MlflowConfig": "mlflow",
    "OutputDataConfig.CompressionType": "output_compression",
    "OutputDataConfig.KmsKeyId": "output_key",
    "OutputDataConfig.S3OutputPath": "output",
    "ProfilerConfig": "profiler",
    "ProfilerRuleConfigurations": "profiler.rules",
    "RemoteDebugConfig": "remote_debug",
    "ResourceConfig.InstanceCount": "job",
    "ResourceConfig.InstanceGroups": "job",
    "ResourceConfig.InstancePreferences": "job",
    "ResourceConfig.InstancePlacementConfig": "ultra_servers",
    "ResourceConfig.InstanceType": "job",
    "ResourceConfig.KeepAlivePeriodInSeconds": "warm_pool",
    "ResourceConfig.TrainingPlanArn": "training_plan",
    "ResourceConfig.VolumeKmsKeyId": "volume_key",
    "ResourceConfig.VolumeSizeInGB": "volume_size",
    "RetryStrategy": "maximum_retry_attempts",
    "RoleArn": "role",
    "SessionChainingConfig": "session_tag_chaining",
    "StoppingCondition.MaxPendingTimeInSeconds": "max_pending",
    "StoppingCondition.MaxRuntimeInSeconds": "max_runtime",
    "StoppingCondition.MaxWaitTimeInSeconds": "spot.max_wait",
    "Tags": "tags",
    "TensorBoardOutputConfig": "tensorboard",
    "TrainingJobName": "job_name_prefix",
    "VpcConfig": "network",
}


@checked
def create_training_job(
    *,
    job_request: JobRequest,
    training_job_name: str,
    image_uri: str,
    role_arn: str,
    output: S3Prefix,
    max_runtime_seconds: int,
    channels: Mapping[str, Channel] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    spot: Spot | None = None,
    warm_pool: WarmPool | None = None,
    checkpoint_s3_uri: str | None = None,
    checkpoint_local_path: str | None = None,
    volume_size_gb: int = 30,
    volume_kms_key: str | None = None,
    max_pending_seconds: int | None = None,
    vpc_config: Mapping[str, Any] | None = None,
    metric_definitions: Mapping[str, str | Sequence[str]] | None = None,
    metrics_time_series: bool | None = None,
    container_entrypoint: Sequence[str] | None = None,
    container_arguments: Sequence[str] | None = None,
    private_registry: PrivateRegistry | None = None,
    output_kms_key: str | None = None,
    output_compression: Literal["GZIP", "NONE"] | None = None,
    training_plan: str | None = None,
    ultra_servers: UltraServers | None = None,
    maximum_retry_attempts: int | None = None,
    network_isolation: bool = False,
    inter_container_encryption: bool = False,
    remote_debug: bool = False,
    infra_check: bool = False,
    session_tag_chaining: bool = False,
    debugger: Debugger | None = None,
    profiler: Profiler | None = None,
    tensorboard: TensorBoard | None = None,
    experiment: Experiment | None = None,
    mlflow: Mlflow | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The request in the service's own words and in the order of its API page, checked against its model.

    Members that nobody asked for are left out. Text may hold CDK tokens, JSONPath's among them, which the checks pass by.
    ``checkpoint_s3_uri`` turns checkpoints on, with and without ``spot``. Raises ``ValueError`` with the prop to change.
    """
    rules.check_max_runtime(max_runtime_seconds)
    rules.check_channels(channels or {}, job_request.group_names, network=vpc_config is not None)
    rules.check_volume(job_request, volume_size_gb, volume_kms_key)
    rules.check_capacity(job_request, training_plan, ultra_servers, spot)
    rules.check_network_isolation(network_isolation, remote_debug)
    rules.check_private_registry(private_registry, network=vpc_config is not None)
    rules.check_tags(tags or {})
    rules.check_environment(environment or {}, job_request)
    debugger_rules, profiler_rules = rules.rule_configurations(debugger, profiler)
    checkpoint_config = _checkpoint_config(checkpoint_s3_uri, checkpoint_local_path, spot)
    request = {
        "AlgorithmSpecification": {
            "TrainingImage": image_uri,
            "TrainingInputMode": "File",
            "MetricDefinitions": _metric_definitions(metric_definitions or {}),
            "EnableSageMakerMetricsTimeSeries": metrics_time_series,
            "ContainerEntrypoint": _command("container_entrypoint", container_entrypoint),
            "ContainerArguments": _command("container_arguments", container_arguments),
            "TrainingImageConfig": private_registry.image_config() if private_registry else None,
        },
        "CheckpointConfig": checkpoint_config if job_request.checkpoints else None,
        "DebugHookConfig": debugger.hook_config() if debugger else None,
        "DebugRuleConfigurations": debugger_rules,
        "EnableInterContainerTrafficEncryption": inter_container_encryption or None,
        "EnableManagedSpotTraining": True if spot else None,
        "EnableNetworkIsolation": network_isolation or None,
        "Environment": {**(environment or {}), **job_request.environment},
        "ExperimentConfig": experiment.config() if experiment else None,
        "HyperParameters": hyperparameters_of(hyperparameters or {}, job_request),
        "InfraCheckConfig": {"EnableInfraCheck": infra_check or None},
        "InputDataConfig": _input_data_config(channels or {}, job_request.group_names),
        "MlflowConfig": mlflow.config() if mlflow else None,
        "OutputDataConfig": {
            "CompressionType": output_compression,
            "KmsKeyId": output_kms_key,
            "S3OutputPath": output.uri,
        },
        "ProfilerConfig": rules.profiler_config(job_request, profiler, output),
        "ProfilerRuleConfigurations": profiler_rules,
        "RemoteDebugConfig": {"EnableRemoteDebug": remote_debug or None},
        "ResourceConfig": {
            **job_request.resource_config,
            "InstancePlacementConfig": ultra_servers.placement_config() if ultra_servers else None,
            "KeepAlivePeriodInSeconds": rules.keep_alive_seconds(warm_pool, spot, job_request.group_names),
            "TrainingPlanArn": training_plan,
            "VolumeKmsKeyId": volume_kms_key,
            "VolumeSizeInGB": volume_size_gb,
        },
        "RetryStrategy": {"MaximumRetryAttempts": maximum_retry_attempts},
        "RoleArn": role_arn,
        "SessionChainingConfig": {"EnableSessionTagChaining": session_tag_chaining or None},
        "StoppingCondition": {
            "MaxPendingTimeInSeconds": max_pending_seconds,
            "MaxRuntimeInSeconds": max_runtime_seconds,
            "MaxWaitTimeInSeconds": rules.max_wait_seconds(spot, max_runtime_seconds),
        },
        "Tags": [{"Key": key, "Value": value} for key, value in (tags or {}).items()],
        "TensorBoardOutputConfig": tensorboard.output_config() if tensorboard else None,
        "TrainingJobName": training_job_name,
        "VpcConfig": vpc_config,
    }
    given: dict[str, Any] = _without_absent(request)
    newer_types = frozenset(filter(is_newer, rules.instance_types(job_request)))
    check_request(given, PROP_NAMES, newer_types)
    return given


def check_job_name_prefix(prefix: str) -> None:
    """Raise ``ValueError`` unless job names can begin with ``prefix``: letters, digits and inner hyphens, at most 26."""
    if is_unresolved(prefix):
        return
    text = prefix if isinstance(prefix, str) else ""
    if len(text) > _LONGEST_JOB_NAME_PREFIX or not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", text):
        raise ValueError(
            f"job_name_prefix must be 1 to {_LONGEST_JOB_NAME_PREFIX} letters, digits and hyphens, a hyphen neither first nor "
            f"last, like 'digits', got {prefix!r}"
        )


def _command(prop: str, value: Sequence[str] | None) -> list[str] | None:
    if value is not None and not value:
        raise ValueError(f"{prop} must hold something where it is given, like ['python', 'train.py'], got {value!r}")
    return None if value is None else list(value)


def _input_data_config(channels: Mapping[str, Channel], group_names: tuple[str, ...]) -> list[dict[str, Any]]:
    if len(channels) > _MOST_CHANNELS:
        raise ValueError(
            f"channels must be at most {_MOST_CHANNELS}, like {{'images': S3Channel(...)}}, got {len(channels)}"
        )
    # The service refuses groups on some channels and none on others, so naming them on one names them on all.
    named = any(isinstance(channel, S3Channel) and channel.groups for channel in channels.values())
    fill = group_names if named else None
    return [{"ChannelName": name, **channel.channel_config(fill)} for name, channel in channels.items()]


def _checkpoint_config(s3_uri: str | None, local_path: str | None, spot: Spot | None) -> dict[str, Any] | None:
    if s3_uri is None:
        return None
    return {"LocalPath": spot.local_path if spot and local_path is None else local_path, "S3Uri": s3_uri}


def _metric_definitions(definitions: Mapping[str, str | Sequence[str]]) -> list[dict[str, Any]]:
    """MetricDefinitions, with the name of a metric once for each of its expressions."""
    found: list[dict[str, Any]] = []
    for name, given in definitions.items():
        of_name = [given] if isinstance(given, str) else given
        if not of_name:
            raise ValueError(
                f"metric_definitions[{name!r}] must be a regular expression or several, like 'loss=([0-9.]+)', got {given!r}"
            )
        for regex in of_name:
            _check_regex(name, regex)
            found.append({"Name": name, "Regex": regex})
    return found


def _check_regex(name: str, regex: str) -> None:
    try:
        groups = 1 if is_unresolved(regex) else re.compile(regex).groups
    except re.error as error:
        raise ValueError(
            f"metric_definitions[{name!r}] must be a regular expression, like 'loss=([0-9.]+)', got {regex!r}: {error}"
        ) from error
    if not groups:
        raise ValueError(
            f"metric_definitions[{name!r}] must have a group around the value, like 'loss=([0-9.]+)', got {regex!r}"
        )


def _without_absent(value: Any) -> Any:
    """``value`` without the members that are None or hold nothing: the service takes an absent member, not an empty one."""
    if isinstance(value, dict):
        kept = {key: _without_absent(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [_without_absent(item) for item in value]
    return value
