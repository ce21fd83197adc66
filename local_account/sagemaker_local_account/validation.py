"""What the service refuses of a CreateTrainingJob request before a job is there."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape

from .members import refused_members
from .plan import groups_of, preferences_of, s3_source

_LISTED = "ml.p5.48xlarge"  # of the many that the model has
_TYPES: dict[str, type | tuple[type, ...]] = {
    "structure": dict,
    "map": dict,
    "list": list,
    "string": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "double": (int, float),
    "float": (int, float),
}


class ServiceError(Exception):
    """An error in the service's own terms: its code, what it says, and the HTTP status."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


def refused(message: str) -> ServiceError:
    return ServiceError("ValidationException", message)


def check(operation: str, request: Mapping[str, Any], service: str = "sagemaker") -> None:
    """Hold a request against botocore's model of the service: types, members, lengths, ranges, enums and patterns."""
    shape = _model(service).operation_model(operation).input_shape
    assert shape is not None
    problems = list(_problems(shape, request, ""))
    if problems:
        detected = "1 validation error" if len(problems) == 1 else f"{len(problems)} validation errors"
        raise refused(f"{detected} detected: {'; '.join(problems)}")


def as_listed(request: Mapping[str, Any], types: Collection[str]) -> Mapping[str, Any]:
    """A request as if its instance types among ``types``, which the service has since the model was made, were in the model."""

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
    """The rules that the model does not hold. Those of instance groups are from SageMaker's developer guide."""
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
    """The service model's documentation of ResourceConfig and of InstancePreference."""
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
    """ResourceConfig in the API reference: a volume is provisioned for machines without storage of their own."""
    for instance_type in [name for name, _ in preferences_of(request)] or [name for _, name, _ in groups_of(request)]:
        # EC2's names: of these families, those with a d have disks.
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
    """What this account does not do, so that no job passes here on what is left out."""
    for path, reason in refused_members(request):
        raise refused(f"the local account does not have {path} of CreateTrainingJob: {reason}")
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
                f"the local account does not have input mode Pipe (channel {channel['ChannelName']}); it has File, FastFile"
            )
        kind = s3_source(channel).get("S3DataType")
        if kind not in ("S3Prefix", "ManifestFile", None):
            raise refused(
                f"the local account does not have S3DataType {kind} (channel {channel['ChannelName']}); "
                "it has S3Prefix, ManifestFile"
            )


def _groups(request: Mapping[str, Any]) -> list[tuple[str | None, str, int]]:
    return groups_of(request) if request["ResourceConfig"].get("InstanceGroups") else []


@cache
def _model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def _problems(shape: Shape, value: Any, path: str) -> Iterator[str]:
    right_type = isinstance(value, _TYPES.get(shape.type_name, object))
    if not right_type or (shape.type_name in ("integer", "long") and isinstance(value, bool)):
        # AWS's services read the whole request before they look at any value.
        raise ServiceError(
            "SerializationException",
            f"{_token(value)} can not be converted to {shape.type_name.capitalize()}: '{path}' must be of type "
            f"{shape.type_name}, got {value!r}",
        )
    for constraint in _constraints(shape, value):
        yield f"Value '{value}' at '{path}' failed to satisfy constraint: Member must {constraint}"
    if isinstance(shape, StructureShape):
        for name in shape.required_members:
            if value.get(name) is None:
                yield f"Value null at '{_below(path, name)}' failed to satisfy constraint: Member must not be null"
        for name, item in value.items():
            if name not in shape.members:
                yield f"'{_below(path, name)}' is no member of {shape.name}"
            elif item is not None:
                yield from _problems(shape.members[name], item, _below(path, name))
    elif isinstance(shape, ListShape):
        for number, item in enumerate(value, start=1):
            yield from _problems(shape.member, item, f"{path}.{number}.member")
    elif isinstance(shape, MapShape):
        for key, item in value.items():
            yield from _problems(shape.key, key, f"{path}.{key}")
            yield from _problems(shape.value, item, f"{path}.{key}")


def _token(value: Any) -> str:
    """What JSON readers call a value."""
    if isinstance(value, bool) or value is None:
        return f"{json.dumps(value).upper()}_VALUE"
    names: dict[type, str] = {str: "STRING_VALUE", dict: "START_OBJECT", list: "START_ARRAY"}
    return names.get(type(value), "NUMBER_VALUE")


def _below(path: str, member: str) -> str:
    name = member[:1].lower() + member[1:]
    return f"{path}.{name}" if path else name


def _constraints(shape: Shape, value: Any) -> Iterator[str]:
    measured = shape.type_name in ("string", "list", "map")
    size, noun = (len(value), "have length") if measured else (value, "have value")
    metadata = shape.metadata
    if "min" in metadata and size < metadata["min"]:
        yield f"{noun} greater than or equal to {metadata['min']}"
    if "max" in metadata and size > metadata["max"]:
        yield f"{noun} less than or equal to {metadata['max']}"
    if metadata.get("enum") and value not in metadata["enum"]:
        yield f"satisfy enum value set: [{', '.join(metadata['enum'])}]"
    if "pattern" in metadata and not _pattern(metadata["pattern"]).fullmatch(value):
        yield f"satisfy regular expression pattern: {metadata['pattern']}"


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of the service model, whose Unicode classes Python's ``re`` spells otherwise."""
    return re.compile(text.replace(r"\p{L}", r"\w").replace(r"\p{N}", r"\w").replace(r"\p{Z}", r"\s"))
