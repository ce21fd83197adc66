"""The CreateTrainingJob request, from a kind of job and what the user says of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.data import S3Channel, S3Prefix, Spot, WarmPool, seconds_of
from cdk_sagemaker_training.jobs import JobRequest
from cdk_sagemaker_training.service_model import check_request
from cdk_sagemaker_training.tokens import is_unresolved

# Limits of the service model (botocore's sagemaker, CreateTrainingJobRequest), told here in the words of the props.
_MOST_HYPERPARAMETERS = 100
_LONGEST_HYPERPARAMETER = 2_500
_MOST_CHANNELS = 20
# StoppingCondition's documentation; the model itself has no upper bound.
_LONGEST_RUNTIME = 28 * 24 * 3_600
# A job's name has 63 characters, of which a hyphen and a hash of the execution, the attempt and the index take the rest.
_LONGEST_JOB_NAME_PREFIX = 26

_PROP_NAMES = {
    "AlgorithmSpecification.MetricDefinitions": "metric_definitions",
    "AlgorithmSpecification.TrainingImage": "image",
    "CheckpointConfig.LocalPath": "spot.local_path",
    "Environment": "environment",
    "HyperParameters": "hyperparameters",
    "InputDataConfig": "channels",
    "OutputDataConfig": "output",
    "ProfilerConfig": "job",
    "ResourceConfig": "job",
    "ResourceConfig.KeepAlivePeriodInSeconds": "warm_pool",
    "ResourceConfig.VolumeSizeInGB": "volume_size",
    "RoleArn": "role",
    "StoppingCondition.MaxPendingTimeInSeconds": "max_pending",
    "StoppingCondition.MaxRuntimeInSeconds": "max_runtime",
    "StoppingCondition.MaxWaitTimeInSeconds": "spot.max_wait",
    "Tags": "tags",
    "VpcConfig": "network",
}


def create_training_job(
    *,
    job_request: JobRequest,
    training_job_name: str,
    image_uri: str,
    role_arn: str,
    output: S3Prefix,
    max_runtime_seconds: int,
    channels: Mapping[str, S3Channel] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    spot: Spot | None = None,
    warm_pool: WarmPool | None = None,
    checkpoint_s3_uri: str | None = None,
    volume_size_gb: int = 30,
    max_pending_seconds: int | None = None,
    vpc_config: Mapping[str, Any] | None = None,
    metric_definitions: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The request in the service's own words and in the order of its API page, checked against its model.

    Members that nobody asked for are left out. Text may hold CDK tokens, JSONPath's among them, which the checks pass by.
    ``checkpoint_s3_uri`` turns checkpoints on, with and without ``spot``. Raises ``ValueError`` with the prop to change.
    """
    check_max_runtime(max_runtime_seconds)
    request = {
        "AlgorithmSpecification": {
            "TrainingImage": image_uri,
            "TrainingInputMode": "File",
            "MetricDefinitions": _metric_definitions(metric_definitions or {}),
        },
        "CheckpointConfig": _checkpoint_config(checkpoint_s3_uri, spot) if job_request.checkpoints else None,
        "EnableManagedSpotTraining": True if spot else None,
        "Environment": {**(environment or {}), **job_request.environment},
        "HyperParameters": _hyperparameters(hyperparameters or {}, job_request),
        "InputDataConfig": _input_data_config(channels or {}, job_request.group_names),
        "OutputDataConfig": {"S3OutputPath": output.uri},
        "ProfilerConfig": _profiler_config(job_request, output),
        "ResourceConfig": {
            **job_request.resource_config,
            "KeepAlivePeriodInSeconds": _keep_alive_seconds(warm_pool, spot, job_request.group_names),
            "VolumeSizeInGB": volume_size_gb,
        },
        "RoleArn": role_arn,
        "StoppingCondition": {
            "MaxPendingTimeInSeconds": max_pending_seconds,
            "MaxRuntimeInSeconds": max_runtime_seconds,
            "MaxWaitTimeInSeconds": _max_wait_seconds(spot, max_runtime_seconds),
        },
        "Tags": [{"Key": key, "Value": value} for key, value in (tags or {}).items()],
        "TrainingJobName": training_job_name,
        "VpcConfig": vpc_config,
    }
    given: dict[str, Any] = _without_absent(request)
    check_request(given, _PROP_NAMES)
    return given


def check_job_name_prefix(prefix: str) -> None:
    """Raise ``ValueError`` unless job names can begin with ``prefix``: letters, digits and inner hyphens, at most 26."""
    if is_unresolved(prefix):
        return
    if len(prefix) > _LONGEST_JOB_NAME_PREFIX or not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", prefix):
        raise ValueError(
            f"job_name_prefix must be 1 to {_LONGEST_JOB_NAME_PREFIX} letters, digits and hyphens, a hyphen neither first nor "
            f"last, like 'digits', got {prefix!r}"
        )


def check_max_runtime(seconds: int) -> None:
    """Raise ``ValueError`` unless a job may run for so many seconds: at least 1, at most 28 days."""
    if not is_unresolved(seconds) and not 1 <= seconds <= _LONGEST_RUNTIME:
        raise ValueError(
            f"max_runtime must be between 1 second and 28 days, like Duration.hours(6), got {seconds} seconds"
        )


def encode_hyperparameter(name: str, value: Any) -> str:
    """A hyperparameter as the string from which SageMaker's toolkit makes ``value`` again.

    The toolkit decodes each string as JSON and, where it is none, takes it as it stands. So text goes as it is unless it
    would be taken for JSON, like ``"5"``; everything else goes as JSON. Text with a token goes as it is.
    """
    if is_unresolved(value) and not isinstance(value, str):
        raise ValueError(
            f"hyperparameters[{name!r}] must be text where it is known only later, "
            "like sfn.JsonPath.format('{}', sfn.JsonPath.string_at('$.steps')), got a token that is not text"
        )
    if isinstance(value, str):
        return json.dumps(value) if _is_json(value) and not is_unresolved(value) else value
    if isinstance(value, bool | int | float | list | tuple | dict):
        return json.dumps(value)
    raise ValueError(
        f"hyperparameters[{name!r}] must be text, a number, a bool, a list or a dict, like 0.001, got {value!r}"
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _hyperparameters(given: Mapping[str, Any], job_request: JobRequest) -> dict[str, str]:
    for name in given:
        if name in job_request.hyperparameters:
            raise ValueError(
                f"hyperparameters must leave {name!r} to the job, which sets it; say it there, like launcher=Torchrun()"
            )
    values = {**given, **job_request.overrides}
    encoded = {name: encode_hyperparameter(name, value) for name, value in values.items()}
    encoded.update(job_request.hyperparameters)
    if len(encoded) > _MOST_HYPERPARAMETERS:
        raise ValueError(
            f"hyperparameters must be at most {_MOST_HYPERPARAMETERS}, with the job's own {len(job_request.hyperparameters)}, "
            f"like {{'steps': 5_000}} with a file in a channel for the rest, got {len(encoded)}"
        )
    for name, text in encoded.items():
        if not is_unresolved(text) and len(text) > _LONGEST_HYPERPARAMETER:
            raise ValueError(
                f"hyperparameters[{name!r}] must be at most {_LONGEST_HYPERPARAMETER} characters, "
                f"like the S3 URI of a file that holds it, got {len(text)} characters beginning {text[:20]!r}"
            )
    return encoded


def _profiler_config(job_request: JobRequest, output: S3Prefix) -> dict[str, Any]:
    config = dict(job_request.profiler_config)
    return {**config, "S3OutputPath": output.uri} if config.get("DisableProfiler") is False else config


def _input_data_config(channels: Mapping[str, S3Channel], group_names: tuple[str, ...]) -> list[dict[str, Any]]:
    if len(channels) > _MOST_CHANNELS:
        raise ValueError(
            f"channels must be at most {_MOST_CHANNELS}, like {{'images': S3Channel(...)}}, got {len(channels)}"
        )
    for name, channel in channels.items():
        _check_channel_groups(name, channel, group_names)
    # The service refuses groups on some channels and none on others, so naming them on one names them on all.
    fill = group_names if any(channel.groups for channel in channels.values()) else None
    return [
        {
            "ChannelName": name,
            "ContentType": channel.content_type,
            "DataSource": {
                "S3DataSource": {
                    "InstanceGroupNames": _list_of(channel.groups or fill),
                    "S3DataDistributionType": channel.distribution,
                    "S3DataType": "S3Prefix",
                    "S3Uri": channel.uri,
                }
            },
            "InputMode": channel.input_mode,
        }
        for name, channel in channels.items()
    ]


def _list_of(names: Any) -> list[str] | None:
    return list(names) if names else None


def _check_channel_groups(name: str, channel: S3Channel, group_names: tuple[str, ...]) -> None:
    for group in channel.groups or ():
        if group in group_names:
            continue
        if not group_names:
            raise ValueError(
                f"channels[{name!r}].groups must be left out of a job without instance groups, "
                f"like S3Channel(bucket, 'images/'), got {group!r}"
            )
        raise ValueError(
            f"channels[{name!r}].groups must be instance groups of the job, like {group_names[0]!r} of {list(group_names)}, "
            f"got {group!r}"
        )


def _checkpoint_config(s3_uri: str | None, spot: Spot | None) -> dict[str, Any] | None:
    if s3_uri is None:
        return None
    return {"LocalPath": spot.local_path if spot else None, "S3Uri": s3_uri}


def _keep_alive_seconds(warm_pool: WarmPool | None, spot: Spot | None, group_names: tuple[str, ...]) -> int | None:
    if warm_pool is None:
        return None
    if group_names:
        raise ValueError(
            "warm_pool must be left out of a job with instance groups, which SageMaker keeps no machines for, "
            f"like warm_pool=None, got {warm_pool!r} with groups {list(group_names)}"
        )
    if spot:
        raise ValueError(
            f"warm_pool must be left out of a job on spot machines, like warm_pool=None, got {warm_pool!r} with spot"
        )
    return seconds_of("keep_alive", warm_pool.keep_alive)


def _max_wait_seconds(spot: Spot | None, max_runtime_seconds: int) -> int | None:
    if spot is None:
        return None
    seconds = seconds_of("max_wait", spot.max_wait)
    if not is_unresolved(seconds) and not is_unresolved(max_runtime_seconds) and seconds < max_runtime_seconds:
        raise ValueError(
            "spot.max_wait must be at least max_runtime, since it counts the running too, "
            f"like Duration.seconds({max_runtime_seconds}), got {seconds} seconds"
        )
    return seconds


def _metric_definitions(definitions: Mapping[str, str]) -> list[dict[str, str]]:
    for name, regex in definitions.items():
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
    return [{"Name": name, "Regex": regex} for name, regex in definitions.items()]


def _without_absent(value: Any) -> Any:
    """``value`` without the members that are None or hold nothing: the service takes an absent member, not an empty one."""
    if isinstance(value, dict):
        kept = {key: _without_absent(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [])}
    if isinstance(value, list):
        return [_without_absent(item) for item in value]
    return value
