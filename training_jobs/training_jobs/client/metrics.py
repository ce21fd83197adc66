"""The metrics of a job, from its log lines and its metric definitions, as SageMaker finds them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from training_jobs.client.logs import LogLine


@dataclass(frozen=True)
class MetricPoint:
    """One value of a metric.

    Attributes:
        time: When it was printed, in UTC.
        name: The metric's name, of the job's ``metric_definitions``.
        value: Its value.
        host: The host that printed it, such as ``"algo-3"``.
    """

    time: datetime
    name: str
    value: float
    host: str


class MetricParser:
    """Finds the metrics in lines."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        """Compile the metric definitions.

        Args:
            description: The job, as from DescribeTrainingJob.
        """
        definitions = description.get("AlgorithmSpecification", {}).get("MetricDefinitions") or []
        self._regexes = {one["Name"]: re.compile(one["Regex"]) for one in definitions}

    def parse(self, lines: Iterable[LogLine]) -> Iterator[MetricPoint]:
        """Yield the values that lines contain, in their order.

        Args:
            lines: The lines.
        """
        for line in lines:
            for name, regex in self._regexes.items():
                found = regex.search(line.message)
                value = _number(found)
                if value is not None:
                    yield MetricPoint(line.time, name, value, line.host)


def _number(found: re.Match[str] | None) -> float | None:
    if found is None or not found.groups():
        return None
    try:
        return float(found.group(1))
    except (TypeError, ValueError):
        return None
