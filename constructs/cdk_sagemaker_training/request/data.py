"""The channels, the checkpoints and the output of a job: props, members, rules and warnings.

In the sources of rules "API" is the documentation of the members that comes with botocore's service model, and "guide"
SageMaker's developer guide.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, TypedDict

from cdk_sagemaker_training.core.checks import absolute_path
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.capacity import CHECKPOINTS
from cdk_sagemaker_training.data.file_systems import EfsChannel, FsxLustreChannel
from cdk_sagemaker_training.data.s3 import S3Channel, S3Prefix, check_no_subfolder
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.props.jsonpath import expression
from cdk_sagemaker_training.props.prop import IN_INPUT, Known, Member, Prop
from cdk_sagemaker_training.request.context import JobContext, RequestContext, optional

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    Channel = S3Channel | FsxLustreChannel | EfsChannel

# The channel of the code of a job without a network (estimator.py of the SageMaker Python SDK, version 2).
CODE_CHANNEL = "code"
_MOST_CHANNELS = 20  # InputDataConfig of the service model


class DataProps(TypedDict, total=False):
    """The channels, the checkpoints and the output of a job."""

    channels: Annotated[
        Mapping[str, Channel] | None,
        Prop(
            Member(
                "InputDataConfig",
                _input_data_config,
                parts=(
                    Member("ChannelName", sync=True),
                    Member("CompressionType", sync=True, docs="`S3Channel(compression=)`"),
                    Member("ContentType", sync=True, docs="`content_type=` of each channel"),
                    Member("DataSource.FileSystemDataSource", docs="`FsxLustreChannel`, `EfsChannel`"),
                    Member("DataSource.S3DataSource.AttributeNames", sync=True, docs="`S3Channel(attribute_names=)`"),
                    Member("DataSource.S3DataSource.InstanceGroupNames", docs="`S3Channel(groups=)`"),
                    Member("DataSource.S3DataSource.ModelAccessConfig", docs="`S3Channel(accept_eula=)`"),
                    Member(
                        "DataSource.S3DataSource.S3DataDistributionType", sync=True, docs="`S3Channel(distribution=)`"
                    ),
                    Member("DataSource.S3DataSource.S3DataType", sync=True, docs="`S3Channel(data_type=)`"),
                    Member(
                        "DataSource.S3DataSource.S3Uri",
                        sync=True,
                        docs="`S3Channel(bucket, prefix)`, also of an `S3AccessPoint`",
                    ),
                    Member("InputMode", sync=True, docs="`S3Channel(input_mode=)`"),
                    Member("RecordWrapperType", sync=True, docs="`S3Channel(record_wrapper=)`"),
                    Member("ShuffleConfig", docs="`S3Channel(shuffle_seed=)`"),
                ),
            ),
            check=_check_channels,
            advice=_prefix_advice,
            known=Known("synth", "by their names"),
            example="{'images': S3Channel(bucket, 'images/')}",
        ),
    ]
    """The job's data, at most 20 channels by name: each is below ``/opt/ml/input/data/<name>`` on the hosts. Default: none."""

    checkpoint_local_path: Annotated[
        str | None,
        Prop(
            Member(
                "CheckpointConfig.LocalPath",
                _checkpoint_local_path,
                sync=True,
                docs="`checkpoint_local_path`, `Spot(local_path=)`",
            ),
            known=IN_INPUT,
            example="'/opt/ml/checkpoints'",
            rule=absolute_path,
        ),
    ]
    """The directory on a host whose files are the checkpoints. Default: ``/opt/ml/checkpoints`` (API, CheckpointConfig)."""

    checkpoints: Annotated[
        S3Prefix | None,
        Prop(
            Member(
                "CheckpointConfig.S3Uri",
                _checkpoint_uri,
                sync=True,
                docs="`checkpoints`, `Spot(checkpoints=)`",
            ),
            example="S3Prefix(bucket, 'checkpoints/')",
            advice=lost_files_advice,
        ),
    ]
    """Where in S3 the checkpoints are kept, in a folder for each execution. Default: that of ``spot``, else none is kept."""

    output_compression: Annotated[
        Literal["GZIP", "NONE"] | None, Prop(Member("OutputDataConfig.CompressionType"), known=IN_INPUT)
    ]
    """How the model is packed; ``"NONE"`` leaves its files as they are. Default: ``"GZIP"`` (API, OutputDataConfig)."""

    output_key: Annotated[
        kms.IKey | None, Prop(Member("OutputDataConfig.KmsKeyId", optional(lambda key: key.key_arn), sync=True))
    ]
    """Encrypts the model. Default: the key for S3 of the role's account (API, OutputDataConfig)."""

    output: Required[
        Annotated[S3Prefix, Prop(Member("OutputDataConfig.S3OutputPath", optional(lambda place: place.uri), sync=True))]
    ]
    """Where in S3 the model goes, in a folder for each job. Required."""


def _input_data_config(channels: Mapping[str, Channel] | None, context: RequestContext) -> list[dict[str, Any]]:
    """InputDataConfig, with the groups of all channels where one has groups."""
    channels = channels or {}
    uri = None if context.code is None else context.code.channel_uri
    most = _MOST_CHANNELS if uri is None else _MOST_CHANNELS - 1
    if len(channels) > most:
        raise must("channels", f"be at most {most}", "{'images': S3Channel(...)}", f"{len(channels)}")
    # The service refuses groups on some channels and none on others, so naming them on one names them on all.
    named = any(isinstance(channel, S3Channel) and channel.groups for channel in channels.values())
    fill = context.job_request.group_names if named else None
    configs = [{"ChannelName": name, **channel.channel_config(fill)} for name, channel in channels.items()]
    return configs if uri is None else [*configs, _code_channel(uri, fill)]


def _code_channel(uri: str, groups: Sequence[str] | None) -> dict[str, Any]:
    source: dict[str, Any] = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    if groups:
        source["InstanceGroupNames"] = list(groups)
    return {"ChannelName": CODE_CHANNEL, "DataSource": {"S3DataSource": source}}


def _check_channels(channels: Mapping[str, Channel], context: JobContext) -> None:
    """The job can have its channels.

    File systems are mounted into a VPC (guide, "Configure data input channel to use Amazon FSx for Lustre", "... Amazon EFS").
    Either all channels name instance groups or none (the service's error "Some channels have assigned instance groups:
    [...] while others not"), and a file system's channel cannot name them.
    """
    for name, channel in channels.items():
        if isinstance(channel, S3Channel):
            _check_groups(f"channels[{name!r}].groups", channel, context.job_request.group_names)
        elif context.props.get("network") is None:
            rule = "be set for a channel on a file system, which is mounted in a VPC"
            raise must("network", rule, "TrainingNetwork(self, 'Network')", f"None with channels[{name!r}]")
    on_file_systems = [name for name, channel in channels.items() if not isinstance(channel, S3Channel)]
    with_groups = [name for name, channel in channels.items() if isinstance(channel, S3Channel) and channel.groups]
    if on_file_systems and with_groups:
        rule = "be left out with a channel on a file system, which all groups mount"
        raise must(f"channels[{with_groups[0]!r}].groups", rule, "groups=None", f"channels[{on_file_systems[0]!r}]")


def _check_groups(prop: str, channel: S3Channel, group_names: tuple[str, ...]) -> None:
    for group in channel.groups or ():
        if not group_names:
            rule = "be left out of a job without instance groups"
            raise must(prop, rule, "S3Channel(bucket, 'images/')", repr(group))
        if group not in group_names:
            example = f"{group_names[0]!r} of {list(group_names)}"
            raise must(prop, "be instance groups of the job", example, repr(group))


def _prefix_advice(channels: Mapping[str, Channel], context: JobContext) -> Iterator[Advice]:
    """Warn of a channel whose prefix contains the output, so that a job reads earlier jobs' models, or another channel.

    And of one that looks like a folder's name and has no slash: "SageMaker uses all objects that match the specified key name
    prefix" (API, S3DataSource, S3DataType).
    """
    written = {"output": context.props["output"], "checkpoints": context.props.get("checkpoints")}
    prefixes = {
        name: channel
        for name, channel in channels.items()
        if isinstance(channel, S3Channel) and channel.data_type == "S3Prefix" and channel.subfolder is None
    }
    holding = set[str]()
    for outer, inner in itertools.permutations(prefixes, 2):
        first, second = prefixes[outer], prefixes[inner]
        once = first.prefix != second.prefix or outer < inner
        if _contains(first, second) and once and first.groups == second.groups:
            holding.add(outer)
            yield from advice(
                "channel-holds-channel",
                f"channels[{outer!r}] contains every key that begins with {first.prefix!r}, so also those of channels[{inner!r}] "
                f"at {second.prefix!r}: a model that is validated on what it trains on looks better than it is. Use prefixes of "
                "which none begins with another, like 'data/train/' and 'data/validation/'.",
            )
    for name, channel in prefixes.items():
        looks_like_folder = not is_unresolved(channel.prefix) and re.search(r"(^|/)[^./]*[A-Za-z0-9]$", channel.prefix)
        if looks_like_folder and name not in holding:
            yield from advice(
                "channel-without-slash",
                f"channels[{name!r}] has every key that begins with {channel.prefix!r}, such as those of {channel.prefix}-old/ "
                f"too: where it is a folder, write S3Channel(bucket, '{channel.prefix}/').",
            )
        for prop, place in written.items():
            if place is not None and _contains(channel, place):
                yield from advice(
                    "channel-holds-output",
                    f"channels[{name!r}] contains every key that begins with {channel.prefix!r}, so also {prop} at "
                    f"{place.prefix!r}, and each job reads the results of earlier jobs: use a separate prefix for the data, "
                    "like S3Channel(bucket, 'data/').",
                )


def _contains(channel: S3Channel, place: S3Channel | S3Prefix) -> bool:
    """Whether all of a place's keys are among a channel's."""
    if is_unresolved(channel.prefix) or is_unresolved(place.prefix):
        return False
    return place.bucket.bucket_name == channel.bucket.bucket_name and place.prefix.startswith(channel.prefix)


def checkpoints_of(props: Mapping[str, Any]) -> S3Prefix | None:
    """The place in S3 below which each execution has a folder for its checkpoints.

    Args:
        props: The props of a job, which name the place in ``checkpoints`` or in ``spot``.

    Returns:
        The place, whose prefix is empty or ends in a slash; None where there are no checkpoints.
    """
    checkpoints, spot = props.get("checkpoints"), props.get("spot")
    of_spot = None if spot is None else spot.checkpoints
    for place in (checkpoints, of_spot):
        if place is not None:
            check_no_subfolder("checkpoints", place)
    if of_spot is not None and checkpoints not in (None, of_spot):
        got = f"{checkpoints.prefix!r} beside {of_spot.prefix!r}"
        raise must("checkpoints", "be left out if spot has checkpoints", "checkpoints=None", got)
    place = checkpoints if of_spot is None else of_spot
    if place is None or not place.prefix or place.prefix.endswith("/"):
        return place
    return S3Prefix(place.bucket, f"{place.prefix}/")


def below_prefix(place: S3Prefix | None, prefix: str) -> S3Prefix | None:
    """The folder of a construct's checkpoints, by the prefix of its jobs' names; None for none.

    Args:
        place: What ``checkpoints_of`` returned.
        prefix: The prefix.
    """
    return None if place is None else S3Prefix(place.bucket, f"{place.prefix or ''}{prefix}/")


def checkpoint_folder(resume_from: str | None, checkpoints: S3Prefix | None) -> str:
    """The folder of an execution's checkpoints, below ``checkpoints``.

    Args:
        resume_from: The name of an older execution whose folder it is, if any, or a token of JSONPath.
        checkpoints: The place of the folders; None where there are no checkpoints.

    Returns:
        An expression of JSONPath.
    """
    if resume_from is None:
        return "$$.Execution.Name"
    if checkpoints is None:
        example = "checkpoints=S3Prefix(bucket, 'checkpoints/')"
        raise must("resume_from", "come with checkpoints", example, f"{resume_from!r} without")
    if not is_unresolved(resume_from) and not re.fullmatch(r"[^/\s]{1,80}", resume_from):
        example = "'monday' or sfn.JsonPath.string_at('$.resume_from')"
        raise must("resume_from", "be the name of an execution", example, repr(resume_from))
    return expression(resume_from)


def local_path_of(props: Mapping[str, Any]) -> str | None:
    """The directory on a host whose files are the checkpoints; None for SageMaker's default (API, CheckpointConfig).

    Args:
        props: The props of a job, which name it in ``checkpoint_local_path`` or in ``spot``.
    """
    path, spot = props.get("checkpoint_local_path"), props.get("spot")
    of_spot: str | None = None if spot is None else spot.local_path
    if path is None:
        return of_spot
    if checkpoints_of(props) is None:
        example = "checkpoints=S3Prefix(bucket, 'checkpoints/')"
        raise must("checkpoint_local_path", "be used with checkpoints", example, f"{path!r} without")
    if of_spot is not None:
        rule, got = "be left out if spot has a local_path", f"{path!r} beside {of_spot!r}"
        raise must("checkpoint_local_path", rule, "Spot(..., local_path=...)", got)
    return str(path)


def _checkpoint_local_path(path: str | None, context: RequestContext) -> str | None:
    return None if _checkpoint_uri(None, context) is None else local_path_of(context.props)


def _checkpoint_uri(checkpoints: Any, context: RequestContext) -> str | None:
    return context.checkpoint_uri if context.job_request.checkpoints else None


def lost_files_advice(place: Any, context: JobContext) -> Iterator[Advice]:
    """Warn of files outside of the checkpoints that a job needs again when it is restarted.

    Args:
        place: The prop ``checkpoints`` or ``spot``, either of which may name the checkpoints.
        context: The props, and the request whose ``kept`` are the directories of such files.
    """
    local_path = local_path_of(context.props) or CHECKPOINTS
    lost = [path for path in context.job_request.kept if not f"{path}/".startswith(f"{local_path.rstrip('/')}/")]
    if lost and checkpoints_of(context.props) is not None:
        yield from advice(
            "not-among-checkpoints",
            f"{lost[0]} is not below {local_path}, where checkpoints are, so a job that restarts compiles again; "
            f"set it like TorchCompile(cache_directory='{local_path.rstrip('/')}/compiler-cache').",
        )
