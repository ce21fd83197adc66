"""The service, operation and training job of a request, for its line in the access log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sagemaker_local_account.core import operations
from sagemaker_local_account.core.request_body import content_of

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

OPERATION = "local_account.operation"  # the environ key of the operation, which the log sets before all others look
_JOB = re.compile(
    rb'"TrainingJobName"\s*:\s*"([\w-]+)"|"logStreamName(?:Prefix)?"\s*:\s*"([\w-]+)/|:training-job/([\w-]+)"'
)


def service_of(environ: WSGIEnvironment) -> str:
    """Returns the service that a request is signed for, in the header or a presigned URL; `-` for an unsigned one."""
    signed = f"{environ.get('HTTP_AUTHORIZATION', '')} {unquote(environ.get('QUERY_STRING', ''))}"
    found = re.search(r"Credential=[^/\s]*/\d+/[^/\s]*/([\w-]+)/aws4_request", signed)
    return found[1] if found else "-"


def operation_of(environ: WSGIEnvironment) -> str:
    """Returns the operation of a request as one word."""
    return _word(operations.operation_of(environ, service_of(environ)))


def job_of(environ: WSGIEnvironment) -> str:
    """Returns the training job that a request to SageMaker or CloudWatch Logs names; `-` where it names none."""
    if not environ.get("HTTP_X_AMZ_TARGET", "").startswith(("SageMaker.", "Logs_")):
        return "-"
    found = _JOB.search(content_of(environ))
    return next(filter(None, found.groups())).decode() if found else "-"


def _word(text: str) -> str:
    """Sanitizes untrusted text to one word of a log line."""
    return re.sub(r"[^\w./:+=@-]+", "_", text)[:200] or "-"
