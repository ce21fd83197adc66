"""The phases of a build, and its log in CloudWatch Logs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.logs.models import logs_backends

from sagemaker_local_account.core.location import Location


class Phases:
    """The phases of a build.

    Args:
        noted: the file to which the agent writes the phases of the host.
    """

    def __init__(self, noted: Path) -> None:
        self._noted = noted
        self._lock = threading.RLock()
        now = datetime.now(UTC)
        self._phases = [_phase("SUBMITTED", now, now), _phase("QUEUED", now)]

    def enter(self, name: str) -> None:
        """Ends the current phase and begins another."""
        with self._lock:
            self.close()
            self._phases.append(_phase(name, datetime.now(UTC)))

    def close(self, code: str = "", message: str = "") -> None:
        """Ends the current phase; with a message as failed."""
        with self._lock:
            last = self._phases[-1]
            if "endTime" not in last:
                self._phases[-1] = _phase(last["phaseType"], last["startTime"], datetime.now(UTC), message, code)

    def finish(self, status: str) -> None:
        """Adds the phases of the host, removes its file, and enters COMPLETED; an unfinished phase gets ``status``."""
        with self._lock:
            self.close()
            self._phases += self._of_the_host()
            self._noted.unlink(missing_ok=True)
            if "endTime" not in self._phases[-1]:
                self.close()
                self._phases[-1]["phaseStatus"] = status
            self.enter("FINALIZING")
            self.enter("COMPLETED")

    def described(self) -> list[dict[str, Any]]:
        """Returns a build's ``phases``."""
        with self._lock:
            return [*self._phases, *self._of_the_host()]

    def reason(self) -> str:
        """Returns the message of the first failed phase, or ""."""
        messages = [context["message"] for phase in self.described() for context in phase.get("contexts", [])]
        return next((message for message in messages if message), "")

    def _of_the_host(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for line in self._noted.read_text().splitlines() if self._noted.is_file() else ():
            noted = json.loads(line)
            name = noted["phase"]
            if "end" not in noted:
                found[name] = _phase(name, _time(noted["start"]))
            else:
                code = "COMMAND_EXECUTION_ERROR"
                found[name] = _phase(name, found[name]["startTime"], _time(noted["end"]), noted["message"], code)
        return [*found.values()]


class BuildLog:
    """Writes a build's lines to CloudWatch Logs, unless its project's ``logsConfig`` disables it.

    Args:
        project: the build's project.
        uuid: the build's.
        location: the account and region.
    """

    def __init__(self, project: Mapping[str, Any], uuid: str, location: Location) -> None:
        self._location = location
        config = project.get("logsConfig", {}).get("cloudWatchLogs", {})
        self._wanted = config.get("status", "ENABLED") == "ENABLED"
        self.group = config.get("groupName", f"/aws/codebuild/{project['name']}")
        self.stream = f"{config['streamName']}/{uuid}" if "streamName" in config else uuid

    def line(self, text: str) -> None:
        """Writes a line."""
        if self._wanted:
            backend = logs_backends[self._location.account][self._location.region]
            backend.ensure_log_group(self.group)
            backend.ensure_log_stream(self.group, self.stream)
            # The service rejects empty messages.
            event = {"timestamp": round(time.time() * 1000), "message": text or " "}
            backend.put_log_events(self.group, self.stream, [event])

    def described(self) -> dict[str, Any]:
        """Returns a build's ``logs``."""
        if not self._wanted:
            return {"cloudWatchLogs": {"status": "DISABLED"}}
        logs = f"arn:aws:logs:{self._location.region}:{self._location.account}"
        return {
            "groupName": self.group,
            "streamName": self.stream,
            "cloudWatchLogs": {"status": "ENABLED"},
            "cloudWatchLogsArn": f"{logs}:log-group:{self.group}:log-stream:{self.stream}",
        }


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _phase(
    name: str, start: datetime, end: datetime | None = None, message: str = "", code: str = ""
) -> dict[str, Any]:
    if end is None:
        return {"phaseType": name, "startTime": start}
    return {
        "phaseType": name,
        "phaseStatus": "FAILED" if message else "SUCCEEDED",
        "startTime": start,
        "endTime": end,
        "durationInSeconds": round((end - start).total_seconds()),
        "contexts": [{"statusCode": code if message else "", "message": message}],
    }
