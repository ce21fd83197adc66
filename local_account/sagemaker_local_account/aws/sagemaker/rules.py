"""Validation rules for CreateTrainingJob that are not in the service model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from sagemaker_local_account.aws.sagemaker.scheduler import groups_of, preferences_of
from sagemaker_local_account.aws.sagemaker.unsupported_fields import refused_members
from sagemaker_local_account.core.service_errors import refused
from sagemaker_local_account.storage.transfer import s3_source

_LISTED = "ml.p5.48xlarge"  # any type of the model


def as_listed(request: Mapping[str, Any], types: Collection[str]) -> Mapping[str, Any]:
    """Returns a request for the model's validation, in which newer instance types are replaced by one of the model.

    Args:
        request: CreateTrainingJob's.
        types: the instance types that are not in the model.
    """

    def listed(value: Any) -> Any:
        if isinstance(value, list):
            return [listed(item) for item in value]
        if isinstance(value, Mapping):
            return {
                name: _LISTED if name == "InstanceType" and item in types else listed(item)
                for name, item in value.items()
            }
        return value

    resources = request.get("ResourceConfig")
    return {**request, "ResourceConfig": listed(resources)} if types and resources else request


def check_rules(request: Mapping[str, Any]) -> None:
    """Raises ServiceError for a violated rule. Source of those for instance groups: SageMaker's developer guide."""
    resources = request["ResourceConfig"]
    named = [name for name, *_ in _groups(request) if name]
    _check_preferences(request)
    if resources.get("InstanceGroups") and (resources.get("InstanceType") or resources.get("InstanceCount")):
        raise refused("InstanceType or InstanceCount cannot be specified with InstanceGroups in ResourceConfig")
    several = resources.get("InstanceGroups") or resources.get("InstancePreferences")
    if not several and not (resources.get("InstanceType") and resources.get("InstanceCount")):
        raise refused("ResourceConfig must have InstanceType and InstanceCount of at least 1, or InstanceGroups")
    if named and resources.get("KeepAlivePeriodInSeconds"):
        raise refused("KeepAlivePeriodInSeconds in ResourceConfig cannot be specified with InstanceGroups")
    channels = [(channel["ChannelName"], s3_source(channel)) for channel in request.get("InputDataConfig", [])]
    with_groups = [name for name, source in channels if source.get("InstanceGroupNames")]
    if with_groups and len(with_groups) < len(channels):
        raise refused("InstanceGroupNames must be specified for all channels or for none of InputDataConfig")
    for name, source in channels:
        unknown = set(source.get("InstanceGroupNames", [])) - set(named)
        if unknown:
            raise refused(f"channel {name} names instance groups that ResourceConfig does not have: {sorted(unknown)}")
    _check_volume(request)
    _check_spot(request)
    _check_served(request)


def _check_preferences(request: Mapping[str, Any]) -> None:
    """Rules of InstancePreferences (source: service model, documentation of ResourceConfig and InstancePreference)."""
    resources = request["ResourceConfig"]
    for member in ("SelectedInstanceType", "SelectedInstanceCount"):
        if member in resources:
            raise refused(f"{member} in ResourceConfig is read-only and isn't accepted in CreateTrainingJob")
    preferences = resources.get("InstancePreferences")
    if not preferences:
        return
    for member in ("InstanceType", "InstanceGroups", "InstancePlacementConfig"):
        if resources.get(member):
            raise refused(f"InstancePreferences in ResourceConfig cannot be specified with {member}")
    if request.get("EnableManagedSpotTraining"):
        raise refused("InstancePreferences in ResourceConfig cannot be specified with EnableManagedSpotTraining")
    types = [one["InstanceType"] for one in preferences]
    if len(set(types)) < len(types):
        raise refused("an instance type can appear only once in InstancePreferences")
    counted = [one for one in preferences if one.get("InstanceCount")]
    if len(counted) != (0 if resources.get("InstanceCount") else len(preferences)):
        raise refused(
            "InstanceCount must be in every one of InstancePreferences, or in ResourceConfig, and not in both"
        )
    if resources.get("TrainingPlanArn") and any(one.get("TrainingPlanArns") for one in preferences):
        raise refused(
            "TrainingPlanArns in InstancePreferences cannot be specified with TrainingPlanArn in ResourceConfig"
        )


def _check_volume(request: Mapping[str, Any]) -> None:
    """VolumeSizeInGB is required for machines without instance storage (source: API reference, ResourceConfig)."""
    for instance_type in [name for name, _ in preferences_of(request)] or [name for _, name, _ in groups_of(request)]:
        # Of these families, types with a d in their name have instance storage.
        if re.match(r"ml\.([tmcr]\d[a-ce-z]*|p2|p3)\.", instance_type) and not request["ResourceConfig"].get(
            "VolumeSizeInGB"
        ):
            raise refused(
                f"VolumeSizeInGB in ResourceConfig must be at least 1 for {instance_type}, which has no storage of its own"
            )


def _check_spot(request: Mapping[str, Any]) -> None:
    limits = request["StoppingCondition"]
    wait, runtime = limits.get("MaxWaitTimeInSeconds"), limits.get("MaxRuntimeInSeconds", 86_400)
    if wait is not None and not request.get("EnableManagedSpotTraining"):
        raise refused("MaxWaitTimeInSeconds in StoppingCondition can only be specified with EnableManagedSpotTraining")
    if request.get("EnableManagedSpotTraining") and (wait is None or wait < runtime):
        raise refused(
            f"MaxWaitTimeInSeconds must be at least MaxRuntimeInSeconds, {runtime}, for managed spot training"
        )


def _check_served(request: Mapping[str, Any]) -> None:
    """Rejects what the account does not support."""
    for path, reason in refused_members(request):
        raise refused(f"the local account does not support {path} of CreateTrainingJob: {reason}")
    for channel in request.get("InputDataConfig", []):
        mode = channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"]
        given = [name for name in ("S3DataSource", "FileSystemDataSource") if channel["DataSource"].get(name)]
        if len(given) != 1:
            raise refused(
                "DataSource must have one of S3DataSource, FileSystemDataSource, "
                f"got channel {channel['ChannelName']} with {list(channel['DataSource'])}"
            )
        if mode == "Pipe":
            raise refused(
                f"input mode must be File or FastFile in the local account, got Pipe (channel {channel['ChannelName']})"
            )
        kind = s3_source(channel).get("S3DataType")
        if kind not in ("S3Prefix", "ManifestFile", None):
            raise refused(
                "S3DataType must be S3Prefix or ManifestFile in the local account, "
                f"got {kind} (channel {channel['ChannelName']})"
            )


def _groups(request: Mapping[str, Any]) -> list[tuple[str | None, str, int]]:
    return groups_of(request) if request["ResourceConfig"].get("InstanceGroups") else []
