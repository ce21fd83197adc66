"""S3's objects: large ones in unnamed files in the state folder, instead of the machine's folder for temporary files.

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


def install(folder: Path) -> None:
    """Patches moto to store objects of more than 5 MB in a folder, which is emptied."""
    patch(models.FakeKey, "response_dict", property(_headers))
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


_moto_headers: Any = models.FakeKey.response_dict
