"""A user's app under pyright and mypy, both strict: the README's stack, docs/extending.md, and every value for its protocol."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What the snippets of docs/extending.md have around them.
AROUND = """from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3

from cdk_sagemaker_training import (
    Advice,
    Attempt,
    CompiledJob,
    DataParallelJob,
    Feature,
    InstanceGroup,
    JobRequest,
    S3Prefix,
    Seam,
    TrainingImage,
    TrainingJob,
    TrainingWorkflow,
    default_retries,
)

stack = cdk.Stack(cdk.App(), "Stack")
bucket = s3.Bucket(stack, "Bucket")
image = TrainingImage.from_dlc(stack, "Image", "pytorch", "2.13-cpu-amzn2023-sagemaker")
"""
VALUES = """import cdk_sagemaker_training as t

GPU = t.InstanceGroup("ml.g5.xlarge")
launchers: list[t.Launcher] = [
    t.Mpi(), t.MultiWorkerMirrored(), t.ParameterServer(), t.PyTorchDdp(), t.PyTorchXla(), t.Ray(), t.SmDdp(), t.Torchrun()
]
compilers: list[t.Compiler] = [t.TensorFlowXla(), t.TorchCompile(), t.TorchXla(), t.TrainingCompiler()]
parallelisms: list[t.Parallelism] = [t.NativeParallelism(), t.SmpV1({}), t.SmpV2()]
jobs: list[t.TrainingJob] = [
    t.DataParallelJob(GPU),
    t.CompiledJob(GPU, compiler=t.TorchCompile()),
    t.ModelParallelJob(GPU, parallelism=t.NativeParallelism()),
    t.HeterogeneousJob(groups={"data": GPU}, train=t.DataParallelJob(GPU), train_group="train"),
]
"""
WRONG = 'import cdk_sagemaker_training as t\n\nt.DataParallelJob(t.InstanceGroup("ml.g5.xlarge"), launcher=t.TorchCompile())\n'


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A folder with the app's files, and the checkers' configurations."""
    [readme, *_] = re.findall(r"```python\n(import aws_cdk.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL)
    files = {"app.py": readme, "extending.py": "\n".join([AROUND, *snippets]), "values.py": VALUES}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "constructs")]})
    )
    return tmp_path


@pytest.mark.soak  # pyright reads aws_cdk for ten seconds, and is fetched from npm
def test_pyright_has_nothing_to_say_of_an_app_and_names_a_wrong_value(
    app: Path, programs_of: Callable[[Path], Path]
) -> None:
    pyright = programs_of(ROOT / "requirements-release.txt") / "pyright"
    command = [str(pyright), "--pythonpath", sys.executable]
    said = subprocess.run(command, cwd=app, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    assert "0 errors" in said.stdout
    (app / "values.py").write_text(WRONG)
    refused = subprocess.run(command, cwd=app, capture_output=True, text=True)
    assert refused.returncode == 1
    assert '"TorchCompile" is incompatible with protocol "Launcher"' in refused.stdout


@pytest.mark.soak  # mypy reads aws_cdk for a minute
def test_mypy_has_nothing_to_say_of_an_app_and_names_a_wrong_value(app: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "app.py",
        "values.py",
        "extending.py",
    ]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "constructs")}
    said = subprocess.run(command, cwd=app, env=environment, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
    (app / "values.py").write_text(WRONG)
    refused = subprocess.run(command, cwd=app, env=environment, capture_output=True, text=True)
    assert refused.returncode == 1
    assert 'expected "Launcher | None"' in refused.stdout
