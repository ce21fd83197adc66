"""Epochs as a DataLoader's user expects them: even ranks, positions of all ranks, what is ready before an epoch, and metrics."""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import signal
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from unittest.mock import Mock

import pytest
import serving  # noqa: F401, which finds the training code
from data_service import METRIC_DEFINITIONS, Summary
from data_service.plan import Plan
from data_service.pool import Payload, WorkerPool
from data_service.protocol import Frame, Kind
from data_service.reader import Epoch
from data_service.requester import Host
from hosts_and_trainers import Serve, addresses, bounded, eventually, numbers, serve
from ranks import interrupted, plain_loop, together
from serving import LENGTH, BatchReader, DataServiceError, Lines, Numbers

__all__ = ["serve"]
EVERYTHING = list(range(LENGTH))

# -- Even ranks


def test_a_plain_loop_over_an_uneven_dataset_comes_to_its_end_on_three_ranks(serve: Serve) -> None:
    servers = addresses(serve(2, batch_size=16))  # 13 batches
    found = together(plain_loop, 3, servers, 2)
    assert [len(sizes) for sizes in found] == [8, 8, 8]


def test_ranks_of_an_iterable_dataset_end_an_epoch_together(serve: Serve) -> None:
    servers = addresses(serve(dataset=Lines(100), shards=3, batch_size=8))  # 34, 33 and 33 samples
    found = together(plain_loop, 3, servers, 1)
    assert [len(sizes) for sizes in found] == [5, 5, 5]


def test_an_iterable_dataset_of_ranks_that_cannot_agree_is_an_error_that_says_what_to_do(serve: Serve) -> None:
    servers = serve(dataset=Lines(), shards=2)
    with (
        pytest.raises(DataServiceError, match=r"call torch.distributed.init_process_group first"),
        BatchReader(addresses(servers), job="job", rank=0, ranks=2) as reader,
    ):
        next(iter(reader))


def test_what_even_ranks_leave_out_is_said(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    servers = addresses(serve())
    with BatchReader(servers, job="job", rank=0, ranks=3) as reader:
        assert len(reader) == len(list(reader)) == 8
    assert "each epoch leaves out 1 of 25 batches, so that 3 ranks read 8 each" in capfd.readouterr().err


def test_padded_ranks_read_batches_from_the_beginning_again_and_say_so(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    servers = addresses(serve(even="pad"))
    seen: Counter[int] = Counter()
    for rank in range(3):
        with BatchReader(servers, job="job", rank=rank, ranks=3, epochs=1) as reader:
            seen.update(numbers(reader))
    assert sorted(seen) == EVERYTHING
    assert Counter(seen.values()) == {1: LENGTH - 16, 2: 16}
    assert "each epoch has 2 of 25 batches twice, so that 3 ranks read 9 each" in capfd.readouterr().err


# -- Positions


@pytest.mark.parametrize("ordered", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_ranks_of_an_iterable_dataset_with_uneven_shards_continue_exactly(serve: Serve, ordered: bool) -> None:
    servers = addresses(serve(2, dataset=Lines(203), shards=5, batch_size=8, even=False))
    found = together(interrupted, 2, servers, {"ordered": ordered}, 7)
    assert sorted(number for one in found for number in one["before"] + one["after"]) == list(range(203))
    assert found[0]["state"] == found[1]["state"]


def test_unordered_ranks_continue_exactly(serve: Serve) -> None:
    servers = addresses(serve(2, even=False))
    found = together(interrupted, 2, servers, {"ordered": False}, 7)
    assert sorted(number for one in found for number in one["before"] + one["after"]) == EVERYTHING


def test_a_position_where_an_epoch_begins_is_of_any_number_of_ranks(serve: Serve) -> None:
    servers = addresses(serve(even=False))
    with BatchReader(servers, job="job", epochs=2) as reader:
        list(reader)
        state = json.loads(json.dumps(reader.state_dict()))
        expected = numbers(reader)
    servers, found = addresses(serve(even=False)), []
    for rank in (0, 1):
        with BatchReader(servers, job="job", rank=rank, ranks=2, epochs=2) as reader:
            reader.load_state_dict(state)
            found.append(numbers(reader))
    assert sorted(found[0] + found[1]) == EVERYTHING
    assert found[0][:8] + found[1][:8] == expected[:16]


def test_the_epoch_that_is_set_is_read_next(serve: Serve) -> None:
    with BatchReader(addresses(serve()), job="job") as reader:
        expected = numbers(reader.epoch(4))
        reader.set_epoch(4)
        assert numbers(reader) == expected
        assert reader.state_dict()["epoch"] == 5


# -- Between epochs, and what does not come


def test_the_first_batches_of_the_next_epoch_are_ready_while_this_one_is_evaluated(serve: Serve) -> None:
    with BatchReader(addresses(serve()), job="job") as reader:
        list(reader)
        eventually(lambda: reader.ready >= 4)  # while the model would be evaluated
        batches = iter(reader)
        given = numbers(islice(batches, 4))
        assert reader.metrics is not None
        assert reader.metrics.wait_seconds == 0.0
        assert sorted(given + numbers(batches)) == EVERYTHING


def test_nothing_is_made_beyond_the_last_epoch(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "made"
    with BatchReader(addresses(serve(dataset=Numbers(log=str(log)))), job="job", epochs=2) as reader:
        for _ in range(2):
            list(reader)
    assert len(log.read_text().split()) == 2 * LENGTH


class Stuck(Numbers):
    """The first worker that takes sample 17 never returns."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self._mark = mark

    def __getitem__(self, index: int) -> dict[str, object]:
        if index == 17:
            try:
                os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                signal.pause()
        return super().__getitem__(index)


@pytest.mark.parametrize("hosts", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_batch_that_does_not_come_from_a_host_that_answers_is_requested_again(
    serve: Serve, tmp_path: Path, hosts: int
) -> None:
    servers = serve(hosts, dataset=Stuck(str(tmp_path / "stuck")), workers=2)
    with BatchReader(addresses(servers), job="job", host_timeout=1, epochs=1) as reader, bounded(reader):
        assert sorted(numbers(reader)) == EVERYTHING
    assert (tmp_path / "stuck").exists()


def test_local_workers_help_while_a_batch_holds_up_those_that_have_come_after_it(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_service.requester.BYTES_BEYOND", 0)  # as with large batches
    dataset = Stuck(str(tmp_path / "stuck"))  # in the third batch
    plan = Plan.of(dataset, batch_size=8, shuffle=False)
    pool = partial(WorkerPool, Payload.of(dataset, None), plan, 2)
    servers = addresses(serve(dataset=dataset, shuffle=False))
    with BatchReader(servers, job="job", plan=plan, local=pool, prefetch=4) as reader:
        reader.epoch(0)
        eventually(lambda: reader.ready >= 10)  # prefetch, and what two or three of the workers make


class Never(Numbers):
    """No batch of it comes."""

    def __getitem__(self, index: int) -> dict[str, object]:
        signal.pause()
        return super().__getitem__(index)


def test_local_workers_help_until_as_many_batches_can_be_delivered_as_there_are_of_them(serve: Serve) -> None:
    plan = Plan.of(Numbers(), batch_size=8)
    pool = partial(WorkerPool, Payload.of(Numbers(), None), plan, 2)
    # Which takes the plan from the data host, so that this is there before anything is requested.
    options = {"prefetch": 0, "ordered": False, "host_timeout": 600}
    with BatchReader(addresses(serve(dataset=Never())), job="job", local=pool, **options) as reader:
        reader.epoch(0)
        eventually(lambda: reader.ready >= 2)


# -- Orders to workers


@pytest.mark.parametrize(("quick", "messages"), [(math.inf, 15), (0.0, 51)])
def test_batches_that_are_made_quickly_are_ordered_several_at_once(
    quick: float, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_service.pool.QUICK", quick)
    with selectors.DefaultSelector() as selector:
        pool = WorkerPool(Payload.of(Numbers(), None), Plan.of(Numbers(), batch_size=8), 1, selector)
        results: list[object] = []
        for number in range(50):
            pool.submit(number // 25, None, number % 25, lambda result, _: results.append(result))
        pool.start()
        came = 0
        while len(results) < 50:
            for key, events in selector.select():
                key.data(events)
                came += 1
        pool.stop()
    # That the worker is ready, its first two results, which show that it is quick, and four in each of the others.
    assert came == messages


# -- Metrics


def test_an_epoch_ends_with_a_line_that_sagemakers_expressions_read(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    with BatchReader(addresses(serve()), job="job", epochs=1) as reader:
        list(reader)
        assert reader.metrics is not None
        summary = reader.metrics.summary()
    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("data_service ")]
    found = {one["Name"]: re.search(one["Regex"], line) for one in METRIC_DEFINITIONS}
    assert all(found.values()), line
    seconds = found["data_service:epoch_seconds"]
    assert seconds is not None
    assert float(seconds[1]) == pytest.approx(summary.epoch_seconds, rel=1e-4)
    assert (summary.batches, summary.hosts) == (25, 1)


def test_workers_are_busy_for_a_share_of_the_time_in_which_their_host_was_connected() -> None:
    host = Host("algo-1:6000", {"homes": [0]}, Mock(host_timeout=30.0), Fraction(1))
    epoch = Epoch(0, Mock(hosts=[host], local=None))  # which begins before the host is there
    for busy in (1000.0, 0.0):  # of its first serving process, and of the one after it
        answer(host, Kind.WELCOME, workers=2, plan=asdict(Plan(8, 100)), busy=busy)
        answer(host, Kind.PONG, busy=busy + 500.0)
    found = epoch.summary()
    assert (found.hosts, host.busy, found.hosts_busy_percent) == (1, 1000.0, 100.0)


def answer(host: Host, kind: Kind, **about: object) -> None:
    host._take(Frame(kind, 0, json.dumps(about).encode(), None))


def summary(wait: float, busy: float, hosts: int = 4) -> Summary:
    return Summary(0, 10, 0, 100.0, wait, hosts, busy, 0.0, 1.0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (summary(0.5, 60), "data hosts are 40 % idle: one fewer would do"),
        (summary(0.5, 84), "the steps do not wait for data"),
        (summary(50, 99), "the data hosts' workers are busy: add 4 data hosts"),
        (summary(20, 30), "the data hosts' workers are not busy: raise look_ahead, or look at the network"),
        (summary(20, 0, hosts=0), "this host's workers are what prepares it: add workers, or data hosts"),
    ],
)
def test_the_advice_follows_from_who_waits_and_who_is_busy(found: Summary, said: str) -> None:
    assert found.advice().endswith(said)
