"""CloudWatch Logs: events of the streams with a prefix, and no more of them than this machine's memory is for.

moto keeps all events for ever, and finds those of all a group's streams.
"""

from __future__ import annotations

import logging
from typing import Any

from moto.logs.models import LogStream, logs_backends
from moto.logs.responses import LogsResponse

from .patches import patch

MOST_BYTES = 256 * 2**20  # of all events of an account
_BYTES_EACH = 400  # that an event of moto's takes besides its message
_moto_filter_log_events = LogsResponse.filter_log_events
_moto_put_log_events = LogStream.put_log_events
_moto_get_log_events = LogStream.get_log_events
_log = logging.getLogger(__name__)


def install() -> None:
    patch(LogsResponse, "filter_log_events", _filter_log_events, "self")
    patch(LogStream, "put_log_events", _put_log_events, "self, log_events")
    patch(
        LogStream,
        "get_log_events",
        _get_log_events,
        "self, start_time, end_time, limit, next_token, start_from_head",
    )


def _put_log_events(self: Any, log_events: list[dict[str, Any]]) -> str:
    token = _moto_put_log_events(self, log_events)
    self.kept_bytes = getattr(self, "kept_bytes", 0) + sum(map(_bytes_of, log_events))
    groups = logs_backends[self.account_id][self.region].groups.values()
    streams = [stream for group in [*groups] for stream in [*group.streams.values()]]
    excess = sum(getattr(stream, "kept_bytes", 0) for stream in streams) - MOST_BYTES
    if excess > 0:
        # A little more than that, so that not each further line does it again.
        _drop_oldest(max(streams, key=lambda stream: getattr(stream, "kept_bytes", 0)), excess + MOST_BYTES // 20)
    return str(token)


def _bytes_of(event: dict[str, Any]) -> int:
    return len(event["message"]) + _BYTES_EACH


def _drop_oldest(stream: Any, excess: int) -> None:
    """Have a stream's oldest events no more."""
    before, count = stream.kept_bytes, 0
    for event in stream.events:
        if before - stream.kept_bytes >= excess:
            break
        stream.kept_bytes -= len(event.message) + _BYTES_EACH
        count += 1
    del stream.events[:count]
    stream.dropped_events = getattr(stream, "dropped_events", 0) + count
    _log.warning(
        "the oldest %d events of %s are not kept: logs take %d MiB", count, stream.log_stream_name, MOST_BYTES >> 20
    )


def _get_log_events(
    self: Any, start_time: Any, end_time: Any, limit: Any, next_token: str | None, start_from_head: Any
) -> tuple[list[dict[str, Any]], str | None, str | None]:
    """A page of a stream. Tokens count the events that were dropped, so that a reader misses none that are kept."""
    dropped = getattr(self, "dropped_events", 0)
    token = _moved(next_token, -dropped)
    events, back, forward = _moto_get_log_events(self, start_time, end_time, limit, token, start_from_head)
    return events, _moved(back, dropped), _moved(forward, dropped)


def _moved(token: str | None, by: int) -> str | None:
    """A token such as ``f/0007`` for an event further on; one that is none as it is, for moto to refuse."""
    if by == 0 or token is None or not token[2:].isdecimal():
        return token
    return f"{token[:2]}{int(token[2:]) + by:056d}"


def _filter_log_events(self: Any) -> str:
    prefix = self._get_param("logStreamNamePrefix")
    if not prefix:
        return str(_moto_filter_log_events(self))
    group = self.logs_backend.groups.get(self._get_param("logGroupName"))
    names = [name for name in (group.streams if group else ()) if name.startswith(prefix)]
    given = self._get_param
    # An empty list would be every stream to moto; no stream can have a colon in its name.
    chosen = names or [":"]
    self._get_param = lambda name, *default, **more: (
        chosen if name == "logStreamNames" else given(name, *default, **more)
    )
    return str(_moto_filter_log_events(self))
