"""What an S3 request does, which follows from method, path and query: S3's protocol has no operation name."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote, urlparse, urlsplit
from xml.etree import ElementTree

from werkzeug.formparser import parse_form_data

from sagemaker_local_account.core.request_body import body_of

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

# Subresources of buckets and objects, by the query parameter that names them.
BUCKET_PARTS = {
    "accelerate": "AccelerateConfiguration",
    "acl": "BucketAcl",
    "analytics": "AnalyticsConfiguration",
    "cors": "BucketCORS",
    "encryption": "EncryptionConfiguration",
    "intelligent-tiering": "IntelligentTieringConfiguration",
    "inventory": "InventoryConfiguration",
    "lifecycle": "LifecycleConfiguration",
    "location": "BucketLocation",
    "logging": "BucketLogging",
    "metrics": "MetricsConfiguration",
    "notification": "BucketNotification",
    "object-lock": "BucketObjectLockConfiguration",
    "ownershipControls": "BucketOwnershipControls",
    "policy": "BucketPolicy",
    "policyStatus": "BucketPolicyStatus",
    "publicAccessBlock": "BucketPublicAccessBlock",
    "replication": "ReplicationConfiguration",
    "requestPayment": "BucketRequestPayment",
    "tagging": "BucketTagging",
    "versioning": "BucketVersioning",
    "website": "BucketWebsite",
}
OBJECT_PARTS = {
    "acl": "ObjectAcl",
    "attributes": "ObjectAttributes",
    "legal-hold": "ObjectLegalHold",
    "retention": "ObjectRetention",
    "tagging": "ObjectTagging",
    "torrent": "ObjectTorrent",
}
_VERBS = {"GET": "Get", "HEAD": "Get", "PUT": "Put", "DELETE": "Delete"}
# Of a bucket's subresources, only these have a separate action for deletion; the others are deleted by the Put action. Of an
# object's, these have no separate action for a version ("Required permissions for Amazon S3 API operations").
_DELETED = ("BucketPolicy", "BucketWebsite")
_OF_ALL_VERSIONS = ("ObjectLegalHold", "ObjectRetention")


class Action(NamedTuple):
    """An IAM action on a resource, with the values of condition keys."""

    action: str
    resource: str = "*"
    context: Mapping[str, tuple[str, ...]] = {}
    unknown: bool = False  # whether the resource is not known


def actions_of(environ: WSGIEnvironment) -> list[Action]:
    """Returns the IAM actions of one request; CopyObject also requires s3:GetObject on its source."""
    method = environ["REQUEST_METHOD"]
    bucket, key = bucket_and_key(environ)
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    if not bucket:
        return [Action("s3:ListAllMyBuckets")]
    arn = f"arn:aws:s3:::{bucket}"
    if method == "POST" and "delete" in query:
        return [Action("s3:DeleteObject", f"{arn}/{name}") for name in _keys_to_delete(environ)]
    if not key:
        form = environ.get("CONTENT_TYPE", "").startswith("multipart/form-data")
        if method == "POST" and form:  # a browser's upload, whose key is a field
            keys = [value for name, value in _form(environ) if name.lower() == "key"]
            known = len(keys) == 1 and "key" not in query
            return [Action("s3:PutObject", f"{arn}/{keys[0] if known else '*'}", unknown=not known)]
        return [_of_bucket(method, arn, query)]
    calls = [Action(_of_object(method, query), f"{arn}/{key}", _encryption(environ))]
    if calls[0].action == "s3:PutObject":
        calls += [Action(action, f"{arn}/{key}") for action in _with_headers(environ)]
    if source := environ.get("HTTP_X_AMZ_COPY_SOURCE"):
        copied = urlparse(source)  # as moto reads it
        version = "Version" if "versionId" in parse_qs(copied.query) else ""
        calls.append(Action(f"s3:GetObject{version}", f"arn:aws:s3:::{unquote(copied.path).lstrip('/')}"))
    return calls


def operation_of(environ: WSGIEnvironment) -> str:
    """Returns a request's operation, which is mostly the name of its first action."""
    method, query = environ["REQUEST_METHOD"], parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    action = actions_of(environ)[0].action.partition(":")[2]
    return action.replace("Get", "Head", 1) if method == "HEAD" else action


def form_fields(environ: WSGIEnvironment) -> dict[str, str]:
    """Returns the text fields of a browser's upload, by names in lower case; the body is put back for the next reader."""
    return {name.lower(): value for name, value in _form(environ)}


def _form(environ: WSGIEnvironment) -> list[tuple[str, str]]:
    # By the parser that moto's server has, so that both read the same.
    _, fields, _ = parse_form_data({**environ, "wsgi.input": io.BytesIO(body_of(environ))})
    return [*fields.items(multi=True)]


def bucket_and_key(environ: WSGIEnvironment) -> tuple[str, str]:
    """Returns bucket and key of a path-style or virtual-hosted-style request."""
    path = unquote(urlsplit(environ["REQUEST_URI"]).path).removeprefix("/")
    host = environ.get("HTTP_HOST", "").partition(":")[0]
    named = re.fullmatch(r"(.+)\.localhost", host, re.IGNORECASE)
    if named and not re.fullmatch(r"s3([.-][a-z0-9-]+)?", named[1]):
        return re.sub(r"\.s3([.-][a-z0-9-]+)?$", "", named[1]), path
    bucket, _, key = path.partition("/")
    return bucket, key


def _of_bucket(method: str, arn: str, query: dict[str, list[str]]) -> Action:
    for name, part in BUCKET_PARTS.items():
        if name in query:
            verb = "Put" if method == "DELETE" and part not in _DELETED else _VERBS.get(method, method)
            return Action(f"s3:{verb}{part}", arn)
    if method == "PUT":
        return Action("s3:CreateBucket", arn)
    if method == "DELETE":
        return Action("s3:DeleteBucket", arn)
    action = "ListBucketVersions" if "versions" in query else "ListBucketMultipartUploads" if "uploads" in query else ""
    context = {f"s3:{name}": (query[name][0],) for name in ("prefix", "delimiter") if name in query}
    return Action(f"s3:{action or 'ListBucket'}", arn, context)


def _of_object(method: str, query: dict[str, list[str]]) -> str:
    version = "Version" if "versionId" in query else ""
    for name, part in OBJECT_PARTS.items():
        if name in query:
            of_version = "" if part in _OF_ALL_VERSIONS else version
            return f"s3:{_VERBS.get(method, method)}{part.replace('Object', f'Object{of_version}', 1)}"
    if "uploadId" in query and method in ("GET", "DELETE"):
        return "s3:ListMultipartUploadParts" if method == "GET" else "s3:AbortMultipartUpload"
    if method in ("PUT", "POST"):
        if "select" in query:
            return "s3:GetObject"
        return "s3:RestoreObject" if "restore" in query else "s3:PutObject"
    return f"s3:{_VERBS.get(method, method)}Object{version}"


def _with_headers(environ: WSGIEnvironment) -> list[str]:
    """What writing an object requires by its headers ("Required permissions for Amazon S3 API operations", PutObject)."""
    names = {name.removeprefix("HTTP_X_AMZ_") for name in environ if name.startswith("HTTP_X_AMZ_")}
    acl = "ACL" in names or any(name.startswith("GRANT_") for name in names)
    return [*(["s3:PutObjectAcl"] if acl else []), *(["s3:PutObjectTagging"] if "TAGGING" in names else [])]


def _encryption(environ: WSGIEnvironment) -> dict[str, tuple[str, ...]]:
    names = ("x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id")
    values = {name: environ.get(f"HTTP_{name.upper().replace('-', '_')}") for name in names}
    return {f"s3:{name}": (value,) for name, value in values.items() if value}


def _keys_to_delete(environ: WSGIEnvironment) -> list[str]:
    body = body_of(environ)
    try:
        return [element.text or "" for element in ElementTree.fromstring(body).iter() if element.tag.endswith("Key")]
    except ElementTree.ParseError:  # S3 itself rejects it
        return ["*"]
