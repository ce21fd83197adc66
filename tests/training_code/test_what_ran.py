"""docs/what-ran.md is what the markers beside the code say, and the markers name tests that there are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import cdk_sagemaker_training as library

ROOT = Path(__file__).parents[2]
WRITTEN = runpy.run_path(str(ROOT / "docs" / "what_ran.py"))
ROWS = [*WRITTEN["rows"]()]
LAUNCHERS = {"Torchrun", "Mpi", "SmDdp", "PyTorchDdp", "Ray", "MultiWorkerMirrored", "ParameterServer"}
COMPILERS = {"TorchCompile", "TorchXla", "TensorFlowXla", "Neuron", "TrainingCompiler"}
VALUES = {*LAUNCHERS, *COMPILERS, "NativeParallelism", "SmpV1", "SmpV2"}


def test_the_page_is_what_the_markers_say() -> None:
    assert WRITTEN["PAGE"].read_text() == WRITTEN["page"](), "run `make docs`"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_marker_has_its_five_columns_and_names_tests_that_there_are(row: list[str]) -> None:
    assert len(row) == 6, "WHAT | CPU | ACCOUNT | GPU | AWS"
    _, cpu, account, gpu, aws, _ = row
    for column, folders in ((cpu, ("training_code", "constructs")), (account, ("end_to_end", "examples"))):
        named = re.findall(r"test_\w+", column)
        assert named or column == "no"
        for name in named:
            [file] = [path for folder in folders if (path := ROOT / "tests" / folder / f"{name}.py").is_file()][:1]
            assert "(soak)" not in column or "mark.soak" in file.read_text()
    assert all(column for column in (gpu, aws))


def test_each_script_that_trains_has_a_marker() -> None:
    scripts = {str(path.relative_to(ROOT)) for path in (ROOT / "training_code").rglob("train.py")}
    assert scripts <= {row[-1] for row in ROWS}


def test_each_launcher_compiler_and_parallelism_has_a_marker() -> None:
    assert all(hasattr(library, name) for name in VALUES)
    marked = {name for row in ROWS for name in re.findall(r"`(\w+)\(\)`", row[0])}
    assert marked == VALUES
