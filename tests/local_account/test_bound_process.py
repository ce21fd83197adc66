"""Processes that end with the account, and all that they have started."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from account_process import marked
from shell_jobs import AN_ERROR_RATHER_THAN_A_HANG

from sagemaker_local_account.core.bound_process import BoundProcess
from sagemaker_local_account.runtime import leftovers

CALLER = """
import sys
from sagemaker_local_account.core.bound_process import BoundProcess
from sagemaker_local_account.runtime import leftovers
from pathlib import Path
with leftovers.mark_in_use(Path(sys.argv[1])) as held:
    BoundProcess(["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 & wait"], keep_open=held).wait()
"""


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + AN_ERROR_RATHER_THAN_A_HANG
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_nothing_is_left_of_a_command_whose_caller_is_killed_when_its_folder_is_free(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with subprocess.Popen([sys.executable, "-c", CALLER, str(tmp_path)], env={**os.environ, "MARK": mark}) as caller:
        until(lambda: len(marked(mark)) == 5)  # caller, program, shell, two in sessions of their own
        assert leftovers.in_use(tmp_path)
        caller.kill()
    until(lambda: not leftovers.in_use(tmp_path))
    assert marked(mark) == set()


def test_what_a_command_leaves_running_ends_with_it() -> None:
    mark = uuid.uuid4().hex
    with BoundProcess(
        ["sh", "-c", "setsid sleep 1000 & echo out"], env={**os.environ, "MARK": mark}, stdout=subprocess.PIPE
    ) as process:
        assert process.run().stdout == b"out\n"
    assert marked(mark) == set()


def test_a_command_that_takes_too_long_is_ended_with_all_of_it() -> None:
    mark = uuid.uuid4().hex
    with BoundProcess(
        ["sh", "-c", "echo out; sleep 1000 & sleep 1000"],
        env={**os.environ, "MARK": mark},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        until(lambda: len(marked(mark)) == 4)
        with pytest.raises(subprocess.TimeoutExpired) as expired:
            process.run(timeout=0.5)
    assert expired.value.output == "out\n"
    assert marked(mark) == set()


@pytest.mark.parametrize(
    ("command", "code"), [("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM), ("kill -KILL $$", -signal.SIGKILL)]
)
def test_a_command_ends_as_by_itself(command: str, code: int) -> None:
    with BoundProcess(["sh", "-c", command]) as process:
        assert process.wait() == code


def test_a_command_that_is_not_there_says_so() -> None:
    with BoundProcess(["no-such-command"], stderr=subprocess.PIPE, text=True) as process:
        done = process.run()
    assert (done.returncode, done.stderr) == (127, "no-such-command: No such file or directory\n")
