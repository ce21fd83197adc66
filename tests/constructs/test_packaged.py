import json
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdk_sagemaker_training import training_code_path
from cdk_sagemaker_training.cli.main import app


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


@pytest.mark.parametrize("kind", ["data-parallel", "heterogeneous", "compiled", "model-parallel"])
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
    folder = kind.replace("-", "_")
    assert [asset for asset in assembly.glob("asset.*") if (asset / folder / "train.py").is_file()]


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
