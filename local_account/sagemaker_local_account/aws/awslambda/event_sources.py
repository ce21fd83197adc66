"""Event source mappings of SQS queues: they receive messages with the function's role, and delete those that it handled.

moto invokes the function while a message is sent, whatever its role may do. Sources: Lambda's guide, "Using Lambda with Amazon
SQS"; LocalStack's recorded tests/aws/services/lambda_/event_source_mapping/test_lambda_integration_sqs.py.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from moto.awslambda.models import EventSourceMapping, LambdaBackend, lambda_backends
from moto.awslambda.responses import LambdaResponse
from moto.core.exceptions import JsonRESTError, ServiceException
from moto.sqs.models import sqs_backends

from sagemaker_local_account.aws.awslambda.arns import qualified, queue_url
from sagemaker_local_account.aws.awslambda.execution_environments import Throttled
from sagemaker_local_account.aws.awslambda.execution_role import refusal
from sagemaker_local_account.aws.awslambda.functions import Functions
from sagemaker_local_account.aws.events import patterns
from sagemaker_local_account.core.patches import patch

CHANGEABLE = frozenset(
    {
        "BatchSize",
        "Enabled",
        "FilterCriteria",
        "FunctionName",
        "FunctionResponseTypes",
        "MaximumBatchingWindowInSeconds",
        "ScalingConfig",
        "Tags",
    }
)
_WAIT = 1.0  # seconds of a poll; one that is closed ends after so long
_AT_ONCE = 5  # invocations of a mapping, as many as AWS begins with ("Scaling and processing")
_MOST = 10  # messages of a call to SQS
_USES = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
_log = logging.getLogger(__name__)
_account_sources: EventSources


class Refused(JsonRESTError):
    """A mapping that Lambda refuses."""

    def __init__(self, message: str, kind: str = "InvalidParameterValueException", code: int = 400) -> None:
        super().__init__(kind, message)
        self.code = code
        self.description = json.dumps({"__type": kind, "Type": "User", "message": message})


class EventSources:
    """The mappings of one account.

    Args:
        functions: invokes the functions.
    """

    def __init__(self, functions: Functions) -> None:
        self.functions = functions
        self._pollers: dict[str, _Poller] = {}

    def start(self, mapping: EventSourceMapping) -> None:
        """Begins to receive the messages of a mapping, or does so by what it is now."""
        self.stop(mapping.uuid)
        if mapping.enabled:
            self._pollers[mapping.uuid] = _Poller(self, mapping)

    def stop(self, uuid: str) -> None:
        """Receives no more messages; those that were received are handled."""
        if poller := self._pollers.pop(uuid, None):
            poller.stop()

    def close(self) -> None:
        """Ends all mappings."""
        for uuid in [*self._pollers]:
            self.stop(uuid)

    def check(self, backend: LambdaBackend, mapping: EventSourceMapping) -> None:
        """Raises Refused for what Lambda refuses."""
        arn = mapping.event_source_arn
        queue = sqs_backends[backend.account_id][backend.region_name].queues.get(arn.rpartition(":")[2])
        if queue is None or queue.queue_arn != arn:
            raise Refused(
                "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. SQS Error "
                "Message: The specified queue does not exist."
            )
        if mapping.batch_size > _MOST and not mapping.max_batch_window:
            raise Refused(
                "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than 10"
            )
        function = backend.get_function(mapping.function_name)
        if int(queue.visibility_timeout) < int(function.timeout):
            # github-aws-runners/terraform-aws-github-runner#465
            raise Refused(
                f"Queue visibility timeout: {queue.visibility_timeout} seconds is less than Function timeout: "
                f"{function.timeout} seconds"
            )
        for action in _USES:
            if why := refusal(self.functions.authorizer, function.role, f"sqs:{action}", [arn]):
                raise Refused(why)
        Filters(mapping.filter_criteria)


def install(sources: EventSources) -> None:
    """Patches moto's mappings."""
    global _account_sources
    _account_sources = sources
    patch(LambdaBackend, "create_event_source_mapping", _created, "self, spec")
    patch(LambdaBackend, "update_event_source_mapping", _updated, "self, uuid, spec")
    patch(LambdaBackend, "delete_event_source_mapping", _deleted, "self, uuid")
    patch(EventSourceMapping, "get_configuration", _configuration, "self")
    patch(LambdaResponse, "create_event_source_mapping", _create_response, "self")
    patch(LambdaResponse, "update_event_source_mapping", _update_response, "self")


def _created(self: LambdaBackend, spec: dict[str, Any]) -> EventSourceMapping:
    function = self.get_function(spec["FunctionName"])
    arn = str(spec["EventSourceArn"])
    if ":sqs:" not in arn:
        raise Refused(f"EventSourceArn must be that of an SQS queue in the local account, got {arn}")
    named = qualified(function.function_arn, spec["FunctionName"])
    for other in self._event_source_mappings.values():
        if (other.event_source_arn, other.function_arn) == (arn, named):
            raise Refused(
                f'An event source mapping with SQS arn (" {arn} ") and function (" {function.function_name} ") already '
                f"exists. Please update or delete the existing mapping with UUID {other.uuid}",
                "ResourceConflictException",
                409,
            )
    place = {"RegionName": self.region_name, "AccountId": self.account_id, "FunctionArn": named}
    mapping = EventSourceMapping({**spec, **place})
    _account_sources.check(self, mapping)
    self._event_source_mappings[mapping.uuid] = mapping
    _account_sources.start(mapping)
    return mapping


_moto_updated, _moto_deleted = LambdaBackend.update_event_source_mapping, LambdaBackend.delete_event_source_mapping


def _updated(self: LambdaBackend, uuid: str, spec: dict[str, Any]) -> EventSourceMapping | None:
    mapping = self._event_source_mappings.get(uuid)
    if mapping is None:
        return None
    before = dict(vars(mapping))
    if "FunctionName" in spec:
        mapping.function_name = spec["FunctionName"]
    _moto_updated(self, uuid, spec)
    mapping.function_response_types = spec.get("FunctionResponseTypes", mapping.function_response_types)
    mapping.scaling_config = spec.get("ScalingConfig", mapping.scaling_config)
    mapping.function_arn = qualified(self.get_function(mapping.function_name).function_arn, mapping.function_name)
    try:
        _account_sources.check(self, mapping)
    except Refused:
        vars(mapping).update(before)
        raise
    mapping.last_modified = time.time()
    _account_sources.start(mapping)
    return mapping


def _deleted(self: LambdaBackend, uuid: str) -> EventSourceMapping | None:
    _account_sources.stop(uuid)
    deleted: EventSourceMapping | None = _moto_deleted(self, uuid)
    return deleted


_moto_configuration = EventSourceMapping.get_configuration


def _configuration(self: EventSourceMapping) -> dict[str, Any]:
    found = _moto_configuration(self)
    return {
        **{name: it for name, it in found.items() if name not in ("StartingPosition", "Tags")},
        "FunctionResponseTypes": self.function_response_types or [],
        "MaximumBatchingWindowInSeconds": int(self.max_batch_window or 0),
        "StateTransitionReason": "USER_INITIATED",
    }


def _create_response(self: LambdaResponse) -> Any:
    mapping = self.backend.create_event_source_mapping(self.json_body)
    return 202, {"status": 202}, json.dumps({**mapping.get_configuration(), "State": "Creating"})


def _update_response(self: LambdaResponse) -> Any:
    mapping = self.backend.update_event_source_mapping(self.path.split("/")[-1], self.json_body)
    if mapping is None:
        raise Refused("The resource you requested does not exist.", "ResourceNotFoundException", 404)
    return 202, {"status": 202}, json.dumps({**mapping.get_configuration(), "State": "Updating"})


def failures(payload: str, ids: set[str]) -> set[str]:
    """Returns the messages that a function says have failed; all of them where it says so wrongly ("Batch item failures").

    Args:
        payload: what it returned.
        ids: of the messages that it got.
    """
    try:
        answer = json.loads(payload or "null")
        named = {item["itemIdentifier"] for item in (answer or {}).get("batchItemFailures") or []}
    except (AttributeError, KeyError, TypeError, ValueError):
        return ids
    return named if named <= ids else ids


class Filters:
    """The patterns of FilterCriteria ("Properly filtering Amazon SQS messages").

    Args:
        criteria: of a mapping.

    Raises:
        Refused: one of them is none.
    """

    def __init__(self, criteria: Mapping[str, Any] | None) -> None:
        self._patterns = []
        for one in (criteria or {}).get("Filters") or []:
            try:
                pattern = json.loads(one["Pattern"])
                self._patterns.append((pattern.get("body"), patterns.compiled(one["Pattern"])))
            except (AttributeError, KeyError, TypeError, ValueError, ServiceException, JsonRESTError):
                raise Refused("Invalid filter pattern definition.") from None

    def take(self, record: Mapping[str, Any]) -> bool:
        """Whether a record matches one of the patterns, or there is none."""
        try:
            body = json.loads(record["body"])
        except ValueError:
            body = None
        whole = isinstance(body, dict)
        for of_body, pattern in self._patterns:
            # Where one is JSON and the other is not, the message is dropped.
            if of_body is not None and isinstance(of_body, dict) != whole:
                continue
            if pattern.matches({**record, "body": body if isinstance(of_body, dict) else record["body"]}):
                return True
        return not self._patterns


class _Poller:
    """Receives the messages of one mapping, until it is stopped."""

    def __init__(self, sources: EventSources, mapping: EventSourceMapping) -> None:
        self._sources, self._mapping = sources, mapping
        self._backend = lambda_backends[mapping.account_id][mapping.region]
        queue = sqs_backends[mapping.account_id][mapping.region].queues[mapping.event_source_arn.rpartition(":")[2]]
        self._filters = Filters(mapping.filter_criteria)
        self._stopped = threading.Event()
        most = (mapping.scaling_config or {}).get("MaximumConcurrency", _AT_ONCE)
        at_once = 1 if queue.fifo_queue else min(int(most), _AT_ONCE)
        self._slots = threading.Semaphore(at_once)
        self._pool = ThreadPoolExecutor(at_once)
        threading.Thread(target=self._poll, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._pool.shutdown(wait=False)

    def _poll(self) -> None:
        while not self._stopped.is_set():
            if not self._slots.acquire(timeout=_WAIT):
                continue
            try:
                batch = self._batch()
            except (
                BotoCoreError,
                ClientError,
                LookupError,
            ) as error:  # the queue or the role is gone, or the account ends
                _log.debug("%s: %s", self._mapping.event_source_arn, error)
                batch = []
                self._stopped.wait(_WAIT)
            try:
                self._pool.submit(self._handle, batch)
            except RuntimeError:  # it was stopped meanwhile
                self._give_back(batch)
                return

    def _give_back(self, messages: list[dict[str, Any]]) -> None:
        """Lets others receive messages that nobody handles."""
        with contextlib.suppress(BotoCoreError, ClientError, LookupError):
            for message in messages:
                queues, url = self._queue()
                handle = message["ReceiptHandle"]
                queues.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)

    def _batch(self) -> list[dict[str, Any]]:
        """Messages, as many as the mapping asks for, or as come within its window; none after a poll without any."""
        window, most = float(self._mapping.max_batch_window or 0), self._mapping.batch_size
        found: list[dict[str, Any]] = []
        until = math.inf
        while not self._stopped.is_set():
            left = min(_WAIT, max(0.0, until - time.monotonic()))
            queues, url = self._queue()
            got = queues.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=min(_MOST, most - len(found)),
                WaitTimeSeconds=math.ceil(left),
                AttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            if not found:
                until = time.monotonic() + window
            found += got.get("Messages", [])
            if not found or len(found) >= most or time.monotonic() >= until:
                break
        return found

    def _queue(self) -> tuple[Any, str]:
        """A client with the role that the function has now, and the queue's URL."""
        function = self._backend.get_function(self._mapping.function_name)
        client = self._sources.functions.client_of(function, "sqs")
        return client, queue_url(client, self._mapping.event_source_arn)

    def _handle(self, messages: list[dict[str, Any]]) -> None:
        try:
            if messages:
                self._invoke(messages)
        except (BotoCoreError, ClientError, LookupError, Throttled) as error:  # they are visible again after their time
            _log.debug("%s: %s", self._mapping.event_source_arn, error)
        finally:
            self._slots.release()

    def _invoke(self, messages: list[dict[str, Any]]) -> None:
        records = {it["MessageId"]: self._record(it) for it in messages}
        taken = [record for record in records.values() if self._filters.take(record)]
        failed: set[str] = set()
        if taken:
            function = self._backend.get_function(self._mapping.function_name)
            called = self._sources.functions.call(function, {"Records": taken})
            ids = {record["messageId"] for record in taken}
            reports = "ReportBatchItemFailures" in (self._mapping.function_response_types or [])
            failed = ids if called.failed else failures(called.payload, ids) if reports else set()
        done = [it for it in messages if it["MessageId"] not in failed]
        for start in range(0, len(done), _MOST):
            entries = [
                {"Id": str(number), "ReceiptHandle": it["ReceiptHandle"]}
                for number, it in enumerate(done[start : start + _MOST])
            ]
            queues, url = self._queue()
            queues.delete_message_batch(QueueUrl=url, Entries=entries)

    def _record(self, message: dict[str, Any]) -> dict[str, Any]:
        attributes = {
            name: {
                **({"stringValue": it["StringValue"]} if "StringValue" in it else {}),
                **({"binaryValue": base64.b64encode(it["BinaryValue"]).decode()} if "BinaryValue" in it else {}),
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": it["DataType"],
            }
            for name, it in message.get("MessageAttributes", {}).items()
        }
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "messageAttributes": attributes,
            "md5OfMessageAttributes": message.get("MD5OfMessageAttributes"),
            "md5OfBody": message["MD5OfBody"],
            "eventSource": "aws:sqs",
            "eventSourceARN": self._mapping.event_source_arn,
            "awsRegion": self._mapping.region,
        }
