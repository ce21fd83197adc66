"""The versions that the wheel takes, beside those that its tests run with."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def test_the_tests_run_with_the_lowest_aws_cdk_lib_that_the_wheel_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [taken] = [Requirement(one) for one in project["dependencies"] if one.startswith("aws-cdk-lib")]
    [lowest] = [Version(one.version) for one in taken.specifier if one.operator == ">="]
    [pinned] = re.findall(r"^aws-cdk-lib==(.*)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert Version(pinned) == lowest
