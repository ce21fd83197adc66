"""What pip cannot install of a requirements.txt is found without an index, and what it installs is not called a mistake.

The oracles are pip's own parser, packaging's tags, the metadata of what is installed here, and verdicts of uv's resolver.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from typer.testing import CliRunner

from training_jobs.cli.main import app
from training_jobs.facts import packages
from training_jobs.facts.packages import FUTURE, is_known, needs_in, releases_of, versions_in
from training_jobs.lint import requirements
from training_jobs.lint.requirements import Mistake, Target, absent_modules, requirement_mistakes
from training_jobs.lint.resolution import Kind

# Drawn requirements with the verdict of `uv pip compile`: the minor version of Python 3, the lines, whether it found versions.
RESOLUTIONS = json.loads((Path(__file__).parent / "resolutions.json").read_text())
PYTHONS = range(8, 14)
NAMES = {canonicalize_name(one.name) for one in distributions()}
INSTALLED = sorted(NAMES & {*json.loads(Path(packages.__file__).with_suffix(".json").read_text())["packages"]})
IN_PIP = """
import sys
from pip._internal.network.session import PipSession
from pip._internal.req.constructors import install_req_from_parsed_requirement
from pip._internal.req.req_file import parse_requirements
for path in sys.argv[1:]:
    try:
        for one in parse_requirements(path, PipSession()):
            install_req_from_parsed_requirement(one)
        print("reads")
    except Exception as error:
        print("ends", type(error).__name__)
"""
READS = (
    "torch",
    "torch>=2.4,<3",
    "transformers [torch] ~= 4.50 ; python_version >= '3.9'",
    "transformers==4.50.0 --hash=sha256:" + "0" * 64,
    "trl @ git+https://github.com/huggingface/trl@main",
    "git+https://github.com/huggingface/trl",
    "https://example.com/package-1.0-py3-none-any.whl",
    "# a comment",
    "torch  # a comment",
    "torch \\\n  >=2.4",
    "./own-1.0-py3-none-any.whl",
    "own-1.0-py3-none-any.whl",
    "-e ./package",
    "./package",
    "-r more.txt",
    "--requirement=more.txt",
    "-c more.txt",
    "--extra-index-url https://example.com/simple",
    "--prefer-binary",
    "torch==2.*",
    "a_b.c-d==1.0.post1",
    "evaluate!=0.4.1,>=0.4",
)
ENDS = (
    "torch=2.6",
    "torch=>2.6",
    "torch 2.6",
    "torch>=2.6 <3",
    "pip install torch",
    "torch[cuda",
    "torch; python_version > 3.8",
    "-r missing.txt",
    "-e ./none",
    "./none",
    "import torch",
    "==2.6",
    "-r requirements{number}.txt",
)


def mistakes(folder: Path, *lines: str, python: int | None = 12, **versions: str) -> list[Mistake]:
    (folder / "requirements.txt").write_text("\n".join(lines) + "\n")
    return [*requirement_mistakes(folder, Target(python, versions))]


def fails(folder: Path, *lines: str, python: int | None = 12) -> bool:
    return any(one.kind is Kind.FAILS for one in mistakes(folder, *lines, python=python))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    for name in ("own-1.0-py3-none-any.whl", "more.txt", "package/pyproject.toml"):
        (tmp_path / name).touch()
    return tmp_path


def test_a_line_is_refused_where_pip_ends_at_it(folder: Path) -> None:
    paths = [folder / f"requirements{number}.txt" for number in range(len(READS + ENDS))]
    for path, line in zip(paths, READS + ENDS, strict=True):
        path.write_text(f"{line}\n".replace("{number}", path.stem.removeprefix("requirements")))
    run = subprocess.run([sys.executable, "-c", IN_PIP, *paths], cwd=folder, capture_output=True, text=True, check=True)
    verdicts = [line.split()[0] for line in run.stdout.splitlines()]
    ours = ["ends" if [*requirement_mistakes(folder, Target(), path.name)] else "reads" for path in paths]
    assert dict(zip(READS + ENDS, ours, strict=True)) == dict(zip(READS + ENDS, verdicts, strict=True))
    assert verdicts == ["reads"] * len(READS) + ["ends"] * len(ENDS)


def test_a_variable_in_a_line_may_have_any_value(folder: Path) -> None:
    (folder / "requirements.txt").write_text("torch>=${LEAST}\n")  # at which pip ends since 24 where it is not set
    assert [*requirement_mistakes(folder, Target())] == []


@pytest.mark.parametrize(("python", "lines", "resolves"), RESOLUTIONS)
def test_requirements_fail_where_uv_finds_no_versions(
    tmp_path: Path, python: int, lines: list[str], resolves: bool
) -> None:
    assert fails(tmp_path, "--only-binary :all:", *lines, python=python) is not resolves


@pytest.mark.parametrize("seed", range(40))
def test_a_wheel_is_refused_where_its_tags_are_none_of_the_containers_pythons(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    minor, python = draw.randint(6, 14), draw.choice(PYTHONS)
    interpreter = draw.choice([f"cp3{minor}", f"py3{minor}", "py3", "py2.py3", f"cp3{minor}.cp3{minor + 1}", "pp310"])
    abi = draw.choice(["none", "abi3", f"cp3{minor}"])
    platform = draw.choice(
        [
            "any" if "py3" in interpreter else "linux_x86_64",
            "manylinux2014_x86_64",
            "linux_x86_64",
            "manylinux_2_17_x86_64.manylinux2014_x86_64",
        ]
    )
    name = f"package-1.0-{interpreter}-{abi}-{platform}.whl"
    platforms = ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64"]
    taken = {*cpython_tags((3, python), platforms=platforms), *compatible_tags((3, python), f"cp3{python}", platforms)}
    found = mistakes(tmp_path, f"https://example.com/{name}", python=python)
    assert bool(found) is taken.isdisjoint(parse_wheel_filename(name)[3]), name


@pytest.mark.parametrize("python", PYTHONS)
def test_a_wheel_of_the_containers_own_python_is_taken(tmp_path: Path, python: int) -> None:
    name = f"package-1.0-cp3{python}-cp3{python}-manylinux2014_x86_64.whl"
    assert mistakes(tmp_path, f"https://example.com/{name}", python=python) == []
    assert len(mistakes(tmp_path, f"https://example.com/{name}", python=python + 1)) == 1


@pytest.mark.parametrize("platform", ["macosx_11_0_arm64", "win_amd64", "manylinux2014_x86_64"])
def test_a_wheel_of_another_system_is_refused(tmp_path: Path, platform: str) -> None:
    found = mistakes(tmp_path, f"package @ https://example.com/package-1.0-cp312-cp312-{platform}.whl")
    assert [one.rule for one in found] == ["be a wheel for Linux"] * ("linux" not in platform)


def test_the_table_has_what_installed_packages_need() -> None:
    held = 0
    for name in INSTALLED:
        installed = distribution(name)
        release = releases_of(name).get(Version(Version(installed.version).public))
        needs = [Requirement(need) for need in installed.requires or ()]
        if release is None or release.needs is None or Version(installed.version).local:
            continue
        ours = {need.name: need.specifier for need in map(Requirement, release.needs)}
        theirs = [need for need in needs if is_known(need.name) and "extra" not in str(need.marker)]
        assert ours == {canonicalize_name(need.name): need.specifier for need in theirs}, name
        assert release.python == SpecifierSet(installed.metadata["Requires-Python"] or ""), name
        assert release.takes(sys.version_info.minor), name
        held += 1
    assert held > 15


def test_a_module_that_an_installed_package_brings_is_not_called_absent(tmp_path: Path) -> None:
    by_module, held = packages.packages_by_module(), list[str]()
    for package in INSTALLED:
        brought, left = set[str](), [package]
        while left:
            if (name := canonicalize_name(left.pop())) not in brought:
                brought.add(name)
                try:
                    needs = map(Requirement, distribution(name).requires or ())
                except PackageNotFoundError:  # for other systems
                    continue
                left += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
        (tmp_path / "requirements.txt").write_text(f"{package}\n")
        absent = {by_module[module] for module in absent_modules(tmp_path)}
        assert absent.isdisjoint(brought), package
        held += [package] if absent >= {"vllm", "unsloth", "spacy"} else []
    assert {"trl", "transformers", "datasets", "accelerate", "torch", "scikit-learn", "ray"} <= {*held}


def test_a_version_that_was_never_released_is_refused_and_a_later_one_may_be_there(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "transformers==4.52.5")
    assert (found.line, found.example) == (1, "'transformers==4.52.4'")
    newest = max(releases_of("transformers"))
    assert mistakes(tmp_path, f"transformers=={newest.major + 1}.0", f"trl>={max(releases_of('trl'))}") == []
    assert len(mistakes(tmp_path, "transformers!=99.0,==4.52.5")) == 1
    assert mistakes(tmp_path, "transformers==4.52.5.dev0", "transformers==4.99rc1", "numpy==99.*") == []
    assert mistakes(tmp_path, "a-package-that-nobody-knows==1.0", "torch==2.6.0+cu126", torch="2.6.0") == []


def test_the_page_says_how_many_packages_are_known() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text()
    names = json.loads(Path(packages.__file__).with_suffix(".json").read_text())["packages"]
    assert f"It knows {len(names)} packages" in page


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[list[object]]]]:
    """A table of its own in place of the facts."""
    own: dict[str, list[list[object]]] = {}
    kept = (
        releases_of,
        versions_in,
        needs_in,
        packages.needs_of_next,
        packages.what_comes_with,
        requirements._resolved,
    )
    for function in kept:
        function.cache_clear()
    monkeypatch.setattr(packages, "_packages", lambda: own)
    yield own
    for function in kept:
        function.cache_clear()


def test_what_is_needed_by_what_is_needed_is_told_at_the_line_that_brings_it(
    tmp_path: Path, table: dict[str, list[list[object]]]
) -> None:
    table["first"] = [["1.0", ">=3.8", "any", ["second==1.0"]]]
    table["second"] = [["1.0", ">=3.8", "any", ["third==1.0"]]]
    table["third"] = [["1.0", ">=3.8", "3.8-3.10 source", []]]
    (found,) = mistakes(tmp_path, "first==1.0")
    assert found.got.startswith(
        "'first==1.0', and second 1.0 needs third==1.0: third 1.0 has wheels for Python 3.8, 3.9, 3.10"
    )
    assert mistakes(tmp_path, "first==1.0", python=10) == []
    table["third"] = [["2.0", ">=3.8", "any", []]]
    releases_of.cache_clear(), versions_in.cache_clear(), requirements._resolved.cache_clear()
    (found,) = mistakes(tmp_path, "first==1.0")
    assert (found.kind, found.line) == (Kind.FAILS, 1)


def test_a_later_version_needs_what_the_newest_one_does_or_more(table: dict[str, list[list[object]]]) -> None:
    needs = ["second~=2.1", "third==1.*", "fourth>=1,<3", "fifth<2"]
    table["first"] = [["1.0", "", "any", ["sixth"]], ["1.1", "", "any", needs]]
    least = {"second": ">=2.1", "third": ">=1", "fourth": ">=1", "fifth": ""}
    assert packages.needs_of_next("first", 12) == least


def test_the_nearest_version_for_the_containers_python_is_named(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "datasets", "torch==1.13.1")
    assert (found.line, found.example) == (2, "'torch==2.2.0'")
    assert found.got == "'torch==1.13.1', and torch 1.13.1 has wheels for Python 3.7, 3.8, 3.9, 3.10, 3.11 alone"
    (found,) = mistakes(tmp_path, "scikit-learn==1.8.0", python=10)
    assert found.example == "'scikit-learn==1.7.2'"
    assert found.got.endswith("scikit-learn 1.8.0 needs Python >=3.11")
    assert mistakes(tmp_path, "torch==1.13.1", "scikit-learn==1.8.0", python=None) == []
    (found,) = mistakes(tmp_path, "transformers>=5", python=8)
    assert "needs Python" in found.got


def test_a_conflict_names_both_lines_and_what_the_package_needs(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "accelerate", "transformers==4.53.0", "huggingface_hub==0.23.4")
    assert (found.line, found.kind) == (2, Kind.FAILS)
    assert found.got.endswith(
        "transformers 4.53.0 needs huggingface-hub<1.0,>=0.30.0, while requirements.txt:3 has 'huggingface_hub==0.23.4'"
    )
    (found,) = mistakes(tmp_path, "trl==0.23.0", "transformers<4.50")
    assert found.got.endswith("trl 0.23.0 needs transformers>=4.56.1, while requirements.txt:2 has 'transformers<4.50'")


def test_a_conflict_between_what_two_packages_need_is_found(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "transformers==4.30.0", "tokenizers>=0.19", "evaluate", python=10)
    assert "transformers 4.30.0 needs tokenizers" in found.got
    (found,) = mistakes(tmp_path, "vllm==0.8.5", "torchvision==0.20.1")
    assert "torch" in found.got
    assert re.search(r"0\.8\.5|0\.20\.1", found.got)


def test_two_lines_of_a_package_go_together_or_are_refused(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "bitsandbytes==0.46.1", "bitsandbytes>=0.43.3", "triton") == []
    (found,) = mistakes(tmp_path, "bitsandbytes==0.46.1", "bitsandbytes>=0.47")
    assert (found.line, found.got) == (
        2,
        "'bitsandbytes>=0.47', while requirements.txt:1 has 'bitsandbytes==0.46.1'",
    )


def test_a_yanked_version_is_taken_where_it_is_asked_for_by_number(tmp_path: Path) -> None:
    yanked = next(version for version, release in releases_of("transformers").items() if release.yanked)
    assert not fails(tmp_path, f"transformers=={yanked}", python=None)
    assert fails(tmp_path, f"transformers>={yanked},<={yanked}", python=None)


def test_what_another_index_or_a_comment_may_explain_is_not_refused(tmp_path: Path) -> None:
    for line in (
        "--extra-index-url https://example.com/cu121",
        "-i https://example.com/simple",
        "--find-links ./wheels",
        "--pre",
        "# training-jobs: allow requirements",
    ):
        assert mistakes(tmp_path, line, "torch==2.3.0+cu121", "transformers==4.52.5") == [], line
    wrong = "torch=2.6"
    assert mistakes(tmp_path, "--pre", wrong) != []
    (tmp_path / "requirements.txt").write_text("transformers==4.52.5\n")
    assert [*requirement_mistakes(tmp_path, Target(12, {}, indexes=True))] == []


def test_markers_decide_by_the_containers_python_on_linux(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "torch==1.13.1; python_version < '3.12'") == []
    assert mistakes(tmp_path, "torch==1.13.1; sys_platform == 'darwin'") == []
    assert len(mistakes(tmp_path, "torch==1.13.1; platform_machine == 'x86_64'")) == 1
    assert mistakes(tmp_path, "transformers==4.52.5; python_version >= '3.9'", python=None) == []
    assert mistakes(tmp_path, "transformers==4.52.5; python_full_version < '3.12.1'") == []
    assert mistakes(tmp_path, "pandas==1.3.5", python=7) == []  # which needs 3.7.1


def test_a_line_of_another_file_is_named_with_it(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "gpu.txt").write_text("\n-r ../more.txt\ntransformers==4.52.5\n")
    (tmp_path / "more.txt").write_text("torch=2\n")
    found = mistakes(tmp_path, "-r base/gpu.txt")
    assert sorted((one.path, one.line) for one in found) == [("base/gpu.txt", 3), ("more.txt", 1)]


def test_a_file_that_names_itself_is_told_once(tmp_path: Path) -> None:
    assert sorted(one.line for one in mistakes(tmp_path, "torch=2", "-r requirements.txt")) == [1, 2]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    line = "./missing-1.0-py3-none-any.whl"
    assert fails(tmp_path, line)
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "--no-deps", line]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode != 0


def test_what_replaces_the_containers_framework_is_told_with_what_needs_it(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "wandb", "vllm==0.11.0", torch="2.6.0")
    assert (found.line, found.kind) == (2, Kind.REPLACES)
    assert found.got.startswith("'vllm==0.11.0', and vllm 0.11.0 needs torch==2.8.0: pip replaces torch")
    assert mistakes(tmp_path, "vllm==0.11.0", torch="2.8") == []
    assert mistakes(tmp_path, "torch>=2.4", "peft==0.17.0", "torchvision", torch="2.6.0") == []
    (found,) = mistakes(tmp_path, "torch>=2.7", torch="2.6.0")
    assert (found.kind, found.example) == (Kind.REPLACES, "torch left out")
    (found,) = mistakes(tmp_path, "tensorflow==2.18.0", tensorflow="2.19.0")
    assert found.kind is Kind.REPLACES


def test_what_pip_builds_on_each_host_is_told(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "transformers==4.28.1")
    assert (found.kind, found.line) == (Kind.BUILDS, 1)
    assert "needs tokenizers!=0.11.3,<0.14,>=0.11.1: tokenizers 0.13.3 has wheels for Python 3.7" in found.got
    assert mistakes(tmp_path, "transformers==4.28.1", python=10) == []
    assert mistakes(tmp_path, "transformers==4.28.1", tokenizers="0.13.3") == []
    assert mistakes(tmp_path, "multiprocess==0.70.14") == []  # py310-none-any, which later ones take too
    assert mistakes(tmp_path, "rouge-score", "evaluate") == []  # of Python alone, with a source distribution


def test_flash_attn_is_asked_for_as_a_wheel_for_the_containers_torch(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "flash-attn==2.7.3")
    assert found.kind is Kind.BUILDS
    assert "imports torch" in found.rule
    assert mistakes(tmp_path, "flash_attn", **{"flash-attn": ""}) == []
    wheel = "https://example.com/flash_attn-2.7.3%2Bcu12torch2.6cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    assert mistakes(tmp_path, wheel, torch="2.6.0") == []
    (found,) = mistakes(tmp_path, wheel, torch="2.8.0")
    assert found.kind is Kind.OTHER_BUILD
    assert [one.kind for one in mistakes(tmp_path, "torch==2.6.0", wheel, torch="2.8.0")] == [Kind.REPLACES]


def test_the_command_finds_mistakes_of_a_folders_requirements(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==1.13.1\nvllm==0.8.5\n")
    (tmp_path / "train.py").write_text("print('trained')\n")
    runner = CliRunner()
    found = runner.invoke(app, ["lint", str(tmp_path), "--python", "3.12"])
    assert found.exit_code == 1
    assert found.stdout.startswith("requirements.txt:1: must be of a version for the container's Python, 3.12")
    assert found.stdout.rstrip().endswith("[requirements]")
    refused = runner.invoke(app, ["lint", str(tmp_path), "--python", "py312"], env={"COLUMNS": "200"})
    assert refused.exit_code == 2
    assert "like 3.12" in refused.output


@pytest.mark.parametrize("specifier", ["", ">=4.46", "==4.50.0", "<4.40", "~=4.51.0", "!=4.50.0,>4.49", "==4.5.*"])
def test_versions_of_the_table_are_those_that_packaging_takes(specifier: str) -> None:
    known = releases_of("transformers")
    assert versions_in("transformers", specifier) - {FUTURE} == {*filter(SpecifierSet(specifier).contains, known)}
    assert (FUTURE in versions_in("transformers", specifier)) is SpecifierSet(specifier).contains(FUTURE)


def test_needs_that_ask_for_python_are_left_out_where_it_is_not_known() -> None:
    needs = ("numpy>=1.26; python_version >= '3.12'", "numpy<3", "torch; sys_platform == 'win32'")
    assert needs_in(needs, 12) == {"numpy": ">=1.26,<3"}
    assert needs_in(needs, 11) == needs_in(needs, None) == {"numpy": "<3"}


@pytest.mark.soak
def test_drawn_requirements_fail_where_uv_finds_no_versions(tmp_path: Path) -> None:
    """Draws new ones each day, beside the resolver itself; the package index is asked."""
    draw = random.Random(os.environ.get("SEED", ""))
    names = sorted({re.split(r"[^\w-]", line)[0] for _, lines, _ in RESOLUTIONS for line in lines})
    for number in range(30):
        python, age = draw.choice(PYTHONS), draw.uniform(0.5, 1)
        lines = []
        for name in draw.sample(names, draw.randint(2, 5)):
            versions = [*releases_of(name)]
            version = versions[min(len(versions) - 1, int((age + draw.uniform(-0.06, 0.06)) * len(versions)))]
            lines.append(f"{name}{draw.choice(['==', '==', '==', '>=', '<', '<='])}{version}")
        folder = tmp_path / str(number)
        folder.mkdir()
        ours = fails(folder, "--only-binary :all:", *lines, python=python)
        command = ["uv", "pip", "compile", "-q", "--no-config", "--python-version", f"3.{python}"]
        platform = ["--python-platform", "x86_64-manylinux_2_28"]
        run = subprocess.run([*command, *platform, "requirements.txt"], cwd=folder, capture_output=True, text=True)
        assert ours is (run.returncode != 0), (python, lines, run.stderr[-2000:])
