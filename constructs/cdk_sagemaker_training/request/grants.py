"""Permissions that a job's role needs for single members of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.data.file_systems import EfsChannel, allow_lustre
from cdk_sagemaker_training.data.s3 import S3Channel
from cdk_sagemaker_training.request.efs import check_policy, check_zone
from cdk_sagemaker_training.request.props import TrainingProps
from cdk_sagemaker_training.resources.role import TrainingRole

if TYPE_CHECKING:
    from aws_cdk import aws_ec2 as ec2

# Actions for logging (guide, "IAM actions supported for MLflow"), without deleting, restoring, registering and tracing.
_MLFLOW = (
    *("CreateExperiment", "GetExperiment", "GetExperimentByName", "SearchExperiments", "SetExperimentTag"),
    *("CreateRun", "GetRun", "UpdateRun", "SearchRuns", "SetTag", "ListArtifacts", "GetMetricHistory"),
    *("LogBatch", "LogInputs", "LogMetric", "LogModel", "LogOutputs", "LogParam"),
    # For models logged by MLflow 3.
    *("FinalizeLoggedModel", "GetLoggedModel", "ListLoggedModelArtifacts", "LogLoggedModelParams"),
    *("SearchLoggedModels", "SetLoggedModelTags"),
)
# Of the agent in the container (guide, "Access a training container through AWS Systems Manager for remote debugging").
_REMOTE_DEBUG = ("CreateControlChannel", "CreateDataChannel", "OpenControlChannel", "OpenDataChannel")


def grant_channels(role: TrainingRole, props: TrainingProps) -> None:
    """Grant jobs permission to read their channels; for file systems, also allow connections from the job's network."""
    network = props.get("network")
    for name, channel in (props.get("channels") or {}).items():
        if isinstance(channel, S3Channel):
            role.grant_read(channel.bucket, channel.prefix)
            if channel.objects is not None:
                role.grant_read(channel.objects.bucket, channel.objects.prefix)
            continue
        _grant_file_system(role, channel)
        if isinstance(channel, EfsChannel) and network is not None:
            check_zone(name, channel, network)
            check_policy(name, channel)
        if network is not None:
            _connect(channel, network.connections)


def grant_members(role: TrainingRole, props: TrainingProps) -> None:
    """Grant jobs the permissions for all props but channels, output, image and network."""
    for place in _places(props):
        role.grant_write(place.bucket, place.prefix)
    _grant_keys(role, props)
    mlflow, registry = props.get("mlflow"), props.get("private_registry")
    if mlflow is not None:
        _allow(role, [f"sagemaker-mlflow:{action}" for action in _MLFLOW], [mlflow.resource_arn])
    if props.get("remote_debug"):
        # Systems Manager's channels have no resource.
        _allow(role, [f"ssmmessages:{action}" for action in _REMOTE_DEBUG], ["*"])
    if registry is not None and registry.credentials_provider is not None:
        role.grant_invoke(registry.credentials_provider)
    if props.get("session_tag_chaining"):
        _allow_tags_of_sessions(role)


def _places(props: TrainingProps) -> list[Any]:
    """Where in S3 the job's debugger, profiler and TensorBoard write."""
    watchers = [value for value in (props.get("debugger"), props.get("profiler")) if value is not None]
    places = [rule.output for watcher in watchers for rule in watcher.rules]
    places += [watcher.output for watcher in (*watchers, props.get("tensorboard")) if watcher is not None]
    return [place for place in dict.fromkeys(places) if place is not None]


def _grant_keys(role: TrainingRole, props: TrainingProps) -> None:
    output_key, volume_key = props.get("output_key"), props.get("volume_key")
    if output_key is not None:
        role.grant_key(output_key)
    if volume_key is not None:
        # EC2 uses the key for the hosts' volumes, by a grant that SageMaker creates with the role.
        role.role.add_to_principal_policy(
            iam.PolicyStatement(
                actions=["kms:CreateGrant"],
                resources=[volume_key.key_arn],
                conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
            )
        )


def _grant_file_system(role: TrainingRole, channel: Any) -> None:
    if isinstance(channel, EfsChannel):
        _allow(role, ["elasticfilesystem:DescribeMountTargets"], [channel.file_system.file_system_arn])
        return
    # DescribeFileSystems has no resource; a statement with the file system's ARN would allow nothing ("Actions, resources, and
    # condition keys for Amazon FSx").
    _allow(role, ["fsx:DescribeFileSystems"], ["*"])


def _connect(channel: Any, hosts: ec2.Connections) -> None:
    if isinstance(channel, EfsChannel):
        channel.file_system.connections.allow_default_port_from(hosts, "hosts of training jobs read their channels")
    else:
        allow_lustre(channel.file_system, hosts)


def _allow_tags_of_sessions(role: TrainingRole) -> None:
    # The trust policy of an imported role is not managed here.
    if isinstance(role.role, iam.Role) and role.role.assume_role_policy is not None:
        role.role.assume_role_policy.add_statements(
            iam.PolicyStatement(
                actions=["sts:TagSession"],
                principals=[iam.ServicePrincipal("sagemaker.amazonaws.com")],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(role).account}},
            )
        )


def _allow(role: TrainingRole, actions: list[str], resources: list[str]) -> None:
    role.role.add_to_principal_policy(iam.PolicyStatement(actions=actions, resources=resources))
