"""Data repository associations: a folder of an FSx for Lustre file system is linked to a prefix in S3.

On AWS metadata are imported by events, and a file's content when it is first read. Here both are copied when a job starts, and
changes of jobs are exported when they end, without synchronization in between.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sagemaker_local_account.core.safe_paths import JobFolder, UnsafePath
from sagemaker_local_account.iam.authorizer import AccessDenied, Authorizer, Caller
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.storage.transfer import StorageError, fetch, refusals, split

_ROLE = "AWSServiceRoleForFSxS3Access"
# The permissions of the service-linked role (FSx's guide, "Using service-linked roles for Amazon FSx"): none for KMS, so that the
# policy of a bucket's key has to name the role ("Working with server-side encrypted Amazon S3 buckets").
_OF_ROLE = {
    "Statement": {
        "Effect": "Allow",
        "Action": ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:Get*", "s3:List*", "s3:PutObject"],
        "Resource": "*",
    }
}


@dataclass(frozen=True)
class _Version:
    """The version of a synchronized file: its ETag in S3, and its change time and size on the disk."""

    etag: str
    on_disk: tuple[int, int] | None  # change time in ns, bytes; None where it was not imported


@dataclass
class Link:
    """A data repository association.

    Args:
        id: its id.
        arn: its ARN.
        account: the account id.
        file_system_id: the file system.
        path: FileSystemPath.
        uri: DataRepositoryPath.
        imports: the events of AutoImportPolicy: NEW, CHANGED, DELETED.
        exports: the events of AutoExportPolicy.
        import_at_first: BatchImportMetaDataOnCreate.
    """

    id: str
    arn: str
    account: str
    file_system_id: str
    path: str
    uri: str
    imports: frozenset[str] = frozenset()
    exports: frozenset[str] = frozenset()
    import_at_first: bool = False
    _known: dict[str, _Version] = field(default_factory=dict)

    @property
    def region(self) -> str:
        """Its region."""
        return self.arn.split(":")[3]

    def initialize(self, s3: Any, authorizer: Authorizer, root: Path) -> None:
        """Makes the folder, and imports existing objects with BatchImportMetaDataOnCreate."""
        self._folder(root).make()
        if self.import_at_first:
            self._import(s3, authorizer, root, frozenset({"NEW"}))
        else:
            self._known = {path: _Version(etag, None) for path, (_, etag) in self._objects(s3, authorizer).items()}

    def import_changes(self, s3: Any, authorizer: Authorizer, root: Path) -> None:
        """Imports the changes in S3 by AutoImportPolicy.

        Raises:
            StorageError: FSx is not allowed to read the bucket.
        """
        if self.imports:
            self._import(s3, authorizer, root, self.imports)

    def export(self, s3: Any, authorizer: Authorizer, root: Path) -> None:
        """Exports the changes of the folder to S3 by AutoExportPolicy.

        Raises:
            StorageError: FSx is not allowed to write to the bucket.
        """
        bucket, prefix = self._place
        folder = self._folder(root)
        files = {path: _on_disk(status) for path, status in folder.files().items()}
        for path, on_disk in files.items():
            known = self._known.get(path)
            event = "NEW" if known is None or known.on_disk is None else "CHANGED"
            if event in self.exports and (known is None or known.on_disk != on_disk):
                self._check_access(authorizer, "s3:PutObject", f"{bucket}/{prefix}{path}")
                with (
                    refusals(f"Export failed for {self.uri}"),
                    contextlib.suppress(FileNotFoundError),  # removed by a running job
                    folder.open(path) as file,
                ):
                    # Read first: a running job may shorten it between its length and its content.
                    etag = s3.put_object(Bucket=bucket, Key=f"{prefix}{path}", Body=file.read())["ETag"]
                    self._known[path] = _Version(etag, on_disk)
        gone = [path for path, known in self._known.items() if known.on_disk is not None and path not in files]
        for path in gone if "DELETED" in self.exports else []:
            self._check_access(authorizer, "s3:DeleteObject", f"{bucket}/{prefix}{path}")
            s3.delete_object(Bucket=bucket, Key=f"{prefix}{path}")
            del self._known[path]

    def _folder(self, root: Path) -> JobFolder:
        return JobFolder(root, self.path.strip("/"))

    @property
    def _place(self) -> tuple[str, str]:
        bucket, prefix = split(self.uri)
        return bucket, prefix if not prefix or prefix.endswith("/") else f"{prefix}/"

    def _import(self, s3: Any, authorizer: Authorizer, root: Path, events: frozenset[str]) -> None:
        objects = self._objects(s3, authorizer)
        for path, (key, etag) in objects.items():
            known = self._known.get(path)
            if known is None or known.etag != etag:
                on_disk = None
                if ("NEW" if known is None else "CHANGED") in events:
                    on_disk = self._copy(s3, authorizer, key, root, path)
                self._known[path] = _Version(etag, on_disk)
        for path in set(self._known) - set(objects) if "DELETED" in events else ():
            if self._known.pop(path).on_disk is not None:
                with contextlib.suppress(OSError):  # a job has removed or replaced it
                    self._folder(root).remove(path)

    def _copy(self, s3: Any, authorizer: Authorizer, key: str, root: Path, path: str) -> tuple[int, int] | None:
        """Downloads an object; None where a job has made a folder of its name, or a file in place of its folder."""
        bucket, _ = self._place
        self._check_access(authorizer, "s3:GetObject", f"{bucket}/{key}")
        folder = self._folder(root)
        above, _, name = path.rpartition("/")
        new = f"{above}/.{name}.import".lstrip("/")
        try:
            with refusals(f"Import failed for {self.uri}"):
                fetch(s3, bucket, key, folder, new)
            folder.rename(new, name)  # atomic, for jobs that read it
        except OSError as error:
            with contextlib.suppress(OSError):
                folder.remove(new)
            if isinstance(error, (FileExistsError, IsADirectoryError, NotADirectoryError, UnsafePath)):
                return None
            raise
        return _on_disk(folder.status(path))

    def _objects(self, s3: Any, authorizer: Authorizer) -> Mapping[str, tuple[str, str]]:
        """Key and ETag of each object, by path; objects whose paths cannot be files are left out."""
        bucket, prefix = self._place
        self._check_access(authorizer, "s3:ListBucket", bucket, {"s3:prefix": (prefix,)})
        with refusals(f"Import failed for {self.uri}"):
            objects = {
                entry["Key"].removeprefix(prefix): (entry["Key"], entry["ETag"])
                for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
                for entry in page.get("Contents", [])
            }
        folders = {path[:end] for path in objects for end, letter in enumerate(path) if letter == "/"}
        return {
            path: found
            for path, found in objects.items()
            if path not in folders and not {"", ".", ".."} & {*path.split("/")}
        }

    def _check_access(
        self, authorizer: Authorizer, action: str, name: str, context: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        role = f"{_ROLE}_{self.file_system_id}"
        caller = Caller(
            f"arn:aws:sts::{self.account}:assumed-role/{role}/FSx",
            f"arn:aws:iam::{self.account}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/{role}",
            "AssumedRole",
            {_ROLE: _OF_ROLE},
        )
        try:
            authorizer.check(caller, Call(action, f"arn:aws:s3:::{name}", context or {}))
        except AccessDenied as denied:
            raise StorageError(f"ClientError: FSx cannot use {self.uri}, which {self.id} links: {denied}") from None


def _on_disk(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size
