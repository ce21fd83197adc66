"""Machines that are not simply asked for, and images that are not simply pulled, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.prop_types import check_fields

if TYPE_CHECKING:
    from aws_cdk.aws_lambda import IFunction


@dataclass(frozen=True)
class UltraServers:
    """How a job's machines lie on UltraServers, whose accelerators are one domain: ``counts`` machines together on each.

    ``counts`` are numbers, or numbers by an UltraServer's id. ``multiple_jobs`` lets other jobs share these UltraServers.
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
        if isinstance(self.counts, Mapping):
            return tuple(self.counts.values())
        return tuple(self.counts)

    def placement_config(self) -> dict[str, Any]:
        """The request's InstancePlacementConfig."""
        named: Sequence[tuple[str | None, int]] = (
            list(self.counts.items()) if isinstance(self.counts, Mapping) else [(None, count) for count in self.counts]
        )
        return {
            "EnableMultipleJobs": self.multiple_jobs,
            "PlacementSpecifications": [{"UltraServerId": id, "InstanceCount": count} for id, count in named],
        }


@dataclass(frozen=True)
class PrivateRegistry:
    """A Docker registry in the network of the job, from which its image comes instead of ECR.

    ``credentials_provider`` is a function that answers with a user's name and a password, for a registry that asks for them.
    """

    credentials_provider: IFunction | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def image_config(self) -> dict[str, Any]:
        """The request's TrainingImageConfig."""
        function = self.credentials_provider
        return {
            "TrainingRepositoryAccessMode": "Vpc",
            "TrainingRepositoryAuthConfig": {
                "TrainingRepositoryCredentialsProviderArn": function.function_arn if function else None
            },
        }
