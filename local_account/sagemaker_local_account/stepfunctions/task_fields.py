"""The request fields that the integrations with SageMaker support."""

from __future__ import annotations

from typing import Any

from botocore.model import ListShape, Shape, StructureShape

# The fields of CreateTrainingJob that `sagemaker:createTrainingJob` supports. The current documentation does not list them; these
# are what CDK's own task renders and what public state machines use. On AWS an unsupported field ends an execution, uncatchably,
# so fields without evidence are rejected. True: the field with any content.
KNOWN_FIELDS: dict[str, Any] = {
    "AlgorithmSpecification": {
        "AlgorithmName": True,
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


def unknown_field(known: dict[str, Any], value: Any) -> str | None:
    """The first field of a value that is not in a table of fields."""
    if isinstance(value, list):
        return next((found for item in value if (found := unknown_field(known, item)) is not None), None)
    if not isinstance(value, dict):
        return None
    for name, item in value.items():
        if name not in known:
            return name
        if isinstance(known[name], dict) and (found := unknown_field(known[name], item)) is not None:
            return found
    return None


def unknown_field_of_shape(shape: Shape | None, value: Any) -> str | None:
    """The first field of a value that is not in the service model."""
    if isinstance(shape, ListShape) and isinstance(value, list):
        return next(
            (found for item in value if (found := unknown_field_of_shape(shape.member, item)) is not None), None
        )
    if not isinstance(shape, StructureShape) or not isinstance(value, dict):
        return None
    for name, item in value.items():
        if name not in shape.members:
            return name
        if (found := unknown_field_of_shape(shape.members[name], item)) is not None:
            return found
    return None
