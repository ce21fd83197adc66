"""The account's own API, which AWS does not have: faults that are added, listed and mended.

Requests are JSON, with the target `LocalAccount.<Operation>`, signed by the account's root like any other request to it.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import answers
from .faults import KINDS, Faults
from .state import AccountError, RunningAccount

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

TARGET_PREFIX = "LocalAccount."
SERVICE = "local-account"


class Control:
    """A WSGI application that serves it, to the holder of ``root_key`` only: a job must not break its own account."""

    def __init__(self, faults: Faults, *, is_root: Callable[[WSGIEnvironment], bool]) -> None:
        self._faults = faults
        self._is_root = is_root
        self._operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "AddFault": self._add,
            "ListFaults": lambda request: faults.left(),
            "MendFault": lambda request: faults.mend(request["name"]),
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not self._is_root(environ):
            return answers.access_denied(environ, start_response, SERVICE, "only the account's root may break it")
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["CONTENT_LENGTH"] = "0"
        name = environ["HTTP_X_AMZ_TARGET"].removeprefix(TARGET_PREFIX)
        try:
            payload = json.dumps(self._operations[name](json.loads(body or b"{}"))).encode()
        except (KeyError, LookupError, TypeError, ValueError) as error:
            return answers.error(environ, start_response, "400 Bad Request", "ValidationException", str(error))
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(payload)))])
        return [payload]

    def _add(self, request: dict[str, Any]) -> str:
        kind = KINDS.get(request.pop("kind", ""))
        if kind is None:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")
        return self._faults.add(kind(**request))


def ask(account: RunningAccount, operation: str, request: Mapping[str, Any]) -> Any:
    """Call an operation of a running account. Raises AccountError with its refusal."""
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
    # No proxy: the account is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(sent) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise AccountError(json.loads(error.read())["message"]) from None
