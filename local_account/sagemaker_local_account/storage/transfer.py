"""Transfers between a job's folders and S3: channels and artifacts."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from sagemaker_local_account.core import atomic_files
from sagemaker_local_account.core.safe_paths import JobFolder, UnsafePath

_BLOCK = 1 << 20


class StorageError(Exception):
    """A transfer of a job's data failed; the message is its FailureReason."""


@contextlib.contextmanager
def space_for(what: str, folder: Path) -> Iterator[None]:
    """Converts an error of a full disk to a StorageError with the service's message, such as "Data download failed"."""
    try:
        yield
    except OSError as error:
        if atomic_files.is_disk_full(error):
            raise StorageError(
                f"ClientError: {what} failed:Insufficient disk space: the disk of {folder} is full: {error}"
            ) from error
        raise


# An S3 URI, or an address with the bucket in its path, as CDK's S3Location has it (API reference, S3DataSource: S3Uri).
PLACE = re.compile(r"(?:s3://|https://s3[.-][\w.-]*amazonaws\.com(?:\.cn)?/)")


def split(uri: str) -> tuple[str, str]:
    """Returns bucket and key of ``s3://bucket/key``, or of ``https://s3.REGION.amazonaws.com/bucket/key``."""
    bucket, _, key = PLACE.sub("", uri, count=1).partition("/")
    return bucket, key


def s3_source(channel: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a channel's S3DataSource; empty for a channel on a file system, which all instance groups mount."""
    return channel["DataSource"].get("S3DataSource") or {}


def channel_objects(s3: Any, channel: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Returns a channel's objects sorted by key: bucket, key, and the path in the channel's folder.

    Raises:
        StorageError: S3 rejects a request, the manifest is malformed, or there are no objects.
    """
    source = channel["DataSource"]["S3DataSource"]
    uri = source["S3Uri"]
    with refusals(f"Data download failed for channel {channel['ChannelName']}"):
        found = _of_manifest(s3, uri) if source["S3DataType"] == "ManifestFile" else objects_of_prefix(s3, uri)
    if not found:
        raise StorageError(
            f'ClientError: Data download failed: No S3 objects found under S3 URL "{uri}" given in input data source of '
            f"channel {channel['ChannelName']}. Please ensure that the bucket exists in the selected region, and that the role "
            "has permission to list it."
        )
    return found


def share_of(objects: Sequence[Any], host: int, hosts: int, distribution: str) -> Sequence[Any]:
    """Returns a host's part of a channel.

    Args:
        objects: the channel's.
        host: the host's index.
        hosts: the number of hosts.
        distribution: S3DataDistributionType.
    """
    return objects[host::hosts] if distribution == "ShardedByS3Key" else objects


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Converts errors of S3 to a StorageError."""
    try:
        yield
    except (ClientError, S3UploadFailedError) as error:
        raise StorageError(f"ClientError: {what}: {error}") from error


def download(s3: Any, objects: Iterable[tuple[str, str, str]], folder: JobFolder) -> None:
    """Downloads objects into a folder.

    The message for an illegal key is the service's (aws-samples/generative-ai-on-amazon-sagemaker 242, for a key with ``//``).

    Args:
        s3: a client.
        objects: bucket, key and path of each.
        folder: the target.

    Raises:
        StorageError: S3 rejects a request, or a path cannot be a file in the folder.
    """
    folder.make()
    for bucket, key, path in objects:
        failed = f"Data download failed for s3://{bucket}/{key}"
        illegal = _illegal_in(key, path)
        if illegal is not None:
            raise StorageError(
                "ClientError: Data download failed:Failed to download data. "
                f"S3 key: s3://{bucket}/{key} has an illegal char sub-sequence {illegal!r} in it"
            )
        try:
            with refusals(failed):
                fetch(s3, bucket, key, folder, path)
        except (FileExistsError, IsADirectoryError, NotADirectoryError, UnsafePath) as error:
            raise StorageError(f"ClientError: {failed}: a file and a folder have one name: {path}") from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise StorageError(f"ClientError: {failed}: {error.strerror}") from error


def fetch(s3: Any, bucket: str, key: str, folder: JobFolder, path: str) -> None:
    """Downloads one object.

    Args:
        s3: a client.
        bucket: the bucket.
        key: the key.
        folder: the target.
        path: the path in the folder.

    Raises:
        ClientError: S3 rejects the request.
        OSError: the file cannot be written.
    """
    # Not download_file: it makes a HEAD request first, whose error has no message.
    body = s3.get_object(Bucket=bucket, Key=key)["Body"]
    with folder.create(path) as file:
        shutil.copyfileobj(body, file, _BLOCK)


def _illegal_in(key: str, path: str) -> str | None:
    """The part of a key that cannot be a path in a folder, or None."""
    if "//" in key or not path:
        return "//"
    return next((part for part in path.split("/") if part in (".", "..") or "\0" in part), None)


def objects_of_prefix(s3: Any, uri: str) -> list[tuple[str, str, str]]:
    """Bucket, key and relative path of each object of a prefix."""
    bucket, prefix = split(uri)
    # Paths are relative to the prefix's folder; s3://bucket/images matches images/1.png and images-old/1.png alike.
    folder = prefix[: prefix.rfind("/") + 1]
    return sorted(
        (
            bucket,
            entry["Key"],
            entry["Key"].removeprefix(prefix if entry["Key"].startswith(f"{prefix}/") else folder).lstrip("/"),
        )
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        for entry in page.get("Contents", [])
        if not entry["Key"].endswith("/")
    )


def _of_manifest(s3: Any, uri: str) -> list[tuple[str, str, str]]:
    """The objects of a manifest: a list of a prefix and the keys' suffixes (API reference, S3DataSource.S3Uri)."""
    bucket, key = split(uri)
    try:
        content = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    except ValueError as error:
        raise StorageError(f"ClientError: Data download failed: the manifest {uri} is not JSON: {error}") from None
    well_formed = (
        isinstance(content, list)
        and len(content) > 0
        and isinstance(content[0], dict)
        and isinstance(content[0].get("prefix"), str)
        and content[0]["prefix"].startswith("s3://")
        and all(isinstance(path, str) for path in content[1:])
    )
    if not well_formed:
        raise StorageError(
            f"ClientError: Data download failed: the manifest {uri} must be a list of a prefix and names, "
            f'like [{{"prefix": "s3://bucket/images/"}}, "1.png", "2.png"], got {json.dumps(content)[:200]}'
        )
    bucket, prefix = split(content[0]["prefix"])
    return [(bucket, f"{prefix}{path}", path.removeprefix("/")) for path in content[1:]]


def upload(
    s3: Any, folders: Sequence[JobFolder], uri: str, kms_key_id: str | None, *, compressed: bool, scratch: Path
) -> None:
    """Uploads the files of all folders, as one archive or individually; of files with the same path the last folder's.

    Args:
        s3: a client.
        folders: the folders.
        uri: the target, to which ``.tar.gz`` or ``/`` is appended.
        kms_key_id: encrypts the objects; None for the bucket's default.
        compressed: whether to upload an archive, in which links are kept; else links are left out.
        scratch: a folder for the archive.

    Raises:
        StorageError: S3 rejects a request, or a file cannot be read.
    """
    place = f"{uri}.tar.gz" if compressed else f"{uri}/"
    bucket, key = split(place)
    extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id} if kms_key_id else None
    with refusals(f"Artifact upload failed for {place}"):
        try:
            found = _merged(folders)
            if compressed:
                with tempfile.TemporaryFile(dir=scratch) as archive:
                    _write_archive(archive, found)
                    archive.seek(0)
                    s3.upload_fileobj(archive, bucket, key, ExtraArgs=extra)
                return
            for path, (folder, status) in found.items():
                if stat.S_ISREG(status.st_mode):
                    with folder.open(path) as file:
                        s3.upload_fileobj(file, bucket, object_key(f"{key}{path}"), ExtraArgs=extra)
        except (UnsafePath, PermissionError) as error:
            raise StorageError(f"ClientError: Artifact upload failed for {place}: {error.strerror}") from error


def _merged(folders: Sequence[JobFolder]) -> dict[str, tuple[JobFolder, os.stat_result]]:
    """The entries of all folders, by path; the last folder's replaces those before, also a folder by a file."""
    merged: dict[str, tuple[JobFolder, os.stat_result]] = {}
    for folder in folders:
        for path, status in folder.walk():
            former = merged.get(path)
            is_folder = stat.S_ISDIR(status.st_mode)
            if former is not None and stat.S_ISDIR(former[1].st_mode) and not is_folder:
                for below in [other for other in merged if other.startswith(f"{path}/")]:
                    del merged[below]
            merged[path] = (folder, status)
    return dict(sorted(merged.items()))


def _write_archive(file: IO[bytes], found: Mapping[str, tuple[JobFolder, os.stat_result]]) -> None:
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for path, (folder, status) in found.items():
            if stat.S_ISREG(status.st_mode):
                with folder.open(path) as content:
                    tar.addfile(tar.gettarinfo(arcname=path, fileobj=content), content)
                continue
            about = tarfile.TarInfo(path)
            about.mode, about.mtime = stat.S_IMODE(status.st_mode), status.st_mtime
            if stat.S_ISLNK(status.st_mode):
                about.type, about.linkname = tarfile.SYMTYPE, folder.read_link(path)
            elif stat.S_ISDIR(status.st_mode):
                about.type = tarfile.DIRTYPE
            else:  # a pipe or a socket
                continue
            tar.addfile(about)


def holds_files(folder: JobFolder) -> bool:
    """Whether a folder has any entry."""
    return any(True for _ in folder.walk())


def object_key(text: str) -> str:
    """Returns a key; raises StorageError for a file name that is not Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StorageError(f"ClientError: {text!a} cannot be the key of an object: {error.reason}") from None
    return text
