"""What compiled/compilers.py refuses, in a process that can import it as the image does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from compiled_program import FOLDER, TRAINING_CODE, Ended
from preloaded import start


def ended(tmp_path: Path, text: str) -> Ended:
    program = tmp_path / "program.py"
    program.write_text(text)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{TRAINING_CODE}:{FOLDER}"}
    with start([program], cwd=tmp_path, env=environment) as process:
        return Ended(process.wait(), process.communicate()[0])


@pytest.mark.parametrize(("xla_world", "ranks"), [(1, 2), (4, 2), (2, 1)])
def test_a_world_that_xla_sees_otherwise_is_refused(tmp_path: Path, xla_world: int, ranks: int) -> None:
    refused = ended(tmp_path, f"from compilers import check_world; check_world({xla_world}, {ranks})")
    assert refused.code == 1
    expected = f"--compiler xla needs XLA's world size to be WORLD_SIZE, got {xla_world} and {ranks}: "
    assert refused.output.startswith(expected), refused


def test_one_world_passes(tmp_path: Path) -> None:
    passed = ended(tmp_path, "from compilers import check_world; check_world(2, 2)")
    assert passed.code == 0, passed


def test_xla_without_torch_xla_is_refused_with_what_to_install(tmp_path: Path) -> None:
    refused = ended(tmp_path, "from common.job import Job; from compilers import Xla; Xla(Job.here({}))")
    assert refused.code == 1
    assert refused.output.rstrip().endswith("pip install torch==2.9.0 torch_xla==2.9.0"), refused
