"""What ends the hosts of a job with tf.data service and keeps its processes alive, over real sockets and without TensorFlow."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.job import Job

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
FOLDER = TRAINING_CODE / "heterogeneous" / "tensorflow"
JOB = "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits"
TWO = ("algo-3", "algo-4")
GROUPS = {"data_group": ("algo-1", "algo-2"), "dnn_group": TWO}
LONG = 3600.0


def module(name: str, known_as: str) -> ModuleType:
    """A module of this kind under a name of its own, since other kinds have a `service` too."""
    spec = importlib.util.spec_from_file_location(known_as, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[known_as] = found
    spec.loader.exec_module(found)
    return found


end = module("end", "end")
service = module("service", "tensorflow_service")


@pytest.fixture
def data_host() -> Iterator[Any]:
    with end.End(TWO, JOB, heartbeat_timeout=LONG, host="127.0.0.1") as listening:
        yield listening


def say(data_host: Any, host: str, job: str = JOB, **words: Any) -> None:
    end.send(("127.0.0.1", data_host.port), {"job": job, "host": host, **words}, LONG)


def job_of(groups: dict[str, tuple[str, ...]]) -> Job:
    """The job as algo-3 sees it, which trains."""
    described = {name: {"hosts": list(hosts)} for name, hosts in groups.items()}
    return Job.here(
        {
            "SM_CURRENT_HOST": "algo-3",
            "SM_CURRENT_INSTANCE_GROUP": "dnn_group",
            "TRAINING_JOB_ARN": JOB,
            "SM_INSTANCE_GROUPS_DICT": json.dumps(described),
        }
    )


def program(text: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process with this kind's modules in reach."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{TRAINING_CODE}:{FOLDER}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_data_host_ends_when_every_training_host_is_done(data_host: Any) -> None:
    for host in TWO:
        say(data_host, host)
        say(data_host, host, done=True, error=None)
    data_host.wait()


def test_a_data_host_goes_on_while_one_training_host_is_not_done(data_host: Any) -> None:
    ended = threading.Event()

    def wait() -> None:
        data_host.wait()
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    say(data_host, "algo-3", done=True, error=None)
    say(data_host, "algo-4")
    assert not ended.is_set()
    say(data_host, "algo-4", done=True, error=None)
    waiting.join()
    assert ended.is_set()


def test_a_data_host_ends_with_the_error_of_a_training_host(data_host: Any) -> None:
    say(data_host, "algo-4", done=True, error="ValueError: no such digit")
    with pytest.raises(end.DataServiceError, match="the training host algo-4 failed: ValueError: no such digit"):
        data_host.wait()


def test_a_data_host_without_a_trainer_ends_with_an_error_that_names_it() -> None:
    with end.End(TWO, JOB, heartbeat_timeout=1.0, host="127.0.0.1") as alone:
        say(alone, "algo-3", done=True, error=None)
        with pytest.raises(end.DataServiceError, match="no heartbeat of the training host algo-4 for 1 s"):
            alone.wait()


def test_a_data_host_ends_when_a_process_of_its_own_cannot_be_kept_alive(data_host: Any) -> None:
    data_host.fail("the dispatcher ended 5 times")
    with pytest.raises(end.DataServiceError, match="the dispatcher ended 5 times"):
        data_host.wait()


def test_another_jobs_word_is_refused(data_host: Any) -> None:
    with pytest.raises(
        end.DataServiceError, match=r"127\.0\.0\.1 rejected the message: this data host serves another training job"
    ):
        say(data_host, "algo-3", job=JOB + "-2", done=True, error="wrong wires")
    for host in TWO:
        say(data_host, host, done=True, error=None)
    data_host.wait()


def test_the_word_of_a_host_that_does_not_train_is_refused(data_host: Any) -> None:
    with pytest.raises(end.DataServiceError, match="algo-9 is none of the hosts that train: algo-3, algo-4"):
        say(data_host, "algo-9", done=True, error=None)


@pytest.mark.parametrize("line", [b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b"\xff\n", b"", b"{" * 100_000])
def test_a_stranger_ends_nothing(data_host: Any, line: bytes) -> None:
    # An error where the data host has closed the connection at a line that is too long.
    with socket.create_connection(("127.0.0.1", data_host.port)) as stranger, contextlib.suppress(OSError):
        stranger.sendall(line)
        stranger.shutdown(socket.SHUT_WR)
    for host in TWO:
        say(data_host, host, done=True, error=None)
    data_host.wait()


def test_a_stranger_who_says_nothing_holds_up_nobody(data_host: Any) -> None:
    with socket.create_connection(("127.0.0.1", data_host.port)):
        for host in TWO:
            say(data_host, host, done=True, error=None)
        data_host.wait()


@pytest.fixture
def attended() -> Iterator[tuple[Any, Any]]:
    """A data host that hears algo-3, and the cluster of both. What stands for the dispatcher only takes connections."""
    with contextlib.ExitStack() as stack:
        while True:
            dispatcher = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = dispatcher.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):  # where the port after the next is taken
                hears = end.End(("algo-3",), JOB, heartbeat_timeout=LONG, port=port + 2, host="127.0.0.1")
                break
        yield stack.enter_context(hears), service.Cluster(("127.0.0.1",), ("algo-3",), port)


def test_a_training_that_succeeds_ends_its_data_hosts(attended: tuple[Any, Any]) -> None:
    data_host, cluster = attended
    with service.reporting(cluster, job_of(GROUPS), worker=False):
        pass
    data_host.wait()


def test_a_training_that_fails_ends_its_data_hosts_with_its_error(attended: tuple[Any, Any]) -> None:
    data_host, cluster = attended
    with pytest.raises(ValueError), service.reporting(cluster, job_of(GROUPS), worker=False):
        raise ValueError("no such digit")
    with pytest.raises(end.DataServiceError, match="the training host algo-3 failed: ValueError: no such digit"):
        data_host.wait()


def test_a_training_host_says_that_it_is_alive_and_done(data_host: Any) -> None:
    for host in TWO:
        end.Heartbeats([("127.0.0.1", data_host.port)], job=JOB, host=host, connect_timeout=LONG).end(None)
    data_host.wait()


def test_a_training_host_whose_data_host_is_lost_ends_with_an_error_that_names_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nothing listens there
        text = """
import sys, threading
from end import Heartbeats
Heartbeats([("127.0.0.1", int(sys.argv[1]))], job="a job", host="algo-3", connect_timeout=0.0)
threading.Event().wait()
"""
        process = program(text, taken.getsockname()[1])
        _, said = process.communicate()
    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("DataServiceError: the data host 127.0.0.1 did not answer for 0 s")


def test_a_job_without_the_data_group_has_no_service() -> None:
    assert service.Cluster.of(Job.here({}), data_group="data_group", port=6000) is None


def test_the_first_data_host_has_the_dispatcher() -> None:
    cluster = service.Cluster.of(job_of(GROUPS), data_group="data_group", port=6000)
    assert (cluster.dispatcher, cluster.serving, cluster.training) == ("grpc://algo-1:6000", ("algo-1", "algo-2"), TWO)


def test_two_groups_that_both_train_are_refused() -> None:
    job = job_of({**GROUPS, "second_group": ("algo-5",)})
    with pytest.raises(end.DataServiceError, match=r"groups must be data_group and one that trains, .* 'second_group'"):
        service.Cluster.of(job, data_group="data_group", port=6000)


def test_groups_of_which_none_serves_are_refused() -> None:
    job = job_of({"reader": ("algo-1",), "dnn_group": TWO})
    with pytest.raises(end.DataServiceError, match=r"groups must be data_group and one that trains, .* 'reader'"):
        service.Cluster.of(job, data_group="data_group", port=6000)


KEEPER = """
import sys, threading
from service import KeptAlive, end_with_the_host

def run():
    end_with_the_host()
    threading.Event().wait()

if __name__ == "__main__":
    with KeptAlive("server", print, run):
        sys.stdin.read()
"""


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that keeps a server alive until its stdin ends."""
    (tmp_path / "keeper.py").write_text(KEEPER)  # a file, which the server's process imports
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "keeper.py")],
        env={**os.environ, "PYTHONPATH": f"{TRAINING_CODE}:{FOLDER}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


def server_of(keeper: subprocess.Popen[str]) -> psutil.Process:
    """The server that the next line tells of."""
    assert keeper.stdout is not None
    line = keeper.stdout.readline()
    assert line.startswith("the server is process "), line
    return psutil.Process(int(line.split()[-1]))


def test_a_server_that_is_killed_starts_again(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdout is not None
    server_of(keeper).kill()
    assert keeper.stdout.readline() == "the server ended with -9 and is restarted\n"
    assert server_of(keeper).is_running()


def test_a_server_that_ends_too_often_is_given_up_with_the_reason(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdout is not None
    for _ in range(service.MOST_ENDS - 1):
        server_of(keeper).kill()
        keeper.stdout.readline()
    server_of(keeper).kill()
    assert keeper.stdout.readline() == "the server ended 5 times within 60 s, at last with -9\n"


def test_a_server_ends_with_the_block(keeper: subprocess.Popen[str]) -> None:
    server = server_of(keeper)
    keeper.communicate()
    assert keeper.returncode == 0
    assert not server.is_running()


def test_a_server_ends_with_the_process_that_keeps_it(keeper: subprocess.Popen[str]) -> None:
    server = server_of(keeper)
    keeper.send_signal(signal.SIGKILL)
    psutil.wait_procs([server])
    assert not server.is_running()
