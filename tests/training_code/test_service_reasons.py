"""What ends the data service, with a reason that names it: parts that are lost for good, and bad input."""

from __future__ import annotations

import os
import signal
import socket
from typing import Any

import pytest
import torch
from hosts_and_trainers import Serve, Start, addresses, forever, free_port, gone, serve, start
from serving import LENGTH, BatchReader, DataHostLost, DataServiceError, Numbers
from torch.utils.data import Dataset

__all__ = ["serve", "start"]
EVERYTHING = list(range(LENGTH))


def test_a_data_host_that_never_comes_is_named(serve: Serve) -> None:
    nobody = f"localhost:{free_port()}"
    with (
        BatchReader([*addresses(serve()), nobody], job="job", connect_timeout=10) as reader,
        pytest.raises(DataHostLost, match=f"data host {nobody} never answered in 10 s: .*refused"),
    ):
        forever(reader)


def test_a_data_host_that_is_lost_for_good_is_named_with_when_and_why(serve: Serve, start: Start) -> None:
    host = start("serve")
    address = f"localhost:{host.line()}"
    reader = BatchReader([*addresses(serve()), address], job="job", host_timeout=2)
    next(iter(reader))
    children = host.below()
    host.kill()
    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    with pytest.raises(
        DataHostLost, match=rf"data host {address} was lost at {when}: .+; not answered for 2 s"
    ) as lost:
        forever(reader)
    reader.close(lost.value)
    assert gone(children)


def test_a_serving_process_that_dies_again_and_again_ends_its_host(serve: Serve) -> None:
    [server] = serve()
    killed: set[int] = set()
    while len(killed) < 5:
        if server.pid not in killed:
            killed.add(server.pid)
            os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(DataServiceError, match=r"was killed \(-9\).*, 5 times without a batch, and is not restarted"):
        server.wait()


@pytest.mark.parametrize("batch", [2, 21], ids=["ordered by itself", "ordered with others"])
def test_a_batch_that_ends_three_workers_in_a_row_is_named(serve: Serve, batch: int) -> None:
    first = 8 * batch
    [server] = serve(dataset=Numbers(deadly=first + 1), shuffle=False)
    said = (
        rf"position {first} of epoch 0 ended 3 worker processes in a row, of which the last ended with 3; .*{first}, "
    )
    with BatchReader(addresses([server]), job="job") as reader, pytest.raises(DataServiceError, match=said):
        list(reader)


def test_an_error_in_the_dataset_reaches_trainer_and_data_hosts_with_its_traceback(serve: Serve) -> None:
    servers = serve(2, dataset=Numbers(broken=17))
    reader = BatchReader(addresses(servers), job="job")
    with pytest.raises(DataServiceError) as raised:
        list(reader)
    assert "sample 17 of the dataset: KeyError: 'no such digit'" in str(raised.value)
    assert 'raise KeyError("no such digit")' in str(raised.value)
    reader.close(raised.value)
    for server in servers:
        with pytest.raises(DataServiceError, match="no such digit"):
            server.wait()


@pytest.mark.soak  # imports PyTorch anew, with a limit of what one file may have, those in memory included
def test_a_batch_for_which_there_is_no_memory_is_an_error_with_its_size(start: Start) -> None:
    host = start("serve", about={"side": 512}, prefix=("prlimit", f"--fsize={2**20}"))
    said = "a batch of 8388[0-9]+ bytes does not fit into shared memory"
    with pytest.raises(DataServiceError, match=said), BatchReader([f"localhost:{host.line()}"], job="job") as reader:
        list(reader)
    assert "does not fit into shared memory" in host.rest()[0]


def test_a_data_host_whose_port_is_closed_is_named_with_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(address: tuple[str, int], _: float) -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    servers = serve()
    monkeypatch.setattr(socket, "create_connection", refuse)
    said = r"data host localhost:\d+ never answered in 2 s: .*Connection refused"
    with (
        pytest.raises(DataHostLost, match=said),
        BatchReader(addresses(servers), job="job", connect_timeout=2) as reader,
    ):
        list(reader)


def test_a_dataset_that_cannot_be_pickled_is_an_error_at_the_start(serve: Serve) -> None:
    dataset: Dataset[Any] = torch.utils.data.TensorDataset(torch.zeros(3))
    dataset.transform = lambda image: image  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="go to worker processes, so they must be picklable"):
        serve(dataset=dataset)


def test_a_dataset_that_cannot_be_loaded_in_a_worker_is_an_error_with_its_traceback(serve: Serve) -> None:
    [server] = serve(dataset=Unloadable())
    with (
        BatchReader(addresses([server]), job="job") as reader,
        pytest.raises(DataServiceError, match=r"cannot load the dataset:(.|\n)*no such file anywhere"),
    ):
        list(reader)


class Unloadable(Numbers):
    def __setstate__(self, state: object) -> None:
        raise FileNotFoundError("no such file anywhere")


def test_two_processes_that_say_they_are_one_rank_are_refused_by_name(serve: Serve) -> None:
    servers = serve()
    said = "rank 0 is a process on algo-1, and another on algo-2"
    with BatchReader(addresses(servers), job="job", host="algo-1") as reader:
        batches = iter(reader)
        next(batches)
        with (
            pytest.raises(DataServiceError, match=said),
            BatchReader(addresses(servers), job="job", host="algo-2") as other,
        ):
            list(other)
        assert len(list(batches)) == LENGTH // 8 - 1
