"""Environments of programs that cannot live in the project's own, since they pin other versions of what it needs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def programs_of(pytestconfig: pytest.Config) -> Callable[[str], Path]:
    """The folder of an environment's programs, made of `requirements-NAME.txt` and kept until that file changes."""

    def made(name: str) -> Path:
        requirements = HERE / f"requirements-{name}.txt"
        assert pytestconfig.cache
        home = pytestconfig.cache.mkdir(f"{name}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}")
        installed = home / ".installed"
        if not installed.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            install = [str(home / "bin" / "pip"), "install", "--quiet", "--no-deps", "--no-compile"]
            subprocess.run([*install, "-r", str(requirements)], check=True)
            installed.touch()
        return home / "bin"

    return made
