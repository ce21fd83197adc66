"""The rates at which AWS takes calls (`local-account --rates`): a token bucket for each operation and region.

The rates are data, `rates.toml`, each with its source. Of SageMaker's only ListTrainingJobs' holds without the option.
"""

from __future__ import annotations

import functools
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sagemaker_local_account.core.clock import CLOCK

_LARGE_REGIONS = ("us-east-1", "us-west-2", "eu-west-1")


@dataclass(frozen=True)
class Rate:
    """The rate of an operation in a region.

    Args:
        bucket: the calls that are taken at once.
        refill: the calls that are taken a second after these.
        always: whether it holds in every account.
    """

    bucket: float
    refill: float
    always: bool = False


def rates(region: str) -> Mapping[tuple[str, str], Rate]:
    """Returns the rates of a region's operations, by the service's signing name and the operation."""
    found = {}
    for service, rows in _data().items():
        for operation, row in rows.items():
            if operation == "source":
                continue
            ordinary = [row["bucket"], row["refill"]]
            bucket, refill = row.get("large", ordinary) if region in _LARGE_REGIONS else ordinary
            found[service, operation] = Rate(bucket, refill, row.get("always", False))
    return found


@functools.cache
def _data() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


class Bucket:
    """A token bucket; thread-safe.

    Args:
        rate: its size and what it gains.
        clock: returns seconds.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float] = CLOCK.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._tokens, self._since = rate.bucket, clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Takes a token; returns False where there is none."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._rate.bucket, self._tokens + (now - self._since) * self._rate.refill)
            self._since = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class RateLimits:
    """The buckets of an account's operations, and how many calls found theirs empty.

    ``throttled`` counts the latter by operation.

    Args:
        regions: of the account.
        all_rates: whether all rates hold, and not only those of every account.
    """

    def __init__(self, regions: Sequence[str], *, all_rates: bool) -> None:
        self.throttled: Counter[str] = Counter()
        self._buckets = {
            (region, service, operation): Bucket(rate)
            for region in regions
            for (service, operation), rate in rates(region).items()
            if all_rates or rate.always
        }

    def take(self, region: str, service: str, operation: str) -> bool:
        """Counts a call; returns False where AWS would throttle it.

        Args:
            region: that it is signed for.
            service: that it is signed for.
            operation: its operation.
        """
        bucket = self._buckets.get((region, service, operation))
        if bucket is None or bucket.take():
            return True
        self.throttled[operation] += 1
        return False
