"""Rules of the props of machines and time limits; each with its source.

"API" is the documentation of the members that comes with botocore's service model; "guide" SageMaker's developer guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, unlisted_hint
from cdk_sagemaker_training.data.capacity import Spot, UltraServers, WarmPool
from cdk_sagemaker_training.facts.instance_facts import family
from cdk_sagemaker_training.facts.instance_types import has_local_storage
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.jobs.kinds import JobRequest
from cdk_sagemaker_training.request.context import RequestContext
from cdk_sagemaker_training.request.members import max_runtime_seconds

# StoppingCondition's documentation; the model itself has no upper bound.
_LONGEST_RUNTIME = 28 * 24 * 3_600
# Members that must be equal for a job to use the warm pool of another (guide, "SageMaker AI managed
# warm pools", "Matching training jobs").
_WARM_POOL_MATCH = (
    "EnableInterContainerTrafficEncryption",
    "EnableNetworkIsolation",
    "ResourceConfig.InstanceCount",
    "ResourceConfig.InstanceType",
    "ResourceConfig.VolumeKmsKeyId",
    "ResourceConfig.VolumeSizeInGB",
    "RoleArn",
    "SessionChainingConfig",
    "VpcConfig",
)
_ULTRASERVER_FAMILIES = ("p6e-", "trn2")


def instance_types(job_request: JobRequest) -> tuple[str, ...]:
    """Return the instance types of a request, each once."""
    return tuple(dict.fromkeys(group["InstanceType"] for group in _groups(job_request)))


def instance_count(job_request: JobRequest) -> int | None:
    """Return the number of machines of a request, the maximum over several types; None if it is a token."""
    counts: list[int] = [group["InstanceCount"] for group in _groups(job_request)]
    if any(map(is_unresolved, counts)):
        return None
    return max(counts) if "InstancePreferences" in job_request.resource_config else sum(counts)


def _groups(job_request: JobRequest) -> list[Mapping[str, Any]]:
    return machines_of(job_request.resource_config)


def check_max_runtime(max_runtime: Any, context: RequestContext) -> None:
    """Check that a job runs for at most 28 days (API, StoppingCondition).

    Raises:
        ValueError: For a time that is longer.
    """
    seconds = max_runtime_seconds(max_runtime)
    if not is_unresolved(seconds) and seconds > _LONGEST_RUNTIME:
        raise ValueError(
            f"max_runtime must be between 1 second and 28 days, like Duration.hours(6), got {seconds} seconds"
        )


def check_warm_pool(warm_pool: WarmPool, context: RequestContext) -> None:
    """Check that a warm pool goes neither with instance groups nor with spot machines (guide, "... warm pools").

    Raises:
        ValueError: For either.
    """
    if group_names := context.job_request.group_names:
        raise ValueError(
            "warm_pool must be left out of a job with instance groups, for which SageMaker has no warm pools, "
            f"like warm_pool=None, got {warm_pool!r} with groups {list(group_names)}"
        )
    if context.props.get("spot") is not None:
        raise ValueError(
            f"warm_pool must be left out of a job on spot machines, like warm_pool=None, got {warm_pool!r} with spot"
        )


def check_spot(spot: Spot, context: RequestContext) -> None:
    """Check that a spot job may take at least as long as it may run (API, StoppingCondition), and runs on one type.

    Raises:
        ValueError: For a shorter time, and for a choice among types.
    """
    _check_preferences("spot", spot, context)
    wait, run = seconds_of("max_wait", spot.max_wait), max_runtime_seconds(context.props.get("max_runtime"))
    if not is_unresolved(wait) and not is_unresolved(run) and wait < run:
        raise ValueError(
            "spot.max_wait must be at least max_runtime, since it includes the time that the job runs, "
            f"like Duration.seconds({run}), got {wait} seconds"
        )


def check_volume_key(key: Any, context: RequestContext) -> None:
    """Check that the machines have a volume to encrypt, and that the key is no alias.

    "You can't request a VolumeKmsKeyId when using an instance type with local storage", and its formats are a key's id and ARN,
    where those of OutputDataConfig.KmsKeyId are aliases too (API, ResourceConfig and OutputDataConfig).

    Raises:
        ValueError: For machines with local disks, and for an alias.
    """
    if hasattr(key, "alias_name"):
        raise ValueError(
            "volume_key must be a key, of which SageMaker takes no alias, like kms.Key.from_key_arn(self, 'Key', 'arn:...'), "
            f"got the alias {key.alias_name!r}"
        )
    local = [name for name in instance_types(context.job_request) if has_local_storage(name)]
    if local:
        raise ValueError(
            "volume_key must be left out of a job on machines with local disks, which their hardware encrypts, "
            f"like volume_key=None or machines like 'ml.c5.xlarge'{unlisted_hint(local[0])}, got a key with {local[0]!r}"
        )


def check_training_plan(training_plan: str, context: RequestContext) -> None:
    """Check that reserved machines are neither spot machines nor those of a choice among types with plans of their own.

    A training plan's capacity is reserved and paid for up front (API, CreateTrainingPlan), a spot job's is neither.

    Raises:
        ValueError: For either.
    """
    if context.props.get("spot") is not None:
        raise ValueError(
            "training_plan must be left out of a job on spot machines, since a plan's machines are reserved, like spot=None, "
            f"got {training_plan!r} with spot"
        )
    if any(one["TrainingPlanArns"] for one in context.job_request.resource_config.get("InstancePreferences", ())):
        _check_preferences("training_plan", training_plan, context, "types with training plans of their own")


def check_ultra_servers(ultra_servers: UltraServers, context: RequestContext) -> None:
    """Check that the machines are those of UltraServers, and as many as are placed.

    "Only applicable for UltraServer capacity" (API, ResourceConfig.InstancePlacementConfig).

    Raises:
        ValueError: For machines of another family, for too few of them, and for a choice among types.
    """
    _check_preferences("ultra_servers", ultra_servers, context)
    for name in instance_types(context.job_request):
        check_listed(
            "ultraserver-families",
            name,
            family(name).startswith(_ULTRASERVER_FAMILIES),
            "ultra_servers must be left out of a job on machines that are not in UltraServers, "
            "like 'ml.p6e-gb200.36xlarge'",
        )
    placed, machines = sum(ultra_servers.instance_counts), instance_count(context.job_request)
    if machines is not None and placed > machines:
        raise ValueError(
            f"ultra_servers must place no more machines than the job has, like UltraServers([{machines}]), got {placed}"
        )


def _check_preferences(prop: str, value: Any, context: RequestContext, beside: str = "several types") -> None:
    """Refuse what InstancePreferences exclude (API, ResourceConfig.InstancePreferences, InstancePreference.TrainingPlanArns)."""
    preferences = context.job_request.resource_config.get("InstancePreferences")
    if preferences:
        raise ValueError(
            f"{prop} must be left out of a job that may run on {beside}, like {prop}=None, "
            f"got {value!r} with {[one['InstanceType'] for one in preferences]}"
        )


def warm_pool_key(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a request that must be equal for two jobs to share a warm pool, by their paths."""
    resources = {f"ResourceConfig.{name}": value for name, value in request["ResourceConfig"].items()}
    members = {**request, **resources}
    return {name: value for name, value in members.items() if name.removesuffix(".$") in _WARM_POOL_MATCH}
