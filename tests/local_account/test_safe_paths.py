"""Folders that a job can write to, read and written while links come and go in them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sagemaker_local_account.core.safe_paths import JobFolder, UnsafePath

SECRET = b"what the person who runs the account has"
READS = 300


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "person").mkdir()
    (tmp_path / "person" / "keys").write_bytes(SECRET)
    return tmp_path / "person" / "keys"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job" / "model").mkdir(parents=True)
    return tmp_path / "job"


@pytest.mark.parametrize("path", ["../keys", "a/../../keys", "/etc/passwd", "a//b", ".", "a/.", "", "a\0b"])
def test_a_path_that_may_lead_out_is_refused(job: Path, path: str) -> None:
    with pytest.raises(OSError):
        JobFolder(job).open(path)
    with pytest.raises(UnsafePath):
        JobFolder(job).create(path)


def test_a_link_is_not_a_file(job: Path, secret: Path) -> None:
    (job / "model" / "link").symlink_to(secret)
    with pytest.raises(FileNotFoundError):
        JobFolder(job, "model").open("link")
    assert JobFolder(job, "model").files() == {}


def test_nothing_is_found_through_a_link_in_the_place_of_a_folder(job: Path, secret: Path) -> None:
    (job / "model" / "folder").symlink_to(secret.parent)
    with pytest.raises(FileNotFoundError):
        JobFolder(job, "model").open("folder/keys")
    assert [path for path, _ in JobFolder(job, "model").walk()] == ["folder"]


def test_a_folder_that_is_a_link_itself_is_refused(job: Path, secret: Path) -> None:
    (job / "model").rmdir()
    (job / "model").symlink_to(secret.parent)
    with pytest.raises(UnsafePath, match="in place of the folder 'model'"):
        list(JobFolder(job, "model").walk())
    with pytest.raises(UnsafePath):
        JobFolder(job, "model").create("keys")
    assert secret.read_bytes() == SECRET


def test_a_file_is_written_in_place_of_a_link_and_not_through_it(job: Path, secret: Path) -> None:
    (job / "model" / "link").symlink_to(secret)
    with JobFolder(job, "model").create("link") as file:
        file.write(b"new")
    assert (job / "model" / "link").read_bytes() == b"new"
    assert secret.read_bytes() == SECRET


def test_a_pipe_without_a_writer_is_not_waited_for(job: Path) -> None:
    os.mkfifo(job / "model" / "pipe")
    with pytest.raises(FileNotFoundError):
        JobFolder(job, "model").open("pipe")


def test_folders_within_each_other_without_an_end_are_refused(job: Path) -> None:
    os.makedirs(job / "model" / "/".join(["a"] * 300))
    with pytest.raises(UnsafePath, match="at most 200"):
        list(JobFolder(job, "model").walk())


class Swapping:
    """A thread that puts a link in the place of a file or folder and takes it away again, until it is stopped."""

    def __init__(self, path: Path, target: Path, *, folder: bool) -> None:
        self._path, self._target, self._folder = path, target, folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def _swap(self) -> None:
        kept = self._path.with_name("kept")
        link = self._path.with_name("link")
        while not self._stop.is_set():
            link.symlink_to(self._target)
            if self._folder:
                os.rename(self._path, kept)
                self._replace(link)
                self._path.unlink()
                self._replace(kept)
            else:
                os.link(self._path, kept)
                os.replace(link, self._path)
                os.replace(kept, self._path)

    def _replace(self, new: Path) -> None:
        """Also where the account has made the folder again meanwhile."""
        while True:
            try:
                return os.rename(new, self._path)
            except OSError:
                # The account may create files in it or rename them at the same time.
                shutil.rmtree(self._path, ignore_errors=True)

    def __enter__(self) -> Swapping:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture(params=["file", "folder"])
def swapping(job: Path, secret: Path, request: pytest.FixtureRequest) -> Iterator[JobFolder]:
    """The folder `model`, in which `folder/keys` is always the job's own, but for the links that come and go."""
    (job / "model" / "folder").mkdir()
    (job / "model" / "folder" / "keys").write_bytes(b"the job's own")
    of_folder = request.param == "folder"
    path = job / "model" / "folder" if of_folder else job / "model" / "folder" / "keys"
    with Swapping(path, secret.parent if of_folder else secret, folder=of_folder):
        yield JobFolder(job, "model")


def test_a_link_that_is_swapped_in_while_the_account_reads_is_never_followed(swapping: JobFolder) -> None:
    read = []
    for _ in range(READS):
        try:
            with swapping.open("folder/keys") as file:
                read.append(file.read())
        except FileNotFoundError:
            read.append(b"")
        for path, _ in swapping.walk():
            assert path.rpartition("/")[2] in ("folder", "keys", "kept", "link")
    assert set(read) <= {b"the job's own", b""}


def test_a_link_that_is_swapped_in_while_the_account_writes_is_never_followed(
    swapping: JobFolder, secret: Path
) -> None:
    for _ in range(READS):
        try:
            with swapping.create("folder/new") as file:
                file.write(b"new")
        except (FileNotFoundError, UnsafePath):
            pass
    assert [path.name for path in secret.parent.iterdir()] == ["keys"]
    assert secret.read_bytes() == SECRET


NAMES = st.sampled_from(["a", "b", "keys", "..", ".", "", "link", "é", "a b", "-rf", "\n"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
# What a job has made: links at paths, to where they point.
TARGETS = st.sampled_from(["person", "person/keys", "..", "../..", "/", "job", "job/model", "a", "link"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.dictionaries(NAMES.filter(lambda name: name not in ("", ".", "..")), TARGETS, max_size=3), path=PATHS)
def test_no_path_through_any_links_reads_or_writes_outside(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str], path: str
) -> None:
    top = tmp_path_factory.mktemp("top")
    (top / "person").mkdir()
    (top / "person" / "keys").write_bytes(SECRET)
    model = top / "job" / "model"
    (model / "a").mkdir(parents=True)
    (model / "a" / "keys").write_bytes(b"own")
    for name, target in links.items():
        if not os.path.lexists(model / name):
            (model / name).symlink_to(top / target)
    folder = JobFolder(top / "job", "model")
    try:
        with folder.open(path) as file:
            assert file.read() == b"own"
    except (FileNotFoundError, UnsafePath):
        pass
    try:
        with folder.create(path) as file:
            file.write(b"own")
    except OSError:
        pass
    assert {str(found.relative_to(top)) for found in top.rglob("*") if not found.is_relative_to(model)} == {
        "person", "person/keys", "job"
    }  # fmt: skip
    assert (top / "person" / "keys").read_bytes() == SECRET
