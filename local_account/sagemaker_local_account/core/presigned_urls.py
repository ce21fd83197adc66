"""Presigned URLs of Signature Version 2, which S3 alone takes, and boto3 makes by default in the older regions.

AWS answered such URLs of new buckets in February 2026: LocalStack's recorded tests test_s3_presigned_url_expired and
test_presigned_url_signature_authentication, ``[s3]``. The signature is computed by botocore.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from botocore.auth import HmacV1QueryAuth
from botocore.compat import HTTPHeaders
from botocore.credentials import Credentials

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

MISMATCH = ("SignatureDoesNotMatch", "the signature does not match the request and the secret access key")
_FIELDS = {"AWSAccessKeyId", "Signature", "Expires"}


def fields_of(environ: WSGIEnvironment) -> Mapping[str, str] | None:
    """The query of a request whose URL was presigned so; None for another."""
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    return query if query.keys() >= _FIELDS else None


def refusal(
    environ: WSGIEnvironment, query: Mapping[str, str], access_key_id: str, secret: str
) -> tuple[str, str] | None:
    """The code and message of the error with which a request is refused; None where it is signed with the secret."""
    if not query["Expires"].isdigit() or int(query["Expires"]) < time.time():
        return "AccessDenied", "Request has expired"
    return None if _is_signed(environ, query, access_key_id, secret) else MISMATCH


def _is_signed(environ: WSGIEnvironment, query: Mapping[str, str], access_key_id: str, secret: str) -> bool:
    """Whether a secret made the signature of a presigned URL, with the headers of the request.

    What botocore signs as a header is in the query of the URL; one of the same name among the headers takes its place.
    """
    headers = HTTPHeaders()
    for name, value in {**_signed(query.items()), **_signed(_headers_of(environ))}.items():
        headers[name] = value
    target = urlsplit(environ["REQUEST_URI"])
    bucket, dot, _ = environ.get("HTTP_HOST", "").partition(".localhost:")
    path = f"/{bucket}{target.path}" if dot else target.path
    auth = _Expiring(Credentials(access_key_id, secret), query["Expires"])
    expected = auth.get_signature(environ["REQUEST_METHOD"], target, headers, auth_path=path)
    return hmac.compare_digest(str(expected).encode(), unquote_plus(_raw(target.query, "Signature")).encode())


class _Expiring(HmacV1QueryAuth):
    """The signature of a URL whose time is given."""

    def __init__(self, credentials: Credentials, until: str) -> None:
        super().__init__(credentials)
        self._until = until

    def _get_date(self) -> str:
        return self._until


def _headers_of(environ: WSGIEnvironment) -> Any:
    yield from (
        (name.removeprefix("HTTP_").replace("_", "-"), str(value))
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_TYPE"
    )


def _signed(named: Any) -> dict[str, str]:
    lower = {name.lower(): value for name, value in named}
    return {
        name: value
        for name, value in lower.items()
        if value and (name.startswith("x-amz-") or name in ("content-type", "content-md5"))
    }


def _raw(query: str, name: str) -> str:
    return next(part.partition("=")[2] for part in query.split("&") if part.partition("=")[0] == name)
