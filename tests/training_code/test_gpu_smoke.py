"""The commands of benchmarks/gpu_smoke.py run on a CPU, against which it compares GPUs."""

from __future__ import annotations

import math
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SMOKE: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "gpu_smoke.py"))
IMAGES = ROOT / "training_code" / "heterogeneous" / "images"


def test_each_script_of_pytorch_that_has_run_on_a_gpu_or_computes_in_fp16_has_a_row() -> None:
    scripts = {name.partition(" ")[0] for name in SMOKE["KINDS"]}
    assert scripts == {
        "compiled/train.py",
        "data_parallel/train.py",
        "model_parallel/train.py",
        "model_parallel/huggingface/train.py",
        "heterogeneous/train.py",
        "heterogeneous/images/train.py",
    }


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_images_are_trained_on_by_the_command_that_is_compared(precision: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, IMAGES / "make_images.py", tmp_path, "--images", "400"], check=True)
    arguments = f"{SMOKE['SMALL_IMAGES']} --precision {precision}"
    printed = SMOKE["run"]("heterogeneous/images/train.py", arguments, gpus=0, channels={"train": tmp_path / "train"})
    losses = SMOKE["losses"](printed)
    assert len(losses) == 4
    assert all(math.isfinite(loss) for loss in losses)
    assert SMOKE["last"](r"images/s (\d+)", printed) is not None
