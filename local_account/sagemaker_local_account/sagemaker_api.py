"""SageMaker's API as the account serves it: the operations of training jobs, in AWS's JSON 1.1 protocol.

moto answers CreateTrainingJob too, but runs nothing and calls every job Completed at once. So every request whose
target is SageMaker comes here, and an operation that is not served is refused by name, never passed on.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .faults import Faults, Throttling
from .training_jobs import ServiceError, TrainingJobs

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

TARGET_PREFIX = "SageMaker."


class SageMakerApi:
    """A WSGI application for requests whose `X-Amz-Target` is `SageMaker.<Operation>`."""

    def __init__(self, jobs: TrainingJobs, faults: Faults) -> None:
        self._faults = faults
        self._operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "CreateTrainingJob": lambda request: jobs.create(request),
            "DescribeTrainingJob": lambda request: jobs.describe(_required(request, "TrainingJobName")),
            "ListTrainingJobs": jobs.list,
            "StopTrainingJob": lambda request: jobs.stop(_required(request, "TrainingJobName")),
            "AddTags": lambda request: jobs.add_tags(_required(request, "ResourceArn"), _required(request, "Tags")),
            "ListTags": lambda request: jobs.list_tags(_required(request, "ResourceArn")),
            "DeleteTags": lambda request: jobs.delete_tags(
                _required(request, "ResourceArn"), _required(request, "TagKeys")
            ),
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name = environ["HTTP_X_AMZ_TARGET"].removeprefix(TARGET_PREFIX)
        try:
            body = self._answer(name, environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
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
                f"the local account does not have SageMaker's {name}; it has {', '.join(sorted(self._operations))}",
                400,
            )
        if self._faults.take_one(Throttling, operation=name):
            raise ServiceError("ThrottlingException", "Rate exceeded", 400)
        try:
            request = json.loads(payload or b"{}")
        except ValueError as error:
            raise ServiceError("SerializationException", f"the request is not JSON: {error}", 400) from None
        return operation(request)


def _required(request: dict[str, Any], member: str) -> Any:
    if request.get(member) is None:
        raise ServiceError(
            "ValidationException",
            f"1 validation error detected: Value null at '{member[0].lower()}{member[1:]}' failed to satisfy "
            "constraint: Member must not be null",
            400,
        )
    return request[member]


def _json_value(value: Any) -> float:
    if isinstance(value, datetime.datetime):
        # JSON 1.1 has times as seconds since 1970, with milliseconds as a fraction.
        return round(value.timestamp(), 3)
    raise TypeError(f"cannot be written as JSON: {value!r}")
