"""PutEvents: what is refused, as a whole and by entry, and what is ignored.

moto takes a detail that is no object, of any size, and refuses a request of which one entry names a bus that does not exist.

Recorded in LocalStack's tests test_put_event_malformed_detail, test_put_event_with_too_big_detail and
test_put_events_nonexistent_event_bus; the size is that of the service model, PutEvents, "less than 1MB", counted as in
EventBridge's guide, "Calculating PutEvents event entry size".
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.events.exceptions import ValidationException
from moto.events.models import EventsBackend

from sagemaker_local_account.core.patches import patch

_MOST_BYTES = 1_048_576
_MOST_ENTRIES = 10
_moto_put_events = EventsBackend.put_events


def install() -> None:
    """Patches moto's PutEvents."""
    patch(EventsBackend, "put_events", _put_events, "self, events")


def _put_events(self: EventsBackend, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(events) > _MOST_ENTRIES:
        refused: list[dict[str, Any]] = _moto_put_events(self, events)  # which raises
        return refused
    if sum(_size_of(event) for event in events) >= _MOST_BYTES:
        raise ValidationException("Total size of the entries in the request is over the limit.")
    return [_put(self, event) for event in events]


def _size_of(entry: dict[str, Any]) -> int:
    """The bytes of an entry."""
    texts = [entry.get("Source"), entry.get("DetailType"), entry.get("Detail"), *(entry.get("Resources") or ())]
    return (14 if entry.get("Time") else 0) + sum(len(str(text or "").encode()) for text in texts)


def _put(self: EventsBackend, event: dict[str, Any]) -> dict[str, Any]:
    """One entry of the response."""
    if event.get("Detail"):
        try:
            is_object = isinstance(json.loads(event["Detail"]), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object and event.get("Source") and event.get("DetailType"):
            return {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
    try:
        [entry] = _moto_put_events(self, [event])
    except JsonRESTError as error:
        if error.error_type != "ResourceNotFoundException":
            raise
        return {"EventId": str(uuid.uuid4())}  # of a bus that does not exist: the event is ignored
    return dict(entry)
