"""Writes how versions of Keras train on several replicas of tf.distribute: `training_jobs/facts/replicas.json`.

    python release/replica_table.py [--environments FOLDER] [VERSION ...]

`measure_replicas.py` trains a small model with each version, in an environment of its own in FOLDER: about a minute a version.
With versions, such as 3.8.0, what is measured is printed, and no table is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from library_tables import FACTS, last_of_each_minor, runs
from rich.progress import track

FIRST = (2, 12)  # the first for Python 3.11
# The last TensorFlow with which a version of Keras 3 is measured, by the first version of Keras that is with another.
_TENSORFLOW = {(3, 12): "2.21.0", (3, 9): "2.19.1", (3, 7): "2.18.1", (3, 0): "2.16.2"}
_PYTHON = sys.executable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--environments", type=Path, default=Path("environments"))
    args = parser.parse_args()
    versions = args.versions or last_of_each_minor("keras", FIRST)
    results = {version: measure(version, args.environments / version) for version in track(versions, "measured")}
    if args.versions:
        print(json.dumps(results, indent=1))
    else:
        (FACTS / "replicas.json").write_text(rendered(results))


def packages_of(version: str) -> tuple[str, ...]:
    numbers = tuple(map(int, version.split(".")[:2]))
    if numbers < (3, 0):  # whose TensorFlow has the same version
        return f"tensorflow-cpu=={version.rpartition('.')[0]}.*", "numpy<2"
    return f"keras=={version}", f"tensorflow-cpu=={next(of for first, of in _TENSORFLOW.items() if numbers >= first)}"


def measure(version: str, environment: Path) -> Mapping[str, Mapping[str, str]]:
    """How two replicas train, by strategy and way."""
    python = environment / "bin" / "python"
    uv = (_PYTHON, "-m", "uv")
    if not python.exists():
        subprocess.run([*uv, "venv", "--quiet", "--python", _PYTHON, str(environment)], check=True)
        install = (*uv, "pip", "install", "--quiet", "--python", str(python))
        subprocess.run([*install, *packages_of(version)], check=True)
    command = [str(python), str(Path(__file__).with_name("measure_replicas.py"))]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, Mapping[str, str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


def rendered(measured: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """The table: a row for each strategy, way and result, with the versions that have it."""
    minors = [".".join(version.split(".")[:2]) for version in measured]
    has: dict[tuple[str, ...], list[str]] = {}
    for minor, by_strategy in zip(minors, measured.values(), strict=True):
        for strategy, by_way in by_strategy.items():
            for way, result in by_way.items():
                has.setdefault((strategy, way, result), []).append(minor)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in runs(has, minors))
    facts = {
        "source": "release/measure_replicas.py with the last release of each minor version of Keras",
        "versions": minors,
        "columns": ["strategy", "way", "result", "first version", "last version"],
    }
    head = ",\n".join(f' "{key}": {json.dumps(value)}' for key, value in facts.items())
    return f'{{\n{head},\n "rows": [\n{rows}\n ]\n}}\n'


if __name__ == "__main__":
    main()
