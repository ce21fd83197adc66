"""The entry point of the images, in front of trees of processes such as AWS's containers have."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from cdk_sagemaker_training import training_code_path

ENTRYPOINT = Path(training_code_path()) / "entrypoint" / "entrypoint.py"
SECONDS = 60  # until a test that would hang fails
# What a training script does: it says when it can be stopped, and writes a checkpoint when it is.
SCRIPT = """
import signal, sys, time
def stop(*_):
    print("checkpoint" + "\\n", end="", flush=True)  # in one piece, beside other workers
    sys.exit({code})
signal.signal(signal.SIGTERM, stop)
print("training" + "\\n", end="", flush=True)
while True:
    time.sleep(0.01)
"""
# As the toolkit: no handler, and it waits for what it has started.
TOOLKIT = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"

Start = Callable[..., "Container"]


class Container:
    """The entry point with a command, as a process whose lines can be waited for."""

    def __init__(self, folder: Path, *command: str) -> None:
        environment = {"PATH": f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(ENTRYPOINT), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def until(self, line: str) -> None:
        while (found := self.line()) != line:
            assert found, f"it ended without {line!r}"

    def stop(self) -> tuple[int, list[str]]:
        """Send it SIGTERM; its exit code, and what was printed from then on."""
        self.process.send_signal(signal.SIGTERM)
        output = self.process.communicate(timeout=SECONDS)[0]
        return self.process.returncode, [line for line in output.splitlines() if not line.startswith("entrypoint:")]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    containers: list[Container] = []

    def start(*command: str) -> Container:
        containers.append(Container(tmp_path, *command))
        return containers[-1]

    yield start
    for container in containers:
        if container.process.poll() is None:
            for process in psutil.Process(container.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        container.process.kill()
        container.process.communicate()


@pytest.fixture
def script(tmp_path: Path) -> str:
    return write(tmp_path, "train.py", SCRIPT.format(code=0))


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_a_script_behind_bash_and_the_toolkit_gets_the_sigterm(start: Start, tmp_path: Path, script: str) -> None:
    write(tmp_path, "start.sh", f"python -c '{TOOLKIT}' python {script}\necho bash goes on\n")
    container = start("bash", "-m", "start.sh", "train")
    container.until("training")
    assert container.stop() == (0, ["checkpoint", "bash goes on"])


def test_the_scripts_exit_code_is_the_containers(start: Start, tmp_path: Path) -> None:
    script = write(tmp_path, "train.py", SCRIPT.format(code=42))
    container = start("python", "-c", TOOLKIT, "python", script)
    container.until("training")
    assert container.stop() == (42, ["checkpoint"])


def test_torchruns_workers_get_it_and_torchrun_ends_with_them(start: Start, script: str) -> None:
    container = start("bash", "-c", f"torchrun --nproc-per-node 2 {script}; echo torchrun ended with $?")
    container.until("training")
    container.until("training")
    code, lines = container.stop()
    assert (code, lines[-1]) == (0, "torchrun ended with 0"), lines
    assert lines.count("checkpoint") == 2


def test_workers_of_the_script_that_handle_it_too_do_not_get_it(start: Start, tmp_path: Path) -> None:
    workers = SCRIPT.format(code=0).replace('"checkpoint"', '"a worker ended"')
    begin = "import subprocess, sys; subprocess.Popen([sys.executable, 'worker.py'])"
    script = write(tmp_path, "train.py", f"{begin}\n{SCRIPT.format(code=0)}")
    write(tmp_path, "worker.py", workers)
    container = start("python", "-c", TOOLKIT, "python", script)
    container.until("training")
    container.until("training")
    pids = psutil.Process(container.process.pid).children(recursive=True)
    container.process.send_signal(signal.SIGTERM)
    container.process.wait(SECONDS)
    worker = pids[-1]
    assert worker.is_running()
    worker.kill()
    assert container.process.stdout is not None
    assert "a worker ended" not in container.process.stdout.read()


def test_a_script_without_a_handler_trains_on(start: Start, tmp_path: Path) -> None:
    script = write(tmp_path, "train.py", "print('training', flush=True)\nprint(input(), flush=True)")
    os.mkfifo(tmp_path / "more")
    container = start("sh", "-c", f"python {script} < more & exec 3> more; wait")
    container.until("training")
    container.process.send_signal(signal.SIGTERM)
    (tmp_path / "more").write_text("trained on\n")
    container.until("trained on")
    assert container.process.wait(SECONDS) == 0


def test_a_handler_that_comes_after_the_signal_is_called(start: Start, tmp_path: Path, script: str) -> None:
    os.mkfifo(tmp_path / "late")
    container = start("sh", "-c", f"echo loading; read word < late; exec python {script}")
    container.until("loading")
    container.process.send_signal(signal.SIGTERM)
    (tmp_path / "late").write_text("go\n")
    container.until("checkpoint")
    assert container.process.wait(SECONDS) == 0


def test_a_command_that_is_killed_ends_with_128_and_the_signal(start: Start) -> None:
    assert start("sh", "-c", "kill -9 $$").process.wait(SECONDS) == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_ends_with_127(start: Start) -> None:
    container = start("no-such-command", "train")
    assert container.line() == "entrypoint: no-such-command: No such file or directory"
    assert container.process.wait(SECONDS) == 127
