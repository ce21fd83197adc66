"""Epochs as a DataLoader's user expects them: even ranks, positions of all ranks, what is ready before an epoch, and metrics."""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import signal
import time
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import serving  # noqa: F401, which finds the training code
from data_service import METRIC_DEFINITIONS, Summary
from data_service.plan import Plan
from data_service.pool import Payload, WorkerPool
from data_service.protocol import Frame, Kind
from data_service.reader import Epoch
from data_service.requester import Host
from data_service.worker import Order
from hosts_and_trainers import Serve, addresses, bounded, eventually, numbers, serve
from ranks import error_of_an_epoch, interrupted, part_of_an_epoch, plain_loop, together, whole_epochs
from serving import LENGTH, BatchReader, DataServiceError, Files, Lines, Numbers, StatefulFiles

__all__ = ["serve"]
EVERYTHING = list(range(LENGTH))

# -- Even ranks


def test_a_plain_loop_over_an_uneven_dataset_reads_all_of_it_on_three_ranks(serve: Serve) -> None:
    servers = addresses(serve(2, batch_size=16))  # 200 samples: four steps of 48, and 8 for the last
    found = together(plain_loop, 3, servers, 2)
    assert found == [[16, 16, 16, 16, 3] * 2, [16, 16, 16, 16, 3] * 2, [16, 16, 16, 16, 2] * 2]


def test_ranks_of_an_iterable_dataset_end_an_epoch_together(serve: Serve) -> None:
    servers = addresses(serve(dataset=Lines(100), shards=3, batch_size=8))  # 34, 33 and 33 samples
    found = together(plain_loop, 3, servers, 1)
    assert [len(sizes) for sizes in found] == [5, 5, 5]


def test_files_of_very_different_lengths_are_read_by_ranks_that_step_together(serve: Serve) -> None:
    """The finding "data never read": of files of 100, 10, 100 and 10 samples 76 % were not, in each epoch."""
    servers = addresses(serve(2, dataset=Files([100, 10, 100, 10]), shards=4, batch_size=5))
    found = together(whole_epochs, 2, servers, {}, 3)
    for epochs in zip(*found, strict=True):
        assert [dropped for _, dropped, _ in epochs] == [0, 0]
        assert [len(batches) for batches, _, _ in epochs] == [22, 22]
        assert sorted(number for batches, _, _ in epochs for batch in batches for number in batch) == list(range(220))
        assert not any("dropped " in printed for _, _, printed in epochs)


@pytest.mark.parametrize("kind", [Files, StatefulFiles])
def test_the_last_batches_are_divided_where_they_are_fewer_than_ranks(serve: Serve, kind: type[Files]) -> None:
    """The finding "data never read": of 9 equal files the same 40 of 360 samples were not, in ten epochs."""
    servers = addresses(serve(2, dataset=kind([40] * 9), shards=8, batch_size=40))
    found = together(whole_epochs, 2, servers, {}, 2)
    for epochs in zip(*found, strict=True):
        assert [[len(batch) for batch in batches] for batches, _, _ in epochs] == [[40, 40, 40, 40, 20]] * 2
        assert sorted(number for batches, _, _ in epochs for batch in batches for number in batch) == list(range(360))


@pytest.mark.parametrize(("length", "drop_last", "dropped"), [(41, False, 1), (80, True, 40)])
def test_what_ranks_cannot_share_is_counted_and_named(serve: Serve, length: int, drop_last: bool, dropped: int) -> None:
    dataset = Files([length, *[40] * 7])
    servers = addresses(serve(dataset=dataset, shards=8, batch_size=40, drop_last=drop_last))
    found = together(whole_epochs, 2, servers, {}, 1)
    assert [(len(batches), count) for [(batches, count, _)] in found] == [(4, dropped)] * 2
    [(_, _, printed)] = found[0]
    share = f"{dropped} of {320 + dropped} samples"
    assert re.search(rf"warning: epoch 0 dropped {share} \(.* %\): {dropped} of file 0\n", printed)


def test_a_rank_passes_on_more_batches_than_it_may_look_ahead(serve: Serve) -> None:
    servers = addresses(serve(dataset=Files([50, 0, 0, 0, 0]), shards=5, batch_size=2))
    found = together(whole_epochs, 5, servers, {"look_ahead": 1, "prefetch": 0}, 1)
    assert sorted(number for [(batches, _, _)] in found for batch in batches for number in batch) == list(range(50))


def test_a_short_end_of_a_shard_that_is_dropped_is_counted(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    servers = addresses(serve(dataset=Files([10, 8]), shards=2, batch_size=4, drop_last=True))
    with BatchReader(servers, job="job", epochs=1) as reader:
        assert len(numbers(reader)) == 16
    assert "epoch 0 dropped 2 of 18 samples (11 %): 2 of file 0" in capfd.readouterr().err


def test_an_iterable_dataset_without_a_sample_is_an_error(serve: Serve) -> None:
    """The finding "nothing trained": read_batches of an empty dataset yielded nothing."""
    servers = addresses(serve(dataset=Files([0]), shards=2))
    said = "the dataset must have a batch in each epoch, got none in epoch 0"
    with BatchReader(servers, job="job") as reader, pytest.raises(DataServiceError, match=said):
        list(reader)
    assert together(error_of_an_epoch, 2, addresses(serve(dataset=Files([0]), shards=2))) == [said] * 2


def test_an_iterable_dataset_of_fewer_batches_than_ranks_is_an_error_with_what_it_has(serve: Serve) -> None:
    found = together(error_of_an_epoch, 2, addresses(serve(dataset=Files([1]), shards=2)))
    assert (
        found
        == [
            "the dataset must have a batch in each epoch, got none in epoch 0, of 1 samples that are too few for all 2 ranks"
        ]
        * 2
    )


def test_an_iterable_dataset_of_ranks_that_cannot_agree_is_an_error_that_says_what_to_do(serve: Serve) -> None:
    servers = serve(dataset=Lines(), shards=2)
    with (
        pytest.raises(DataServiceError, match=r"call torch.distributed.init_process_group first"),
        BatchReader(addresses(servers), job="job", rank=0, ranks=2) as reader,
    ):
        next(iter(reader))


def test_what_ranks_drop_of_each_epoch_is_said(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    servers = addresses(serve(drop_last=True))
    with BatchReader(servers, job="job", rank=0, ranks=3, epochs=1) as reader:
        assert len(reader) == len(list(reader)) == 8
        assert reader.metrics is not None
        assert reader.metrics.summary().dropped_samples == 8
    said = "each epoch drops 8 of 200 samples (4 %), with batch_size 8 on 3 ranks"
    assert said in capfd.readouterr().err


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


@pytest.mark.parametrize(
    "dataset", [Numbers(), Lines(), StatefulFiles([70, 20, 110])], ids=["map", "lines", "stateful"]
)
def test_other_ranks_and_batch_sizes_continue_in_the_middle_of_an_epoch(serve: Serve, dataset: Any) -> None:
    found: list[int] = []
    state = None
    for ranks, batch_size, steps in ((2, 8, 5), (1, 3, 7), (3, 5, 0)):
        servers = addresses(serve(dataset=dataset, batch_size=batch_size, shards=3))
        parts = together(part_of_an_epoch, ranks, servers, state, steps)
        found += [number for read, _ in parts for number in read]
        state = parts[0][1]
        assert (state["epoch"], state["samples"]) == ((0, len(found)) if steps else (1, 0))
        assert [at for _, at in parts] == [state] * ranks
    assert sorted(found) == EVERYTHING


def test_a_rank_that_is_an_epoch_further_has_read_its_shards(serve: Serve) -> None:
    servers = addresses(serve(dataset=Lines(), shards=2, even=False))
    other = (0, {1: {"samples": 8}}, (-1, {}))
    with BatchReader(servers, job="job", ranks=2, gather=lambda mine: [mine, other]) as reader:
        [mine] = reader.plan.sequences(0, 2)
        other[1][1 - (mine.shard or 0)] = other[1].pop(1)
        list(reader)
        next(iter(reader))
        shards = {mine.shard: {"samples": 100, "ended": True}, 1 - (mine.shard or 0): {"samples": 8}}
        assert reader.state_dict() == {"epoch": 0, "samples": 108, "shards": [shards[0], shards[1]]}


def test_a_position_of_the_middle_of_an_unordered_epoch_is_of_its_own_ranks_and_batch_size(serve: Serve) -> None:
    state = {"epoch": 0, "samples": 0, "ranks": 2, "batch_size": 8, "delivered": [[1, [3]], [1, []]]}
    with BatchReader(addresses(serve()), job="job", ordered=False) as reader:
        with pytest.raises(ValueError, match=r"ranks must be 2, as where state_dict was called .* got 1"):
            reader.load_state_dict(state)
        with pytest.raises(ValueError, match=r"batch_size must be 4, as where state_dict was called .* got 8"):
            reader.load_state_dict(state | {"ranks": 1, "batch_size": 4})


def test_a_position_of_other_shards_or_another_dataset_is_refused(serve: Serve) -> None:
    state = {"epoch": 0, "samples": 16, "shards": [{"samples": 8}, {"samples": 8}]}
    with BatchReader(addresses(serve(dataset=Lines(), shards=3)), job="job") as reader:
        with pytest.raises(ValueError, match="of as many shards as are read now, 3, got shards=2"):
            reader.load_state_dict(state)
        with pytest.raises(
            ValueError, match="of as many shards as are read now, 3, got no shards, of a map-style dataset"
        ):
            reader.load_state_dict({"epoch": 0, "samples": 16})
    with BatchReader(addresses(serve()), job="job") as reader:
        with pytest.raises(ValueError, match="of as many shards as are read now, None, got shards=2"):
            reader.load_state_dict(state)
        with pytest.raises(ValueError, match="must be of a dataset of 200 samples, got one of at least 201"):
            reader.load_state_dict({"epoch": 0, "samples": 201})


@pytest.mark.parametrize("kind", [StatefulFiles, Files])
def test_a_datasets_own_state_is_where_a_resume_begins(serve: Serve, tmp_path: Path, kind: type[Files]) -> None:
    """The finding "data never read": a resume replayed everything before the position."""
    servers = addresses(serve(dataset=kind([100, 100], log=str(tmp_path / "first")), shards=2))
    with BatchReader(servers, job="job", epochs=1) as reader:
        batches = iter(reader)
        before = numbers(islice(batches, 20))
        state = json.loads(json.dumps(reader.state_dict()))
        rest = numbers(batches)
    log = tmp_path / "second"
    servers = addresses(serve(dataset=kind([100, 100], log=str(log)), shards=2))
    with BatchReader(servers, job="job", epochs=1) as reader:
        reader.load_state_dict(state)
        assert numbers(reader) == rest
    assert sorted(before + rest) == list(range(200))
    replayed = set(map(int, log.read_text().split())) & set(before)
    assert replayed == (set() if kind is StatefulFiles else set(before))


def test_a_state_that_is_not_json_is_an_error_that_says_so(serve: Serve) -> None:
    dataset = StatefulFiles([100])
    dataset.unreadable = True
    with (
        pytest.raises(DataServiceError, match=r"state_dict of an iterable dataset must be JSON, like .* got .*object"),
        BatchReader(addresses(serve(dataset=dataset, shards=1)), job="job") as reader,
    ):
        list(reader)


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
            pool.submit(Order(number // 25, None, 8 * (number % 25), 8), lambda result, _: results.append(result))
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


def test_an_epoch_ends_with_a_line_that_metric_expressions_read(
    serve: Serve, capfd: pytest.CaptureFixture[str]
) -> None:
    with BatchReader(addresses(serve()), job="job", epochs=1) as reader:
        list(reader)
        assert reader.metrics is not None
        summary = reader.metrics.summary()
    [line] = [line for line in capfd.readouterr().err.splitlines() if line.startswith("data_service ")]
    found = {one["Name"]: re.search(one["Regex"], line) for one in METRIC_DEFINITIONS}
    # There is no local worker whose time could be measured.
    assert [name for name, value in found.items() if value is None] == ["data_service:local_busy_percent"], line
    assert "local_busy_percent=unknown" in line
    seconds = found["data_service:epoch_seconds"]
    assert seconds is not None
    assert float(seconds[1]) == pytest.approx(summary.epoch_seconds, rel=1e-4)
    assert (summary.batches, summary.hosts) == (25, 1)


def test_workers_are_busy_for_a_share_of_the_time_in_which_their_host_was_connected() -> None:
    host = Host("algo-1:6000", {"homes": [0]}, Mock(host_timeout=30.0), Fraction(1))
    epoch = Epoch(0, Mock(hosts=[host], local=None))  # which begins before the host is there
    for busy in (1000.0, 0.0):  # of its first serving process, and of the one after it
        answer(host, Kind.WELCOME, busy, workers=2, plan=asdict(Plan(8, 100)))
        answer(host, Kind.PONG, busy + 500.0)
    found = epoch.summary()
    assert (found.hosts, host.busy, found.hosts_busy_percent) == (1, 1000.0, 100.0)


def answer(host: Host, kind: Kind, busy: float, **about: object) -> None:
    host._take(Frame(kind, 0, json.dumps(about).encode(), None, busy))


class Slow(Numbers):
    """Samples that take a worker's time."""

    def __getitem__(self, index: int) -> dict[str, object]:
        ends = time.process_time() + 0.002
        while time.process_time() < ends:
            pass
        return super().__getitem__(index)


@pytest.mark.soak  # waits for heartbeats
def test_an_epoch_shorter_than_a_heartbeat_reports_busy_workers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finding "the wrong advice": busy seconds came with a heartbeat, so that short epochs reported 0 %."""
    monkeypatch.setattr("data_service.requester.HEARTBEAT", 1000.0)
    with BatchReader(addresses(serve(dataset=Slow())), job="job", epochs=1) as reader:
        list(reader)
        assert reader.metrics is not None
        found = reader.metrics.summary()
    assert found.hosts_busy_percent is not None
    assert found.hosts_busy_percent > 0


def test_an_epoch_in_which_nothing_was_measured_has_an_unknown_share_of_busy_workers() -> None:
    host = Host("algo-1:6000", {"homes": [0]}, Mock(host_timeout=30.0), Fraction(1))
    answer(host, Kind.WELCOME, 1000.0, workers=2, plan=asdict(Plan(8, 100)))
    found = Epoch(0, Mock(hosts=[host], local=None)).summary()
    assert (found.hosts, found.hosts_busy_percent) == (1, None)
    assert "hosts_busy_percent=unknown" in found.line()


def summary(wait: float, busy: float | None, hosts: int = 4) -> Summary:
    return Summary(0, 10, 0, 100.0, wait, hosts, busy, 0.0, 1.0)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (summary(0.5, 60), "data hosts are 40 % idle: one fewer would do"),
        (summary(0.5, 84), "the steps do not wait for data"),
        (summary(50, 99), "the data hosts' workers are busy: add 4 data hosts"),
        (summary(20, 30), "the data hosts' workers are not busy: raise look_ahead, or look at the network"),
        (summary(20, None), "how busy the data hosts' workers are was not measured"),
        (summary(0.5, None), "the steps do not wait for data"),
        (summary(20, None, hosts=0), "this host's workers are what prepares it: add workers, or data hosts"),
    ],
)
def test_the_advice_follows_from_who_waits_and_who_is_busy(found: Summary, said: str) -> None:
    assert found.advice().endswith(said)
