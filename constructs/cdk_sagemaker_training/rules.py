"""Rules between members of a request, which the service model does not know; each with its source.

"API" is the documentation of the members that comes with botocore's service model; "guide" SageMaker's developer guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cdk_sagemaker_training.capacity import PrivateRegistry, UltraServers
from cdk_sagemaker_training.data import S3Channel, Spot, WarmPool, seconds_of
from cdk_sagemaker_training.instance_facts import family
from cdk_sagemaker_training.instance_group import machines_of
from cdk_sagemaker_training.instance_types import has_local_storage
from cdk_sagemaker_training.jobs import JobRequest
from cdk_sagemaker_training.observability import Debugger, Profiler
from cdk_sagemaker_training.tokens import is_unresolved
from cdk_sagemaker_training.unlisted import check_listed, way_out

# StoppingCondition's documentation; the model itself has no upper bound.
_LONGEST_RUNTIME = 28 * 24 * 3_600
# What two jobs must have alike for the second to run on the machines that the first left warm (guide, "SageMaker AI managed
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
    """The types of machines that a request asks for, each once."""
    return tuple(dict.fromkeys(group["InstanceType"] for group in _groups(job_request)))


def instance_count(job_request: JobRequest) -> int | None:
    """How many machines a request asks for, at most where it may be several types; None where that is known only later."""
    counts: list[int] = [group["InstanceCount"] for group in _groups(job_request)]
    if any(map(is_unresolved, counts)):
        return None
    return max(counts) if "InstancePreferences" in job_request.resource_config else sum(counts)


def _groups(job_request: JobRequest) -> list[Mapping[str, Any]]:
    return machines_of(job_request.resource_config)


def check_max_runtime(seconds: int) -> None:
    """Raise ``ValueError`` unless a job may run for so many seconds: at least 1, at most 28 days (API, StoppingCondition)."""
    if is_unresolved(seconds):
        return
    if type(seconds) is not int or not 1 <= seconds <= _LONGEST_RUNTIME:
        raise ValueError(
            f"max_runtime must be between 1 second and 28 days, like Duration.hours(6), got {seconds} seconds"
        )


def check_channels(channels: Mapping[str, Any], group_names: tuple[str, ...], *, network: bool) -> None:
    """Raise ``ValueError`` for channels that the job cannot have.

    File systems are mounted into a VPC (guide, "Configure data input channel to use Amazon FSx for Lustre", "... Amazon EFS").
    Instance groups are named on all channels or on none (the service's error "Some channels have assigned instance groups:
    [...] while others not"), and a file system has no place to name them.
    """
    for name, channel in channels.items():
        if isinstance(channel, S3Channel):
            _check_groups(name, channel, group_names)
        elif not network:
            raise ValueError(
                f"network must be given for a channel on a file system, which is mounted in a VPC, "
                f"like TrainingNetwork(self, 'Network'), got None with channels[{name!r}]"
            )
    on_file_systems = [name for name, channel in channels.items() if not isinstance(channel, S3Channel)]
    with_groups = [name for name, channel in channels.items() if isinstance(channel, S3Channel) and channel.groups]
    if on_file_systems and with_groups:
        raise ValueError(
            f"channels[{with_groups[0]!r}].groups must be left out beside a channel on a file system, which goes to all groups, "
            f"like groups=None, got channels[{on_file_systems[0]!r}]"
        )


def _check_groups(name: str, channel: S3Channel, group_names: tuple[str, ...]) -> None:
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


def keep_alive_seconds(warm_pool: WarmPool | None, spot: Spot | None, group_names: tuple[str, ...]) -> int | None:
    """How long a warm pool keeps its machines. Neither with groups nor on spot machines (guide, "... warm pools")."""
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


def max_wait_seconds(spot: Spot | None, max_runtime_seconds: int) -> int | None:
    """How long a spot job may take, at least as long as it may run; only with spot (API, StoppingCondition)."""
    if spot is None:
        return None
    seconds = seconds_of("max_wait", spot.max_wait)
    if not is_unresolved(seconds) and not is_unresolved(max_runtime_seconds) and seconds < max_runtime_seconds:
        raise ValueError(
            "spot.max_wait must be at least max_runtime, since it counts the running too, "
            f"like Duration.seconds({max_runtime_seconds}), got {seconds} seconds"
        )
    return seconds


def check_volume(job_request: JobRequest, size_gb: int, key: str | None) -> None:
    """Raise ``ValueError`` for a volume without a size, and for a key on machines that have no volume to encrypt.

    "When using an ML instance with the EBS-only storage option ... you must define the size"; "You can't request a
    VolumeKmsKeyId when using an instance type with local storage" (API, ResourceConfig).
    """
    if not is_unresolved(size_gb) and (type(size_gb) is not int or size_gb < 1):
        raise ValueError(f"volume_size must be at least 1 GiB, like Size.gibibytes(30), got {size_gb!r} GiB")
    local = [name for name in instance_types(job_request) if has_local_storage(name)]
    if key is not None and local:
        raise ValueError(
            "volume_key must be left out of a job on machines with disks of their own, which their hardware encrypts, "
            f"like volume_key=None or machines like 'ml.c5.xlarge'{way_out(local[0])}, got a key with {local[0]!r}"
        )


def check_capacity(
    job_request: JobRequest, training_plan: str | None, ultra_servers: UltraServers | None, spot: Spot | None
) -> None:
    """Raise ``ValueError`` for reserved machines on spot, and for UltraServers that the machines are none of.

    A training plan's capacity is reserved and paid for up front (API, CreateTrainingPlan), a spot job's is neither.
    "Only applicable for UltraServer capacity" (API, ResourceConfig.InstancePlacementConfig).
    """
    if training_plan is not None and spot is not None:
        raise ValueError(
            "training_plan must be left out of a job on spot machines, since a plan's are reserved, like spot=None, "
            f"got {training_plan!r} with spot"
        )
    _check_preferences(job_request, training_plan, ultra_servers, spot)
    if ultra_servers is None:
        return
    for name in instance_types(job_request):
        check_listed(
            "ultraserver-families",
            name,
            family(name).startswith(_ULTRASERVER_FAMILIES),
            "ultra_servers must be left out of a job on other machines than those of UltraServers, "
            "like 'ml.p6e-gb200.36xlarge'",
        )
    placed, machines = sum(ultra_servers.instance_counts), instance_count(job_request)
    if machines is not None and placed > machines:
        raise ValueError(
            f"ultra_servers must place no more machines than the job has, like UltraServers([{machines}]), got {placed}"
        )


def _check_preferences(
    job_request: JobRequest, training_plan: str | None, ultra_servers: UltraServers | None, spot: Spot | None
) -> None:
    """What a choice among types excludes (API, ResourceConfig.InstancePreferences, and InstancePreference.TrainingPlanArns)."""
    preferences = job_request.resource_config.get("InstancePreferences")
    if not preferences:
        return
    planned = any(one["TrainingPlanArns"] for one in preferences)
    excluded = {"spot": spot, "ultra_servers": ultra_servers, "training_plan": training_plan if planned else None}
    for prop, value in excluded.items():
        if value is not None:
            beside = "types with training plans of their own" if prop == "training_plan" else "several types"
            raise ValueError(
                f"{prop} must be left out of a job that may run on {beside}, like {prop}=None, "
                f"got {value!r} with {[one['InstanceType'] for one in preferences]}"
            )


def check_network_isolation(network_isolation: bool, remote_debug: bool) -> None:
    """Raise ``ValueError`` for a host that nobody could enter.

    "No inbound or outbound network calls can be made" (API, EnableNetworkIsolation); remote debugging is a session of Systems
    Manager, whose agent in the container calls out (guide, "Access a training container through AWS Systems Manager").
    """
    if network_isolation and remote_debug:
        raise ValueError(
            "remote_debug must be left out of a job with network isolation, whose hosts nothing enters or leaves, "
            "like network_isolation=False, got True with network_isolation=True"
        )


def check_private_registry(private_registry: PrivateRegistry | None, *, network: bool) -> None:
    """Raise ``ValueError`` without a VPC: it is through it that the registry is reached (API, TrainingImageConfig)."""
    if private_registry is not None and not network:
        raise ValueError(
            "network must be given for an image in a private registry, which is reached through it, "
            "like TrainingNetwork(self, 'Network'), got None with private_registry"
        )


def profiler_config(job_request: JobRequest, profiler: Profiler | None, output: Any) -> dict[str, Any]:
    """The request's ProfilerConfig: the user's, unless the kind of job has its own."""
    of_job = dict(job_request.profiler_config)
    if profiler is None:
        return {**of_job, "S3OutputPath": output.uri} if of_job.get("DisableProfiler") is False else of_job
    if of_job and profiler.disable != of_job.get("DisableProfiler"):
        raise ValueError(
            "profiler must be left to a job that decides it, like job=CompiledJob(..., TrainingCompiler(profiler=True)), "
            f"got {profiler!r}"
        )
    return profiler.config(output)


def rule_configurations(
    debugger: Debugger | None, profiler: Profiler | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """DebugRuleConfigurations and ProfilerRuleConfigurations, whose names are unique (API, DebugRuleConfiguration)."""
    rules = [list(value.rules) if value else [] for value in (debugger, profiler)]
    names = [rule.name for some in rules for rule in some]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"rules must each have a name of their own, like 'LossNotDecreasing', got {name!r} twice")
    debug, profile = ([rule.configuration() for rule in some] for some in rules)
    return debug, profile


def check_tags(keys: Iterable[str]) -> None:
    """Raise ``ValueError`` for keys that are AWS's own ("Tag naming limits and requirements" of AWS's tagging guide)."""
    for key in keys:
        if isinstance(key, str) and key.lower().startswith("aws:"):
            raise ValueError(f"tags must not begin with 'aws:', which is AWS's own, like 'team', got {key!r}")


def check_environment(environment: Mapping[str, str], job_request: JobRequest) -> None:
    """Raise ``ValueError`` for a variable that the job sets itself, whose value would take the place of the user's."""
    for name, value in job_request.environment.items():
        if environment.get(name, value) != value:
            raise ValueError(
                f"environment must leave {name!r} to the job, which sets it to {value!r}; say it there, "
                f"like compiler=TorchCompile(mode='max-autotune'), got {environment[name]!r}"
            )


def warm_pool_key(request: Mapping[str, Any]) -> dict[str, Any]:
    """What of a request must be alike for two jobs to share a warm pool, by the members' paths."""
    resources = {f"ResourceConfig.{name}": value for name, value in request["ResourceConfig"].items()}
    members = {**request, **resources}
    return {name: value for name, value in members.items() if name.removesuffix(".$") in _WARM_POOL_MATCH}
