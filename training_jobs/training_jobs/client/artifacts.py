"""Where a job's model and checkpoints are in S3, and their download."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from training_jobs.client.errors import NotFoundError, TrainingError


@dataclass(frozen=True)
class S3Object:
    """One object.

    Attributes:
        uri: Its place, ``s3://BUCKET/KEY``.
        bytes: Its size.
        modified: When it was written.
    """

    uri: str
    bytes: int
    modified: datetime


def exists(s3: Any, uri: str) -> bool | None:
    """Return whether there is an object at a URI; None where the caller may not look.

    Args:
        s3: A client of S3.
        uri: Its URI, like ``"s3://bucket/models/train-1/output/model.tar.gz"``.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        s3.head_object(Bucket=bucket, Key=key)
    except s3.exceptions.ClientError as error:
        # 403 says nothing of the object: without s3:ListBucket it is the answer for one that is not there, too.
        return False if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404 else None
    return True


def objects_below(s3: Any, uri: str) -> list[S3Object]:
    """Return the objects below a prefix, by the time at which they were written.

    Args:
        s3: boto3's client of S3.
        uri: The prefix, ``s3://BUCKET/PREFIX``.
    """
    bucket, prefix = _split(uri)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    found = [
        S3Object(f"s3://{bucket}/{entry['Key']}", entry["Size"], entry["LastModified"])
        for page in pages
        for entry in page.get("Contents", [])
        if not entry["Key"].endswith("/")
    ]
    return sorted(found, key=lambda it: it.modified)


def download(s3: Any, uri: str, directory: Path) -> list[Path]:
    """Download an object, or all objects below a prefix; a ``.tar.gz`` is unpacked.

    A file is complete once it has its name.

    Args:
        s3: boto3's client of S3.
        uri: ``s3://BUCKET/KEY``, or a prefix.
        directory: Where to, created if needed.

    Returns:
        The files that were written, sorted.

    Raises:
        NotFoundError: Nothing is there.
        TrainingError: An archive holds a member that must not be unpacked, such as a path outside of it.
    """
    found = objects_below(s3, uri)
    if not found:
        raise NotFoundError(f"nothing is at {uri}")
    directory.mkdir(parents=True, exist_ok=True)
    if [it.uri for it in found] == [uri] and uri.endswith(".tar.gz"):
        return _unpacked(_fetch(s3, uri, directory / uri.rpartition("/")[2]), directory)
    base = uri if uri.endswith("/") else uri.rpartition("/")[0] + "/"
    written = []
    for it in found:
        target = (directory / it.uri.removeprefix(base)).resolve()
        if not target.is_relative_to(directory.resolve()):
            raise TrainingError(f"{it.uri} has a name that leads out of {directory}; nothing more was downloaded")
        written.append(_fetch(s3, it.uri, target))
    return sorted(written)


def _fetch(s3: Any, uri: str, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    bucket, key = _split(uri)
    partial = target.with_name(f"{target.name}.partial")
    try:
        s3.download_file(bucket, key, str(partial))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _unpacked(archive: Path, directory: Path) -> list[Path]:
    try:
        with tarfile.open(archive) as tar:
            names = [member.name for member in tar.getmembers() if member.isfile()]
            tar.extractall(directory, filter="data")
    except tarfile.TarError as error:
        raise TrainingError(f"{archive} cannot be unpacked: {error}") from error
    archive.unlink()
    return sorted(directory / name for name in names)


def _split(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key
