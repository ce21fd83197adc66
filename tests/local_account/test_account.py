"""The account's life in a process, and the environment that it gives to commands."""

import os
import socket
import stat
import threading
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core.state import AccountError


def test_a_closed_account_leaves_no_process_no_thread_and_no_port(tmp_path: Path) -> None:
    # What other modules of this process have left may end meanwhile.
    processes, threads = set(psutil.Process().children()), set(threading.enumerate())
    with LocalAccount(state=tmp_path) as account:
        port = urlsplit(account.endpoint_url).port
    assert set(psutil.Process().children()) <= processes
    assert set(threading.enumerate()) <= threads
    with socket.socket() as free:
        assert free.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("kind", [Path, str])
def test_the_state_folder_is_its_owners_only(tmp_path: Path, kind: type) -> None:
    with LocalAccount(state=kind(tmp_path / "state")):
        assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700


def test_two_accounts_on_one_folder_are_refused(tmp_path: Path) -> None:
    with LocalAccount(state=tmp_path), pytest.raises(AccountError):
        LocalAccount(state=tmp_path).start()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(AccountError, match=f"cannot bind 127.0.0.1:{port}"):
            LocalAccount(state=tmp_path, port=port).start()


def test_nothing_that_leads_elsewhere_gets_into_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3", "HTTPS_PROXY", "CDK_CONTEXT_JSON"):
        monkeypatch.setenv(name, "elsewhere")
    with LocalAccount(state=tmp_path) as account:
        assert "elsewhere" not in account.environment().values()


def test_the_process_has_its_own_variables_back_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    before = dict(os.environ)
    with LocalAccount(state=tmp_path):
        assert "AWS_PROFILE" not in os.environ
    assert dict(os.environ) == before


def test_devices_of_a_type_that_is_not_known_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"instance_type must be one whose accelerators are known"):
        LocalAccount(state=tmp_path, devices={"ml.g5.tiny": 1}).start()


def test_an_account_removes_the_file_systems_of_the_one_before(tmp_path: Path) -> None:
    left = tmp_path / "file-systems" / "fs-0123456789abcdef0"
    left.mkdir(parents=True)
    with LocalAccount(state=tmp_path):
        assert not left.exists()
