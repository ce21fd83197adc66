"""Asynchronous invocations: those that fail are made again, and go where the function says: a dead-letter queue, a destination.

Sources: Lambda's guide, "How Lambda handles errors and retries with asynchronous invocation"; LocalStack's recorded
tests/aws/services/lambda_/test_lambda_destinations.py and test_sqs_queue_as_lambda_dead_letter_queue.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from moto.awslambda.models import EventInvokeConfig, LambdaBackend, LambdaFunction

from sagemaker_local_account.aws.awslambda.arns import queue_url, unqualified
from sagemaker_local_account.aws.awslambda.execution_environments import Call, Throttled
from sagemaker_local_account.aws.events import bus
from sagemaker_local_account.core.clock import CLOCK
from sagemaker_local_account.core.patches import patch

_WAITS = (60.0, 120.0)  # seconds before the second and the third attempt
_OLDEST = 6 * 3600.0  # seconds, where a function does not say MaximumEventAgeInSeconds
_LOOK = 0.1  # seconds between two looks at the account's clock
_log = logging.getLogger(__name__)

Invoke = Callable[[LambdaFunction, Any, str], Call]
ClientOf = Callable[[LambdaFunction, str], Any]


def install() -> None:
    """Patches moto, which keeps the first of the configurations that are put one after the other."""
    patch(LambdaBackend, "put_function_event_invoke_config", _put, "self, function_name, config")


def _put(self: LambdaBackend, function_name: str, config: dict[str, Any]) -> dict[str, Any]:
    function = self.get_function(function_name)
    made = EventInvokeConfig(_version_arn(function), "", config)
    made.last_modified = CLOCK.now().timestamp()
    function.event_invoke_config = [made]
    answer: dict[str, Any] = made.response()
    return answer


class Asynchronous:
    """The invocations of one account that nobody waits for.

    Args:
        invoke: invokes a function with an event, by the id of the request.
        client_of: returns a client of a service with a function's role.
    """

    def __init__(self, invoke: Invoke, client_of: ClientOf) -> None:
        self._invoke, self._client_of = invoke, client_of
        self._closed = threading.Event()

    def begin(self, function: LambdaFunction, event: Any) -> None:
        """Invokes a function in a thread."""
        name = f"function {function.function_name}"
        threading.Thread(target=self._run, args=(function, event), name=name, daemon=True).start()

    def close(self) -> None:
        """Ends the waits between attempts."""
        self._closed.set()

    def _run(self, function: LambdaFunction, event: Any) -> None:
        config = function.event_invoke_config[-1].config if function.event_invoke_config else {}
        oldest = float(config.get("MaximumEventAgeInSeconds", _OLDEST))
        request, began, attempts = str(uuid.uuid4()), CLOCK.monotonic(), 0
        while True:
            try:
                called = self._invoke(function, event, request)
                attempts += 1
            except Throttled:
                if not self._wait(1.0) or CLOCK.monotonic() - began > oldest:
                    return
                continue
            except LookupError as error:
                _log.warning("%s not invoked: %s", function.function_arn, error)
                return
            if not called.failed:
                condition = "Success"
                break
            if attempts > int(config.get("MaximumRetryAttempts", len(_WAITS))):
                condition = "RetriesExhausted"
                break
            if CLOCK.monotonic() - began + _WAITS[attempts - 1] > oldest:
                condition = "EventAgeExceeded"
                break
            if not self._wait(_WAITS[attempts - 1]):
                return
        if called.failed:
            _log.warning("%s failed: %s", function.function_arn, called.reason)
            self._to_dead_letters(function, event, called)
        where = "OnFailure" if called.failed else "OnSuccess"
        destination = ((config.get("DestinationConfig") or {}).get(where) or {}).get("Destination")
        if destination:
            self._send(function, destination, _record(function, event, called, condition, attempts))

    def _wait(self, seconds: float) -> bool:
        """Whether so much of the account's time has passed; not where the account ends."""
        until = CLOCK.monotonic() + seconds
        while CLOCK.monotonic() < until:
            if self._closed.wait(_LOOK):
                return False
        return True

    def _to_dead_letters(self, function: LambdaFunction, event: Any, called: Call) -> None:
        target = (getattr(function, "account_dead_letters", None) or {}).get("TargetArn")
        if not target:
            return
        error = json.loads(called.payload or "{}")
        attributes = {
            "RequestID": {"DataType": "String", "StringValue": called.request_id},
            "ErrorCode": {"DataType": "Number", "StringValue": "200"},
            "ErrorMessage": {"DataType": "String", "StringValue": str(error.get("errorMessage"))[:1024] or "none"},
        }
        self._send(function, target, json.dumps(event), attributes)

    def _send(self, function: LambdaFunction, arn: str, text: str, attributes: dict[str, Any] | None = None) -> None:
        service = arn.split(":")[2]
        more = {"MessageAttributes": attributes} if attributes else {}
        try:
            client = self._client_of(function, service)
            if service == "sqs":
                client.send_message(QueueUrl=queue_url(client, arn), MessageBody=text, **more)
            elif service == "sns":
                client.publish(TopicArn=arn, Message=text, **more)
            elif service == "lambda":
                client.invoke(FunctionName=arn, InvocationType="Event", Payload=text)
            elif service == "events":
                client.put_events(Entries=[_entry(function, arn, text)])
            else:
                _log.warning("%s: the local account does not send to %s", function.function_arn, arn)
        except (BotoCoreError, ClientError) as error:
            _log.warning("%s: nothing was sent to %s: %s", function.function_arn, arn, error)


def _version_arn(function: LambdaFunction) -> str:
    """Its ARN with the version that runs, which is "$LATEST" where it has none."""
    return f"{unqualified(function.function_arn)}:{function.version}"


def _record(function: LambdaFunction, event: Any, called: Call, condition: str, attempts: int) -> str:
    response: dict[str, Any] = {"statusCode": 200, "executedVersion": str(function.version)}
    if called.failed:
        response["functionError"] = "Unhandled"
    record = {
        "version": "1.0",
        "timestamp": bus.iso(CLOCK.now()),
        "requestContext": {
            "requestId": called.request_id,
            "functionArn": _version_arn(function),
            "condition": condition,
            "approximateInvokeCount": attempts,
        },
        "requestPayload": event,
        "responseContext": response,
        "responsePayload": json.loads(called.payload or "null"),
    }
    return json.dumps(record)


def _entry(function: LambdaFunction, destination: str, text: str) -> dict[str, Any]:
    failed = "functionError" in json.loads(text)["responseContext"]
    return {
        "Source": "lambda",
        "DetailType": f"Lambda Function Invocation Result - {'Failure' if failed else 'Success'}",
        "Detail": text,
        "EventBusName": destination,
        "Resources": [destination, _version_arn(function)],
    }
