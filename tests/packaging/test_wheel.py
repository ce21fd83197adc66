"""The published wheel, alone in an empty environment outside the clone."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = tmp_path_factory.mktemp("source")
    # A copy, since setuptools leaves its build folder beside the source.
    run(["git", "-C", str(ROOT), "checkout-index", "--all", f"--prefix={source}/"], source)
    run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)], folder)
    [file] = folder.glob("*.whl")
    return file


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


def test_the_wheel_holds_both_packages_and_the_training_code(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "cdk_sagemaker_training/__init__.py",
        "cdk_sagemaker_training/py.typed",
        "cdk_sagemaker_training/containers.json",
        "cdk_sagemaker_training/instances.json",
        "cdk_sagemaker_training/regions.json",
        "cdk_sagemaker_training/tested_batch_sizes.json",
        "cdk_sagemaker_training/training_code/common/job.py",
        "cdk_sagemaker_training/training_code/common/entrypoint.py",
        "cdk_sagemaker_training/training_code/heterogeneous/Dockerfile",
        "cdk_sagemaker_training/training_code/heterogeneous/train.py",
        "sagemaker_local_account/__init__.py",
        "sagemaker_local_account/py.typed",
    } <= names
    assert not [name for name in names if name.startswith(("tests", "constructs/"))]


def test_the_readmes_stack_synthesizes_and_trains_with_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "venv"], tmp_path)
    binaries = tmp_path / "venv" / "bin"
    # Python compiles what it imports, in place of all that is installed.
    install = [str(binaries / "pip"), "install", "--quiet", "--no-compile"]
    run([*install, "-c", str(ROOT / "requirements.txt"), f"{wheel}[local]"], tmp_path)
    [app] = re.findall(r"```python\n(import aws_cdk.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "app.py").write_text(app)
    (tmp_path / "cdk.json").write_text('{"app": "python app.py"}')
    (tmp_path / "train.py").write_text(TRAIN)
    said = run(
        [
            str(binaries / "local-account"),
            "run",
            "--",
            "sh",
            "-ec",
            "cdk bootstrap; cdk deploy --require-approval never --outputs-file outputs.json; python train.py",
        ],
        tmp_path,
        PATH=f"{binaries}:{ROOT}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin",
        PYTHONPATH="",
        PYTHONDONTWRITEBYTECODE="",
    )
    assert "\nSUCCEEDED None\n" in said
    assert re.search(r"\ns3://\S+/models/\S+/output/model\.tar\.gz\n", said)
