"""The data of the apps that `training-jobs init` writes, as the training code reads it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdk_sagemaker_training.cli.apps import APPS, write_app

READ = {
    "compiled": "from model import Text; read = Text(folder, 128)",
    "data-parallel": "from train import points; read = points(folder)[1]",
    "model-parallel": "from model import text; read = text(folder, 10_000)",
    "huggingface": "from token_shards import TokenShards; read = TokenShards(folder, 64)",
}


@pytest.mark.parametrize("kind", READ)
def test_the_training_code_of_an_app_reads_its_data(kind: str, tmp_path: Path) -> None:
    write_app(kind, tmp_path)
    code = tmp_path / "training_code"
    program = f"import pathlib, sys; folder = pathlib.Path(sys.argv[1]); {READ[kind]}; assert len(read) >= 1000"
    environment = {**os.environ, "PYTHONPATH": f"{code / APPS[kind].folder}:{code}"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
