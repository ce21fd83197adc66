import json
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdk_sagemaker_training import training_code_path
from training_jobs.cli.apps import APPS
from training_jobs.cli.main import app


def init(kind: str, directory: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["init", kind, str(directory)])
    return result.exit_code, result.output


def test_the_training_code_is_where_its_path_says() -> None:
    assert (Path(training_code_path()) / "heterogeneous" / "Dockerfile").is_file()
    assert (Path(training_code_path("heterogeneous")) / "train.py").is_file()


def test_a_kind_that_is_not_packaged_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        ValueError, match=r"kind must be one whose training code is packaged, like 'compiled' of .*'serial'"
    ):
        training_code_path("serial")


# The apps of the other kinds are made by the same function, and synthesized by soak.
KINDS = ("heterogeneous", "huggingface")


@pytest.mark.parametrize(
    "kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.soak) for kind in APPS if kind not in KINDS)]
)
def test_init_writes_an_app_that_synthesizes(kind: str, tmp_path: Path) -> None:
    code, output = init(kind, tmp_path / "mine")
    assert code == 0, output
    assert json.loads((tmp_path / "mine" / "cdk.json").read_text()) == {"app": "python3 app.py"}
    # The process of jsii, which finds assets, keeps the folder that it was started in.
    app = tmp_path / "mine" / "app.py"
    text = app.read_text()
    for name in ("data/", "training_code"):
        text = text.replace(f'"{name}', f'"{tmp_path}/mine/{name}')
    app.write_text(text)
    assembly = Path(runpy.run_path(str(app))["app"].synth().directory)
    [template] = assembly.glob("*Training.template.json")
    assert "createTrainingJob" in template.read_text()
    assert [asset for asset in assembly.glob("asset.*") if (asset / APPS[kind].folder / "train.py").is_file()]
    # What its images, and those of the examples beside it, are built from is all in the folder that was written.
    context = tmp_path / "mine" / "training_code"
    copies = [
        line.split()[1:-1]
        for dockerfile in context.rglob("Dockerfile*")
        for line in dockerfile.read_text().replace("\\\n", " ").splitlines()
        if line.startswith("COPY ")
    ]
    assert copies
    assert [part for parts in copies for part in parts if not (context / part).exists()] == []


def test_an_app_has_what_its_image_is_built_from_and_what_its_readme_names(tmp_path: Path) -> None:
    init("huggingface", tmp_path / "huggingface")
    init("data-parallel", tmp_path / "plain")
    assert (
        tmp_path / "huggingface" / "training_code" / "model_parallel" / "huggingface" / "prepare_tokens.py"
    ).is_file()
    written = {path.name for path in (tmp_path / "plain" / "training_code" / "data_parallel").iterdir()}
    assert written == {"Dockerfile", "requirements.txt", "train.py"}


def test_the_spelling_of_a_kind_with_an_underscore_is_the_same(tmp_path: Path) -> None:
    assert [init("model_parallel", tmp_path / "one")[0], init("model-parallel", tmp_path / "other")[0]] == [0, 0]
    written = [(tmp_path / name / "app.py").read_text() for name in ("one", "other")]
    assert written[0] == written[1]


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("kept")
    code, output = init("heterogeneous", tmp_path)
    assert code != 0
    assert "directory must have no app.py" in " ".join(output.replace("\u2502", "").split())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("app.py", "kept")]


def test_init_of_an_unknown_kind_says_which_there_are(tmp_path: Path) -> None:
    code, output = init("serial", tmp_path / "mine")
    assert code != 0
    assert "heterogeneous" in output
    assert not (tmp_path / "mine").exists()
