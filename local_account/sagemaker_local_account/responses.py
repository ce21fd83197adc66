"""Where custom resources are answered: a presigned URL each, to which whoever makes the resource puts what became of it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# As on AWS the URL is one of S3, whose bucket ends with the region without its hyphens (CloudFormation's guide, "Setting up VPC
# endpoints"). There is no such bucket here, its objects are taken on the way.
BUCKET = "cloudformation-custom-resource-response-"


class Responses:
    """A WSGI application that takes the responses of custom resources. ``s3`` gives the account's own client in a region."""

    def __init__(self, s3: Callable[[str], Any]) -> None:
        self._s3 = s3
        self._given: dict[str, dict[str, Any]] = {}

    def url(self, region: str) -> tuple[str, str]:
        """The name of a response that is expected, and the URL to put it to."""
        name = secrets.token_hex(16)
        parameters = {"Bucket": BUCKET + region.replace("-", ""), "Key": name}
        return name, self._s3(region).generate_presigned_url("put_object", Params=parameters, ExpiresIn=7200)

    def take(self, name: str) -> dict[str, Any]:
        """What was put there; empty where nothing was."""
        return self._given.pop(name, {})

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            # Not strict: a reason of several lines is often put in without escaping them, and AWS takes that.
            response = json.loads(body, strict=False)
        except ValueError:
            response = {"Status": "FAILED", "Reason": f"the response must be JSON, got {body[:200]!r}"}
        self._given[environ["PATH_INFO"].rpartition("/")[2]] = response
        start_response("200 OK", [("Content-Length", "0")])
        return []
