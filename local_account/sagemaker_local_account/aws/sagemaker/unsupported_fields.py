"""The members of CreateTrainingJob that the account rejects or ignores; all others have their effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Rejected: without them a job could succeed here and fail on AWS.
REFUSED: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "there are no algorithm resources and no Marketplace",
    "AlgorithmSpecification.TrainingImageConfig": "images come from the account's ECR or are AWS's",
    "DebugRuleConfigurations": "rules run as processing jobs, which are not supported",
    "ExperimentConfig": "experiments are not supported",
    "InputDataConfig.DataSource.DatasetSource": "channels come from S3 and from file systems",
    "InputDataConfig.DataSource.S3DataSource.AttributeNames": "augmented manifests are not read",
    "InputDataConfig.DataSource.S3DataSource.HubAccessConfig": "there is no model hub",
    "InputDataConfig.DataSource.S3DataSource.ModelAccessConfig": "there is no model hub",
    "InputDataConfig.ShuffleConfig": "the order of a channel's objects stays that of their keys",
    "MlflowConfig": "experiments are not supported",
    "ModelPackageConfig": "there is no model registry",
    "ProfilerRuleConfigurations": "rules run as processing jobs, which are not supported",
    "RemoteDebugConfig.EnableRemoteDebug": "there is no Session Manager",
    "ResourceConfig.InstancePlacementConfig": "there are no UltraServers",
    "ServerlessJobConfig": "serverless jobs are not supported",
    "SessionChainingConfig.EnableSessionTagChaining": "sessions have no tags",
    "TensorBoardOutputConfig": "write to /opt/ml/output/data or to S3 instead",
}
# Accepted, returned by DescribeTrainingJob, and without effect.
INERT: Mapping[str, str] = {
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "metrics go to CloudWatch in any case",
    "DebugHookConfig": "no configuration of a hook is written",
    "EnableInterContainerTrafficEncryption": "traffic between hosts does not leave this machine",
    "InfraCheckConfig": "there is no hardware to check",
    "InputDataConfig.CompressionType": "for Pipe mode only, as on AWS",
    "InputDataConfig.RecordWrapperType": "for Pipe mode only, as on AWS",
    "ProfilerConfig": "machines are not profiled",
    "ResourceConfig.KeepAlivePeriodInSeconds": "there are no warm pools: every job starts at once",
    "ResourceConfig.TrainingPlanArn": "every plan is Active; `local-account break training-plan` keeps its jobs Pending",
    "ResourceConfig.VolumeKmsKeyId": "the permission to use the key is checked; the disk is this machine's",
    "ResourceConfig.VolumeSizeInGB": "the disk is this machine's; `local-account break full-disk` makes it small",
    "VpcConfig": "its permissions are checked; security groups apply to file systems, not to traffic between hosts",
}


def refused_members(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the rejected members of a request that are neither false nor empty, with the reason."""
    for path, reason in REFUSED.items():
        if any(_found(request, path.split("."))):
            yield path, reason


def _found(value: Any, names: list[str]) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _found(item, names)
    elif not names:
        yield value
    elif isinstance(value, Mapping) and names[0] in value:
        yield from _found(value[names[0]], names[1:])
