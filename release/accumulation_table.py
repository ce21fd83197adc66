"""Writes how long the gradients are that versions of transformers accumulate: `training_jobs/facts/accumulation.json`.

    python release/accumulation_table.py [--environments FOLDER] [VERSION ...]

`measure_accumulation.py` trains small models with each version, in an environment of its own in FOLDER: some 20 seconds a
version, two at a time. With versions, such as 5.3.0, what is measured is printed, and no table is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from library_tables import FACTS, last_of_each_minor, runs
from measure_accumulation import HEADS
from rich.progress import track

FIRST = (4, 45)  # which divides as it should; transformers 4.46 was the first that asks how many items a batch has
_WORKERS = 2
_LENGTHS = {4.0: "steps times too long", 0.25: "steps times too short"}
_PYTHON = sys.executable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--environments", type=Path, default=Path("environments"))
    args = parser.parse_args()
    versions = args.versions or last_of_each_minor("transformers", FIRST)
    with ThreadPoolExecutor(_WORKERS) as pool:
        measured = pool.map(lambda version: measure(version, args.environments / version), versions)
        lengths = dict(zip(versions, track(measured, "measured", total=len(versions)), strict=True))
    if args.versions:
        print(json.dumps(lengths, indent=1))
    else:
        (FACTS / "accumulation.json").write_text(rendered(lengths))


def measure(version: str, environment: Path) -> Mapping[str, Mapping[str, float]]:
    """How many times as long as it should be a gradient is, by class and by who computes the loss."""
    python = environment / "bin" / "python"
    uv = (_PYTHON, "-m", "uv")
    if not python.exists():
        subprocess.run([*uv, "venv", "--quiet", "--python", _PYTHON, str(environment)], check=True)
        packages = ("torch", f"transformers=={version}", "accelerate", "pillow", "numpy<2.3")
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", str(python), *packages], check=True)
    command = [str(python), str(Path(__file__).with_name("measure_accumulation.py"))]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    # The Trainer prints what it logs.
    found: dict[str, Mapping[str, float]] = json.loads(ran.stdout.splitlines()[-1])["lengths"]
    return found


def rendered(measured: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The table: a row for each class and who computes the loss, for the versions in which a gradient is not as it should be."""
    minors = [".".join(version.split(".")[:2]) for version in measured]
    has: dict[tuple[str, ...], list[str]] = {}
    for minor, lengths in zip(minors, measured.values(), strict=True):
        for row in _rows(lengths):
            has.setdefault(row, []).append(minor)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in runs(has, minors))
    facts = {
        "source": "release/measure_accumulation.py with the last release of each minor version of transformers",
        "versions": minors,
        "heads": {head: [*models] for head, models in HEADS.items()},
        "columns": ["class", "who computes the loss", "gradient", "first version", "last version"],
    }
    head = ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in facts.items())
    return f'{{\n{head},\n "rows": [\n{rows}\n ]\n}}\n'


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
