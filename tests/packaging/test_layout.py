"""The layers of the code: what import-linter's contracts leave to be shown."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "cdk_sagemaker_training": ROOT / "constructs" / "cdk_sagemaker_training",
    "training_jobs": ROOT / "training_jobs" / "training_jobs",
    "sagemaker_local_account": ROOT / "local_account" / "sagemaker_local_account",
}
CDK = ("aws_cdk", "constructs", "jsii")
SECTIONS = ["Config", "Data", "Model", "Step", "Run"]  # of each train.py, in this order


def folders(package: str) -> set[str]:
    root = PACKAGES[package]
    files = {path for path in root.rglob("*.py") if path.parent.name != "torch_scripts"}  # which are data
    return {".".join((package, *path.parent.relative_to(root).parts)) for path in files}


def functions(path: Path) -> Iterator[tuple[ast.FunctionDef, int]]:
    """The functions of a file, and how many lines of code each has, without documentation, comments and empty lines."""
    lines = path.read_text().splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.FunctionDef):
            documented = node.body[0].end_lineno if ast.get_docstring(node) else None
            skipped = range(node.body[0].lineno, (documented or 0) + 1)
            own = [lines[n - 1].strip() for n in range(node.lineno, (node.end_lineno or 0) + 1) if n not in skipped]
            yield node, sum(bool(line) and not line.startswith("#") for line in own)


def test_no_function_of_the_constructs_has_more_than_80_lines_of_code_and_no_folder_more_than_16_files() -> None:
    root = PACKAGES["cdk_sagemaker_training"]
    assert [
        (path.name, node.name) for path in root.rglob("*.py") for node, lines in functions(path) if lines > 80
    ] == []
    assert {
        folder.name: number
        for folder in (root, *filter(Path.is_dir, root.rglob("*")))
        if (number := len([*folder.glob("*.py")])) > 16
    } == {}


def test_what_takes_more_than_eight_parameters_creates_a_construct() -> None:
    many = [
        (path.name, node.name)
        for path in PACKAGES["cdk_sagemaker_training"].rglob("*.py")
        for node, _ in functions(path)
        if len([*node.args.args, *node.args.kwonlyargs]) > 9 and "scope" not in [one.arg for one in node.args.args]
    ]
    assert many == []


def test_no_files_of_the_constructs_import_each_other_in_a_circle() -> None:
    root = PACKAGES["cdk_sagemaker_training"]
    names = {".".join((root.name, *path.relative_to(root).with_suffix("").parts)): path for path in root.rglob("*.py")}
    imports = {
        name: {
            found
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.ImportFrom) and node.module
            for found in (node.module, *(f"{node.module}.{one.name}" for one in node.names))
            if found in names
        }
        for name, path in names.items()
    }
    assert [*TopologicalSorter(imports).static_order()]  # raises CycleError, which has the circle


def test_the_training_code_imports_none_of_the_packages() -> None:
    importers = [
        path.relative_to(ROOT)
        for path in (ROOT / "training_code").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        if name.split(".")[0] in PACKAGES
    ]
    assert importers == []


def test_each_script_finds_what_it_imports_from_another() -> None:
    """mypy reads the packages alone, and a benchmark may run once in a month."""
    scripts = {
        *ROOT.glob("*.py"),
        *(one for name in ("benchmarks", "docs", "examples") for one in ROOT.glob(f"{name}/**/*.py")),
    }
    missing = []
    for path in scripts:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            module = node.module.replace(".", "/")
            places = (path.parent, ROOT, ROOT / "training_code", PACKAGES["training_jobs"] / "torch_scripts")
            files = [place / f"{module}.py" for place in places]
            files.insert(0, ROOT / "training_code" / module / "__init__.py")  # data_service, before the benchmark of it
            if found := next((one for one in files if one.exists()), None):
                text = found.read_text()
                names = [one.name for one in node.names if one.name != "*"]
                missing += [(path.name, name) for name in names if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_a_workflow_its_features_and_the_lifecycle_of_its_jobs_can_be_read_in_5000_lines() -> None:
    root = ROOT / "constructs" / "cdk_sagemaker_training"
    files = [path for folder in ("workflow", "features", "lifecycle") for path in (root / folder).rglob("*.py")]
    assert 4_000 < sum(len(path.read_text().splitlines()) for path in files) <= 5_000


def test_authorization_and_the_http_server_are_2300_lines_and_each_service_has_its_row_in_the_registry() -> None:
    """A folder of `aws/` without its row would be silent: its requests have no resource, its types are unknown."""
    account = PACKAGES["sagemaker_local_account"]
    files = [path for name in ("iam", "http") for path in (account / name).glob("*.py")]
    assert sum(len(path.read_text().splitlines()) for path in files) <= 2_300
    row = (account / "aws" / "registry.py").read_text()
    for part in ("authorization", "resources"):
        folders = {path.parent.name for path in (account / "aws").glob(f"*/{part}.py")}
        assert folders == set(re.findall(rf"from sagemaker_local_account\.aws\.(\w+) import {part}\b", row))


def test_all_training_code_can_be_read_in_10330_lines_what_loops_share_in_1100_and_each_script_in_300_or_150() -> None:
    """The loss, the order of samples and the checkpoints of all scripts, and 220 lines of them for TensorFlow's."""
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / "training_code").rglob("*.py")}
    assert sum(lines.values()) <= 10_330
    common = {path.name: count for path, count in lines.items() if path.parent.name == "common"}
    assert sum(common.values()) <= 1_100
    assert sum(count for name, count in common.items() if name.startswith("tensorflow_")) <= 220
    assert {path.name for path, count in lines.items() if path.name.endswith("train.py") and count > 300} == set()
    assert lines[ROOT / "training_code" / "model_parallel" / "huggingface" / "train.py"] <= 150


def test_every_module_of_the_command_line_imports_without_the_cdk_the_constructs_and_moto() -> None:
    program = f"""
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys({[*CDK, "cdk_sagemaker_training", "moto", "sagemaker_local_account"]})
import training_jobs
for module in pkgutil.walk_packages(training_jobs.__path__, "training_jobs."):
    print(importlib.import_module(module.name).__name__)
"""
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert {name.rpartition(".")[0] for name in imported.split()} | {*imported.split()} >= folders("training_jobs")


def test_the_constructs_import_nothing_of_the_command_line_but_the_facts() -> None:
    program = "import sys; from cdk_sagemaker_training import *; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert {*CDK} <= {*imported.split()}
    assert {*imported.split()} & {"boto3", "botocore", "rich", "typer"} == set()
    ours = {name for name in imported.split() if name.startswith("training_jobs")}
    assert {name for name in ours if not name.startswith("training_jobs.facts")} == {"training_jobs"}


def test_the_wheel_of_the_constructs_has_every_folder() -> None:
    """setuptools finds those of the other two itself."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert {*named} - {"cdk_sagemaker_training.training_code"} == folders("cdk_sagemaker_training")


def test_each_train_py_has_the_same_five_sections() -> None:
    found = {
        path: re.findall(r"^# -- (\w+) -+$", path.read_text(), re.M)
        for path in (ROOT / "training_code").rglob("train.py")
    }
    assert len(found) >= 10
    assert {path.parent.name: names for path, names in found.items() if names != SECTIONS} == {}


def test_mypy_reads_each_module_of_aws_cdk_lib_that_the_constructs_import() -> None:
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    [read] = [{*one["module"]} for one in overrides if one.get("follow_imports") == "normal"]
    found = {
        name
        for path in PACKAGES["cdk_sagemaker_training"].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "aws_cdk"
        for name in [*(node.module or "").split(".")[1:2], *(one.name for one in node.names)]
        if name.startswith("aws_")
    }
    assert len(found) > 10
    assert {f"aws_cdk.{name}.*" for name in found} == {name for name in read if name.startswith("aws_cdk.aws_")}


def test_a_module_outside_the_layers_breaks_a_contract(tmp_path: Path) -> None:
    package = tmp_path / "rooms"
    (package / "core").mkdir(parents=True)
    for name in ("__init__.py", "core/__init__.py", "attic.py"):
        (package / name).write_text("")
    contract = next(
        one
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if one["id"] == "constructs"
    )
    (tmp_path / ".importlinter").write_text(
        "[importlinter]\nroot_package = rooms\n[importlinter:contract:layers]\nname = layers\ntype = layers\n"
        f"containers = rooms\nexhaustive = {contract['exhaustive']}\nlayers =\n    core\n"
    )
    checked = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 1
    assert "attic" in checked.stdout


def test_the_picture_shows_the_layers_and_imports_of_the_code(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, 'docs'); import draw_architecture as drawn\n"
        "print(drawn.beside([drawn.picture(one, drawn.layers(one), drawn.imports(one)) for one in drawn.SOURCES]), end='')"
    )
    drawn = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert drawn.stdout == (ROOT / "docs" / "architecture.svg").read_text(), "run `make docs`"
