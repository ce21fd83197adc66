"""Error responses in the protocol of the request: JSON, or the XML of S3, Query or EC2."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

REQUEST_ID = "local_account.request_id"  # the environ key of the request's id, which is in the response and in the log

# A rejected request's body is read up to here, so that the client reads the response instead of a connection reset.
DRAINED_BYTES = 8 * 1024 * 1024

# Signing names of services with the protocol "rest-xml" in botocore's models.
REST_WITH_XML = frozenset({"cloudfront", "route53", "s3"})


def error(
    environ: WSGIEnvironment, start_response: StartResponse, status: str, code: str, message: str
) -> Iterable[bytes]:
    """Answers a request, whose body may be unread, with an error.

    Args:
        environ: the WSGI request.
        start_response: WSGI's.
        status: the HTTP status line, such as "403 Forbidden".
        code: AWS's error code.
        message: the message for the caller.
    """
    remaining = min(int(environ.get("CONTENT_LENGTH") or 0), DRAINED_BYTES)
    while remaining > 0 and (chunk := environ["wsgi.input"].read(min(remaining, 65536))):
        remaining -= len(chunk)
    headers = [("x-amzn-errortype", code), ("x-amzn-RequestId", _request_id(environ)), ("Connection", "close")]
    if speaks_json(environ):
        headers.append(("Content-Type", "application/x-amz-json-1.1"))
        body = json.dumps({"__type": code, "message": message}).encode()
    else:
        headers.append(("Content-Type", "text/xml"))
        body = _xml(environ, f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>").encode()
    headers.append(("Content-Length", str(len(body))))
    start_response(status, headers)
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]


def throttled(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answers a request beyond a rate."""
    return error(environ, start_response, "400 Bad Request", "ThrottlingException", "Rate exceeded")


def access_denied(
    environ: WSGIEnvironment, start_response: StartResponse, service: str, message: str
) -> Iterable[bytes]:
    """Answers a request that IAM does not allow, with the service's error code and status."""
    if speaks_json(environ):
        return error(environ, start_response, "400 Bad Request", "AccessDeniedException", message)
    code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
    return error(environ, start_response, "403 Forbidden", code, message)


def _request_id(environ: WSGIEnvironment) -> str:
    return environ.get(REQUEST_ID) or str(uuid.uuid4())


def speaks_json(environ: WSGIEnvironment) -> bool:
    """Whether the request's protocol is JSON."""
    content = environ.get("CONTENT_TYPE", "")
    signed = re.search(r"/([\w-]+)/aws4_request", environ.get("HTTP_AUTHORIZATION", ""))
    if signed is not None and signed[1] in REST_WITH_XML:
        return False  # the content type is that of the object in S3
    if "HTTP_X_AMZ_TARGET" in environ or "json" in content:
        return True
    # The protocol "rest-json": a request without a body has no content type, so its service decides.
    query = content.startswith("application/x-www-form-urlencoded") or "Action=" in environ.get("QUERY_STRING", "")
    return signed is not None and not query


def _xml(environ: WSGIEnvironment, error: str) -> str:
    if not environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        return f"<Error>{error}</Error>"
    id = _request_id(environ)
    if "/ec2/" in environ.get("HTTP_AUTHORIZATION", ""):
        return f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{id}</RequestID></Response>"
    return f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>{id}</RequestId></ErrorResponse>"
