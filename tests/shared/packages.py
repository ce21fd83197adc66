"""Packages that the tests' environment lacks, which `make soak` installs once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TENSORFLOW = ("tensorflow-cpu==2.21.0", "scikit-learn")


def packages(config: pytest.Config, *names: str) -> Path:
    """The folder with packages, which is filled once for all runs."""
    found = config.cache.mkdir(names[0])
    if not (found / "complete").exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", found, *names], check=True)
        (found / "complete").touch()
    return Path(found)
