"""The machines and the time limits of a job: props, members, rules and warnings.

In the sources of rules "API" is the documentation of the members that comes with botocore's service model, and "guide"
SageMaker's developer guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict

from aws_cdk import SizeRoundingBehavior

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, unlisted_hint
from cdk_sagemaker_training.data.capacity import Spot, UltraServers, WarmPool
from cdk_sagemaker_training.facts.instance_facts import family
from cdk_sagemaker_training.facts.instance_types import has_local_storage, is_newer, nearest
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.instance_group import machines_of
from cdk_sagemaker_training.jobs.kinds import JobRequest, TrainingJob
from cdk_sagemaker_training.props.prop import IN_INPUT, Known, Member, Prop
from cdk_sagemaker_training.request.context import JobContext, RequestContext, flag, optional
from cdk_sagemaker_training.request.data import lost_files_advice

if TYPE_CHECKING:
    from aws_cdk import Duration, Size
    from aws_cdk import aws_kms as kms

_ONE_DAY = 24 * 3_600  # SageMaker's default (API, StoppingCondition.MaxRuntimeInSeconds)
_LONGEST_RUNTIME = 28 * _ONE_DAY  # StoppingCondition's documentation; the model itself has no upper bound
_VOLUME_GIB = 30  # the default of AWS's SDK
_ULTRASERVER_FAMILIES = ("p6e-", "trn2")
# "jobs that request accelerated computing instance types, such as instances in the ml.p , ml.g , and ml.trn families"
# (API, StoppingCondition.MaxPendingTimeInSeconds).
_ACCELERATED = ("p", "g", "trn")
# Starting a container and loading a framework take most of this time.
_SHORT_SECONDS = 60
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


class MachineProps(TypedDict, total=False):
    """The machines and the time limits of a job."""

    job: Required[
        Annotated[
            TrainingJob,
            Prop(
                Member(
                    "ResourceConfig",
                    _resource_config,
                    parts=(
                        Member("InstanceType", sync=True, docs="`job`: `InstanceGroup`"),
                        Member("InstanceCount", sync=True, docs="`job`: `InstanceGroup`"),
                        Member("InstancePreferences", docs="`job`: `InstanceGroup` of several types"),
                        Member("InstanceGroups", docs="`job`: `HeterogeneousJob`, in its `order`; also of one group"),
                    ),
                ),
                advice=_newer_types,
            ),
        ]
    ]
    """The kind of job and its machines, such as ``DataParallelJob(InstanceGroup("ml.g5.xlarge"))``. Required."""

    ultra_servers: Annotated[
        UltraServers | None,
        Prop(
            Member("ResourceConfig.InstancePlacementConfig", optional(UltraServers.placement_config)),
            check=_check_ultra_servers,
        ),
    ]
    """How machines are placed on UltraServers, for their types only. Default: SageMaker places them."""

    warm_pool: Annotated[
        WarmPool | None,
        Prop(
            Member(
                "ResourceConfig.KeepAlivePeriodInSeconds",
                optional(lambda warm_pool: seconds_of("keep_alive", warm_pool.keep_alive)),
            ),
            check=_check_warm_pool,
        ),
    ]
    """Keeps the machines for the next job, and bills them; neither with instance groups nor on spot machines. Default: none."""

    training_plan: Annotated[
        str | None,
        Prop(
            Member("ResourceConfig.TrainingPlanArn"),
            check=_check_training_plan,
            known=Known("execution", "permissions are then on all training plans of the account and region"),
            example="'arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring'",
        ),
    ]
    """The ARN of the training plan whose reserved machines the job runs on. Default: on-demand machines."""

    volume_key: Annotated[
        kms.IKey | None,
        Prop(
            Member("ResourceConfig.VolumeKmsKeyId", optional(lambda key: key.key_arn), sync=True),
            check=_check_volume_key,
        ),
    ]
    """Encrypts the volumes of the hosts; not of types with disks of their own. Default: SageMaker's own key."""

    volume_size: Annotated[
        Size | None,
        Prop(
            Member("ResourceConfig.VolumeSizeInGB", lambda size, _: _volume_gib(size), sync=True),
            known=IN_INPUT,
            advice=_unused_volume,
        ),
    ]
    """The volume of each host, in whole GiB. Types with disks of their own use these instead. Default: 30 GiB."""

    infra_check: Annotated[bool, Prop(Member("InfraCheckConfig.EnableInfraCheck", flag))]
    """Tests the machines before they train. Default: False."""

    max_pending: Annotated[
        Duration | int | None,
        Prop(
            Member("StoppingCondition.MaxPendingTimeInSeconds", lambda time, _: max_pending_seconds(time)),
            known=IN_INPUT,
            advice=_unused_max_pending,
        ),
    ]
    """The longest that the job waits for machines with accelerators: a Duration or seconds.

    30 minutes to 28 days (service model, MaxPendingTimeInSeconds). Default: SageMaker's own limit.
    """

    max_runtime: Annotated[
        Duration | int | None,
        Prop(
            Member("StoppingCondition.MaxRuntimeInSeconds", lambda time, _: max_runtime_seconds(time), sync=True),
            check=_check_max_runtime,
            known=IN_INPUT,
            advice=lambda time, _: short_time_advice("max_runtime", time),
        ),
    ]
    """How long the job runs, its retries by SageMaker included: a Duration or seconds, at most 28 days. Default: one day."""

    spot: Annotated[
        Spot | None,
        Prop(
            Member("EnableManagedSpotTraining", optional(lambda spot: True), sync=True),
            Member(
                "StoppingCondition.MaxWaitTimeInSeconds",
                optional(lambda spot: seconds_of("max_wait", spot.max_wait)),
                sync=True,
                docs="`Spot(max_wait=)`",
                name="spot.max_wait",
            ),
            check=_check_spot,
            advice=_spot_advice,
        ),
    ]
    """Spot machines, which are cheaper and which AWS may take back; may name the checkpoints too. Default: on-demand machines."""

    maximum_retry_attempts: Annotated[
        int | None, Prop(Member("RetryStrategy.MaximumRetryAttempts", sync=True), known=IN_INPUT)
    ]
    """How often SageMaker starts the job again after an InternalServerError, 1 to 30 (API, RetryStrategy). Default: never."""


def instance_types(job_request: JobRequest) -> tuple[str, ...]:
    """Return the instance types of a request, each once."""
    return tuple(dict.fromkeys(group["InstanceType"] for group in machines_of(job_request.resource_config)))


def instance_count(job_request: JobRequest) -> int | None:
    """Return the number of machines of a request, the maximum over several types; None if it is a token."""
    counts: list[int] = [group["InstanceCount"] for group in machines_of(job_request.resource_config)]
    if any(map(is_unresolved, counts)):
        return None
    return max(counts) if "InstancePreferences" in job_request.resource_config else sum(counts)


def _known_types(context: JobContext) -> list[str]:
    return [name for name in instance_types(context.job_request) if not is_unresolved(name)]


def _resource_config(job: TrainingJob, context: RequestContext) -> Mapping[str, Any]:
    return context.job_request.resource_config


def _newer_types(job: TrainingJob, context: JobContext) -> Iterator[Advice]:
    for name in filter(is_newer, _known_types(context)):
        yield from advice(
            "newer-instance-type",
            f"{name!r} is not among the types that botocore's model of SageMaker lists; the closest is {nearest(name)!r}. "
            "It is assumed to be a newer type, and checks that need facts about it are skipped. A newer botocore may list it.",
        )


def _check_ultra_servers(ultra_servers: UltraServers, context: JobContext) -> None:
    """Placement is "only applicable for UltraServer capacity" (API, ResourceConfig.InstancePlacementConfig)."""
    _check_preferences("ultra_servers", ultra_servers, context)
    for name in instance_types(context.job_request):
        listed = family(name).startswith(_ULTRASERVER_FAMILIES)
        rule = "be left out of a job on machines that are not in UltraServers"
        check_listed("ultraserver-families", name, listed, "ultra_servers", rule, "'ml.p6e-gb200.36xlarge'")
    placed, machines = sum(ultra_servers.instance_counts), instance_count(context.job_request)
    if machines is not None and placed > machines:
        rule = "place no more machines than the job has"
        raise must("ultra_servers", rule, f"UltraServers([{machines}])", f"{placed}")


def _check_preferences(prop: str, value: Any, context: JobContext, beside: str = "several types") -> None:
    """Refuse what InstancePreferences exclude (API, ResourceConfig.InstancePreferences, InstancePreference.TrainingPlanArns)."""
    preferences = context.job_request.resource_config.get("InstancePreferences")
    if preferences:
        got = f"{value!r} with {[preference['InstanceType'] for preference in preferences]}"
        raise must(prop, f"be left out of a job that may run on {beside}", f"{prop}=None", got)


def _check_warm_pool(warm_pool: WarmPool, context: JobContext) -> None:
    """Guide, "SageMaker AI managed warm pools"."""
    if group_names := context.job_request.group_names:
        rule = "be left out of a job with instance groups, for which SageMaker has no warm pools"
        raise must("warm_pool", rule, "warm_pool=None", f"{warm_pool!r} with groups {list(group_names)}")
    if context.props.get("spot") is not None:
        raise must("warm_pool", "be left out of a job on spot machines", "warm_pool=None", f"{warm_pool!r} with spot")


def warm_pool_key(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a request that must be equal for two jobs to share a warm pool, by their paths."""
    resources = {f"ResourceConfig.{name}": value for name, value in request["ResourceConfig"].items()}
    members = {**request, **resources}
    return {name: value for name, value in members.items() if name.removesuffix(".$") in _WARM_POOL_MATCH}


def warm_pool_advice(matched: Mapping[str, Any], prop_names: Mapping[str, str]) -> Iterator[Advice]:
    """Warn of members that must be equal for a warm pool to be reused, and that each execution sets.

    Args:
        matched: The members that must be equal, by their paths.
        prop_names: Names of the props, by the members' paths.
    """
    for member in matched:
        if member.endswith(".$"):
            path = member.removesuffix(".$")
            prop = next((prop_names[name] for name in prop_names if name.startswith(path)), path)
            yield from advice(
                "warm-pool-of-one-execution",
                f"{prop} is set by each execution, and only a job with the same {path} reuses a warm pool: machines of other "
                "executions are kept, and billed, without use.",
            )


def _check_training_plan(training_plan: str, context: JobContext) -> None:
    """A plan's capacity is reserved and paid for up front (API, CreateTrainingPlan), a spot job's is neither."""
    if context.props.get("spot") is not None:
        rule = "be left out of a job on spot machines, since a plan's machines are reserved"
        raise must("training_plan", rule, "spot=None", f"{training_plan!r} with spot")
    if any(
        preference["TrainingPlanArns"]
        for preference in context.job_request.resource_config.get("InstancePreferences", ())
    ):
        _check_preferences("training_plan", training_plan, context, "types with training plans of their own")


def _check_volume_key(key: Any, context: JobContext) -> None:
    """API, ResourceConfig: "You can't request a VolumeKmsKeyId when using an instance type with local storage".

    Its formats are a key's id and ARN, where those of OutputDataConfig.KmsKeyId are aliases too.
    """
    if hasattr(key, "alias_name"):
        example = "kms.Key.from_key_arn(self, 'Key', 'arn:...')"
        rule = "be a key, of which SageMaker takes no alias"
        raise must("volume_key", rule, example, f"the alias {key.alias_name!r}")
    local = [name for name in instance_types(context.job_request) if has_local_storage(name)]
    if local:
        rule = "be left out of a job on machines with local disks, which their hardware encrypts"
        example = f"volume_key=None or machines like 'ml.c5.xlarge'{unlisted_hint(local[0])}"
        raise must("volume_key", rule, example, f"a key with {local[0]!r}")


def _volume_gib(size: Size | None) -> float:
    """GiB of a host's volume; a token, which CDK encodes as a float, of one.

    "When using an ML instance with the EBS-only storage option ... you must define the size" (API, ResourceConfig).
    """
    if size is None:
        return _VOLUME_GIB
    gibibytes: float = size.to_gibibytes(rounding=SizeRoundingBehavior.NONE)
    if is_unresolved(gibibytes):
        return gibibytes
    if gibibytes != int(gibibytes):
        raise must("volume_size", "be whole GiB", "Size.gibibytes(100)", f"{gibibytes:g} GiB")
    if gibibytes < 1:
        raise must("volume_size", "be at least 1 GiB", "Size.gibibytes(30)", f"{int(gibibytes)} GiB")
    return int(gibibytes)


def _unused_volume(size: Size, context: JobContext) -> Iterator[Advice]:
    known = _known_types(context)
    if known and all(map(has_local_storage, instance_types(context.job_request))):
        yield from advice(
            "volume-size-without-volume",
            f"volume_size has no effect on {known[0]!r}, whose local disks SageMaker uses instead of a volume; leave it out.",
        )


def max_pending_seconds(max_pending: Duration | int | None) -> int | None:
    """The most seconds that a job waits for its machines; None for SageMaker's own limit."""
    return None if max_pending is None else seconds_of("max_pending", max_pending)


def _unused_max_pending(max_pending: Duration | int, context: JobContext) -> Iterator[Advice]:
    known = _known_types(context)
    if len(known) != len(instance_types(context.job_request)):
        return
    if known and not any(family(name).startswith(_ACCELERATED) for name in known):
        yield from advice(
            "max-pending-without-accelerators",
            f"max_pending has no effect on {known[0]!r}: it counts for types with accelerators only; leave it out.",
        )


def max_runtime_seconds(max_runtime: Duration | int | None) -> int:
    """The most seconds that a job runs; one day by default."""
    return _ONE_DAY if max_runtime is None else seconds_of("max_runtime", max_runtime)


def _check_max_runtime(max_runtime: Duration | int, context: JobContext) -> None:
    check_unit("max_runtime", max_runtime)
    seconds = max_runtime_seconds(max_runtime)
    if not is_unresolved(seconds) and seconds > _LONGEST_RUNTIME:
        raise must("max_runtime", "be between 1 second and 28 days", "Duration.hours(6)", f"{seconds} seconds")


def check_unit(prop: str, value: Any) -> None:
    """Check that a plain number is not one of hours or minutes, such as ``2``: no job trains in so few seconds.

    Args:
        prop: Name of the prop.
        value: The time, as a Duration or in seconds.
    """
    if isinstance(value, int | float) and not is_unresolved(value) and 0 < value < _SHORT_SECONDS:
        rule = f"be a Duration, or at least {_SHORT_SECONDS} where it is a plain number, which is in seconds"
        raise must(prop, rule, f"Duration.hours({value:g})", repr(value))


def short_time_advice(prop: str, value: Any) -> Iterator[Advice]:
    """Warn of a time that is too short for any training.

    Args:
        prop: Name of the prop.
        value: The time, as a Duration or in seconds.
    """
    seconds = None if value is None else seconds_of(prop, value)
    if seconds is not None and not is_unresolved(seconds) and seconds < _SHORT_SECONDS:
        yield from advice(
            f"short-{prop.replace('_', '-')}",
            f"{prop} is {seconds} seconds, hardly more than a container needs to start; then the job is stopped: use "
            f"a longer one, like {prop}=Duration.hours(2).",
        )


def _check_spot(spot: Spot, context: JobContext) -> None:
    """A spot job may take at least as long as it may run (API, StoppingCondition)."""
    _check_preferences("spot", spot, context)
    wait, run = seconds_of("max_wait", spot.max_wait), max_runtime_seconds(context.props.get("max_runtime"))
    if not is_unresolved(wait) and not is_unresolved(run) and wait < run:
        rule = "be at least max_runtime, since it includes the time that the job runs"
        raise must("spot.max_wait", rule, f"Duration.seconds({run})", f"{wait} seconds")


def _spot_advice(spot: Spot, context: JobContext) -> Iterator[Advice]:
    yield from lost_files_advice(spot, context)
    if spot.checkpoints is None and context.props.get("checkpoints") is None:
        yield from advice(
            "spot-without-checkpoints",
            "spot machines may be interrupted at any time, and a job without checkpoints then starts over: set their location, "
            "like Spot(S3Prefix(bucket, 'checkpoints/'), max_wait=...).",
        )
