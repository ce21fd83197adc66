"""Tries the patches of upstream/moto: each applies to moto, its test fails without them and passes with them.

    python upstream/check.py FOLDER        # which contains the package moto, like build/moto of `make moto`

It prints a line for each test file, and exits with 1 where a patch does not apply, or a test does not tell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PATCHES = sorted((Path(__file__).parent / "moto").glob("*.patch"))


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "tree")
        shutil.copytree(folder / "moto", tree / "moto", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["git", "init", "--quiet", tree], check=True)
        applied = [apply(patch, tree) for patch in PATCHES]
        tests = sorted((tree / "tests").rglob("test_*.py"))
        told = [tells(test, folder, tree) for test in tests]
    return 0 if all(applied) and told and all(told) else 1


def apply(patch: Path, tree: Path) -> bool:
    done = subprocess.run(["git", "apply", patch.resolve()], cwd=tree, capture_output=True, text=True)
    print(f"{patch.name}: {'applies' if done.returncode == 0 else done.stderr.strip()}")
    return done.returncode == 0


def tells(test: Path, before: Path, after: Path) -> bool:
    """Whether a test fails with the package in ``before`` and passes with that in ``after``."""
    codes = [run(test, package) for package in (before, after)]
    print(
        f"{test.name}: {'fails' if codes[0] else 'passes'} without, {'fails' if codes[1] else 'passes'} with the patches"
    )
    return codes[0] == 1 and codes[1] == 0


def run(test: Path, package: Path) -> int:
    """pytest's exit code."""
    keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTEST_"))}
    environment = {**kept, **keys, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", test.parent, test]
    return subprocess.run(command, cwd=test.parent, env=environment, capture_output=True).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
