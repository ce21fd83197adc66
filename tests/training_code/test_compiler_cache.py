"""The compiler's cache as a file: what is left where it cannot be read, and where inductor's own folder is."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common import compiler_cache
from common.job import Job


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job.here({"SM_MODEL_DIR": str(tmp_path / "model")})


def test_without_a_file_nothing_is_loaded(job: Job, recwarn: pytest.WarningsRecorder) -> None:
    compiler_cache.load(job)
    assert not recwarn


@pytest.mark.parametrize("content", [b"", b"not a cache", bytes(1000)])
def test_a_file_that_is_damaged_is_a_warning(job: Job, content: bytes) -> None:
    file = job.checkpoints / "compiler-cache" / "0.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="0.bin has no compiled code that can be read: the model is compiled again"):
        compiler_cache.load(job)


@pytest.mark.parametrize(("below", "kept"), [("checkpoints/compiler-cache", False), ("elsewhere", True)])
def test_inductors_own_folder_is_not_among_what_is_uploaded(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str, kept: bool
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / below))
    compiler_cache.load(job)
    assert ("TORCHINDUCTOR_CACHE_DIR" in os.environ) is kept


def test_what_was_not_compiled_is_not_saved(job: Job) -> None:
    for rank, local_rank in ((0, 0), (1, 1), (2, 0)):
        compiler_cache.save(dataclasses.replace(job, rank=rank, ranks=4, local_rank=local_rank, local_ranks=2))
    assert not job.checkpoints.exists()
