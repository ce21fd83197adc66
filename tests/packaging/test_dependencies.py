"""The versions that the wheel takes, beside those that its tests run with."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def test_the_tests_run_with_the_lowest_aws_cdk_lib_that_the_wheel_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [taken] = [Requirement(one) for one in project["dependencies"] if one.startswith("aws-cdk-lib")]
    [lowest] = [Version(one.version) for one in taken.specifier if one.operator == ">="]
    [pinned] = re.findall(r"^aws-cdk-lib==(.*)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert Version(pinned) == lowest


def test_each_package_is_pinned_in_one_file_and_what_images_install_in_one_that_the_demo_installs() -> None:
    files = {name: names_in(ROOT / f"requirements{name}.txt") for name in ("", "-jobs", "-dev")}
    named = [name for names in files.values() for name in names]
    assert sorted(set(named)) == sorted(named)
    needed = {name for file in (ROOT / "training_code").glob("*/requirements.txt") for name in names_in(file)}
    assert {"torch", "scikit-learn"} <= needed | {"torch"} <= {*files[""], *files["-jobs"]}


def names_in(file: Path) -> list[str]:
    """The packages of a requirements file."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [canonicalize_name(Requirement(line).name) for line in lines if line]


def test_the_wheel_takes_the_one_moto_that_the_tests_run_with() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    taken = {str(Requirement(one).specifier) for extra in extras.values() for one in extra if one.startswith("moto")}
    [pinned] = re.findall(r"^moto==(.*)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert taken == {f"=={pinned}"}
