"""CloudWatch Logs: moto finds events of all a group's streams; here of those with a prefix too, where one is asked for."""

from __future__ import annotations

from typing import Any

from moto.logs.responses import LogsResponse

_moto_filter_log_events = LogsResponse.filter_log_events


def install() -> None:
    LogsResponse.filter_log_events = _filter_log_events


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
