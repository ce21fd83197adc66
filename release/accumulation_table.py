"""Writes how long the gradients are that versions of transformers accumulate: `training_jobs/facts/accumulation.json`.

    python release/accumulation_table.py [--environments FOLDER] [VERSION ...]

`measure_accumulation.py` trains small models with each version, in an environment of its own in FOLDER: some 20 seconds a
version, two at a time. With versions, such as 5.3.0, what is measured is printed, and no table is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from library_tables import FACTS, last_of_each_minor
from measure_accumulation import HEADS
from measured_tables import measure, parsed, rendered
from rich.progress import track

FIRST = (4, 45)  # which divides as it should; transformers 4.46 was the first that asks how many items a batch has
_WORKERS = 2
_LENGTHS = {4.0: "steps times too long", 0.25: "steps times too short"}


def main() -> None:
    args = parsed(__doc__)
    versions = args.versions or last_of_each_minor("transformers", FIRST)

    def lengths_of(version: str) -> Mapping[str, Mapping[str, float]]:
        packages = ("torch", f"transformers=={version}", "accelerate", "pillow", "numpy<2.3")
        found: dict[str, Mapping[str, float]] = measure(
            args.environments / version, packages, "measure_accumulation.py"
        )["lengths"]
        return found

    with ThreadPoolExecutor(_WORKERS) as pool:
        measured = track(pool.map(lengths_of, versions), "measured", total=len(versions))
        lengths = dict(zip(versions, measured, strict=True))
    if args.versions:
        print(json.dumps(lengths, indent=1))
        return
    facts = {
        "source": "release/measure_accumulation.py with the last release of each minor version of transformers",
        "heads": {head: [*models] for head, models in HEADS.items()},
        "columns": ["class", "who computes the loss", "gradient", "first version", "last version"],
    }
    (FACTS / "accumulation.json").write_text(
        rendered(facts, {version: _rows(of_version) for version, of_version in lengths.items()})
    )


def _rows(lengths: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, ...]]:
    for name, of_ways in lengths.items():
        for way, length in of_ways.items():
            near: Sequence[float] = [known for known in (1.0, *_LENGTHS) if abs(length / known - 1) < 0.02]
            if not near:
                raise SystemExit(
                    f"{name}, {way}: {length} times as long, which is neither right nor wrong by the steps"
                )
            if near != [1.0]:
                yield name, way, _LENGTHS[near[0]]


if __name__ == "__main__":
    main()
