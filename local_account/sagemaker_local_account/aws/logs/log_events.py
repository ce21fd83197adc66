"""CloudWatch Logs: FilterLogEvents by stream prefix, and a limit on the memory of log events.

moto ignores logStreamNamePrefix, and keeps all events.
"""

from __future__ import annotations

import logging
from typing import Any

from moto.logs.models import LogStream, logs_backends
from moto.logs.responses import LogsResponse

from sagemaker_local_account.core.patches import patch

MOST_BYTES = 256 * 2**20  # of all events of a region
_BYTES_EACH = 400  # of moto's event besides its message
_moto_filter_log_events = LogsResponse.filter_log_events
_moto_put_log_events = LogStream.put_log_events
_moto_get_log_events = LogStream.get_log_events
_log = logging.getLogger(__name__)


def install() -> None:
    """Patches moto's CloudWatch Logs."""
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
        # 5 % more than the excess, so that not every further call drops events.
        _drop_oldest(max(streams, key=lambda stream: getattr(stream, "kept_bytes", 0)), excess + MOST_BYTES // 20)
    return str(token)


def _bytes_of(event: dict[str, Any]) -> int:
    return len(event["message"]) + _BYTES_EACH


def _drop_oldest(stream: Any, excess: int) -> None:
    """Drops a stream's oldest events."""
    before, count = stream.kept_bytes, 0
    for event in stream.events:
        if before - stream.kept_bytes >= excess:
            break
        stream.kept_bytes -= len(event.message) + _BYTES_EACH
        count += 1
    del stream.events[:count]
    stream.dropped_events = getattr(stream, "dropped_events", 0) + count
    _log.warning(
        "dropped the oldest %d events of %s: logs exceed %d MiB", count, stream.log_stream_name, MOST_BYTES >> 20
    )


def _get_log_events(
    self: Any, start_time: Any, end_time: Any, limit: Any, next_token: str | None, start_from_head: Any
) -> tuple[list[dict[str, Any]], str | None, str | None]:
    """GetLogEvents, with tokens that count dropped events, so that a reader does not skip events."""
    dropped = getattr(self, "dropped_events", 0)
    token = _moved(next_token, -dropped)
    events, back, forward = _moto_get_log_events(self, start_time, end_time, limit, token, start_from_head)
    return events, _moved(back, dropped), _moved(forward, dropped)


def _moved(token: str | None, by: int) -> str | None:
    """A token such as ``f/0007`` moved by a number of events; an invalid one unchanged, for moto to reject."""
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
    # moto treats an empty list as all streams; stream names cannot contain a colon.
    chosen = names or [":"]
    self._get_param = lambda name, *default, **more: (
        chosen if name == "logStreamNames" else given(name, *default, **more)
    )
    return str(_moto_filter_log_events(self))
