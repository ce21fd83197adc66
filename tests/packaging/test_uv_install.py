"""Packages are installed by uv with the settings that pip has."""

from __future__ import annotations

import base64
import hashlib
import sys
import sysconfig
import zipfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "release"))
import uv_install


def wheel(folder: Path, name: str, files: dict[str, str], requires: str = "") -> None:
    """Write a wheel of version 1, with its record."""
    info = f"{name}-1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n" + (
        f"Requires-Dist: {requires}\n" if requires else ""
    )
    files = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n"}
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
        for path, text in files.items()
    )
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)


def unpacked(wheels: Path, into: Path, *names: str) -> Path:
    for name in names:
        zipfile.ZipFile(wheels / f"{name}-1-py3-none-any.whl").extractall(into)
    return into


def test_of_a_common_file_the_distribution_that_requires_the_other_has_its_own(tmp_path: Path) -> None:
    wheel(tmp_path, "schema", {"common/__init__.py": "schema", "common/own.py": "one"})
    wheel(tmp_path, "big_lib", {"common/__init__.py": "lib", "lib.py": "two"}, "Schema<2,>=1")
    assert uv_install.covered(unpacked(tmp_path, tmp_path / "pip", "schema", "big_lib")) == []
    side_by_side = unpacked(tmp_path, tmp_path / "uv", "big_lib", "schema")
    assert uv_install.covered(side_by_side) == ["big_lib==1"]
    # A file that a person changed is not for an installation to write.
    (side_by_side / "common" / "__init__.py").write_text("lib")
    (side_by_side / "lib.py").write_text("changed")
    assert uv_install.covered(side_by_side) == []


def test_what_programs_import_is_compiled_and_neither_tests_nor_a_file_that_is_no_python_is(tmp_path: Path) -> None:
    for name in (
        "lib/a.py",
        "lib/tests/b.py",
        "ray/c.py",
        "transformers/models/d/d.py",
        "transformers/models/auto/e.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("VALUE = 1\n")
    (tmp_path / "old.py").write_text("print 1\n")
    uv_install.compile_packages(Path(sys.executable), tmp_path)
    assert {path.name.partition(".")[0] for path in tmp_path.rglob("*.pyc")} == {"a", "e"}


def test_no_file_of_this_environment_is_of_another_distribution_than_pip_would_leave() -> None:
    assert uv_install.covered(Path(sysconfig.get_path("purelib"))) == []
