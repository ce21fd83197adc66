"""Between a job's folders on this machine and the account's S3: channels, checkpoints, artefacts."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from . import atomic_files
from .safe_paths import JobFolder, UnsafePath

_BLOCK = 1 << 20
_Version = tuple[int, int]  # a file's time of change, in nanoseconds, and its size


class StorageError(Exception):
    """Data that a job needs is not to be had; the text is its failure reason."""


@contextlib.contextmanager
def space_for(what: str, folder: Path) -> Iterator[None]:
    """Say of a full disk what it made impossible, in the service's words, and which disk: that of ``folder``."""
    try:
        yield
    except OSError as error:
        if atomic_files.is_disk_full(error):
            raise StorageError(
                f"ClientError: {what} failed:Insufficient disk space: the disk of {folder} is full: {error}"
            ) from error
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


def download(s3: Any, objects: Iterable[tuple[str, str, str]], folder: JobFolder) -> None:
    """Bring objects (bucket, key, path) into a folder.

    Raises StorageError where S3 refuses one, or where one cannot be a file there. The words of an illegal key are the service's
    (aws-samples/generative-ai-on-amazon-sagemaker 242, of a key with ``//``).
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
    """Bring one object into a folder. Raises ClientError as S3 does, and OSError where it cannot be written."""
    # Not download_file: that makes a HEAD request first, and the refusal of that says nothing.
    body = s3.get_object(Bucket=bucket, Key=key)["Body"]
    with folder.create(path) as file:
        shutil.copyfileobj(body, file, _BLOCK)


def _illegal_in(key: str, path: str) -> str | None:
    """What of a key cannot be a path below a folder."""
    if "//" in key or not path:
        return "//"
    return next((part for part in path.split("/") if part in (".", "..") or "\0" in part), None)


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
    """The objects of a manifest: a prefix, then what follows it in each key (API, S3DataSource.S3Uri)."""
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


class Checkpoints:
    """The hosts' folders of checkpoints, kept like a prefix in S3, which all hosts of a job share.

    Each host starts with what lies under the prefix. While it runs, what is new or has changed in its folder is uploaded, and
    what it removes is deleted: "If a checkpoint is deleted in the SageMaker AI container, it will also be deleted in the S3
    folder" (guide, "Checkpoints in Amazon SageMaker AI"). Objects that come under the prefix later are not downloaded, so they
    are not missing in any folder, and stay. AWS documents no more of several hosts than that names must differ, or the last
    host's file counts; here an object stays while any host of the job has the file.
    """

    def __init__(self, s3: Any, uri: str, folders: Sequence[JobFolder]) -> None:
        self._s3 = s3
        self._bucket, prefix = split(uri)
        self._prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        self._uri = f"s3://{self._bucket}/{self._prefix}"
        # What each folder had, by paths, when it was last looked at.
        self._kept: dict[JobFolder, dict[str, _Version]] = {folder: {} for folder in folders}

    def restore(self) -> None:
        for folder in self._kept:
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

    def _upload(self, folder: JobFolder, files: Mapping[str, _Version]) -> None:
        kept = self._kept[folder]
        for path, version in files.items():
            if kept.get(path) != version:
                # A file that the script is just moving away is there under its new name next time.
                with (
                    refusals(f"Checkpoint upload failed for {self._uri}{path}"),
                    contextlib.suppress(FileNotFoundError),
                    folder.open(path) as file,
                ):
                    self._s3.upload_fileobj(file, self._bucket, _key(f"{self._prefix}{path}"))
                    kept[path] = version

    def _removed(self, present: Mapping[JobFolder, Mapping[str, _Version]]) -> list[str]:
        removed = set()
        for folder, files in present.items():
            for path in self._kept[folder].keys() - files.keys():
                del self._kept[folder][path]
                removed.add(path)
        return sorted(path for path in removed if not any(path in files for files in present.values()))


def _files(folder: JobFolder) -> dict[str, _Version]:
    """The regular files below a folder, while others come and go. A folder that cannot be read has not lost its files."""
    try:
        return {path: (status.st_mtime_ns, status.st_size) for path, status in folder.files().items()}
    except UnsafePath as error:
        raise StorageError(f"ClientError: Checkpoint upload failed: {error.strerror}") from error


def upload(
    s3: Any, folders: Sequence[JobFolder], uri: str, kms_key_id: str | None, *, compressed: bool, scratch: Path
) -> None:
    """Upload what is in all the folders, as one .tar.gz or as it is; of files with one name the last folder's.

    Links stay links in an archive, and are left out of what is uploaded as it is. ``scratch`` is a folder of the account's own.
    It goes to ``uri`` with ``.tar.gz``, or with a slash.
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
                        s3.upload_fileobj(file, bucket, _key(f"{key}{path}"), ExtraArgs=extra)
        except (UnsafePath, PermissionError) as error:
            raise StorageError(f"ClientError: Artifact upload failed for {place}: {error.strerror}") from error


def _merged(folders: Sequence[JobFolder]) -> dict[str, tuple[JobFolder, os.stat_result]]:
    """What is below all the folders, by path: the last one's, which replaces also a file where it has a folder."""
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
    return any(True for _ in folder.walk())


def _key(text: str) -> str:
    """An object's key, which is Unicode. Raises StorageError for a file's name that is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StorageError(f"ClientError: {text!a} cannot be the key of an object: {error.reason}") from None
    return text
