"""The account's own API: faults, its clock, and what permissions are used for and why calls are denied.

Requests are JSON with the target `LocalAccount.<Operation>`, signed with the account's root key.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_local_account.core import error_responses
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.request_body import body_of
from sagemaker_local_account.core.state import AccountError, RunningAccount
from sagemaker_local_account.faults import KINDS, Faults
from sagemaker_local_account.iam.authorizer import Authorizer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

TARGET_PREFIX = "LocalAccount."
SERVICE = "local-account"


class Control:
    """The WSGI application of the API, for the root only: jobs cannot inject faults.

    Args:
        faults: the account's.
        authorizer: evaluates permissions.
        is_root: whether a request is signed with the root key.
    """

    def __init__(self, faults: Faults, authorizer: Authorizer, *, is_root: Callable[[WSGIEnvironment], bool]) -> None:
        self._faults = faults
        self._is_root = is_root
        self._operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "AddFault": self._add,
            "ListFaults": lambda request: faults.remaining(),
            "MendFault": lambda request: faults.mend(request["name"]),
            "AdvanceClock": lambda request: _advanced(request["seconds"]),
            "ListPermissionUse": lambda request: authorizer.use_of_permissions(),
            "ExplainCall": lambda request: authorizer.explain(request.get("call")),
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers one request."""
        if not self._is_root(environ):
            return error_responses.access_denied(
                environ, start_response, SERVICE, "only the account's root may call its own API"
            )
        body = body_of(environ)
        name = environ["HTTP_X_AMZ_TARGET"].removeprefix(TARGET_PREFIX)
        try:
            payload = json.dumps(self._operations[name](json.loads(body or b"{}"))).encode()
        except (KeyError, LookupError, TypeError, ValueError) as error:
            return error_responses.error(environ, start_response, "400 Bad Request", "ValidationException", str(error))
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))])
        return [payload]

    def _add(self, request: dict[str, Any]) -> str:
        kind = KINDS.get(request.pop("kind", ""))
        if kind is None:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")
        return self._faults.add(kind(**request))


def _advanced(seconds: float) -> str:
    CLOCK.advance(seconds)
    return CLOCK.now().isoformat(timespec="seconds")


def call_operation(account: RunningAccount, operation: str, request: Mapping[str, Any]) -> Any:
    """Calls an operation of a running account.

    Args:
        account: the account.
        operation: such as "ListFaults".
        request: its members.

    Raises:
        AccountError: the operation failed.
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    signed = AWSRequest(
        "POST",
        account.endpoint_url,
        data=json.dumps(request),
        headers={"X-Amz-Target": f"{TARGET_PREFIX}{operation}", "Content-Type": "application/x-amz-json-1.1"},
    )
    keys = Credentials(account.access_key_id, account.secret_access_key)
    SigV4Auth(keys, SERVICE, account.region).add_auth(signed)
    sent = urllib.request.Request(account.endpoint_url, signed.data.encode(), dict(signed.headers), method="POST")
    # Without a proxy: the account is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(sent) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise AccountError(json.loads(error.read())["message"]) from None
