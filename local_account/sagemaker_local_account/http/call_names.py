"""The service, operation and training job of a request, for its line in the access log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sagemaker_local_account.core import s3_requests
from sagemaker_local_account.core.request_body import content_of
from sagemaker_local_account.core.rest_operations import rest_operation

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
    """Returns the operation of a request, or method and path where its protocol and service do not give one."""
    target, path = environ.get("HTTP_X_AMZ_TARGET", ""), environ.get("PATH_INFO", "")
    if target:
        return _word(target.rpartition(".")[2])
    if found := re.fullmatch(r"/service/\w+/operation/(\w+)", path):  # Smithy's RPC protocols
        return found[1]
    query = environ.get("QUERY_STRING", "")
    if found := re.search(r"(?:^|&)Action=(\w+)", query):
        return found[1]
    service = service_of(environ)
    if service == "s3":
        if environ["REQUEST_METHOD"] == "POST" and re.search(r"(?:^|&)delete(?:[=&]|$)", query):
            return "DeleteObjects"
        action = s3_requests.actions_of(environ)[0].action.partition(":")[2]
        return action.replace("Get", "Head", 1) if environ["REQUEST_METHOD"] == "HEAD" else action
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        named = re.search(rb"(?:^|&)Action=(\w+)", content_of(environ))
        return named[1].decode() if named else "-"
    return (rest_operation(service, environ["REQUEST_METHOD"], path) or ("",))[0] or _word(
        f"{environ['REQUEST_METHOD']}:{path}"
    )


def job_of(environ: WSGIEnvironment) -> str:
    """Returns the training job that a request to SageMaker or CloudWatch Logs names; `-` where it names none."""
    if not environ.get("HTTP_X_AMZ_TARGET", "").startswith(("SageMaker.", "Logs_")):
        return "-"
    found = _JOB.search(content_of(environ))
    return next(filter(None, found.groups())).decode() if found else "-"


def _word(text: str) -> str:
    """Sanitizes untrusted text to one word of a log line."""
    return re.sub(r"[^\w./:+=@-]+", "_", text)[:200] or "-"
