"""A folder of a file system of FSx for Lustre that is linked with a prefix in S3 (a data repository association).

On AWS names come by events and a file's content when it is first read. Here both are copied when a job starts, and what jobs
wrote goes to S3 when they end; in between neither sees what the other does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .permissions import AccessDenied, Caller, Permissions
from .policies import Call
from .safe_paths import JobFolder, UnsafePath
from .storage import StorageError, fetch, refusals, split

_ROLE = "AWSServiceRoleForFSxS3Access"
# What the role may do, by FSx's guide ("Using service-linked roles for Amazon FSx"): nothing with keys, so that the policy of a
# bucket's key has to name the role ("Working with server-side encrypted Amazon S3 buckets").
_OF_ROLE = {
    "Statement": {
        "Effect": "Allow",
        "Action": ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:Get*", "s3:List*", "s3:PutObject"],
        "Resource": "*",
    }
}


@dataclass(frozen=True)
class _Version:
    """A file that is the same here and there: what S3 says of it, and the disk."""

    etag: str
    on_disk: tuple[int, int] | None  # time of change in ns, bytes; None of one that was not imported


@dataclass
class Link:
    """``path`` of the file system shows what lies under ``uri``. ``imports`` and ``exports`` are of NEW, CHANGED, DELETED."""

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
        return self.arn.split(":")[3]

    def begin(self, s3: Any, permissions: Permissions, root: Path) -> None:
        """What is there already is shown only where the link asks for it."""
        self._folder(root).make()
        if self.import_at_first:
            self._import(s3, permissions, root, frozenset({"NEW"}))
        else:
            self._known = {path: _Version(etag, None) for path, (_, etag) in self._objects(s3, permissions).items()}

    def show(self, s3: Any, permissions: Permissions, root: Path) -> None:
        """Bring the folder to what S3 has by now, as far as the link imports. Raises StorageError where FSx may not read it."""
        if self.imports:
            self._import(s3, permissions, root, self.imports)

    def export(self, s3: Any, permissions: Permissions, root: Path) -> None:
        """Write to S3 what is new, changed or gone in the folder, as far as the link exports."""
        bucket, prefix = self._place
        folder = self._folder(root)
        files = {path: _on_disk(status) for path, status in folder.files().items()}
        for path, on_disk in files.items():
            known = self._known.get(path)
            event = "NEW" if known is None or known.on_disk is None else "CHANGED"
            if event in self.exports and (known is None or known.on_disk != on_disk):
                self._may(permissions, "s3:PutObject", f"{bucket}/{prefix}{path}")
                with (
                    refusals(f"Export failed for {self.uri}"),
                    contextlib.suppress(FileNotFoundError),  # of a job that still writes
                    folder.open(path) as body,
                ):
                    etag = s3.put_object(Bucket=bucket, Key=f"{prefix}{path}", Body=body)["ETag"]
                    self._known[path] = _Version(etag, on_disk)
        gone = [path for path, known in self._known.items() if known.on_disk is not None and path not in files]
        for path in gone if "DELETED" in self.exports else []:
            self._may(permissions, "s3:DeleteObject", f"{bucket}/{prefix}{path}")
            s3.delete_object(Bucket=bucket, Key=f"{prefix}{path}")
            del self._known[path]

    def _folder(self, root: Path) -> JobFolder:
        return JobFolder(root, self.path.strip("/"))

    @property
    def _place(self) -> tuple[str, str]:
        bucket, prefix = split(self.uri)
        return bucket, prefix if not prefix or prefix.endswith("/") else f"{prefix}/"

    def _import(self, s3: Any, permissions: Permissions, root: Path, events: frozenset[str]) -> None:
        objects = self._objects(s3, permissions)
        for path, (key, etag) in objects.items():
            known = self._known.get(path)
            if known is None or known.etag != etag:
                on_disk = None
                if ("NEW" if known is None else "CHANGED") in events:
                    on_disk = self._copy(s3, permissions, key, root, path)
                self._known[path] = _Version(etag, on_disk)
        for path in set(self._known) - set(objects) if "DELETED" in events else ():
            if self._known.pop(path).on_disk is not None:
                with contextlib.suppress(OSError):  # a job has removed it already, or put something else in its place
                    self._folder(root).remove(path)

    def _copy(self, s3: Any, permissions: Permissions, key: str, root: Path, path: str) -> tuple[int, int] | None:
        """None where a job has made a folder of the object's name, or a file of its folder's."""
        bucket, _ = self._place
        self._may(permissions, "s3:GetObject", f"{bucket}/{key}")
        folder = self._folder(root)
        above, _, name = path.rpartition("/")
        new = f"{above}/.{name}.import".lstrip("/")
        try:
            with refusals(f"Import failed for {self.uri}"):
                fetch(s3, bucket, key, folder, new)
            folder.rename(new, name)  # at once, for jobs that read it
        except OSError as error:
            with contextlib.suppress(OSError):
                folder.remove(new)
            if isinstance(error, (FileExistsError, IsADirectoryError, NotADirectoryError, UnsafePath)):
                return None
            raise
        return _on_disk(folder.status(path))

    def _objects(self, s3: Any, permissions: Permissions) -> Mapping[str, tuple[str, str]]:
        """Key and ETag of each object, by its path; those that cannot be files are left out."""
        bucket, prefix = self._place
        self._may(permissions, "s3:ListBucket", bucket, {"s3:prefix": (prefix,)})
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

    def _may(
        self, permissions: Permissions, action: str, name: str, context: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        role = f"{_ROLE}_{self.file_system_id}"
        caller = Caller(
            f"arn:aws:sts::{self.account}:assumed-role/{role}/FSx",
            f"arn:aws:iam::{self.account}:role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/{role}",
            "AssumedRole",
            [_OF_ROLE],
        )
        try:
            permissions.check(caller, Call(action, f"arn:aws:s3:::{name}", context or {}))
        except AccessDenied as denied:
            raise StorageError(f"ClientError: FSx cannot use {self.uri}, which {self.id} links: {denied}") from None


def _on_disk(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size
