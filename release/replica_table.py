"""Writes how versions of Keras train on several replicas of tf.distribute: `training_jobs/facts/replicas.json`.

    python release/replica_table.py [--environments FOLDER] [VERSION ...]

`measure_replicas.py` trains a small model with each version, in an environment of its own in FOLDER: about a minute a version.
With versions, such as 3.8.0, what is measured is printed, and no table is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from library_tables import FACTS, last_of_each_minor
from measured_tables import measure, parsed, rendered
from rich.progress import track

FIRST = (2, 12)  # the first for Python 3.11
# The last TensorFlow with which a version of Keras 3 is measured, by the first version of Keras that is with another.
_TENSORFLOW = {(3, 12): "2.21.0", (3, 9): "2.19.1", (3, 7): "2.18.1", (3, 0): "2.16.2"}


def main() -> None:
    args = parsed(__doc__)
    versions = args.versions or last_of_each_minor("keras", FIRST)
    results = {
        version: measure(args.environments / version, packages_of(version), "measure_replicas.py")
        for version in track(versions, "measured")
    }
    if args.versions:
        print(json.dumps(results, indent=1))
        return
    facts = {
        "source": "release/measure_replicas.py with the last release of each minor version of Keras",
        "columns": ["strategy", "way", "result", "first version", "last version"],
    }
    (FACTS / "replicas.json").write_text(
        rendered(facts, {version: _rows(of_version) for version, of_version in results.items()})
    )


def packages_of(version: str) -> tuple[str, ...]:
    numbers = tuple(map(int, version.split(".")[:2]))
    if numbers < (3, 0):  # whose TensorFlow has the same version
        return f"tensorflow-cpu=={version.rpartition('.')[0]}.*", "numpy<2"
    return f"keras=={version}", f"tensorflow-cpu=={next(of for first, of in _TENSORFLOW.items() if numbers >= first)}"


def _rows(by_strategy: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, ...]]:
    for strategy, by_way in by_strategy.items():
        for way, result in by_way.items():
            yield strategy, way, result


if __name__ == "__main__":
    main()
