"""Request authentication: Signature Version 4, and protection against requests from web pages.

CreateTrainingJob starts processes on this machine, and a web page in the user's own browser can reach any port on loopback.
Rejected are therefore requests with an `Origin` header, requests with a `Host` other than the account's own (DNS rebinding),
and requests that are not signed with a key of this account: its root key, generated at each start, the keys of its IAM users,
and the credentials of its STS.

The signature is checked as AWS does (the Authorization header, a presigned URL, or the fields of a browser form).
`tests/local_account/test_authentication.py` sends the signatures of boto3, the AWS CLI and Node's SDK.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from sagemaker_local_account.core import chunk_signatures, error_responses, presigned_urls
from sagemaker_local_account.core.request_body import body_of, decompress
from sagemaker_local_account.core.rest_operations import is_target
from sagemaker_local_account.core.s3_requests import form_fields

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

# The environ keys that an authenticated request has: the access key id, and the signing name and region of its scope.
KEY, SERVICE, REGION = "local_account.access_key_id", "local_account.service", "local_account.region"

# AWS rejects signatures that are older, or further in the future, than this.
CLOCK_SKEW = datetime.timedelta(minutes=15)


@dataclass(frozen=True)
class IssuedKey:
    """The access key of a request's principal, and the secret and, if any, the session token of the key that is sent."""

    access_key_id: str
    secret_access_key: str
    session_token: str | None = None


class AuthenticationError(Exception):
    """A request is not authenticated: an AWS error code and the message for the caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class _Signature:
    """The fields of a request's signature, from the header, the query or the form."""

    access_key_id: str
    scope: str
    signed_headers: tuple[str, ...]
    signature: str
    time: str
    token: str | None
    expires: int | None = None


class SigV4Authentication:
    """WSGI middleware that answers 403 to requests that are not authenticated.

    Args:
        app: the application behind it.
        port: the account's port; a request's Host must be `localhost:PORT`, `127.0.0.1:PORT`, or `BUCKET.localhost:PORT`.
        issued: returns the key of an access key id, or None for one that this account did not issue.
        region: that of presigned URLs which name none.
    """

    def __init__(
        self, app: WSGIApplication, *, port: int, issued: Callable[[str], IssuedKey | None], region: str
    ) -> None:
        self._app = app
        self._host = re.compile(rf"(([a-z0-9][a-z0-9.-]*\.)?localhost|127\.0\.0\.1):{port}", re.IGNORECASE)
        self._port = port
        self._issued = issued
        self._region = region

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Calls the application behind it, or answers 403."""
        try:
            self.check(environ)
        except AuthenticationError as refusal:
            return error_responses.error(environ, start_response, "403 Forbidden", refusal.code, refusal.message)
        return self._app(environ, start_response)

    def check(self, environ: WSGIEnvironment) -> None:
        """Raises `AuthenticationError` unless the request is signed with a key of this account and comes from no web page."""
        if "HTTP_ORIGIN" in environ:
            raise AuthenticationError(
                "AccessDenied",
                f"the local account rejects requests from web pages, got one with Origin {environ['HTTP_ORIGIN']!r}",
            )
        host = environ.get("HTTP_HOST", "")
        if not self._host.fullmatch(host):
            raise AuthenticationError("AccessDenied", f"Host must be 'localhost:{self._port}', got {host!r}")
        if environ.get("PATH_INFO", "").startswith("/moto-api"):
            # With any key it could empty the account or write a file.
            raise AuthenticationError("AccessDenied", "moto's own API is disabled in the local account")
        if (query := presigned_urls.fields_of(environ)) is not None:
            self._check_presigned(environ, query)
            return
        signature = _signature_of(environ)
        if signature is None:
            text = "the request is not signed; sign it with the keys that `local-account` printed at its start"
            raise AuthenticationError("MissingAuthenticationToken", text)
        key = self._key(signature.access_key_id, signature.token)
        _check_time(signature)
        if not hmac.compare_digest(_expected(environ, signature, key).encode(), signature.signature.encode()):
            raise AuthenticationError(*presigned_urls.MISMATCH)
        _, environ[REGION], environ[SERVICE], _ = signature.scope.split("/")
        _check_agreement(environ)
        _check_headers(environ, signature)
        _check_chunks(environ, signature, key)
        environ[KEY] = key.access_key_id
        if environ[SERVICE] != "s3":  # whose Content-Encoding is metadata of the object
            decompress(environ)

    def _key(self, access_key_id: str, token: str | None) -> IssuedKey:
        key = self._issued(access_key_id)
        if key is None:
            text = "the access key was not issued by the running local account, got {!r}; use the environment that it printed"
            raise AuthenticationError("InvalidClientTokenId", text.format(access_key_id))
        if key.session_token is not None and token != key.session_token:
            raise AuthenticationError("InvalidClientTokenId", "the session token is not the one issued with the key")
        return key

    def _check_presigned(self, environ: WSGIEnvironment, query: Mapping[str, str]) -> None:
        key = self._key(query["AWSAccessKeyId"], query.get("x-amz-security-token"))
        if why := presigned_urls.refusal(environ, query, key.access_key_id, key.secret_access_key):
            raise AuthenticationError(*why)
        environ[REGION], environ[SERVICE], environ[KEY] = self._region, "s3", key.access_key_id
        _check_agreement(environ)


def _check_agreement(environ: WSGIEnvironment) -> None:
    """Raises unless what else says the service, operation or body of a request says the same as what was signed.

    Else it could be authorized as one call and run as another.
    """
    service = environ[SERVICE]
    target, dot, _ = environ.get("HTTP_X_AMZ_TARGET", "").rpartition(".")
    subdomain = environ.get("HTTP_HOST", "").lower().partition(".localhost")[1]
    if (dot and not is_target(service, target)) or (subdomain and service != "s3"):
        message = f"Credential should be scoped to correct service, got {service!r}"
        raise AuthenticationError("InvalidSignatureException", message)
    if service != "s3" and "Action=" in environ.get("QUERY_STRING", "") and environ["REQUEST_METHOD"] == "POST":
        raise AuthenticationError("InvalidAction", "Action must be in the body of a POST, not in its query")
    hashed = environ.get("HTTP_X_AMZ_CONTENT_SHA256", "")
    whole = re.fullmatch("[0-9a-f]{64}", hashed) and "HTTP_TRANSFER_ENCODING" not in environ
    if whole and _payload_hash(environ) != hashed:
        message = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise AuthenticationError("XAmzContentSHA256Mismatch", message)


def _check_headers(environ: WSGIEnvironment, signature: _Signature) -> None:
    """Raises for a header of S3's that was not signed, which would change what the signed request means."""
    if environ[SERVICE] != "s3" or signature.signed_headers[0].startswith("policy="):
        return
    given = {name.removeprefix("HTTP_").replace("_", "-").lower() for name in environ if name.startswith("HTTP_X_AMZ_")}
    if unsigned := sorted(given - set(signature.signed_headers) - {"x-amz-content-sha256"}):
        message = f"There were headers present in the request which were not signed: {', '.join(unsigned)}"
        raise AuthenticationError("AccessDenied", message)


def _check_chunks(environ: WSGIEnvironment, signature: _Signature, key: IssuedKey) -> None:
    """Raises for a chunk of an upload that is not the one that was signed."""
    hashed = environ.get("HTTP_X_AMZ_CONTENT_SHA256", "")
    if environ[SERVICE] != "s3" or not hashed.startswith(chunk_signatures.SIGNED):
        return
    scope, trailer = f"{signature.time}\n{signature.scope}", hashed.endswith("-TRAILER")
    signed = functools.partial(_signed, signature.scope, key)
    if not chunk_signatures.are_right(body_of(environ), signature.signature, scope, signed, trailer=trailer):
        raise AuthenticationError("SignatureDoesNotMatch", "the signature of a chunk does not match its content")


def _signature_of(environ: WSGIEnvironment) -> _Signature | None:
    authorization = environ.get("HTTP_AUTHORIZATION", "")
    if authorization.startswith("AWS4-HMAC-SHA256"):
        fields = dict(
            part.strip().split("=", 1) for part in authorization[len("AWS4-HMAC-SHA256") :].split(",") if "=" in part
        )
        return _from_fields(
            fields.get("Credential", ""),
            fields.get("SignedHeaders", ""),
            fields.get("Signature", ""),
            environ.get("HTTP_X_AMZ_DATE", ""),
            environ.get("HTTP_X_AMZ_SECURITY_TOKEN"),
        )
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if query.get("X-Amz-Algorithm") == "AWS4-HMAC-SHA256":
        return _from_fields(
            query.get("X-Amz-Credential", ""),
            query.get("X-Amz-SignedHeaders", ""),
            query.get("X-Amz-Signature", ""),
            query.get("X-Amz-Date", ""),
            query.get("X-Amz-Security-Token"),
            expires=query.get("X-Amz-Expires", ""),
        )
    if environ["REQUEST_METHOD"] == "POST" and environ.get("CONTENT_TYPE", "").startswith("multipart/form-data"):
        form = form_fields(environ)
        return _from_fields(
            form.get("x-amz-credential", ""),
            "",
            form.get("x-amz-signature", ""),
            form.get("x-amz-date", ""),
            form.get("x-amz-security-token"),
            policy=form.get("policy", ""),
        )
    return None


def _from_fields(
    credential: str,
    signed_headers: str,
    signature: str,
    time: str,
    token: str | None,
    *,
    expires: str | None = None,
    policy: str | None = None,
) -> _Signature | None:
    access_key_id, _, scope = credential.partition("/")
    if not access_key_id or scope.count("/") != 3 or not signature:
        return None
    if expires is not None and not expires.isdigit():
        return None
    names = (f"policy={policy}",) if policy is not None else tuple(signed_headers.split(";"))
    return _Signature(
        access_key_id, scope, names, signature, time, token, expires=None if expires is None else int(expires)
    )


def _check_time(signature: _Signature) -> None:
    try:
        signed_at = datetime.datetime.strptime(signature.time, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    except ValueError:
        raise AuthenticationError(
            "IncompleteSignature", f"X-Amz-Date must be like '20260131T120000Z', got {signature.time!r}"
        ) from None
    now = datetime.datetime.now(datetime.UTC)
    until = CLOCK_SKEW if signature.expires is None else datetime.timedelta(seconds=signature.expires)
    if not -CLOCK_SKEW <= now - signed_at <= until:
        raise AuthenticationError(
            "RequestTimeTooSkewed", f"signature expired or not yet valid: X-Amz-Date is {signature.time}"
        )


def _expected(environ: WSGIEnvironment, signature: _Signature, key: IssuedKey) -> str:
    """The signature of this request with the given key."""
    if signature.signed_headers[0].startswith("policy="):
        to_sign = signature.signed_headers[0].removeprefix("policy=")
    else:
        canonical = _canonical_request(environ, signature, signature.scope.split("/")[2])
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = "\n".join(["AWS4-HMAC-SHA256", signature.time, signature.scope, digest])
    return _signed(signature.scope, key, to_sign)


def _signed(scope: str, key: IssuedKey, to_sign: str) -> str:
    """The signature of a text by the key of a scope: date, region, service and terminator."""
    signing_key = f"AWS4{key.secret_access_key}".encode()
    for part in scope.split("/"):
        signing_key = hmac.new(signing_key, part.encode(), hashlib.sha256).digest()
    return hmac.new(signing_key, to_sign.encode(), hashlib.sha256).hexdigest()


def _canonical_request(environ: WSGIEnvironment, signature: _Signature, service: str) -> str:
    target = urlsplit(environ["REQUEST_URI"])
    # S3 signs the path as it was sent; other services encode it a second time.
    path = target.path or "/"
    path = _encode(unquote(path), "/~") if service == "s3" else _encode(path, "/~")
    pairs = [(_encode(unquote(n)), _encode(unquote(v))) for n, _, v in _pairs(target.query)]
    query = "&".join(f"{n}={v}" for n, v in sorted(pair for pair in pairs if pair[0] != "X-Amz-Signature"))
    headers = "".join(f"{name}:{_header(environ, name)}\n" for name in signature.signed_headers)
    if "HTTP_X_AMZ_CONTENT_SHA256" in environ:
        payload = environ["HTTP_X_AMZ_CONTENT_SHA256"]
    elif service == "s3" and signature.expires is not None:
        payload = "UNSIGNED-PAYLOAD"
    else:
        payload = _payload_hash(environ)
    return "\n".join([environ["REQUEST_METHOD"], path, query, headers, ";".join(signature.signed_headers), payload])


def _pairs(query: str) -> list[tuple[str, str, str]]:
    return [part.partition("=") for part in query.split("&") if part]


def _encode(text: str, safe: str = "~") -> str:
    return quote(text, safe=f"-_.{safe}")


def _header(environ: WSGIEnvironment, name: str) -> str:
    field = name.upper().replace("-", "_")
    value = environ.get(field if field in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{field}", "")
    return " ".join(value.split())


def _payload_hash(environ: WSGIEnvironment) -> str:
    return hashlib.sha256(body_of(environ)).hexdigest()
