"""The patches of upstream/moto apply to the installed moto, and their tests tell."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import moto
import pytest

UPSTREAM = Path(__file__).parents[2] / "upstream"
CHECK = runpy.run_path(str(UPSTREAM / "check.py"))
INSTALLED = Path(moto.__file__).parents[1]


def test_each_patch_applies_to_the_installed_moto_and_has_tests(tmp_path: Path) -> None:
    # What the patches touch is in these files and this folder.
    shutil.copytree(INSTALLED / "moto" / "stepfunctions", tmp_path / "moto" / "stepfunctions")
    applied = {patch.name: CHECK["apply"](patch, tmp_path) for patch in CHECK["PATCHES"]}
    assert len(applied) == 5
    assert [name for name, done in applied.items() if not done] == []
    assert ["+++ b/tests/" in patch.read_text() for patch in CHECK["PATCHES"]] == [True] * 5
    readme = (UPSTREAM / "README.md").read_text()
    assert [name for name in applied if name.removesuffix(".patch") not in readme] == []


@pytest.mark.soak  # runs the tests of each twice
def test_the_tests_of_the_patches_fail_without_them_and_pass_with_them() -> None:
    assert CHECK["main"](INSTALLED) == 0
