"""Spot machines, warm pools, UltraServer placement and private image registries, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.checks import check_directory, seconds_of
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.props.prop_types import check_fields

if TYPE_CHECKING:
    from aws_cdk import Duration
    from aws_cdk.aws_lambda import IFunction

# The default path of checkpoints on a host (API, CheckpointConfig.LocalPath).
CHECKPOINTS = "/opt/ml/checkpoints"

_LONGEST_KEEP_ALIVE = 21_600  # ResourceConfig.KeepAlivePeriodInSeconds of the service model, 6 hours


@dataclass(frozen=True)
class Spot:
    """Managed spot training: discounted machines that AWS may interrupt at any time.

    Args:
        checkpoints: Where the script's checkpoints are stored: SageMaker uploads ``local_path`` while the job runs and
            downloads it before a restart. Each execution has its own folder below it. None uses the job's ``checkpoints`` prop;
            without either, an interrupted job starts from the beginning.
        max_wait: Required. Maximum time of the job, including waiting for machines, as a Duration or in seconds; at least its
            ``max_runtime`` (API, StoppingCondition.MaxWaitTimeInSeconds).
        local_path: Absolute path of the checkpoints on the hosts; ``/opt/ml/checkpoints`` by default. Only with ``checkpoints``.

    Raises:
        ValueError: ``max_wait`` is missing, or ``local_path`` is not absolute or comes without ``checkpoints``.
    """

    checkpoints: S3Prefix | None = None
    max_wait: Duration | int | None = None
    local_path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.checkpoints is not None:
            local_path = CHECKPOINTS if self.local_path is None else self.local_path
            check_directory("local_path", local_path, CHECKPOINTS)
            object.__setattr__(self, "local_path", local_path)
        elif self.local_path is not None:
            raise ValueError(
                "local_path must be left out of spot without checkpoints, like checkpoint_local_path='/opt/ml/checkpoints' "
                f"beside the job's own checkpoints, got {self.local_path!r}"
            )
        if self.max_wait is None:
            raise ValueError("max_wait must be set for spot machines, like Duration.hours(12), got None")
        seconds_of("max_wait", self.max_wait)


@dataclass(frozen=True)
class WarmPool:
    """A warm pool: the machines stay provisioned, and billed, for the next job after a job ends.

    Args:
        keep_alive: How long, as a Duration or in seconds; at most 6 hours (service model,
            ResourceConfig.KeepAlivePeriodInSeconds).

    Raises:
        ValueError: ``keep_alive`` is not a positive time of at most 6 hours.
    """

    keep_alive: Duration | int

    def __post_init__(self) -> None:
        check_fields(self)
        seconds = seconds_of("keep_alive", self.keep_alive)
        if not is_unresolved(seconds) and seconds > _LONGEST_KEEP_ALIVE:
            raise ValueError(f"keep_alive must be at most 6 hours, like Duration.minutes(30), got {seconds} seconds")


@dataclass(frozen=True)
class UltraServers:
    """Placement of a job's machines on UltraServers, each of which connects the accelerators of several machines.

    Args:
        counts: Number of machines on each UltraServer, at least 1: a list like ``[18]``, or a mapping from UltraServer ids
            like ``{"us-1": 9}``.
        multiple_jobs: Whether other jobs may use the same UltraServers.

    Raises:
        ValueError: ``counts`` is empty or has a number below 1.
    """

    counts: Mapping[str, int] | Sequence[int]
    multiple_jobs: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        counts = self.instance_counts
        if not counts or any(count < 1 for count in counts):
            raise ValueError(
                f"counts must be machines on each UltraServer, at least 1, like [18] or {{'us-1': 9}}, got {self.counts!r}"
            )

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


@dataclass(frozen=True)
class PrivateRegistry:
    """A Docker registry in the job's network, from which the image is pulled instead of from ECR.

    Args:
        credentials_provider: Lambda function that returns user name and password; None for a registry without log-in.
            See "Use a Docker registry that requires authentication" in SageMaker's developer guide.
    """

    credentials_provider: IFunction | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def image_config(self) -> dict[str, Any]:
        """Return the request's TrainingImageConfig."""
        function = self.credentials_provider
        return {
            "TrainingRepositoryAccessMode": "Vpc",
            "TrainingRepositoryAuthConfig": {
                "TrainingRepositoryCredentialsProviderArn": function.function_arn if function else None
            },
        }
