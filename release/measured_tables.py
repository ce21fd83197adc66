"""What tables share whose versions are measured: an environment of each version's own, and a row for each run of versions."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from library_tables import runs

_PYTHON = sys.executable


def parsed(description: str | None) -> argparse.Namespace:
    """The versions that are asked for, and the folder of environments."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--environments", type=Path, default=Path("environments"))
    return parser.parse_args()


def measure(environment: Path, packages: Sequence[str], script: str) -> Any:
    """What a script of this folder prints last, as JSON, in an environment with packages, which is made once."""
    python, uv = environment / "bin" / "python", (_PYTHON, "-m", "uv")
    if not python.exists():
        subprocess.run([*uv, "venv", "--quiet", "--python", _PYTHON, str(environment)], check=True)
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", str(python), *packages], check=True)
    command = [str(python), str(Path(__file__).with_name(script))]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    # Libraries print what they log.
    return json.loads(ran.stdout.splitlines()[-1])


def rendered(facts: Mapping[str, object], by_version: Mapping[str, Iterable[tuple[str, ...]]]) -> str:
    """The table: facts, and each row with the first and the last of the versions, one after another, that have it."""
    minors = [".".join(version.split(".")[:2]) for version in by_version]
    has: dict[tuple[str, ...], list[str]] = {}
    for minor, of_version in zip(minors, by_version.values(), strict=True):
        for row in of_version:
            has.setdefault(row, []).append(minor)
    rows = ",\n".join(f"  {json.dumps(row)}" for row in runs(has, minors))
    head = ",\n".join(
        f' "{key}": {json.dumps(value)}' for key, value in ({"source": "", "versions": minors} | {**facts}).items()
    )
    return f'{{\n{head},\n "rows": [\n{rows}\n ]\n}}\n'
