"""What the account makes of each member of a CreateTrainingJob request: whatever is not named here, it does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Refused where the request has them, since a job would pass here on what is left out.
REFUSED: Mapping[str, str] = {
    "AlgorithmSpecification.AlgorithmName": "there are no algorithm resources and no Marketplace",
    "AlgorithmSpecification.TrainingImageConfig": "images come from the account's ECR or are AWS's",
    "DebugRuleConfigurations": "rules run as processing jobs, which are not there",
    "ExperimentConfig": "nothing keeps experiments",
    "InputDataConfig.DataSource.DatasetSource": "channels come from S3 and from file systems",
    "InputDataConfig.DataSource.S3DataSource.AttributeNames": "augmented manifests are not read",
    "InputDataConfig.DataSource.S3DataSource.HubAccessConfig": "there is no model hub",
    "InputDataConfig.DataSource.S3DataSource.ModelAccessConfig": "there is no model hub",
    "InputDataConfig.ShuffleConfig": "the order of a channel's objects stays that of their keys",
    "MlflowConfig": "nothing keeps experiments",
    "ModelPackageConfig": "there is no model registry",
    "ProfilerRuleConfigurations": "rules run as processing jobs, which are not there",
    "RemoteDebugConfig.EnableRemoteDebug": "there is no Session Manager to enter a host by",
    "ResourceConfig.InstancePlacementConfig": "there are no UltraServers",
    "ServerlessJobConfig": "jobs have machines",
    "SessionChainingConfig.EnableSessionTagChaining": "sessions have no tags",
    "TensorBoardOutputConfig": "write to /opt/ml/output/data or to S3 instead",
}
# Taken, shown by DescribeTrainingJob, and without effect.
INERT: Mapping[str, str] = {
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": "metrics go to CloudWatch in any case",
    "DebugHookConfig": "no hook's configuration is written; a script without one runs as it is",
    "EnableInterContainerTrafficEncryption": "what hosts say to each other does not leave this machine",
    "InfraCheckConfig": "there is no hardware to check",
    "InputDataConfig.CompressionType": "on AWS, too, it is for Pipe mode only",
    "InputDataConfig.RecordWrapperType": "on AWS, too, it is for Pipe mode only",
    "ProfilerConfig": "machines are not profiled",
    "ResourceConfig.KeepAlivePeriodInSeconds": "no machine is kept: a job starts at once without",
    "ResourceConfig.TrainingPlanArn": "every plan is Active; `local-account break training-plan` keeps its jobs Pending",
    "ResourceConfig.VolumeKmsKeyId": "leave to use the key is asked for; the disk is this machine's",
    "ResourceConfig.VolumeSizeInGB": "the disk is this machine's; `local-account break full-disk` makes it small",
    "VpcConfig": "leave to use it is asked for; its rules are applied to file systems, not to what hosts say to each other",
}


def refused_members(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The members of a request that the account refuses, each with the reason. One that is false or empty asks for nothing."""
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
