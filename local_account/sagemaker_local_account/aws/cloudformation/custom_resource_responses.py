"""The endpoint for responses of custom resources: a presigned URL for each request."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sagemaker_local_account.core.request_body import body_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# As on AWS the URL is S3's, with a bucket that ends with the region without hyphens (CloudFormation's guide, "Setting up VPC
# endpoints"). The bucket does not exist here: requests for it are routed to `Responses`.
BUCKET = "cloudformation-custom-resource-response-"
_LONGEST = 4096  # bytes (CloudFormation's guide, "Custom resource response objects")


class Responses:
    """The WSGI application for responses of custom resources.

    Args:
        s3: returns a client with the root's credentials for a region.
    """

    def __init__(self, s3: Callable[[str], Any]) -> None:
        self._s3 = s3
        self._given: dict[str, dict[str, Any]] = {}
        self._came = threading.Condition()

    def url(self, region: str) -> tuple[str, str]:
        """Returns the name of an expected response, and the URL for it."""
        name = secrets.token_hex(16)
        parameters = {"Bucket": BUCKET + region.replace("-", ""), "Key": name}
        return name, self._s3(region).generate_presigned_url("put_object", Params=parameters, ExpiresIn=7200)

    def take(self, name: str, seconds: float = 0.0) -> dict[str, Any]:
        """Removes and returns a response; empty where there is none.

        Args:
            name: of the response.
            seconds: how long it may take to come.
        """
        with self._came:
            self._came.wait_for(lambda: name in self._given, seconds)
            return self._given.pop(name, {})

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Stores one response."""
        body = body_of(environ)
        try:
            # Not strict: reasons often have unescaped line breaks, which AWS accepts.
            response = json.loads(body, strict=False)
        except ValueError:
            response = {"Status": "FAILED", "Reason": f"the response must be JSON, got {body[:200]!r}"}
        if len(body) > _LONGEST:
            response = {"Status": "FAILED", "Reason": "Response object is too long."}
        with self._came:
            self._given[environ["PATH_INFO"].rpartition("/")[2]] = response
            self._came.notify_all()
        start_response("200 OK", [("Content-Length", "0")])
        return []
