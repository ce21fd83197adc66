"""Quick starts of libraries, as one types them: `init --from-script`, `local up`, `start`, and nothing edited.

Their packages come from the index that pip is configured with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.soak
SCRIPTS = Path(__file__).parent / "quick_starts"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """In which image environments are shared between accounts."""
    programs = str(Path(sys.prefix) / "bin")
    venvs = str(tmp_path_factory.mktemp("venvs"))
    own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**own, "PATH": f"{programs}:{own['PATH']}", "SAGEMAKER_LOCAL_ACCOUNT_VENVS": venvs}


@pytest.fixture
def app(tmp_path: Path, environment: dict[str, str]) -> Iterator[Path]:
    yield tmp_path / "app"
    subprocess.run(["training-jobs", "local", "stop"], cwd=tmp_path / "app", env=environment, check=True)


@pytest.mark.parametrize(
    ("name", "arguments", "requirements", "model"),
    [
        ("lightning", [], ["lightning"], []),
        ("accelerate", [], ["accelerate"], []),
        ("xgboost", ["--set", "n_estimators=4"], ["scikit-learn", "xgboost"], ["model.json"]),
        ("huggingface_trainer", ["--set", "num_train_epochs=2"], ["transformers[torch]"], ["model.safetensors"]),
        ("keras", [], ["scikit-learn"], ["model.keras"]),
        ("trl", [], ["datasets", "tokenizers", "transformers[torch]", "trl"], ["model.safetensors"]),
    ],
)
def test_a_quick_start_trains_as_it_is(
    name: str,
    arguments: list[str],
    requirements: list[str],
    model: list[str],
    app: Path,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    shutil.copytree(SCRIPTS / name, tmp_path / "code")

    def typed(*words: str, within: Path) -> str:
        done = subprocess.run(
            ["training-jobs", *words],
            cwd=within,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    typed("init", "--from-script", "code/train.py", "app", within=tmp_path)
    assert (tmp_path / "code" / "requirements.txt").read_text().split() == requirements
    typed("local", "up", within=app)
    assert "SUCCEEDED" in typed("start", "--follow", *arguments, within=app)
    if model:
        typed("download", "--to", "model", within=app)
        assert set(model) <= {path.name for path in (app / "model").rglob("*")}
