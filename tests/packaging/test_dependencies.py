"""The versions that the wheel takes, beside those that its tests run with."""

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECTS = CONSTRUCTS, TRAINING_JOBS, LOCAL_ACCOUNT = [
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    for folder in ("", "training_jobs", "local_account")
]
NAMES = [project["name"] for project in PROJECTS]


@pytest.mark.parametrize("project", PROJECTS, ids=NAMES)
def test_the_tests_run_with_versions_that_the_wheels_take(project: dict[str, Any]) -> None:
    """`make matrix` has the lowest and the newest."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pinned = {
        canonicalize_name(one.name): one.specifier for line in lines if "==" in line for one in [Requirement(line)]
    }
    refused = [
        one.name
        for one in map(Requirement, project["dependencies"])
        if one.name not in NAMES
        for pin in pinned[canonicalize_name(one.name)]
        if not one.specifier.contains(pin.version)
    ]
    assert refused == []


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


def tried() -> list[list[str]]:
    """The rows of `make matrix` in docs/upgrading.md: Python, dependencies, aws-cdk-lib, and the result of each check."""
    rows = re.findall(r"^\| (3\.\d.*) \|$", (ROOT / "docs" / "upgrading.md").read_text(), re.MULTILINE)
    return [row.split(" | ") for row in rows]


def test_the_lowest_aws_cdk_lib_that_the_wheel_takes_is_one_with_which_the_tests_of_the_constructs_passed() -> None:
    """The other tests run with a newer one: requirements.txt."""
    [taken] = [Requirement(one) for one in CONSTRUCTS["dependencies"] if one.startswith("aws-cdk-lib")]
    [lowest] = [Version(one.version) for one in taken.specifier if one.operator == ">="]
    assert {Version(cdk) for _, which, cdk, *_ in tried() if which == "lowest"} == {lowest}
    assert ["passed"] * 3 in [checks[:3] for _, which, _, *checks in tried() if which == "lowest"]


@pytest.mark.parametrize("project", PROJECTS, ids=NAMES)
def test_each_python_that_a_package_names_has_passed_every_check(project: dict[str, Any]) -> None:
    named = {one.rpartition(" ")[2] for one in project["classifiers"] if "Python :: 3." in one}
    passed = {python.rpartition(".")[0] for python, _, _, *checks in tried() if set(checks) == {"passed"}}
    assert named <= passed | {"3.11"}  # with which all tests run


def test_the_local_account_takes_the_one_moto_that_the_tests_run_with() -> None:
    taken = [str(Requirement(one).specifier) for one in LOCAL_ACCOUNT["dependencies"] if one.startswith("moto")]
    [pinned] = re.findall(r"^moto==(.*)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert taken == [f"=={pinned}"]


def test_the_local_account_requires_what_motos_server_does_but_the_linter_of_templates() -> None:
    """moto's extra "server", which has no part without cfn-lint."""
    lines = [Requirement(one) for one in importlib.metadata.requires("moto") or []]
    server = {bounds_of(str(one)) for one in lines if one.marker and one.marker.evaluate({"extra": "server"})}
    own = dict(bounds_of(one) for one in LOCAL_ACCOUNT["dependencies"])
    optional = {
        name for name, _ in server if not any(canonicalize_name(one.name) == name and not one.marker for one in lines)
    }
    assert optional - own.keys() == {"cfn-lint"}
    assert own["py-partiql-parser"] == dict(server)["py-partiql-parser"]


def test_the_distributions_have_one_version_and_licence_and_require_each_other_in_it() -> None:
    version = CONSTRUCTS["version"]
    assert [one["version"] for one in PROJECTS] == [version] * 3
    assert len({one["requires-python"] for one in PROJECTS}) == 1
    for project in (CONSTRUCTS, TRAINING_JOBS):
        assert project["optional-dependencies"]["local"] == [f"sagemaker-local-account=={version}"]
    required = {one["name"]: [it for it in one["dependencies"] if Requirement(it).name in NAMES] for one in PROJECTS}
    assert required == {
        "cdk-sagemaker-training": [f"training-jobs=={version}"],
        "training-jobs": [],
        "sagemaker-local-account": [],
    }
    for folder in ("local_account", "training_jobs"):
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_command_line_requires_neither_the_cdk_nor_node() -> None:
    assert {Requirement(one).name for one in TRAINING_JOBS["dependencies"]} == {
        "boto3",
        "botocore",
        "dockerfile-parse",
        "packaging",
        "pyyaml",
        "rich",
        "typer",
    }


def test_what_several_distributions_require_they_require_in_the_same_versions() -> None:
    bounds = [bounds_of(requirement) for one in PROJECTS for requirement in one["dependencies"]]
    assert len(dict(bounds)) < len(bounds)
    assert len({*bounds}) == len(dict(bounds))


def bounds_of(requirement: str) -> tuple[str, str]:
    """The package's name, and the versions that are taken."""
    parsed = Requirement(requirement)
    return canonicalize_name(parsed.name), str(parsed.specifier)
