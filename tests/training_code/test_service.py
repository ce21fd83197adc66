"""The data service between real processes, over real sockets: what it delivers, to whom, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import serving  # noqa: F401, which finds the training code
import torch
from data_service.plan import Plan, permuted
from hosts_and_trainers import Serve, Start, addresses, forever, gone, numbers, serve, start
from serving import BATCH_SIZE, LENGTH, BatchReader, BatchServer, DataServiceError, Huge, Lines, Numbers, TrainerFailed

__all__ = ["serve", "start"]
EVERYTHING = list(range(LENGTH))
BATCHES = LENGTH // BATCH_SIZE

# -- who reads which samples


@pytest.mark.parametrize(
    ("hosts", "ranks"), [(3, 2), *(pytest.param(*few, marks=pytest.mark.soak) for few in [(1, 1), (1, 2), (3, 1)])]
)
def test_an_epoch_delivers_each_sample_exactly_once(serve: Serve, hosts: int, ranks: int) -> None:
    servers = serve(hosts, even=False)
    seen: list[list[int]] = [[], []]
    for rank in range(ranks):
        with BatchReader(addresses(servers), job="job", rank=rank, ranks=ranks) as reader:
            for epoch in (0, 1):
                seen[epoch] += numbers(reader)
    assert sorted(seen[0]) == EVERYTHING
    assert sorted(seen[1]) == EVERYTHING
    assert seen[0] != seen[1]
    for server in servers:
        server.wait()


def test_order_and_random_numbers_are_the_same_with_any_number_of_hosts_and_workers(serve: Serve) -> None:
    epochs = []
    for hosts, workers in ((1, 1), (3, 2)):
        with BatchReader(addresses(serve(hosts, workers=workers)), job="job") as reader:
            epochs.append([(batch["number"].tolist(), batch["random"].tolist()) for batch in reader])
    assert len(epochs[0]) == BATCHES
    assert epochs[0] == epochs[1]


def test_the_order_is_that_of_one_permutation_of_the_seed(serve: Serve) -> None:
    with BatchReader(addresses(serve(2, seed=3)), job="job") as reader:
        given = numbers(reader.epoch(5))
    assert given == permuted(np.arange(LENGTH, dtype=np.uint64), LENGTH, (3, 5)).tolist()


def test_without_order_each_sample_comes_once_too(serve: Serve) -> None:
    with BatchReader(addresses(serve(2)), job="job", ordered=False) as reader:
        assert sorted(numbers(reader)) == EVERYTHING


def test_without_shuffling_samples_come_as_they_are_numbered_and_a_short_batch_can_be_left_out(serve: Serve) -> None:
    servers = serve(shuffle=False, drop_last=True, batch_size=30)
    with BatchReader(addresses(servers), job="job") as reader:
        assert len(reader) == 6
        assert numbers(reader) == EVERYTHING[:180]


def test_a_rank_knows_how_many_batches_an_epoch_has_for_it(serve: Serve) -> None:
    servers = serve(even=False)
    for rank, count in ((0, 13), (1, 12)):
        with BatchReader(addresses(servers), job="job", rank=rank, ranks=2) as reader:
            assert len(reader) == len(list(reader)) == count


@pytest.mark.parametrize("ordered", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_reading_goes_on_in_the_middle_of_an_epoch(serve: Serve, ordered: bool) -> None:
    with BatchReader(addresses(serve(2)), job="job", ordered=ordered) as reader:
        batches = iter(reader)
        first = numbers(next(batches) for _ in range(10))
        state = reader.state_dict()
    with BatchReader(addresses(serve()), job="job", ordered=ordered) as reader:
        reader.load_state_dict(json.loads(json.dumps(state)))
        assert sorted(first + numbers(reader)) == EVERYTHING
        assert reader.state_dict()["epoch"] == 1


def test_an_epoch_that_is_left_early_spoils_none_after_it(serve: Serve) -> None:
    with BatchReader(addresses(serve()), job="job") as reader:
        for epoch in range(20):
            next(reader.epoch(epoch))
        assert sorted(numbers(reader)) == EVERYTHING


def test_an_iterable_dataset_comes_as_from_a_dataloader_of_as_many_workers(serve: Serve) -> None:
    servers = serve(2, dataset=Lines(), shards=2)
    loader = torch.utils.data.DataLoader(Lines(), batch_size=BATCH_SIZE, num_workers=2)
    with BatchReader(addresses(servers), job="job") as reader:
        assert numbers(reader) == numbers(loader)
        assert numbers(reader) == numbers(loader)


def test_the_shards_of_an_iterable_dataset_are_shared_out_to_ranks(serve: Serve) -> None:
    servers = serve(2, dataset=Lines(), shards=4, workers=2, even=False)
    given = []
    for rank in (0, 1):
        with BatchReader(addresses(servers), job="job", rank=rank, ranks=2) as reader:
            given.append(numbers(reader))
    assert sorted(given[0] + given[1]) == EVERYTHING


def test_reading_goes_on_in_the_middle_of_an_iterable_dataset(serve: Serve) -> None:
    servers = serve(dataset=Lines(), shards=3)
    with BatchReader(addresses(servers), job="job") as reader:
        batches = iter(reader)
        first = numbers(next(batches) for _ in range(10))
        state = reader.state_dict()
        rest = numbers(batches)
        reader.load_state_dict(state)
        assert numbers(reader) == rest
    assert sorted(first + rest) == EVERYTHING


# -- bounded memory


@pytest.mark.soak  # long
def test_a_rank_that_stops_bounds_what_is_made_for_it_and_holds_up_no_other(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "made"
    servers = serve(dataset=Numbers(200, side=1024, log=str(log)), batch_size=4)
    with BatchReader(addresses(servers), job="job", rank=0, ranks=2) as slow:
        stopped = iter(slow)
        next(stopped)
        # As many batches later as the slow rank's whole share, and more, of the same worker.
        with BatchReader(addresses(servers), job="job", rank=1, ranks=2, epochs=1) as other:
            assert len(numbers(other)) == 100
        # One given, four ready and one for the worker, and asked for one that it is at and two beyond it.
        assert len(log.read_text().split()) <= 100 + 4 * (1 + 5 + 3)
        assert len(numbers(stopped)) == 96


# -- crossed wires


def test_a_caller_of_another_job_is_refused(serve: Serve) -> None:
    with pytest.raises(DataServiceError, match="serves another training job"):
        BatchReader(addresses(serve()), job="another")


def test_strangers_on_the_port_disturb_nobody(serve: Serve) -> None:
    [server] = serve()
    with (
        socket.create_connection(("127.0.0.1", server.port)),
        socket.create_connection(("127.0.0.1", server.port)) as loud,
        BatchReader(addresses([server]), job="job") as reader,
    ):
        loud.sendall(bytes(4096))
        assert sorted(numbers(reader)) == EVERYTHING


@pytest.mark.soak  # half a minute, and several times as much memory
def test_a_batch_of_two_gib_arrives(serve: Serve) -> None:
    with BatchReader(addresses(serve(dataset=Huge(), batch_size=2)), job="job") as reader:
        [batch] = reader
        assert batch.shape == (2, 2**28)
        assert sorted(batch[:, -1].tolist()) == [1, 2]


def test_a_reader_of_another_number_of_ranks_is_refused(serve: Serve) -> None:
    servers = serve()
    with (
        BatchReader(addresses(servers), job="job", rank=0, ranks=2),
        pytest.raises(DataServiceError, match="serves 2 ranks, got rank 0 of 3"),
        BatchReader(addresses(servers), job="job", rank=0, ranks=3) as reader,
    ):
        list(reader)


def test_data_hosts_that_serve_different_batches_are_refused(serve: Serve) -> None:
    servers = serve(batch_size=8) + serve(batch_size=16)
    with (
        pytest.raises(DataServiceError, match=r"must serve batch_size (8, not 16|16, not 8)"),
        BatchReader(addresses(servers), job="job") as reader,  # which may find it as early as here
    ):
        forever(reader)


# -- the end


def test_a_killed_trainer_ends_every_data_host_within_its_time(serve: Serve, start: Start) -> None:
    servers = serve(2, heartbeat_timeout=6)
    reader = start("read", servers=addresses(servers), stop_after=0)
    reader.line()
    reader.send_signal(signal.SIGKILL)
    for server in servers:
        with pytest.raises(TrainerFailed, match="no heartbeat of training rank 0 for 6 s"):
            server.wait()


def test_a_data_host_to_which_no_trainer_comes_ends(serve: Serve) -> None:
    [server] = serve(heartbeat_timeout=1)
    with pytest.raises(TrainerFailed, match="no heartbeat of training rank 0 for 1 s"):
        server.wait()


def test_a_trainer_that_fails_tells_every_data_host_why(serve: Serve) -> None:
    servers = serve(2)
    reader = BatchReader(addresses(servers), job="job")
    next(iter(reader))
    reader.close(ZeroDivisionError("no digits"))
    for server in servers:
        with pytest.raises(TrainerFailed, match="training rank 0 failed: ZeroDivisionError: no digits"):
            server.wait()


def test_a_trainer_that_fails_first_tells_the_data_host_that_serves_later(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_service.requester.ANSWER_TIMEOUT", 120)
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        plan = Plan.of(Numbers(), batch_size=BATCH_SIZE)  # for which it need not wait
        reader = BatchReader([f"localhost:{port}"], job="job", host_timeout=600, plan=plan)
        closing = threading.Thread(target=reader.close, args=(ZeroDivisionError("no digits"),))
        closing.start()
        for _ in range(3):  # it tries again, though nothing answers
            listener.settimeout(60)
            listener.accept()[0].close()
    [server] = serve(port=port)
    with pytest.raises(TrainerFailed, match="training rank 0 failed: ZeroDivisionError: no digits"):
        server.wait()
    closing.join()


def test_a_data_host_that_is_killed_leaves_neither_process_nor_memory(start: Start) -> None:
    before = set(Path("/dev/shm").iterdir())
    host = start("serve")
    with BatchReader([f"localhost:{host.line()}"], job="job") as reader:
        next(iter(reader))
        children = host.below()
        assert children
        host.kill()
    assert gone(children)
    assert set(Path("/dev/shm").iterdir()) <= before


def test_a_data_host_that_has_ended_leaves_no_process(start: Start) -> None:
    host = start("serve")
    with BatchReader([f"localhost:{host.line()}"], job="job") as reader:
        list(reader)
        children = host.below()
    assert host.rest() == ["done"]
    assert gone(children)


def test_a_server_whose_port_is_taken_says_so_and_leaves_no_process(serve: Serve) -> None:
    [server] = serve()
    with BatchReader(addresses([server]), job="job") as reader:
        list(reader)  # so that its worker is up, too
        before = set(psutil.Process().children(recursive=True))
    with pytest.raises(DataServiceError, match="cannot serve"):
        BatchServer(Numbers(), batch_size=8, job="job", host="127.0.0.1", port=server.port)
    assert gone(list(set(psutil.Process().children(recursive=True)) - before))


@pytest.fixture(scope="module")
def busy_loops() -> Iterator[None]:
    """Two processes that take all of two cores, beside which a wake-up that is lost shows itself soonest."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.soak
@pytest.mark.parametrize("run", range(200))
def test_a_stopped_rank_delays_no_other_on_busy_cores(serve: Serve, tmp_path: Path, busy_loops: None, run: int) -> None:
    test_a_rank_that_stops_bounds_what_is_made_for_it_and_holds_up_no_other(serve, tmp_path)
