"""The policy document of a browser's upload to S3 by a form, which moto does not evaluate.

Source: "POST policy" in S3's API reference: expiration, exact matches, starts-with and content-length-range, and that each field
of the form, but for the signature, the file, the policy and those that begin with `x-ignore-`, is in a condition.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from moto.s3.responses import S3Response

from sagemaker_local_account.core.patches import patch

_FREE = {"x-amz-signature", "file", "policy"}
_moto_post = S3Response._bucket_response_post


class Refused(Exception):
    """A form is not what its policy allows; the message is S3's."""

    def __init__(self, message: str, code: str = "AccessDenied", status: int = 403) -> None:
        super().__init__(message)
        self.code, self.status = code, status


def install() -> None:
    """Patches moto's uploads by a form."""
    patch(S3Response, "_bucket_response_post", _post, "self, request, bucket_name")


def _post(self: S3Response, request: Any, bucket_name: str) -> Any:
    form = {name.lower(): value for name, value in request.form.items()}
    if "policy" in form:
        try:
            check(form, bucket_name, len(self.body))
        except Refused as error:  # moto fails at answering errors of requests that S3's model does not have
            answer = f"<Error><Code>{error.code}</Code><Message>{escape(str(error))}</Message></Error>"
            return error.status, {"Content-Type": "application/xml"}, answer
    return _moto_post(self, request, bucket_name)


def check(form: Mapping[str, str], bucket: str, size: int) -> None:
    """Raises `Refused` unless a form is what its policy allows.

    Args:
        form: the fields of the form, with names in lower case.
        bucket: the bucket that it is sent to.
        size: of the file, in bytes.
    """
    try:
        policy = json.loads(base64.b64decode(form["policy"]))
        until = datetime.datetime.fromisoformat(policy["expiration"].replace("Z", "+00:00"))
        conditions = [_triple(condition) for condition in policy["conditions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused("Invalid Policy: Invalid JSON.", "InvalidPolicyDocument", 400) from error
    if until < datetime.datetime.now(datetime.UTC):
        raise Refused("Invalid according to Policy: Policy expired.")
    values = {**form, "bucket": bucket}
    for operator, name, value in conditions:
        if operator == "content-length-range":
            if size > int(value):
                raise Refused("Your proposed upload exceeds the maximum allowed size", "EntityTooLarge", 400)
            if size < int(name):
                raise Refused("Your proposed upload is smaller than the minimum allowed size", "EntityTooSmall", 400)
            continue
        given = values.get(name, "")
        if not (given.startswith(value) if operator == "starts-with" else operator == "eq" and given == value):
            failed = json.dumps([operator, f"${name}", value])
            raise Refused(f"Invalid according to Policy: Policy Condition failed: {failed}")
    named = {name for _, name, _ in conditions}
    if extra := sorted(name for name in form.keys() - named - _FREE if not name.startswith("x-ignore-")):
        raise Refused(f"Invalid according to Policy: Extra input fields: {', '.join(extra)}")


def _triple(condition: Any) -> tuple[str, str, str]:
    """A condition as operator, name and value; the smallest and largest size of a range."""
    if isinstance(condition, dict):
        [(name, value)] = condition.items()
        return "eq", str(name).lower(), str(value)
    operator, name, value = condition
    return str(operator).lower(), str(name).removeprefix("$").lower(), str(value)
