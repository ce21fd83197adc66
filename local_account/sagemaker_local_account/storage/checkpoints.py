"""Synchronization of the hosts' checkpoint folders with S3."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sagemaker_local_account.core.safe_paths import JobFolder, UnsafePath
from sagemaker_local_account.storage.transfer import (
    StorageError,
    download,
    object_key,
    objects_of_prefix,
    refusals,
    split,
)

_Version = tuple[int, int]  # a file's change time in nanoseconds, and its size in bytes


class Checkpoints:
    """Synchronizes the hosts' checkpoint folders with a prefix in S3 that they share.

    Each host starts with the objects under the prefix. While it runs, new and changed files are uploaded, and the objects of
    removed files deleted: "If a checkpoint is deleted in the SageMaker AI container, it will also be deleted in the S3 folder"
    (guide, "Checkpoints in Amazon SageMaker AI"). Objects that others add later are neither downloaded nor deleted. For several
    hosts AWS documents only that names must differ, or the last host's file is kept; here an object is deleted when no host has
    the file.

    Args:
        s3: a client with the job's role.
        uri: CheckpointConfig.S3Uri.
        folders: the checkpoint folder of each host.
    """

    def __init__(self, s3: Any, uri: str, folders: Sequence[JobFolder]) -> None:
        self._s3 = s3
        self._bucket, prefix = split(uri)
        self._prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
        self._uri = f"s3://{self._bucket}/{self._prefix}"
        # The files of each folder at the last synchronization, by path.
        self._kept: dict[JobFolder, dict[str, _Version]] = {folder: {} for folder in folders}

    def restore(self) -> None:
        """Downloads the objects under the prefix to every host."""
        for folder in self._kept:
            with refusals(f"Checkpoint download failed for {self._uri}"):
                found = objects_of_prefix(self._s3, self._uri)
            download(self._s3, found, folder)
            self._kept[folder] = _files(folder)

    def sync(self) -> None:
        """Uploads new and changed files, then deletes the objects of files that all hosts have removed."""
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
                # A file that the script is renaming is uploaded under its new name next time.
                with (
                    refusals(f"Checkpoint upload failed for {self._uri}{path}"),
                    contextlib.suppress(FileNotFoundError),
                    folder.open(path) as file,
                ):
                    # Without seek: boto3 then reads before it sends a length. Of a file that the script shortens in between it
                    # would send less, and wait a minute for the answer to a request that is not complete.
                    self._s3.upload_fileobj(
                        SimpleNamespace(read=file.read), self._bucket, object_key(f"{self._prefix}{path}")
                    )
                    kept[path] = version

    def _removed(self, present: Mapping[JobFolder, Mapping[str, _Version]]) -> list[str]:
        removed = set()
        for folder, files in present.items():
            for path in self._kept[folder].keys() - files.keys():
                del self._kept[folder][path]
                removed.add(path)
        return sorted(path for path in removed if not any(path in files for files in present.values()))


def _files(folder: JobFolder) -> dict[str, _Version]:
    """The versions of the regular files below a folder; raises StorageError for a folder that was replaced by a link."""
    try:
        return {path: (status.st_mtime_ns, status.st_size) for path, status in folder.files().items()}
    except UnsafePath as error:
        raise StorageError(f"ClientError: Checkpoint upload failed: {error.strerror}") from error
