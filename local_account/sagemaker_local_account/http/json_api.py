"""A WSGI application for a service in AWS's protocols JSON 1.1 and REST JSON; an unknown operation is rejected by name."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_local_account.core.request_body import body_of
from sagemaker_local_account.core.service_errors import ServiceError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


class JsonApi:
    """A WSGI application for requests with a body of JSON; by default their `X-Amz-Target` is `<target>.<Operation>`.

    Args:
        service: the service's name in error messages.
        operations: a function of the request's members for each operation; None as its result is an empty body.
        name_of: returns the operation of a request; None for that of its `X-Amz-Target`.
    """

    def __init__(
        self,
        service: str,
        operations: Mapping[str, Callable[[dict[str, Any]], Any]],
        name_of: Callable[[WSGIEnvironment], str] | None = None,
    ) -> None:
        self._service = service
        self._operations = operations
        self._name_of = name_of or (lambda environ: str(environ["HTTP_X_AMZ_TARGET"]).partition(".")[2])

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers one request."""
        name = self._name_of(environ)
        try:
            body = self._answer(name, body_of(environ))
            status = "200 OK"
        except ServiceError as error:
            body = {"__type": error.code, "message": error.message}
            status = f"{error.status} {error.code}"
        payload = json.dumps(body, default=_json_value).encode() if body is not None else b""
        headers = [
            ("Content-Type", "application/x-amz-json-1.1"),
            ("Content-Length", str(len(payload))),
            ("x-amzn-RequestId", str(uuid.uuid4())),
        ]
        start_response(status, headers)
        return [payload]

    def _answer(self, name: str, payload: bytes) -> Any:
        operation = self._operations.get(name)
        if operation is None:
            raise ServiceError(
                "UnknownOperationException",
                f"the local account does not have {self._service}'s {name}; it has {', '.join(sorted(self._operations))}",
                400,
            )
        try:
            request = json.loads(payload or b"{}")
        except ValueError as error:
            raise ServiceError("SerializationException", f"the request is not JSON: {error}", 400) from None
        return operation(request)


def _json_value(value: Any) -> float:
    if isinstance(value, datetime.datetime):
        # JSON 1.1 has times as seconds since 1970, with milliseconds as a fraction.
        return round(value.timestamp(), 3)
    raise TypeError(f"cannot be written as JSON: {value!r}")
