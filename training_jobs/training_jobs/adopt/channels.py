"""The channels of a request, as expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training_jobs.adopt.existing import Existing
from training_jobs.adopt.members import Members
from training_jobs.adopt.python_source import Call

_S3 = "DataSource.S3DataSource"
_FILES = "DataSource.FileSystemDataSource"


def channels_of(members: Members, existing: Existing, security_groups: Sequence[str], job_mode: str) -> dict[str, Call]:
    """Return the channels by their names.

    Args:
        members: The request, from which they are taken.
        existing: The resources that the stack imports.
        security_groups: Ids of the job's; with a file system the stack imports the first as the file system's.
        job_mode: The job's TrainingInputMode, which a channel without a mode of its own has.
    """
    channels = members.parts("InputDataConfig", "ChannelName")
    found: dict[str, Call] = {}
    for channel in channels:
        name = channel.take("ChannelName")
        content_type = channel.take("ContentType")
        mode = channel.take("InputMode")
        of_s3 = channel.take(f"{_S3}.S3Uri")
        if of_s3 is not None:
            found[name] = _s3_channel(channel, existing, of_s3, mode or job_mode, content_type)
        else:
            found[name] = _file_system_channel(channel, existing, security_groups, content_type)
        channel.finish()
    named = [name for name, call in found.items() if call.keywords.get("groups")]
    for name, call in found.items():
        if named and call.function == "S3Channel" and not call.keywords.get("groups"):
            members.differs(
                f"InputDataConfig[{name}].{_S3}.InstanceGroupNames",
                None,
                f"all groups, since the service takes them on all channels or on none, and {named[0]!r} has them",
            )
    return found


def _s3_channel(channel: Members, existing: Existing, uri: str, mode: str, content_type: str | None) -> Call:
    bucket, key = existing.place(uri)
    if key is None and not uri.endswith("/"):
        channel.differs(f"{_S3}.S3Uri", uri, "sent with a slash after the bucket")
    distribution = channel.take(f"{_S3}.S3DataDistributionType")
    if distribution is None:
        channel.differs(f"{_S3}.S3DataDistributionType", None, "'FullyReplicated' is sent")
    data_type = channel.take(f"{_S3}.S3DataType")
    compression, wrapper = channel.take("CompressionType"), channel.take("RecordWrapperType")
    keywords = {
        "groups": channel.take(f"{_S3}.InstanceGroupNames") or None,
        "distribution": _unless(distribution, "FullyReplicated"),
        "input_mode": _unless(mode, "File"),
        "content_type": content_type,
        "data_type": _unless(data_type, "S3Prefix"),
        "attribute_names": channel.take(f"{_S3}.AttributeNames") or None,
        # Only a permission comes of it, and the job's role keeps its own.
        "objects": None if data_type in (None, "S3Prefix") else existing.prefix(uri.rpartition("/")[0] + "/"),
        "compression": _unless(compression, "None"),
        "record_wrapper": _unless(wrapper, "None"),
        "shuffle_seed": channel.take("ShuffleConfig.Seed"),
        "accept_eula": channel.take(f"{_S3}.ModelAccessConfig.AcceptEula") or None,
    }
    return Call("S3Channel", (bucket,) if key is None else (bucket, key), keywords)


def _file_system_channel(
    channel: Members, existing: Existing, security_groups: Sequence[str], content_type: str | None
) -> Call:
    kind, id, path, access = (
        channel.take(f"{_FILES}.{name}")
        for name in ("FileSystemType", "FileSystemId", "DirectoryPath", "FileSystemAccessMode")
    )
    file_system = existing.file_system(kind, id, security_groups[0] if security_groups else "sg-0123456789abcdef0")
    keywords: dict[str, Any] = {"read_only": None if access == "ro" else False, "content_type": content_type}
    if kind == "EFS":
        return Call("EfsChannel", (file_system, path), keywords)
    root, _, below = str(path).partition("/")
    mount_name, _, folder = below.partition("/")
    if root or not mount_name:
        rule = "be a slash, the mount name of the file system and a folder, like '/fsx/data'"
        raise ValueError(f"DirectoryPath of a channel of FSx for Lustre must {rule}, got {path!r}")
    return Call("FsxLustreChannel", (file_system, f"/{folder}"), {"mount_name": mount_name, **keywords})


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value
