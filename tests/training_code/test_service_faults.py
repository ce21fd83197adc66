"""What the data service does when a part of it dies: real processes, each sample exactly once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest
from hosts_and_trainers import Serve, Start, addresses, cut, eventually, free_port, numbers, serve, start, suspended
from serving import LENGTH, BatchReader, BatchServer, Lines, Numbers

__all__ = ["serve", "start"]
EVERYTHING = list(range(LENGTH))


@pytest.fixture(params=[8, pytest.param(20, marks=pytest.mark.soak)])
def moments(request: pytest.FixtureRequest) -> int:
    """How often harm is done: who is killed while it requests a process has PyTorch imported anew, which takes seconds."""
    return int(request.param)


def harassed(reader: BatchReader, moments: int, harm: Callable[[Any], object], seed: int = 0) -> int:
    """As many epochs as it takes to do harm at so many moments, each of which must have each sample once; how many.

    A moment is after one to ten batches more; ``harm`` is given the last batch.
    """
    dice, left, wait = random.Random(seed), moments, 1
    epochs = 0
    while left:
        given = []
        for batch in reader:
            given += batch["number"].tolist()
            wait -= 1
            if wait == 0 and left:
                harm(batch)
                left, wait = left - 1, dice.randint(1, 10)
        assert sorted(given) == EVERYTHING
        epochs += 1
    return epochs


def kill_one_of(servers: list[BatchServer], dice: random.Random) -> None:
    """Kill the serving process of one of the hosts, unless it has just been."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(servers).pid, signal.SIGKILL)


@pytest.fixture
def always_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """On busy cores a serving process may be killed five times before its first batch, after which it would not be restarted."""
    monkeypatch.setattr("data_service.server.WITHIN", 0.0)


# -- what goes on


@pytest.mark.parametrize("ordered", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_no_sample_is_lost_or_comes_twice_when_workers_are_killed(serve: Serve, moments: int, ordered: bool) -> None:
    servers = serve(2, workers=2)
    killed = []

    def kill(batch: Any) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has been killed before, while the batch was on its way
            killed.append(batch["process"][0].item())
            os.kill(killed[-1], signal.SIGKILL)

    with BatchReader(addresses(servers), job="job", ordered=ordered) as reader:
        harassed(reader, moments, kill)
    assert len(set(killed)) > moments // 4
    for server in servers:
        server.wait()


@pytest.mark.usefixtures("always_restarted")
@pytest.mark.parametrize("hosts", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_no_sample_is_lost_or_comes_twice_when_servers_are_killed(serve: Serve, moments: int, hosts: int) -> None:
    servers = serve(hosts, workers=2)
    dice = random.Random(1)
    with BatchReader(addresses(servers), job="job") as reader:
        harassed(reader, moments, lambda _: kill_one_of(servers, dice))
    for server in servers:
        server.wait()


@pytest.mark.soak  # imports PyTorch anew in each process, which takes most of a minute
def test_a_serving_process_is_started_anew_although_the_forkserver_has_ended(serve: Serve) -> None:
    servers = serve(workers=2)
    # A forkserver loads PyTorch first, which takes longer than the 30 s of a lost host where the cores are busy.
    with BatchReader(addresses(servers), job="job", host_timeout=300) as reader:
        assert sorted(numbers(reader)) == EVERYTHING
        # What a process leaves that is killed while it requests another: a connection that ends without a word.
        with socket.socket(socket.AF_UNIX) as request:
            request.connect(forkserver._forkserver._forkserver_address)
        os.kill(servers[0].pid, signal.SIGKILL)
        assert sorted(numbers(reader)) == EVERYTHING
    servers[0].wait()


@pytest.mark.soak  # that of a map-style one is held with each change
@pytest.mark.usefixtures("always_restarted")
def test_no_sample_of_an_iterable_dataset_is_lost_or_comes_twice(serve: Serve, moments: int) -> None:
    servers = serve(2, dataset=Lines(), shards=4, workers=2)
    dice = random.Random(2)
    with BatchReader(addresses(servers), job="job") as reader:
        before = numbers(reader)
        assert harassed(reader, moments, lambda _: kill_one_of(servers, dice))
        assert numbers(reader) == before


def test_no_sample_is_lost_or_comes_twice_when_connections_are_closed(serve: Serve, moments: int) -> None:
    servers = serve(2)
    dice = random.Random(3)
    with BatchReader(addresses(servers), job="job") as reader:
        harassed(reader, moments, lambda _: cut(servers, dice))


def test_a_serving_process_that_is_paused_and_let_go_loses_nothing(serve: Serve) -> None:
    servers = serve(2, dataset=Numbers(side=256))
    with BatchReader(addresses(servers), job="job") as reader:
        batches = iter(reader)
        given = numbers([next(batches)])
        with suspended(psutil.Process(servers[1].pid)):
            given += numbers([next(batches)])
        assert sorted(given + numbers(batches)) == EVERYTHING


@pytest.fixture
def soon_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent connection is given up soon, long before its host counts as lost: so a busy machine loses none."""
    monkeypatch.setattr("data_service.requester.ANSWER_TIMEOUT", 2.0)


@pytest.mark.usefixtures("soon_missed")
def test_a_batch_of_a_paused_host_is_made_elsewhere_however_many_are_ready_behind_it(serve: Serve) -> None:
    """With one host less there is room for fewer batches than have come already; the one that is missing has to be made."""
    servers = serve(2, dataset=Numbers(length=4_000))
    with BatchReader(addresses(servers), job="job", host_timeout=90) as reader:
        batches = iter(reader)
        given = numbers([next(batches)])
        with suspended(psutil.Process(servers[1].pid)):
            while len(given) < 2_000:
                given += numbers([next(batches)])
        assert sorted(given + numbers(batches)) == list(range(4_000))


@pytest.mark.soak  # one that is paused runs with each change
@pytest.mark.usefixtures("soon_missed")
def test_a_host_that_is_paused_for_long_is_stood_in_for_and_comes_back(serve: Serve) -> None:
    servers = serve(2)
    with BatchReader(addresses(servers), job="job", host_timeout=90) as reader:
        assert sorted(numbers(reader)) == EVERYTHING
        with suspended(psutil.Process(servers[1].pid)):
            assert sorted(numbers(reader)) == EVERYTHING
        assert sorted(numbers(reader)) == EVERYTHING
    for server in servers:
        server.wait()


def test_a_data_host_that_comes_late_joins(serve: Serve) -> None:
    port = free_port()
    servers = serve()
    with BatchReader([*addresses(servers), f"localhost:{port}"], job="job") as reader:
        first = {process for batch in reader for process in batch["process"].tolist()}
        serve(port=port)
        assert len(first) == 1
        eventually(lambda: makers(reader) - first)


def makers(reader: BatchReader) -> set[int]:
    """The processes that made the samples of an epoch, of which it has each once."""
    batches = list(reader)
    assert sorted(numbers(batches)) == EVERYTHING
    return {process for batch in batches for process in batch["process"].tolist()}


def test_a_trainer_that_was_killed_is_followed_by_one_that_goes_on(serve: Serve, start: Start) -> None:
    servers = serve(2)
    killed = start("read", servers=addresses(servers), stop_after=9)
    lines = [killed.line() for _ in range(10)]
    killed.kill()
    killed.wait()
    with BatchReader(addresses(servers), job="job") as reader:
        reader.load_state_dict({"epoch": 0, "samples": 8 * len(lines)})
        assert len(list(reader)) == LENGTH // 8 - len(lines)
    for server in servers:
        server.wait()


@pytest.mark.soak  # starts a host of its own in a namespace whose disks are full
def test_a_data_host_with_full_disks_serves_every_sample(start: Start, tmp_path: Path) -> None:
    disks = [
        f"mount -t tmpfs -o size=64k none {disk} && head -c 65536 /dev/zero > {disk}/x"
        for disk in ("/dev/shm", tmp_path)
    ]
    fill = " && ".join([*disks, f'TMPDIR={tmp_path} exec "$0" "$@"'])
    host = start("serve", prefix=("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", fill))
    with BatchReader([f"localhost:{host.line()}"], job="job") as reader:
        assert sorted(numbers(reader)) == EVERYTHING
    assert host.rest() == ["done"]


# -- no process grows


@pytest.mark.soak  # reads for a minute
def test_no_process_grows_over_many_batches(serve: Serve) -> None:
    count = 100_000
    [server] = serve(dataset=Numbers(count, side=1), batch_size=1)
    with BatchReader(addresses([server]), job="job") as reader:
        batches = iter(reader)
        first = numbers(next(batches) for _ in range(count // 10))
        worker = next(batches)["process"][0].item()
        processes = [psutil.Process(pid) for pid in (os.getpid(), server.pid, worker)]
        before = [process.memory_info().rss for process in processes]
        rest = sum(1 for _ in batches)
        grown = [process.memory_info().rss - was for process, was in zip(processes, before, strict=True)]
    assert len(first) + 1 + rest == count
    assert max(grown) < 8 * 2**20, grown
