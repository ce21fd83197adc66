"""The data service between real processes, over real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "training_code" / "heterogeneous"))

from service import BatchReader, DataHostLost, DataServiceError
from serving import LENGTH

PROGRAM = Path(__file__).parent / "serving.py"
Start = Callable[..., "Process"]


class Process(subprocess.Popen[str]):
    """A data host or a trainer."""

    def __init__(self, role: str, **options: Any) -> None:
        super().__init__(
            [sys.executable, str(PROGRAM), role, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def line(self) -> str:
        assert self.stdout is not None
        return self.stdout.readline().strip()

    def rest(self) -> list[str]:
        """What it prints until its end."""
        assert self.stdout is not None
        lines = [line.strip() for line in self.stdout]
        self.wait()
        return lines

    def go_on(self) -> None:
        """Give it the line that it waits for."""
        assert self.stdin is not None
        self.stdin.write("go on\n")
        self.stdin.flush()


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[Process] = []

    def begin(role: str, **options: Any) -> Process:
        processes.append(Process(role, **options))
        return processes[-1]

    yield begin
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.communicate()


def data_hosts(start: Start, count: int, **options: Any) -> tuple[list[Process], list[str]]:
    hosts = [start("serve", server=number, servers=count, **options) for number in range(count)]
    return hosts, [f"localhost:{host.line()}" for host in hosts]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("hosts", [1, 3])
def test_an_epoch_delivers_each_sample_exactly_once(start: Start, hosts: int, ranks: int) -> None:
    servers, addresses = data_hosts(start, hosts)
    readers = [start("read", servers=addresses, rank=rank, ranks=ranks, epochs=2) for rank in range(ranks)]
    seen: dict[int, list[int]] = {0: [], 1: []}
    for reader in readers:
        for epoch, numbers in map(json.loads, reader.rest()):
            seen[epoch] += numbers
    assert sorted(seen[0]) == list(range(LENGTH))
    assert sorted(seen[1]) == list(range(LENGTH))
    assert seen[0] != seen[1]
    assert [server.wait() for server in servers] == [0] * hosts


def test_the_order_is_the_same_each_time_and_with_any_number_of_data_hosts(start: Start) -> None:
    orders = []
    for hosts in (1, 3):
        _, addresses = data_hosts(start, hosts)
        orders.append(start("read", servers=addresses).rest())
    assert orders[0] == orders[1]


def test_a_slow_trainer_bounds_what_a_data_host_holds(start: Start) -> None:
    [server], addresses = data_hosts(start, 1, buffered=3)
    reader = start("read", servers=addresses, stop_after=0)
    reader.line()
    reader.go_on()
    reader.rest()
    [said] = server.rest()
    assert said.startswith("done, at most ")
    assert int(said.split()[3]) <= 3


def test_a_caller_of_another_job_is_refused(start: Start) -> None:
    _, addresses = data_hosts(start, 1)
    with pytest.raises(DataServiceError, match="serves another training job"):
        BatchReader(addresses, job="another", patience=0)


def test_a_reader_of_another_number_of_ranks_is_refused(start: Start) -> None:
    _, addresses = data_hosts(start, 1)
    with BatchReader(addresses, job="job", rank=0, ranks=2), pytest.raises(DataServiceError, match="serves 2 ranks"):
        BatchReader(addresses, job="job", rank=0, ranks=3)


def test_a_killed_trainer_ends_every_data_host_within_its_time(start: Start) -> None:
    servers, addresses = data_hosts(start, 2, silence=2)
    reader = start("read", servers=addresses, stop_after=0)
    reader.line()
    reader.send_signal(signal.SIGKILL)
    for server in servers:
        assert server.rest() == ["TrainerFailed: nothing was heard of training rank 0 for 2 s"]
        assert server.returncode == 1


def test_a_data_host_to_which_no_trainer_comes_ends(start: Start) -> None:
    [server], _ = data_hosts(start, 1, silence=1)
    assert server.rest() == ["TrainerFailed: nothing was heard of training rank 0 for 1 s"]


def test_a_trainer_that_fails_tells_every_data_host_why(start: Start) -> None:
    servers, addresses = data_hosts(start, 2)
    with pytest.raises(ZeroDivisionError), BatchReader(addresses, job="job"):
        raise ZeroDivisionError("no digits")
    for server in servers:
        assert server.rest() == ["TrainerFailed: training rank 0 failed: ZeroDivisionError: no digits"]


def test_a_lost_data_host_is_named(start: Start) -> None:
    # Batches of 8 MiB, so that most of them are still to come when the host goes.
    servers, addresses = data_hosts(start, 2, buffered=1, side=512)
    with BatchReader(addresses, job="job") as reader:
        batches = reader.epoch(0)
        next(batches)
        servers[1].kill()
        with pytest.raises(DataHostLost, match=addresses[1]):
            list(batches)


def test_an_error_in_the_dataset_reaches_the_trainer(start: Start) -> None:
    _, addresses = data_hosts(start, 1, broken=17)
    with (
        pytest.raises(DataServiceError, match="sample 17 of the dataset: KeyError: 'no such digit'"),
        BatchReader(addresses, job="job") as reader,
    ):
        list(reader.epoch(0))


def test_a_worker_that_dies_ends_the_service_on_both_sides(start: Start) -> None:
    [server], addresses = data_hosts(start, 1, deadly=17)
    with (
        pytest.raises(DataServiceError, match="a worker process of the data host ended with 3"),
        BatchReader(addresses, job="job") as reader,
    ):
        list(reader.epoch(0))
    assert "a worker process of the data host ended with 3" in server.rest()[0]
    assert server.returncode == 1


def test_a_data_host_that_is_killed_leaves_no_worker(start: Start) -> None:
    [server], _ = data_hosts(start, 1)
    children = psutil.Process(server.pid).children(recursive=True)
    server.kill()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]


def test_a_data_host_leaves_neither_process_nor_memory(start: Start) -> None:
    [server], addresses = data_hosts(start, 1)
    reader = start("read", servers=addresses, stop_after=0)
    reader.line()
    process = psutil.Process(server.pid)
    children = process.children(recursive=True)
    memory = {Path(mapped.path) for mapped in process.memory_maps() if mapped.path.startswith("/dev/shm/psm")}
    assert memory
    reader.go_on()
    reader.rest()
    server.rest()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert not [path for path in memory if path.exists()]
