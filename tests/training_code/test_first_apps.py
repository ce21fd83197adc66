"""The data of the apps that `training-jobs init` writes, as the training code reads it."""

import os
from pathlib import Path

import pytest
from preloaded import start

from training_jobs.cli.apps import APPS, write_app

READ = {
    "compiled": "from text import Text; read = Text(folder, 128)",
    "data-parallel": "from train import points; read = points(folder)[1]",
    "model-parallel": "from model import text; read = text(folder, 10_000)",
    "huggingface": "from token_shards import TokenShards; read = TokenShards(folder, 64)",
}


@pytest.mark.parametrize("kind", READ)
def test_the_training_code_of_an_app_reads_its_data(kind: str, tmp_path: Path) -> None:
    write_app(kind, tmp_path)
    code = tmp_path / "training_code"
    script = tmp_path / "read_it.py"
    script.write_text(
        f"import pathlib, sys; folder = pathlib.Path(sys.argv[1]); {READ[kind]}; assert len(read) >= 1000"
    )
    environment = {**os.environ, "PYTHONPATH": f"{code / APPS[kind].folder}:{code}"}
    with start([script, tmp_path / "data"], cwd=tmp_path, env=environment) as program:
        printed, _ = program.communicate()
    assert program.wait() == 0, printed
