"""Spot machines, warm pools, UltraServer placement and private image registries, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cdk_sagemaker_training.core.checks import absolute_path, is_time, seconds_of
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.props.prop import IN_INPUT, Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

if TYPE_CHECKING:
    from aws_cdk import Duration
    from aws_cdk.aws_lambda import IFunction

# The default path of checkpoints on a host (API, CheckpointConfig.LocalPath).
CHECKPOINTS = "/opt/ml/checkpoints"

_LONGEST_KEEP_ALIVE = 21_600  # ResourceConfig.KeepAlivePeriodInSeconds of the service model, 6 hours


def _keep_alive(prop: str, value: Duration | int, example: str) -> None:
    seconds = seconds_of(prop, value)
    if not is_unresolved(seconds) and seconds > _LONGEST_KEEP_ALIVE:
        raise must(prop, "be at most 6 hours", "Duration.minutes(30)", f"{seconds} seconds")


@kind("Spot(S3Prefix(bucket, 'checkpoints/'), max_wait=Duration.hours(12))")
@dataclass(frozen=True)
class Spot(Value):
    """Managed spot training: discounted machines that AWS may interrupt at any time.

    Args:
        checkpoints: Where the script's checkpoints are stored: SageMaker uploads ``local_path`` while the job runs and
            downloads it before a restart. Each execution has its own folder in one of the
            workflow's below it. None uses the job's ``checkpoints`` prop;
            without either, an interrupted job starts from the beginning.
        max_wait: Required. Maximum time of the job, including waiting for machines, as a Duration or in seconds; at least its
            ``max_runtime`` (API, StoppingCondition.MaxWaitTimeInSeconds).
        local_path: Absolute path of the checkpoints on the hosts; ``/opt/ml/checkpoints`` by default. Only with ``checkpoints``.

    Raises:
        ValueError: ``max_wait`` is missing, or ``local_path`` is not absolute or comes without ``checkpoints``.
    """

    checkpoints: Annotated[S3Prefix | None, Prop(example="S3Prefix(bucket, 'checkpoints/')")] = None
    max_wait: Annotated[Duration | int | None, Prop(known=IN_INPUT, rule=is_time)] = None
    local_path: Annotated[str | None, Prop(known=IN_INPUT, rule=absolute_path, example=f"{CHECKPOINTS!r}")] = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.checkpoints is not None:
            object.__setattr__(self, "local_path", self.local_path or CHECKPOINTS)
        elif self.local_path is not None:
            example = f"checkpoint_local_path={CHECKPOINTS!r} beside the job's own checkpoints"
            raise must("local_path", "be left out of spot without checkpoints", example, repr(self.local_path))
        if self.max_wait is None:
            raise must("max_wait", "be set for spot machines", "Duration.hours(12)", "None")


@kind("WarmPool(Duration.minutes(30))")
@dataclass(frozen=True)
class WarmPool(Value):
    """A warm pool: the machines stay provisioned, and billed, for the next job after a job ends.

    Args:
        keep_alive: How long, as a Duration or in seconds; at most 6 hours (service model,
            ResourceConfig.KeepAlivePeriodInSeconds).

    Raises:
        ValueError: ``keep_alive`` is not a positive time of at most 6 hours.
    """

    keep_alive: Annotated[Duration | int, Prop(known=IN_INPUT, rule=_keep_alive)]


@kind("UltraServers([18])")
@dataclass(frozen=True)
class UltraServers(Value):
    """Placement of a job's machines on UltraServers, each of which connects the accelerators of several machines.

    Args:
        counts: Number of machines on each UltraServer, at least 1: a list like ``[18]``, or a mapping from UltraServer ids
            like ``{"us-1": 9}``.
        multiple_jobs: Whether other jobs may use the same UltraServers.

    Raises:
        ValueError: ``counts`` is empty or has a number below 1.
    """

    counts: Annotated[
        Mapping[str, int] | Sequence[int],
        Prop(known=Known("synth", "since they are compared with the job's machines"), example="[18]"),
    ]
    multiple_jobs: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        counts = self.instance_counts
        if not counts or any(count < 1 for count in counts):
            rule = "be machines on each UltraServer, at least 1"
            raise must("counts", rule, "[18] or {'us-1': 9}", repr(self.counts))

    @property
    def instance_counts(self) -> tuple[int, ...]:
        """Number of machines on each UltraServer."""
        if isinstance(self.counts, Mapping):
            return tuple(self.counts.values())
        return tuple(self.counts)

    def placement_config(self) -> dict[str, Any]:
        """Return the request's InstancePlacementConfig."""
        named: Sequence[tuple[str | None, int]] = (
            list(self.counts.items()) if isinstance(self.counts, Mapping) else [(None, count) for count in self.counts]
        )
        return {
            "EnableMultipleJobs": self.multiple_jobs,
            "PlacementSpecifications": [{"UltraServerId": id, "InstanceCount": count} for id, count in named],
        }


@kind("PrivateRegistry()")
@dataclass(frozen=True)
class PrivateRegistry(Value):
    """A Docker registry in the job's network, from which the image is pulled instead of from ECR.

    Args:
        credentials_provider: Lambda function that returns user name and password; None for a registry without log-in.
            See "Use a Docker registry that requires authentication" in SageMaker's developer guide.
    """

    credentials_provider: IFunction | None = None

    def image_config(self) -> dict[str, Any]:
        """Return the request's TrainingImageConfig."""
        function = self.credentials_provider
        return {
            "TrainingRepositoryAccessMode": "Vpc",
            "TrainingRepositoryAuthConfig": {
                "TrainingRepositoryCredentialsProviderArn": function.function_arn if function else None
            },
        }
