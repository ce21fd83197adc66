"""Files of the account that are written as a whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from sagemaker_local_account.core import atomic_files


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("former")
    atomic_files.write(file, "new", mode=0o600)
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "file"
    file.write_text("former")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        atomic_files.write(file, "new")
    assert file.read_text() == "former"
    assert [*tmp_path.iterdir()] == [file]


def test_what_a_killed_writer_leaves_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".account.json.x1.partial").write_text('{"pid"')
    others = {tmp_path / ".hidden", tmp_path / "a.partial"}
    for other in others:
        other.touch()
    atomic_files.remove_partial(tmp_path)
    assert {*tmp_path.iterdir()} == others
