"""S3's objects and their versions: large ones are in unnamed files in the state folder, not in the machine's temporary folder.

An unnamed file (O_TMPFILE) is removed by the kernel when the account's process ends.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moto.s3 import models

from sagemaker_local_account.core.patches import patch
from sagemaker_local_account.runtime import leftovers

# The parameters of moto's put_object.
_PUT = (
    "self, bucket_name, key_name, value, storage, etag, multipart, encryption, kms_key_id, bucket_key_enabled, lock_mode, "
    "lock_legal_status, lock_until, checksum_value, request_method, disable_notification"
)


def install(folder: Path) -> None:
    """Patches moto to store objects of more than 5 MB in a folder, which is emptied, and to keep what it would drop.

    In a bucket whose versioning is suspended, which has all of its versions, moto's writes and deletions drop them.
    """
    patch(models.FakeKey, "response_dict", property(_headers))
    patch(models.FakeBucket, "is_versioned", property(lambda self: self.versioning_status in ("Enabled", "Suspended")))
    patch(models.S3Backend, "put_object", _put_object, _PUT)
    patch(models.S3Backend, "_set_delete_marker", _set_delete_marker, "self, bucket_name, key_name")
    leftovers.clear(folder)
    models.tempfile = SimpleNamespace(
        SpooledTemporaryFile=functools.partial(tempfile.SpooledTemporaryFile, dir=str(folder))
    )


def _headers(self: models.FakeKey) -> dict[str, Any]:
    """The headers of an object, with those that moto lacks.

    "Starting January 5, 2023, all new object uploads to Amazon S3 are automatically encrypted" (S3 guide), with SSE-S3; the type
    of its checksum is in LocalStack's recording `stepfunctions/v2/services/test_aws_sdk_task_service.py::test_s3_put_object`.
    """
    headers: dict[str, Any] = _moto_headers.fget(self)
    headers.setdefault("x-amz-server-side-encryption", "AES256")
    if self.checksum_algorithm is not None:
        headers["x-amz-checksum-type"] = "FULL_OBJECT"
    return headers


def _put_object(self: models.S3Backend, bucket_name: str, key_name: str, *args: Any, **kwargs: Any) -> models.FakeKey:
    """Puts an object, whose response names no version where versioning is suspended."""
    created = _moto_put_object(self, bucket_name, key_name, *args, **kwargs)
    bucket = self.get_bucket(bucket_name)
    if bucket.versioning_status == "Suspended":
        created._is_versioned = False
        _replace_null(bucket, key_name, created)
    return created


def _set_delete_marker(self: models.S3Backend, bucket_name: str, key_name: str) -> models.FakeDeleteMarker:
    marker = _moto_set_delete_marker(self, bucket_name, key_name)
    bucket = self.get_bucket(bucket_name)
    if bucket.versioning_status == "Suspended":
        _replace_null(bucket, key_name, marker)
    return marker


def _replace_null(bucket: models.FakeBucket, key_name: str, version: Any) -> None:
    """Makes a version the one whose id is "null", of which there is one (LocalStack's recorded tests of suspended buckets)."""
    others = [it for it in bucket.keys.getlist(key_name) if it is not version and it.version_id != "null"]
    version._version_id = "null"
    bucket.keys.setlist(key_name, [*others, version])


_moto_headers: Any = models.FakeKey.response_dict
_moto_put_object, _moto_set_delete_marker = models.S3Backend.put_object, models.S3Backend._set_delete_marker
