"""Where the time of an epoch goes, in a line that SageMaker's metric definitions read, with one sentence of advice."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from .hosts import Host, Local

WAITS, BUSY = 0.02, 0.85  # the shares of an epoch from which waiting counts, and from which workers are the limit

# For CreateTrainingJob's AlgorithmSpecification.MetricDefinitions.
METRIC_DEFINITIONS = [
    {"Name": f"data_service:{name}", "Regex": rf"data_service epoch=.* {name}=([0-9.]+)"}
    for name in ("epoch_seconds", "wait_seconds", "hosts_busy_percent", "local_busy_percent", "network_mb_per_second")
]


@dataclass(frozen=True)
class Summary:
    """Of one rank's epoch; ``hosts_busy_percent`` is of the workers of the hosts that it reads from, over all ranks."""

    epoch: int
    batches: int
    left_out: int
    epoch_seconds: float
    wait_seconds: float
    hosts: int
    hosts_busy_percent: float
    local_busy_percent: float
    network_mb_per_second: float

    def line(self) -> str:
        values = (f"{name}={value:.6g}" for name, value in asdict(self).items())
        return f"data_service {' '.join(values)}: {self.advice()}"

    def advice(self) -> str:
        waits = self.wait_seconds / max(self.epoch_seconds, 1e-9)
        busy = self.hosts_busy_percent / 100
        if waits < WAITS:
            needed = max(1, math.ceil(self.hosts * busy / BUSY))
            if busy > 0 and needed < self.hosts:
                few = "one fewer would do" if self.hosts - needed == 1 else f"{self.hosts - needed} fewer would do"
                return f"data hosts are {100 * (1 - busy):.0f} % idle: {few}"
            return "the steps do not wait for data"
        summary = f"steps wait for data {100 * waits:.0f} % of the time, and "
        if self.hosts == 0:
            return summary + "this host's workers are what prepares it: add workers, or data hosts"
        if busy >= BUSY:
            more = max(1, math.ceil(self.hosts * waits / (1 - min(waits, 0.9))))
            return summary + f"the data hosts' workers are busy: add {more} data host{'s' if more > 1 else ''}"
        return summary + "the data hosts' workers are not busy: raise look_ahead, or look at the network"


@dataclass
class _Start:
    busy: float
    measured: float
    bytes: int


@dataclass
class Epoch:
    """Measures one rank's epoch from its first batch on."""

    epoch: int
    hosts: Sequence[Host]
    local: Local | None
    batches: int = 0
    waits: int = 0
    wait_seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _ended: float | None = None
    _left_out: int = 0

    def __post_init__(self) -> None:
        self._starts = [_Start(host.busy_seconds, host.busy_measured, host.bytes) for host in self.hosts]
        self._local_busy = self.local.pool.busy_seconds if self.local else 0.0

    def waited(self, seconds: float) -> None:
        """A batch was delivered, after so many seconds without one."""
        self.waits += seconds > 0
        self.wait_seconds += seconds

    def end(self, *, left_out: int, report: bool) -> None:
        self._ended, self._left_out = time.monotonic(), left_out
        if report:
            print(self.summary().line(), file=sys.stderr, flush=True)

    def summary(self) -> Summary:
        """Up to now, or to the epoch's end."""
        seconds = max(1e-9, (self._ended or time.monotonic()) - self._began)
        used = [(host, start) for host, start in zip(self.hosts, self._starts, strict=True) if host.workers]
        spans = [(host.busy_measured - start.measured) * host.workers for host, start in used]
        busy = sum(host.busy_seconds - start.busy for host, start in used) / sum(spans) if sum(spans) > 0 else 0.0
        local = (self.local.pool.busy_seconds - self._local_busy) / self.local.workers / seconds if self.local else 0.0
        received = sum(host.bytes - start.bytes for host, start in used)
        return Summary(
            epoch=self.epoch,
            batches=self.batches,
            left_out=self._left_out,
            epoch_seconds=seconds,
            wait_seconds=self.wait_seconds,
            hosts=len(used),
            hosts_busy_percent=100 * min(busy, 1.0),
            local_busy_percent=100 * min(local, 1.0),
            network_mb_per_second=received / seconds / 1e6,
        )
