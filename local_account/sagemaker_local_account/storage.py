"""Between a job's folders on this machine and the account's S3: channels, checkpoints, artefacts."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

_BLOCK = 1 << 20
_Version = tuple[int, int]  # a file's time of change, in nanoseconds, and its size


class StorageError(Exception):
    """Data that a job needs is not to be had; the text is its failure reason."""


@contextlib.contextmanager
def space_for(what: str) -> Iterator[None]:
    """Say of a full disk what it made impossible, in the service's words."""
    try:
        yield
    except OSError as error:
        # copytree tells of several errors by their texts only.
        if any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT)):
            raise StorageError(f"ClientError: {what} failed:Insufficient disk space: {error}") from error
        raise


def split(uri: str) -> tuple[str, str]:
    """Bucket and key of ``s3://bucket/key``."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def channel_objects(s3: Any, channel: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """A channel's objects in the order of their keys: bucket, key, and the path below the channel's folder."""
    source = channel["DataSource"]["S3DataSource"]
    uri = source["S3Uri"]
    with refusals(f"Data download failed for channel {channel['ChannelName']}"):
        found = _of_manifest(s3, uri) if source["S3DataType"] == "ManifestFile" else _of_prefix(s3, uri)
    if not found:
        raise StorageError(
            f'ClientError: Data download failed: No S3 objects found under S3 URL "{uri}" given in input data source of '
            f"channel {channel['ChannelName']}. Please ensure that the bucket exists, that the selected region is its "
            "region, and that the role may list it."
        )
    return found


def share_of(objects: Sequence[Any], host: int, hosts: int, distribution: str) -> Sequence[Any]:
    """A host's part of a channel: everything, or of objects sharded by key each ``hosts``-th."""
    return objects[host::hosts] if distribution == "ShardedByS3Key" else objects


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """S3's refusals as the failure reason of a job."""
    try:
        yield
    except (ClientError, S3UploadFailedError) as error:
        raise StorageError(f"ClientError: {what}: {error}") from error


def download(s3: Any, objects: Iterable[tuple[str, str, str]], folder: Path) -> None:
    for bucket, key, path in objects:
        target = folder / path
        with refusals(f"Data download failed for s3://{bucket}/{key}"):
            target.parent.mkdir(parents=True, exist_ok=True)
            # Not download_file: that asks for the head first, and the refusal of that says nothing.
            with open(target, "wb") as file:
                shutil.copyfileobj(s3.get_object(Bucket=bucket, Key=key)["Body"], file, _BLOCK)


def _of_prefix(s3: Any, uri: str) -> list[tuple[str, str, str]]:
    bucket, prefix = split(uri)
    # What lies below the folder keeps its path there; s3://bucket/images matches images/1.png and images-old/1.png alike.
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
    bucket, key = split(uri)
    first, *paths = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    bucket, prefix = split(first["prefix"])
    return [(bucket, f"{prefix}{path}", path) for path in paths]


class Checkpoints:
    """The hosts' folders of checkpoints, kept like a prefix in S3, which all hosts of a job share.

    Each host starts with what lies under the prefix. While it runs, what is new or has changed in its folder is uploaded, and
    what it removes is deleted: "If a checkpoint is deleted in the SageMaker AI container, it will also be deleted in the S3
    folder" (guide, "Checkpoints in Amazon SageMaker AI"). Objects that come under the prefix later are not downloaded, so they
    are not missing in any folder, and stay. AWS documents no more of several hosts than that names must differ, or the last
    host's file counts; here an object stays while any host of the job has the file.
    """

    def __init__(self, s3: Any, uri: str, folders: Sequence[Path]) -> None:
        self._s3 = s3
        self._bucket, prefix = split(uri)
        self._prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        self._uri = f"s3://{self._bucket}/{self._prefix}"
        # What each folder had, by paths, when it was last looked at.
        self._kept: dict[Path, dict[str, _Version]] = {folder: {} for folder in folders}

    def restore(self) -> None:
        for folder in self._kept:
            folder.mkdir(parents=True, exist_ok=True)
            with refusals(f"Checkpoint download failed for {self._uri}"):
                found = _of_prefix(self._s3, self._uri)
            download(self._s3, found, folder)
            self._kept[folder] = _files(folder)

    def keep(self) -> None:
        """Upload what is new or has changed, then delete what a host had and none has any more."""
        present = {folder: _files(folder) for folder in self._kept}
        for folder, files in present.items():
            self._upload(folder, files)
        for path in self._removed(present):
            with refusals(f"Checkpoint deletion failed for {self._uri}{path}"):
                self._s3.delete_object(Bucket=self._bucket, Key=f"{self._prefix}{path}")

    def _upload(self, folder: Path, files: Mapping[str, _Version]) -> None:
        kept = self._kept[folder]
        for path, version in files.items():
            if kept.get(path) != version:
                # A file that the script is just moving away is there under its new name next time.
                with (
                    refusals(f"Checkpoint upload failed for {self._uri}{path}"),
                    contextlib.suppress(FileNotFoundError),
                ):
                    self._s3.upload_file(str(folder / path), self._bucket, f"{self._prefix}{path}")
                    kept[path] = version

    def _removed(self, present: Mapping[Path, Mapping[str, _Version]]) -> list[str]:
        removed = set()
        for folder, files in present.items():
            for path in self._kept[folder].keys() - files.keys():
                del self._kept[folder][path]
                removed.add(path)
        return sorted(path for path in removed if not any(path in files for files in present.values()))


def _files(folder: Path) -> dict[str, _Version]:
    """The files below a folder, while others come and go."""
    found = {}
    for directory, _, names in os.walk(folder, onerror=_unless_it_went):
        for name in names:
            path = Path(directory, name)
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    status = path.stat()
                    found[str(path.relative_to(folder))] = (status.st_mtime_ns, status.st_size)
    return found


def _unless_it_went(error: OSError) -> None:
    """A folder that cannot be read has not lost its files."""
    if not isinstance(error, FileNotFoundError):
        raise error


def upload(s3: Any, folders: Sequence[Path], uri: str, kms_key_id: str | None, *, compressed: bool) -> str:
    """Upload what is in all the folders, as one .tar.gz or as it is; of files with one name the last folder's.

    Returns where it went: ``uri`` with ``.tar.gz``, or with a slash.
    """
    place = f"{uri}.tar.gz" if compressed else f"{uri}/"
    bucket, key = split(place)
    extra = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key_id} if kms_key_id else None
    with (
        refusals(f"Artifact upload failed for {place}"),
        tempfile.TemporaryDirectory(dir=folders[0].parent) as name,
    ):
        whole = Path(name) / "whole"
        whole.mkdir()
        for folder in folders:
            if folder.is_dir():
                shutil.copytree(folder, whole, dirs_exist_ok=True, symlinks=True, copy_function=_link)
        if not compressed:
            for path in sorted(path for path in whole.rglob("*") if path.is_file()):
                s3.upload_file(str(path), bucket, f"{key}{path.relative_to(whole)}", ExtraArgs=extra)
            return place
        archive = Path(name) / "archive.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            for path in sorted(whole.iterdir()):
                tar.add(path, arcname=path.name)
        s3.upload_file(str(archive), bucket, key, ExtraArgs=extra)
    return place


def holds_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _link(source: str, target: str) -> None:
    Path(target).unlink(missing_ok=True)
    os.link(source, target)
