"""Channels, prefixes and access points in S3, as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from cdk_sagemaker_training.core.checks import check_text
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.props.prop_types import check_fields

if TYPE_CHECKING:
    from aws_cdk.aws_kms import IKey
    from aws_cdk.aws_s3 import IBucket

Distribution = Literal["FullyReplicated", "ShardedByS3Key"]
InputMode = Literal["File", "FastFile", "Pipe"]
DataType = Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile"]

_ACCESS_POINT = re.compile(r"arn:[a-z-]+:s3:[a-z0-9-]+:\d{12}:accesspoint/[a-z0-9-]+")


@dataclass(frozen=True)
class S3AccessPoint:
    """An S3 access point in place of a bucket, like ``S3Channel(S3AccessPoint(access_point.attr_arn), "images/")``.

    S3 evaluates the permissions of the access point and of its bucket ("Configuring IAM policies for using access points"). Jobs
    get permissions on the access point and, if ``bucket`` is set, on the bucket through this access point only; without
    ``bucket``, the bucket's policy has to delegate access control to its access points. The local account does not support
    access points and refuses such a request.

    Args:
        arn: ARN of the access point.
        alias: Alias of the access point, which requests contain in place of a bucket name ("Access point aliases" in the S3
            guide); None for the ARN, as SageMaker's SDK sends it. AWS does not document that training jobs accept the ARN, so
            prefer the alias.
        bucket: The bucket behind the access point.

    Raises:
        ValueError: ``arn`` is not that of an access point, or ``alias`` is empty.
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
        """The alias, else the ARN: what stands for a bucket name in S3 URIs."""
        return self.alias or self.arn

    @property
    def bucket_arn(self) -> str:
        """ARN of the access point, for policies."""
        return self.arn

    @property
    def encryption_key(self) -> IKey | None:
        """Encryption key of the bucket; None without one or without ``bucket``."""
        return self.bucket.encryption_key if self.bucket else None

    def arn_for_objects(self, key_pattern: str) -> str:
        """Return the ARN pattern of objects behind the access point, for policies.

        Args:
            key_pattern: Pattern of the objects' keys.
        """
        return f"{self.arn}/object/{key_pattern}"


@dataclass(frozen=True)
class S3Prefix:
    """A location in S3: all objects whose key begins with a prefix, like ``S3Prefix(bucket, "models/")``.

    Args:
        bucket: The bucket or access point.
        prefix: How the keys begin; empty for the whole bucket. Must end with a slash if ``subfolder`` is set. Permissions are
            granted on the prefix.
        subfolder: What follows the prefix; may be chosen by each execution, like ``sfn.JsonPath.string_at("$.customer")``.

    Raises:
        ValueError: ``prefix`` is a URI, begins with a slash or contains wildcards, or does not fit ``subfolder``.
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
        """The S3 URI."""
        return f"s3://{self.bucket.bucket_name}/{self.prefix}{self.subfolder or ''}"


@dataclass(frozen=True)
class S3Channel:
    """An input channel in S3: objects under a prefix, available to the job's hosts at ``/opt/ml/input/data/<channel>``.

    The rules are those of the API's pages Channel and S3DataSource (botocore's documentation of the members).

    Args:
        bucket: The bucket or access point.
        prefix: How the keys begin, or the key of a manifest (see ``data_type``). Must end with a slash if ``subfolder`` is set.
        groups: Names of the instance groups that receive the channel; None for all hosts.
        distribution: ``"FullyReplicated"`` gives each host all objects, ``"ShardedByS3Key"`` about an equal share of them.
        input_mode: ``"File"`` copies the objects before the script starts, ``"FastFile"`` streams them as files, ``"Pipe"`` as
            named pipes.
        content_type: MIME type of the data, which SageMaker passes to the container; None for none.
        data_type: What ``prefix`` is: ``"S3Prefix"``, how keys begin; ``"ManifestFile"``, the key of a file that lists
            objects; ``"AugmentedManifestFile"``, the key of a file that lists objects with labels (``"Pipe"`` only).
        attribute_names: JSON attributes to read from an augmented manifest; required with one.
        objects: Location of the objects that a manifest lists, on which jobs get read permission; required with a manifest.
        compression: ``"Gzip"`` decompresses the objects (``"Pipe"`` only).
        record_wrapper: ``"RecordIO"`` wraps each object in a record (``"Pipe"`` only).
        shuffle_seed: Seed for shuffling the objects, or the lines of a manifest; with ``"Pipe"`` again for each epoch. None
            does not shuffle.
        accept_eula: Whether you accept the license of a gated model that the channel contains.
        subfolder: What follows the prefix; may be chosen by each execution: with
            ``subfolder=sfn.JsonPath.string_at("$.dataset")`` the input ``{"dataset": "digits/"}`` selects digits. Jobs get read
            permission on ``prefix`` only, whatever the input is. For a manifest it is the rest of the key.

    Raises:
        ValueError: A rule is broken, such as ``compression`` without ``input_mode="Pipe"``.
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
        """The S3 URI."""
        return f"s3://{self.bucket.bucket_name}/{self.prefix}{self.subfolder or ''}"

    def channel_config(self, groups: Sequence[str] | None) -> dict[str, Any]:
        """Return the request's Channel without its name.

        Args:
            groups: Names of the instance groups that receive the channel, unless the channel itself names some.
        """
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
                        f"{prop} must be left out of a channel that is not a manifest, "
                        f"like S3Channel(bucket, 'images/'), got {value!r}"
                    )
            return
        if self.objects is None or not self.prefix:
            raise ValueError(
                "objects must be the location of the objects that a manifest lists, like S3Channel(bucket, 'train.manifest', "
                f"data_type={self.data_type!r}, objects=S3Prefix(bucket, 'images/')), got {self.objects!r} for {self.prefix!r}"
            )
        check_no_subfolder("objects", self.objects)
        key = f"{self.prefix}{self.subfolder or ''}"
        if key.endswith("/"):
            raise ValueError(
                f"prefix must be the key of a manifest where data_type is {self.data_type!r}, like 'train.manifest', "
                f"got {key!r}"
            )
        if self.data_type == "ManifestFile" and self.attribute_names is not None:
            raise ValueError(
                "attribute_names must be left out of a channel whose data_type is not 'AugmentedManifestFile', "
                f"like None, got {self.attribute_names!r}"
            )
        if self.data_type == "AugmentedManifestFile":
            if not self.attribute_names:
                raise ValueError(
                    "attribute_names must list attributes of an augmented manifest, like ['source-ref', 'label'], "
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
                f"{prop} must come with input_mode='Pipe', which alone supports it, like S3Channel(..., input_mode='Pipe'), "
                f"got {value!r} with {self.input_mode!r}"
            )


def _check_prefix(prefix: str) -> None:
    if is_unresolved(prefix):
        return
    if prefix.startswith(("/", "s3:", "https:")):
        raise ValueError(f"prefix must be how keys in the bucket begin, like 'images/', got {prefix!r}")
    if re.search(r"[*?]|\$\{", prefix):
        # "IAM JSON policy elements: Resource": what is granted on the prefix would be granted on all that it matches.
        raise ValueError(
            "prefix must not contain '*', '?' or '${', which are wildcards and variables in policies, like 'images/', "
            f"got {prefix!r}"
        )


def check_no_subfolder(prop: str, place: S3Prefix) -> None:
    """Check that a location which is the same for all executions has no subfolder.

    Args:
        prop: Name of the prop, for the message.
        place: The location.

    Raises:
        ValueError: It has a subfolder.
    """
    if place.subfolder is not None:
        raise ValueError(
            f"{prop}.subfolder must be left out, since this location is the same for all executions, "
            f"like S3Prefix(bucket, {place.prefix!r}), got {place.subfolder!r}"
        )


def _check_subfolder(prefix: str, subfolder: str | None) -> None:
    if subfolder is None:
        return
    if not subfolder or subfolder.startswith("/"):
        raise ValueError(
            f"subfolder must continue the prefix without a leading slash, like 'digits/', got {subfolder!r}"
        )
    if not prefix.endswith(("/", "]}")):  # the end of a token
        raise ValueError(
            "prefix must end with a slash before a subfolder, since jobs may read every key that begins with it, "
            f"like 'datasets/', got {prefix!r}"
        )
