"""Where a job's data lives, and what brings it through an interruption, as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cdk_sagemaker_training.checks import check_directory, check_text
from cdk_sagemaker_training.prop_types import check_fields
from cdk_sagemaker_training.tokens import is_unresolved

if TYPE_CHECKING:
    from aws_cdk import Duration
    from aws_cdk.aws_kms import IKey
    from aws_cdk.aws_s3 import IBucket

Distribution = Literal["FullyReplicated", "ShardedByS3Key"]
InputMode = Literal["File", "FastFile", "Pipe"]
DataType = Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile"]

# Where checkpoints are kept on a host unless a job says otherwise (API, CheckpointConfig.LocalPath).
CHECKPOINTS = "/opt/ml/checkpoints"

_ACCESS_POINT = re.compile(r"arn:[a-z-]+:s3:[a-z0-9-]+:\d{12}:accesspoint/[a-z0-9-]+")
_LONGEST_KEEP_ALIVE = 21_600  # ResourceConfig.KeepAlivePeriodInSeconds of the service model, 6 hours


@dataclass(frozen=True)
class S3AccessPoint:
    """An access point of S3 in place of a bucket, like ``S3Channel(S3AccessPoint(access_point.attr_arn), "images/")``.

    ``alias`` is what requests name it by: it stands wherever a bucket's name does ("Access point aliases" of the S3 guide).
    Without one they name it by its ARN, as SageMaker's SDK sends it; AWS documents nowhere that a training job takes that, so
    take the alias where there is one.

    Jobs are allowed to use the access point and, where ``bucket`` is the one behind it, that bucket through this access point
    only: S3 evaluates both ("Configuring IAM policies for using access points"), so that without ``bucket`` the bucket's own
    policy has to leave the decision to its access points. The local account has none, and refuses such a request by name.
    """

    arn: str
    alias: str | None = None
    bucket: IBucket | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not is_unresolved(self.arn) and not _ACCESS_POINT.fullmatch(self.arn):
            example = "arn:aws:s3:us-east-1:123456789012:accesspoint/images"
            raise ValueError(f"arn must be that of an access point of S3, like {example!r}, got {self.arn!r}")
        if self.alias is not None:
            check_text("alias", self.alias, "images-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias")

    @property
    def bucket_name(self) -> str:
        return self.alias or self.arn

    @property
    def bucket_arn(self) -> str:
        return self.arn

    @property
    def encryption_key(self) -> IKey | None:
        return self.bucket.encryption_key if self.bucket else None

    def arn_for_objects(self, key_pattern: str) -> str:
        return f"{self.arn}/object/{key_pattern}"


@dataclass(frozen=True)
class S3Prefix:
    """A place in a bucket: everything whose key begins with ``prefix``, like ``S3Prefix(bucket, "models/")``.

    ``subfolder`` is a place below, which each execution may choose, like ``sfn.JsonPath.string_at("$.customer")``. Permissions
    are granted on ``prefix``, which then ends with a slash.
    """

    bucket: IBucket | S3AccessPoint
    prefix: str = ""
    subfolder: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_prefix(self.prefix)
        _check_subfolder(self.prefix, self.subfolder)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket.bucket_name}/{self.prefix}{self.subfolder or ''}"


@dataclass(frozen=True)
class S3Channel:
    """Input data: what lies under a prefix, given to the job's hosts at ``/opt/ml/input/data/<channel>``.

    - ``groups`` names the instance groups that get it; None means all hosts. ``distribution`` gives each host everything, or
      a share of the objects.
    - ``input_mode`` copies the objects before the script starts (``File``), streams them as files (``FastFile``) or as pipes
      (``Pipe``). ``content_type`` is a MIME type that the job's script is told.
    - ``data_type`` says what ``prefix`` is: how keys begin (``S3Prefix``), or the key of a file that lists objects
      (``ManifestFile``), or of one with their labels (``AugmentedManifestFile``, of which ``attribute_names`` are read).
      ``objects`` is where what such a file lists lies, so that the job may read it.
    - ``compression`` and ``record_wrapper`` are for ``Pipe``; ``shuffle_seed`` shuffles the objects, or a manifest's lines, in
      ``Pipe`` anew for each epoch. ``accept_eula`` agrees to the licence of a gated model that the channel is.
    - ``subfolder`` comes after ``prefix``, and each execution may choose it: with
      ``subfolder=sfn.JsonPath.string_at("$.dataset")`` the input ``{"dataset": "digits/"}`` trains on digits. Jobs
      may read what lies below ``prefix``, which then ends with a slash, and nothing else, whatever the input says. For a
      manifest it is the rest of the file's key.

    Rules from the API's pages Channel and S3DataSource (botocore's documentation of the members): an augmented manifest takes
    ``Pipe``, compression and record wrapper "in File mode" nothing, and are "used only in Pipe input mode".
    """

    bucket: IBucket | S3AccessPoint
    prefix: str = ""
    groups: Sequence[str] | None = None
    distribution: Distribution = "FullyReplicated"
    input_mode: InputMode = "File"
    content_type: str | None = None
    data_type: DataType = "S3Prefix"
    attribute_names: Sequence[str] | None = None
    objects: S3Prefix | None = None
    compression: Literal["Gzip"] | None = None
    record_wrapper: Literal["RecordIO"] | None = None
    shuffle_seed: int | None = None
    accept_eula: bool = False
    subfolder: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_prefix(self.prefix)
        _check_subfolder(self.prefix, self.subfolder)
        if self.content_type is not None:
            check_text("content_type", self.content_type, "application/x-parquet")
        if self.groups is not None:
            if not self.groups:
                raise ValueError(f"groups must list names of instance groups, like ['data_group'], got {self.groups!r}")
            object.__setattr__(self, "groups", tuple(self.groups))
        self._check_manifest()
        self._check_pipe()

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket.bucket_name}/{self.prefix}{self.subfolder or ''}"

    def channel_config(self, groups: Sequence[str] | None) -> dict[str, Any]:
        """The request's Channel, but for its name, given to ``groups``."""
        return {
            "ContentType": self.content_type,
            "CompressionType": self.compression,
            "DataSource": {
                "S3DataSource": {
                    "AttributeNames": list(self.attribute_names or ()),
                    "InstanceGroupNames": list(self.groups or groups or ()),
                    "ModelAccessConfig": {"AcceptEula": True} if self.accept_eula else None,
                    "S3DataDistributionType": self.distribution,
                    "S3DataType": self.data_type,
                    "S3Uri": self.uri,
                }
            },
            "InputMode": self.input_mode,
            "RecordWrapperType": self.record_wrapper,
            "ShuffleConfig": None if self.shuffle_seed is None else {"Seed": self.shuffle_seed},
        }

    def _check_manifest(self) -> None:
        if self.data_type == "S3Prefix":
            for prop, value in (("attribute_names", self.attribute_names), ("objects", self.objects)):
                if value is not None:
                    raise ValueError(
                        f"{prop} must be left out of a channel that is no manifest, "
                        f"like S3Channel(bucket, 'images/'), got {value!r}"
                    )
            return
        if self.objects is None or not self.prefix:
            raise ValueError(
                "objects must say where the objects of a manifest lie, like S3Channel(bucket, 'train.manifest', "
                f"data_type={self.data_type!r}, objects=S3Prefix(bucket, 'images/')), got {self.objects!r} for {self.prefix!r}"
            )
        check_no_subfolder("objects", self.objects)
        if self.data_type == "ManifestFile" and self.attribute_names is not None:
            raise ValueError(
                "attribute_names must be left out of a channel whose data_type is not 'AugmentedManifestFile', "
                f"like None, got {self.attribute_names!r}"
            )
        if self.data_type == "AugmentedManifestFile":
            if not self.attribute_names:
                raise ValueError(
                    "attribute_names must name what is read of an augmented manifest, like ['source-ref', 'label'], "
                    f"got {self.attribute_names!r}"
                )
            self._only_in_pipe("data_type", self.data_type)

    def _check_pipe(self) -> None:
        for prop, value in (("compression", self.compression), ("record_wrapper", self.record_wrapper)):
            if value is not None:
                self._only_in_pipe(prop, value)

    def _only_in_pipe(self, prop: str, value: str) -> None:
        if not is_unresolved(self.input_mode) and self.input_mode != "Pipe":
            raise ValueError(
                f"{prop} must come with input_mode='Pipe', which alone takes it, like S3Channel(..., input_mode='Pipe'), "
                f"got {value!r} with {self.input_mode!r}"
            )


@dataclass(frozen=True)
class Spot:
    """Spot machines, at a fraction of the price, which AWS may take back at any time.

    ``checkpoints`` is where the script's checkpoints are kept: what it writes to ``local_path`` is copied there while it
    runs, and back before it is started again. Each execution has a folder of its own below it. None leaves that to the job's own
    ``checkpoints``, or has none: then a job whose machines are taken back begins anew. ``max_wait`` must be said, the most time
    (a Duration, or seconds) that the job may take, waiting for machines included, so at least its ``max_runtime``.
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
                "local_path must be left out where spot says no checkpoints, like checkpoint_local_path='/opt/ml/checkpoints' "
                f"beside the job's own checkpoints, got {self.local_path!r}"
            )
        if self.max_wait is None:
            raise ValueError("max_wait must be given of spot machines, like Duration.hours(12), got None")
        seconds_of("max_wait", self.max_wait)


@dataclass(frozen=True)
class WarmPool:
    """Machines kept for the next job: for ``keep_alive`` (a Duration, or seconds, up to 6 hours) they wait, and are billed."""

    keep_alive: Duration | int

    def __post_init__(self) -> None:
        check_fields(self)
        seconds = seconds_of("keep_alive", self.keep_alive)
        if not is_unresolved(seconds) and seconds > _LONGEST_KEEP_ALIVE:
            raise ValueError(f"keep_alive must be at most 6 hours, like Duration.minutes(30), got {seconds} seconds")


def seconds_of(prop: str, duration: Any) -> int:
    """The whole seconds of a ``Duration`` or of a number of seconds; at least 1."""
    seconds = duration
    if hasattr(duration, "to_seconds"):
        try:
            seconds = duration.to_seconds(integral=False)
        except RuntimeError as error:  # jsii's: CDK does not convert a token of another unit
            raise ValueError(
                f"{prop} must be in seconds where it is a token, like Duration.seconds(token): {error}"
            ) from error
    if is_unresolved(seconds):
        return seconds  # type: ignore[no-any-return]  # a token, which CDK encodes as a float
    whole = isinstance(seconds, int) or (isinstance(seconds, float) and seconds.is_integer())
    if isinstance(seconds, bool) or not whole or seconds < 1:
        got = f"{seconds!r} seconds" if hasattr(duration, "to_seconds") else repr(duration)
        raise ValueError(f"{prop} must be a Duration or whole seconds, at least 1, like Duration.hours(6), got {got}")
    return int(seconds)


def _check_prefix(prefix: str) -> None:
    if is_unresolved(prefix):
        return
    if prefix.startswith(("/", "s3:", "https:")):
        raise ValueError(f"prefix must be how keys in the bucket begin, like 'images/', got {prefix!r}")
    if re.search(r"[*?]|\$\{", prefix):
        # "IAM JSON policy elements: Resource": what is granted on the prefix would be granted on all that it matches.
        raise ValueError(
            "prefix must be without '*', '?' and '${', which are wildcards and variables in policies, like 'images/', "
            f"got {prefix!r}"
        )


def check_no_subfolder(prop: str, place: S3Prefix) -> None:
    """Raise ``ValueError`` for a place that no execution can choose."""
    if place.subfolder is not None:
        raise ValueError(
            f"{prop}.subfolder must be left out, since what lies there is the same for all executions, "
            f"like S3Prefix(bucket, {place.prefix!r}), got {place.subfolder!r}"
        )


def _check_subfolder(prefix: str, subfolder: str | None) -> None:
    if subfolder is None:
        return
    if not subfolder or subfolder.startswith("/"):
        raise ValueError(f"subfolder must be how keys go on after prefix, like 'digits/', got {subfolder!r}")
    if not prefix.endswith(("/", "]}")):  # the end of a token
        raise ValueError(
            "prefix must end with a slash before a subfolder, since jobs may read all that begins with it, "
            f"like 'datasets/', got {prefix!r}"
        )
