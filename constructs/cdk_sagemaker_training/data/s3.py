"""Channels, prefixes and access points in S3, as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cdk_sagemaker_training.core.checks import not_empty
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.props.prop import GRANTED, IN_INPUT, NAMED, SHAPING, Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

if TYPE_CHECKING:
    from aws_cdk.aws_kms import IKey
    from aws_cdk.aws_s3 import IBucket

_ACCESS_POINT = re.compile(r"arn:[a-z-]+:s3:[a-z0-9-]+:\d{12}:accesspoint/[a-z0-9-]+")


def _access_point(prop: str, value: str, example: str) -> None:
    if not _ACCESS_POINT.fullmatch(value):
        raise must(prop, "be that of an access point of S3", example, repr(value))


def _prefix(prop: str, value: str, example: str) -> None:
    if value.startswith(("/", "s3:", "https:")):
        raise must(prop, "be how keys in the bucket begin", example, repr(value))
    if re.search(r"[*?]|\$\{", value):
        # "IAM JSON policy elements: Resource": what is granted on the prefix would be granted on all that it matches.
        rule = "not contain '*', '?' or '${', which are wildcards and variables in policies"
        raise must(prop, rule, example, repr(value))


def _subfolder(prop: str, value: str, example: str) -> None:
    if not value or value.startswith("/"):
        raise must(prop, "continue the prefix without a leading slash", example, repr(value))


Prefix = Annotated[
    str,
    Prop(
        known=Known("deployment", "since permissions are granted on it; subfolder may be in the execution's input"),
        rule=_prefix,
        example="'images/'",
    ),
]
Subfolder = Annotated[
    str,
    Prop(
        known=Known("execution", "what comes after prefix, below which permissions are granted"),
        rule=_subfolder,
        example="'digits/'",
    ),
]
_LISTED = Prop(known=IN_INPUT, listed="service-values")
InputMode = Literal["File", "FastFile", "Pipe"]


@dataclass(frozen=True)
class S3AccessPoint(Value):
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

    arn: Annotated[
        str,
        Prop(known=GRANTED, rule=_access_point, example="'arn:aws:s3:us-east-1:123456789012:accesspoint/images'"),
    ]
    alias: Annotated[
        str | None,
        Prop(known=GRANTED, rule=not_empty, example="'images-hrzrlukc5m36ft7okagglf3gmwluquse1b-s3alias'"),
    ] = None
    bucket: IBucket | None = None

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


@kind("S3Prefix(bucket, 'models/')")
@dataclass(frozen=True)
class S3Prefix(Value):
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
    prefix: Prefix = ""
    subfolder: Subfolder | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_slash(self.prefix, self.subfolder)

    @property
    def uri(self) -> str:
        """The S3 URI."""
        return f"s3://{self.bucket.bucket_name}/{self.prefix}{self.subfolder or ''}"


@dataclass(frozen=True)
class S3Channel(Value):
    """An input channel in S3: objects under a prefix, available to the job's hosts at ``/opt/ml/input/data/<channel>``.

    The rules are those of the API's pages Channel and S3DataSource (botocore's documentation of the members).

    Args:
        bucket: The bucket or access point.
        prefix: How the keys begin, or the key of a manifest (see ``data_type``). Must end with a slash if ``subfolder`` is set.
        groups: Names of the instance groups that receive the channel; None for all hosts.
        distribution: ``"FullyReplicated"`` gives each host all objects, ``"ShardedByS3Key"`` about an equal share of them,
            which a sampler of the processes of all hosts would deal out again.
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
    prefix: Prefix = ""
    groups: Annotated[Sequence[str] | None, Prop(known=NAMED, example="['data_group']")] = None
    distribution: Annotated[Literal["FullyReplicated", "ShardedByS3Key"], _LISTED] = "FullyReplicated"
    input_mode: Annotated[InputMode, _LISTED] = "File"
    content_type: Annotated[str | None, Prop(known=IN_INPUT, rule=not_empty, example="'application/x-parquet'")] = None
    data_type: Annotated[
        Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile"], Prop(known=SHAPING, listed="service-values")
    ] = "S3Prefix"
    attribute_names: Annotated[Sequence[str] | None, Prop(known=IN_INPUT, example="['source-ref', 'label']")] = None
    objects: S3Prefix | None = None
    compression: Annotated[Literal["Gzip"] | None, _LISTED] = None
    record_wrapper: Annotated[Literal["RecordIO"] | None, _LISTED] = None
    shuffle_seed: Annotated[int | None, IN_INPUT] = None
    accept_eula: bool = False
    subfolder: Subfolder | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        _check_slash(self.prefix, self.subfolder)
        if self.groups is not None:
            if not self.groups:
                raise must("groups", "list names of instance groups", "['data_group']", repr(self.groups))
            object.__setattr__(self, "groups", tuple(self.groups))
        self._check_manifest()
        for prop in ("compression", "record_wrapper"):
            if getattr(self, prop) is not None:
                self._check_pipe(prop)

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
                    rule = "be left out of a channel that is not a manifest"
                    raise must(prop, rule, "S3Channel(bucket, 'images/')", repr(value))
            return
        if self.objects is None or not self.prefix:
            raise must(
                "objects",
                "be the location of the objects that a manifest lists",
                f"S3Channel(bucket, 'train.manifest', data_type={self.data_type!r}, objects=S3Prefix(bucket, 'images/'))",
                f"{self.objects!r} for {self.prefix!r}",
            )
        check_no_subfolder("objects", self.objects)
        key = f"{self.prefix}{self.subfolder or ''}"
        if key.endswith("/"):
            rule = f"be the key of a manifest where data_type is {self.data_type!r}"
            raise must("prefix", rule, "'train.manifest'", repr(key))
        if self.data_type == "ManifestFile" and self.attribute_names is not None:
            rule = "be left out of a channel whose data_type is not 'AugmentedManifestFile'"
            raise must("attribute_names", rule, "None", repr(self.attribute_names))
        if self.data_type == "AugmentedManifestFile":
            if not self.attribute_names:
                rule, example = "list attributes of an augmented manifest", "['source-ref', 'label']"
                raise must("attribute_names", rule, example, repr(self.attribute_names))
            self._check_pipe("data_type")

    def _check_pipe(self, prop: str) -> None:
        if not is_unresolved(self.input_mode) and self.input_mode != "Pipe":
            rule = "come with input_mode='Pipe', which alone supports it"
            got = f"{getattr(self, prop)!r} with {self.input_mode!r}"
            raise must(prop, rule, "S3Channel(..., input_mode='Pipe')", got)


def check_no_subfolder(prop: str, place: S3Prefix) -> None:
    """Check that a location which is the same for all executions has no subfolder."""
    if place.subfolder is not None:
        rule = "be left out, since this location is the same for all executions"
        raise must(f"{prop}.subfolder", rule, f"S3Prefix(bucket, {place.prefix!r})", repr(place.subfolder))


def _check_slash(prefix: str, subfolder: str | None) -> None:
    if subfolder is not None and not prefix.endswith(("/", "]}")):  # the end of a token
        rule = "end with a slash before a subfolder, since jobs may read every key that begins with it"
        raise must("prefix", rule, "'datasets/'", repr(prefix))
