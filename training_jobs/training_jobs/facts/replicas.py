"""How versions of Keras train on several replicas of tf.distribute: `release/replica_table.py` measured it.

The measure is one device with the same batch. A version is known by its first two numbers: the last release of each. Keras of
TensorFlow before 2.16 has TensorFlow's version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from training_jobs.facts.libraries import minor_of

Strategy = Literal["MirroredStrategy", "MultiWorkerMirroredStrategy"]
RIGHT = "right"
_OR_NEWER = " or newer"


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_name("replicas.json").read_text())


def versions_of(version: str) -> Sequence[str]:
    """Return the versions that were measured, of those that a text may be.

    Args:
        version: Such as ``"3.10"``, ``"3.10.0"``, ``"3.8 or newer"``, or ``"3"`` for any of Keras 3.
    """
    every, minor = _table()["versions"], minor_of(version.removesuffix(_OR_NEWER))
    if "." not in version:
        return [one for one in every if one.startswith(f"{version}.")]
    if minor not in every:
        return []
    return every[every.index(minor) :] if version.endswith(_OR_NEWER) else [minor]


def results(strategy: Strategy, way: str, version: str) -> frozenset[str]:
    """Return how replicas train, of each version that a text may be; nothing where that was not measured.

    Args:
        strategy: Of tf.distribute: replicas on the devices of a machine, or of several machines.
        way: Who makes the step, and what the loss is of, such as ``"fit"`` or ``"fit, train_step, mean"``.
        version: Of Keras, as for `versions_of`.

    Returns:
        ``"right"``; ``"each alone"``, where a replica has its own gradient alone; ``"too long"``, where a step is as many times
        too long as there are replicas; or ``"ends: "`` and the name of the error.
    """
    every, of_text = _table()["versions"], versions_of(version)
    return frozenset(
        result
        for of_strategy, of_way, result, first, last in _table()["rows"]
        if (of_strategy, of_way) == (strategy, way)
        and any(every.index(first) <= every.index(one) <= every.index(last) for one in of_text)
    )


def right_since(strategy: Strategy, way: str) -> str:
    """Return the first version from which on replicas train as one device does; "" where the last does not.

    Args:
        strategy: As for `results`.
        way: As for `results`.
    """
    since = ""
    for version in reversed(_table()["versions"]):
        if results(strategy, way, version) != {RIGHT}:
            break
        since = version
    return since
