"""Where a job's data lives, and what brings it through an interruption, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from cdk_sagemaker_training.tokens import is_unresolved

if TYPE_CHECKING:
    from aws_cdk import Duration
    from aws_cdk.aws_s3 import IBucket

Distribution = Literal["FullyReplicated", "ShardedByS3Key"]
InputMode = Literal["File", "FastFile", "Pipe"]

_LONGEST_KEEP_ALIVE = 21_600  # ResourceConfig.KeepAlivePeriodInSeconds of the service model, 6 hours


@dataclass(frozen=True)
class S3Prefix:
    """A place in a bucket: everything whose key begins with ``prefix``, like ``S3Prefix(bucket, "models/")``."""

    bucket: IBucket
    prefix: str = ""

    def __post_init__(self) -> None:
        _check_prefix(self.prefix)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket.bucket_name}/{self.prefix}"


@dataclass(frozen=True)
class S3Channel:
    """Input data: what lies under a prefix, given to the job's hosts at ``/opt/ml/input/data/<channel>``.

    ``groups`` names the instance groups that get it; None means all hosts. ``distribution`` gives each host everything, or
    a share of the objects. ``input_mode`` copies the objects before the script starts (``File``), streams them as files
    (``FastFile``) or as pipes (``Pipe``). ``content_type`` is a MIME type that the job's script is told.
    """

    bucket: IBucket
    prefix: str = ""
    groups: Sequence[str] | None = None
    distribution: Distribution = "FullyReplicated"
    input_mode: InputMode = "File"
    content_type: str | None = None

    def __post_init__(self) -> None:
        _check_prefix(self.prefix)
        _check_choice("distribution", self.distribution, get_args(Distribution))
        _check_choice("input_mode", self.input_mode, get_args(InputMode))
        if self.groups is None:
            return
        if isinstance(self.groups, str) or not self.groups:
            raise ValueError(f"groups must list names of instance groups, like ['data_group'], got {self.groups!r}")
        object.__setattr__(self, "groups", tuple(self.groups))

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket.bucket_name}/{self.prefix}"


@dataclass(frozen=True)
class Spot:
    """Spot machines, at a fraction of the price, which AWS may take back at any time.

    ``checkpoints`` is where the script's checkpoints are kept: what it writes to ``local_path`` is copied there while it
    runs, and back before it is started again. Each execution has a folder of its own below it. ``max_wait`` is the most time
    (a Duration, or seconds) that the job may take, waiting for machines included, so at least its ``max_runtime``.
    """

    checkpoints: S3Prefix
    max_wait: Duration | int
    local_path: str = "/opt/ml/checkpoints"

    def __post_init__(self) -> None:
        if not self.local_path.startswith("/"):
            raise ValueError(
                f"local_path must be an absolute path, like '/opt/ml/checkpoints', got {self.local_path!r}"
            )
        seconds_of("max_wait", self.max_wait)


@dataclass(frozen=True)
class WarmPool:
    """Machines kept for the next job: for ``keep_alive`` (a Duration, or seconds, up to 6 hours) they wait, and are billed."""

    keep_alive: Duration | int

    def __post_init__(self) -> None:
        seconds = seconds_of("keep_alive", self.keep_alive)
        if not is_unresolved(seconds) and seconds > _LONGEST_KEEP_ALIVE:
            raise ValueError(f"keep_alive must be at most 6 hours, like Duration.minutes(30), got {seconds} seconds")


def seconds_of(prop: str, duration: Any) -> int:
    """The whole seconds of a ``Duration`` or of a number of seconds; at least 1."""
    seconds = duration.to_seconds() if hasattr(duration, "to_seconds") else duration
    if is_unresolved(seconds):
        return seconds  # type: ignore[no-any-return]  # a token, which CDK encodes as a float
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != int(seconds) or seconds < 1:
        raise ValueError(f"{prop} must be a Duration or whole seconds, like Duration.hours(6), got {duration!r}")
    return int(seconds)


def _check_prefix(prefix: str) -> None:
    if is_unresolved(prefix):
        return
    if not isinstance(prefix, str) or prefix.startswith(("/", "s3:", "https:")):
        raise ValueError(f"prefix must be how keys in the bucket begin, like 'images/', got {prefix!r}")


def _check_choice(prop: str, value: str, choices: tuple[str, ...]) -> None:
    if not is_unresolved(value) and value not in choices:
        raise ValueError(f"{prop} must be one of {', '.join(map(repr, choices))}, got {value!r}")
