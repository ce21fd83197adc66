from pathlib import Path

import aws_cdk as cdk
import pytest
from typer.testing import CliRunner

from cdk_sagemaker_training import TrainingImage, training_code_path
from cdk_sagemaker_training.cli import app


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


def test_init_copies_a_kind_and_what_it_shares_into_a_folder_that_an_image_is_built_from(tmp_path: Path) -> None:
    code, _ = init("heterogeneous", tmp_path / "mine")
    assert code == 0
    assert (tmp_path / "mine" / "common" / "job.py").is_file()
    TrainingImage(
        cdk.Stack(), "Image", directory=str(tmp_path / "mine"), file="heterogeneous/Dockerfile", builder="docker"
    )


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    code, output = init("heterogeneous", tmp_path)
    assert code != 0
    assert "directory must be new or empty" in output
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


def test_init_of_an_unknown_kind_says_which_there_are(tmp_path: Path) -> None:
    code, output = init("serial", tmp_path / "mine")
    assert code != 0
    assert "'heterogeneous'" in output
