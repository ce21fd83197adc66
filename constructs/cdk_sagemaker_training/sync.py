"""What Step Functions' own integration with SageMaker is known to take."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from cdk_sagemaker_training.unlisted import is_unlisted

# CreateTrainingJob's members that the optimised integration is known to take: those of CDK's own task, and those that
# public state machines were seen to run with. AWS lists none. True stands for whatever the member holds.
_KNOWN_TO_SYNC: dict[str, Any] = {
    "AlgorithmSpecification": {
        "EnableSageMakerMetricsTimeSeries": True,
        "MetricDefinitions": True,
        "TrainingImage": True,
        "TrainingInputMode": True,
    },
    "CheckpointConfig": True,
    "EnableManagedSpotTraining": True,
    "EnableNetworkIsolation": True,
    "Environment": True,
    "HyperParameters": True,
    "InputDataConfig": {
        "ChannelName": True,
        "CompressionType": True,
        "ContentType": True,
        "DataSource": {
            "S3DataSource": {
                "AttributeNames": True,
                "S3DataDistributionType": True,
                "S3DataType": True,
                "S3Uri": True,
            }
        },
        "InputMode": True,
        "RecordWrapperType": True,
    },
    "OutputDataConfig": {"KmsKeyId": True, "S3OutputPath": True},
    "ResourceConfig": {"InstanceCount": True, "InstanceType": True, "VolumeKmsKeyId": True, "VolumeSizeInGB": True},
    "RetryStrategy": True,
    "RoleArn": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": True, "MaxWaitTimeInSeconds": True},
    "Tags": True,
    "TrainingJobName": True,
    "VpcConfig": True,
}
# The props that the others come from, the one to change first before those that follow from it.
_PROP_OF = {
    "InstanceGroups": "job",
    "InstancePreferences": "job",
    "InstanceGroupNames": "channels",
    "FileSystemDataSource": "channels",
    "ModelAccessConfig": "channels",
    "ShuffleConfig": "channels",
    "ContainerArguments": "container_arguments",
    "ContainerEntrypoint": "container_entrypoint",
    "TrainingImageConfig": "private_registry",
    "CompressionType": "output_compression",
    "DebugHookConfig": "debugger",
    "DebugRuleConfigurations": "debugger",
    "EnableInterContainerTrafficEncryption": "inter_container_encryption",
    "ExperimentConfig": "experiment",
    "InfraCheckConfig": "infra_check",
    "InstancePlacementConfig": "ultra_servers",
    "KeepAlivePeriodInSeconds": "warm_pool",
    "MaxPendingTimeInSeconds": "max_pending",
    "MlflowConfig": "mlflow",
    "ProfilerConfig": "profiler",
    "ProfilerRuleConfigurations": "profiler",
    "RemoteDebugConfig": "remote_debug",
    "SessionChainingConfig": "session_tag_chaining",
    "TensorBoardOutputConfig": "tensorboard",
    "TrainingPlanArn": "training_plan",
}


def sync_takes(request: Mapping[str, Any]) -> bool:
    """Whether the optimised integration is known to take a request."""
    return not any(_unknown(request, _KNOWN_TO_SYNC))


def check_sync_takes(
    request: Mapping[str, Any], instead: str, props: Container[str] = (), integration: str | None = None
) -> None:
    """Raise ``ValueError`` for a request that the optimised integration is not known to take.

    A member that it does not know ends an execution in an error that no state can catch. ``instead`` is what to use,
    ``props`` what the user said, who else has the profiler's configuration from the job. An ``integration`` that is ``unlisted``
    takes the request as it is.
    """
    unknown = set(_unknown(request, _KNOWN_TO_SYNC))
    if not unknown or is_unlisted(integration):
        return
    member = next((member for member in _PROP_OF if member in unknown), min(unknown))
    prop = _PROP_OF.get(member, member)
    prop = "job" if prop == "profiler" and prop not in props else prop
    raise ValueError(
        f"{prop} must be what `sagemaker:createTrainingJob.sync` is known to take, like one instance type and count, "
        f"got {member}: use {instead}, or TrainingWorkflow(..., integration=unlisted('sync')) where AWS differs by now"
    )


def _unknown(value: Any, known: Any) -> Iterator[str]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _unknown(item, known)
    elif isinstance(value, Mapping) and known is not True:
        for key, item in value.items():
            name = key.removesuffix(".$")
            if name not in known:
                yield name
            else:
                yield from _unknown(item, known[name])
