"""Files of the state folder that are cut: each is named with what to do, and what is sound is kept."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sagemaker_local_account.core.atomic_files import is_disk_full
from sagemaker_local_account.core.image_names import ImageError
from sagemaker_local_account.core.state import AccountError, running_account
from sagemaker_local_account.images.docker_logins import DockerLogins
from sagemaker_local_account.runtime import leftovers
from sagemaker_local_account.runtime.pod import HostError, _likely_reason
from sagemaker_local_account.runtime.supervisor import _check

if TYPE_CHECKING:
    from conftest import Builds

COMMAND = str(Path(sys.prefix) / "bin" / "local-account")
NAME = "123456789012.dkr.ecr.us-east-1.amazonaws.com/jobs:1"
CUTS = [pytest.param(0, id="empty"), pytest.param(0.5, id="half"), pytest.param(-1, id="all but its last character")]


def cut(file: Path, left: float) -> None:
    text = file.read_text().rstrip()
    file.write_text(text[: round(len(text) * left)] if left >= 0 else text[:-1])


@pytest.mark.parametrize("left", CUTS)
def test_an_account_starts_where_the_description_of_a_killed_one_is_damaged(tmp_path: Path, left: float) -> None:
    description = tmp_path / "account.json"
    description.write_text('{"pid": 1234, "port": 1}')
    (tmp_path / "jobs" / "us-east-1" / "digits").mkdir(parents=True)
    cut(description, left)
    lost = leftovers.losses(tmp_path)
    assert lost is not None
    assert lost.startswith(
        f"the previous account on {tmp_path} (whose description {description} is damaged) was killed."
    )
    assert "training job digits" in lost
    assert running_account(tmp_path) is None


@pytest.mark.parametrize("left", CUTS)
def test_a_damaged_description_of_an_account_that_runs_is_named_with_how_to_end_it(tmp_path: Path, left: float) -> None:
    program = (
        "import sys; from pathlib import Path; from sagemaker_local_account.core.state import lock\n"
        "held = lock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    (tmp_path / "account.json").write_text('{"pid": 1}')
    cut(tmp_path / "account.json", left)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(AccountError) as error:
            running_account(tmp_path)
        owner.communicate()
    assert str(error.value).startswith(f"{tmp_path / 'account.json'} is damaged (")
    assert f"the account of process {owner.pid} runs there: `kill {owner.pid}` ends it" in str(error.value)


def test_a_description_of_another_release_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "account.json").write_text('{"pid": 1, "of_the_future": true}')
    assert running_account(tmp_path) is None  # nobody holds the lock
    lost = leftovers.losses(tmp_path)
    assert lost is not None
    assert "(process 1) was killed" in lost


@pytest.mark.parametrize("left", CUTS)
def test_a_damaged_image_is_named_and_made_again_by_a_build(builds: Builds, left: float) -> None:
    image = builds.build("ENV A=1", tags=(NAME,))
    builds.store.push(NAME)
    file = image.root.parent / "image.json"
    cut(file, left)
    with pytest.raises(ImageError) as error:
        builds.store.resolve(NAME)
    assert str(error.value).startswith(f"{file} is damaged (")
    assert f"rm {file}" in str(error.value)
    other = builds.build("ENV A=2")
    assert builds.store.inspect(other.id) is not None
    assert builds.build("ENV A=1", tags=(NAME,)).id == image.id
    assert builds.store.resolve(NAME).env["A"] == "1"


@pytest.mark.parametrize("left", CUTS)
def test_a_damaged_name_of_an_image_is_named_and_made_again_by_a_push(builds: Builds, left: float) -> None:
    builds.build("ENV A=1", tags=(NAME,))
    builds.store.push(NAME)
    [file] = (builds.state / "images" / "registry").glob("*.json")
    cut(file, left)
    with pytest.raises(ImageError, match=f"{file} is damaged"):
        builds.store.resolve(NAME)
    builds.store.push(NAME)
    assert builds.store.resolve(NAME).env["A"] == "1"


def test_an_environment_whose_python_is_gone_is_made_again(builds: Builds) -> None:
    python = builds.build().python / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    assert (builds.build().python / "bin" / "python").exists()


def test_damaged_logins_are_named(tmp_path: Path) -> None:
    logins = DockerLogins(tmp_path)
    logins._file.parent.mkdir(parents=True, exist_ok=True)
    logins._file.write_text('{"a')
    with pytest.raises(ImageError, match=r"is damaged .*delete it, and log in again: rm "):
        logins._content()


def test_a_limit_of_namespaces_is_not_called_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.ENOSPC)
    with pytest.raises(OSError, match="unshare") as error:  # as unshare(2) fails at a limit
        _check(-1, "unshare")
    failure = f"the network could not be started: {error.value}"
    assert not is_disk_full(HostError(failure))
    assert is_disk_full(HostError(f"algo-1 could not be started: mkdir: {os.strerror(errno.ENOSPC)}"))
    assert _likely_reason(failure).startswith("; no disk is full: a limit of namespaces is reached")
    assert "user.max_user_namespaces " in _likely_reason(failure)
