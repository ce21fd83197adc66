"""The compiler's cache as a file: what is left where it cannot be read, and where inductor's own folder is."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from torch.compiler._cache import CacheArtifactManager

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


@pytest.fixture
def compiled_code() -> Iterator[None]:
    """As a compilation records it in this process; of the kind of sizes that have changed, which needs no compiler."""
    with CacheArtifactManager.with_fresh_cache():
        CacheArtifactManager.record_artifact("pgo", "key", b"content")
        yield


def files_of(job: Job, ranks: Iterable[int]) -> list[str]:
    for rank in ranks:
        compiler_cache.save(dataclasses.replace(job, rank=rank, ranks=4, local_rank=rank % 2, local_ranks=2))
    return sorted(str(file.relative_to(job.checkpoints)) for file in job.checkpoints.rglob("*") if file.is_file())


@pytest.mark.usefixtures("compiled_code")
def test_each_local_rank_of_the_first_host_saves_one_file(job: Job) -> None:
    assert files_of(job, ranks=(2, 3)) == []
    assert files_of(job, ranks=(0, 1)) == ["compiler-cache/0.bin", "compiler-cache/1.bin"]


def test_what_was_not_compiled_is_not_saved(job: Job) -> None:
    with CacheArtifactManager.with_fresh_cache():
        assert files_of(job, ranks=range(4)) == []


@pytest.mark.usefixtures("compiled_code")
def test_a_file_that_is_cut_is_a_warning(job: Job) -> None:
    compiler_cache.save(job)
    file = job.checkpoints / "compiler-cache" / "0.bin"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.warns(UserWarning, match="0.bin has no compiled code that can be read"):
        compiler_cache.load(job)
