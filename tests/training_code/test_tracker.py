"""What has become of an epoch's batches, without a thread or a socket: in any order of events, each is delivered once."""

from __future__ import annotations

import random
from collections.abc import Sequence as Several
from typing import Any

import pytest
import serving  # noqa: F401, which finds the training code
from data_service.plan import Plan
from data_service.tracker import BatchTracker, Key, Request


def tracker_of(plan: Plan, position: Several[object] = (), *, ordered: bool) -> BatchTracker:
    return BatchTracker(0, plan.sequences(), position, ordered=ordered)


def delivered(
    tracker: BatchTracker, dice: random.Random, ends: dict[int, int] | None = None, most: int = 10**9
) -> list[Key]:
    """What is delivered while batches are requested, requeued and received, in an order of the dice's."""
    requested: list[Request] = []
    found: list[Key] = []
    while not tracker.done and len(found) < most:
        what = dice.choice(["request", "request", "receive", "requeue", "deliver"])
        if what == "request" and (request := tracker.request()) is not None:
            requested.append(request)
        elif what == "deliver" and tracker.available(1):
            found.append(tracker.deliver())
        elif what in ("receive", "requeue") and requested:
            request = requested.pop(dice.randrange(len(requested)))
            n, shard = request.key
            if what == "requeue":
                tracker.requeue(request)
            elif ends is not None and n >= ends[shard]:
                tracker.end(request)
            else:
                tracker.receive(request, request.key)
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_each_batch_is_delivered_once_and_in_order_where_that_is_wanted(seed: int, ordered: bool) -> None:
    found = delivered(tracker_of(Plan(4, 100), ordered=ordered), random.Random(seed))
    assert sorted(found) == [(n, 0) for n in range(25)]
    assert found == sorted(found) or not ordered


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_as_many_batches_can_be_delivered_as_are_said_to_be_available(seed: int, ordered: bool) -> None:
    dice = random.Random(seed)
    tracker = tracker_of(Plan(4, None, shards=3, shuffle=False), ordered=ordered)
    requests = [tracker.request() for _ in range(12)]
    dice.shuffle(requests)
    for request in requests[: dice.randrange(12)]:
        assert request is not None
        tracker.receive(request, request.key, {"samples": 4})
    counted = tracker.available(12)
    for left in range(counted, 0, -1):
        assert tracker.available(12) == left
        tracker.deliver()
    assert tracker.available(12) == tracker.available(1) == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_each_batch_is_delivered_once_across_a_position_that_is_kept(seed: int, ordered: bool) -> None:
    dice = random.Random(seed)
    tracker = tracker_of(Plan(4, 100), ordered=ordered)
    first = delivered(tracker, dice, most=dice.randrange(1, 24))
    rest = delivered(tracker_of(Plan(4, 100), tracker.position, ordered=ordered), dice)
    assert sorted(first + rest) == [(n, 0) for n in range(25)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_shards_end_where_they_say_and_are_delivered_by_turns(seed: int, ordered: bool) -> None:
    ends = {0: 3, 1: 0, 2: 7}
    found = delivered(tracker_of(Plan(4, None, shards=3, shuffle=False), ordered=ordered), random.Random(seed), ends)
    everything = sorted((n, shard) for shard, end in ends.items() for n in range(end))
    assert sorted(found) == everything
    assert found == everything or not ordered


@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_that_was_requested_twice_and_comes_twice_is_delivered_once(ordered: bool) -> None:
    tracker = tracker_of(Plan(4, 8), ordered=ordered)
    first, second = tracker.request(), tracker.request()
    assert first is not None
    assert second is not None
    for request in (first, first, second, second):
        request.copies = 2
        tracker.receive(request, request.key)
    assert [tracker.deliver(), tracker.deliver()] == [first.key, second.key]
    tracker.receive(first, first.key)
    assert (tracker.done, tracker.ready) == (True, 0)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_that_is_in_flight_twice_is_pending_again_only_when_both_were_in_vain(ordered: bool) -> None:
    tracker = tracker_of(Plan(4, 4), ordered=ordered)
    request = tracker.request()
    assert request is not None
    request.copies = 2
    tracker.requeue(request)
    assert (tracker.request(), tracker.in_flight) == (None, 1)
    tracker.requeue(request)
    again = tracker.request()
    assert again is not None
    assert again.key == request.key


def test_a_batch_that_has_come_is_not_pending_again_where_another_request_for_it_was_in_vain() -> None:
    tracker = tracker_of(Plan(4, 4), ordered=True)
    request = tracker.request()
    assert request is not None
    request.copies = 2
    tracker.receive(request, request.key)
    tracker.requeue(request)
    assert (tracker.request(), tracker.in_flight, tracker.deliver()) == (None, 0, request.key)


def of_shards(**about: Any) -> tuple[BatchTracker, list[Request]]:
    """A tracker of two shards of which two batches each are in flight."""
    tracker = tracker_of(Plan(4, None, shards=2, shuffle=False), **{"ordered": True} | about)
    requests = [tracker.request() for _ in range(4)]
    return tracker, [one for one in requests if one is not None]


def test_what_is_not_delivered_is_counted_by_its_file_or_shard() -> None:
    tracker, requests = of_shards()
    for request, samples, name in zip(requests, (4, 4, 3, 2), ("a.tar", None, "a.tar", None), strict=True):
        tracker.receive(request, request.key, {"samples": samples, "name": name})
    assert tracker.deliver() == (0, 0)
    tracker.drop_ready()
    assert tracker.dropped == {"a.tar": 3, "shard 1": 6}
    assert tracker.samples == [4, 0]


def test_a_short_batch_is_a_shards_last() -> None:
    tracker, requests = of_shards()
    for request in requests:
        tracker.receive(request, request.key, {"samples": 4 - request.key[0]})
    assert tracker.settled
    assert [tracker.deliver() for _ in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert tracker.done
    assert tracker.shards == {shard: {"samples": 7, "ended": True} for shard in (0, 1)}


def test_a_datasets_own_state_is_sent_where_the_batch_before_has_come_and_kept_with_the_position() -> None:
    tracker, requests = of_shards()
    tracker.receive(requests[0], "a batch", {"samples": 4, "state": {"line": 4}})
    assert requests[2].order == (0, 0, 4, 4, {"line": 4})
    assert requests[3].order == (0, 1, 4, 4, None)
    tracker.deliver()
    assert tracker.shards == {0: {"samples": 4, "state": {"line": 4}}, 1: {"samples": 0}}


def test_a_batch_that_is_divided_is_delivered_once_in_parts() -> None:
    tracker, requests = of_shards()
    for request, samples in zip(requests, (4, 4, 1, 3), strict=True):
        tracker.receive(request, request.key, {"samples": samples})
    assert [tracker.deliver() for _ in range(3)] == [(0, 0), (0, 1), (1, 0)]
    assert tracker.divisible == 3
    tracker.split(2)
    parts = [one for _ in range(2) if (one := tracker.request()) is not None]
    assert [one.order[1:4] for one in parts] == [(1, 4, 1), (1, 5, 2)]
    for part, samples in zip(parts, (1, 2), strict=True):
        tracker.receive(part, part.key, {"samples": samples})
        tracker.deliver()
    assert (tracker.done, tracker.ready, tracker.divisible) == (True, 0, 0)
    assert tracker.shards == {0: {"samples": 5, "ended": True}, 1: {"samples": 7, "ended": True}}


def test_an_epoch_that_is_left_early_keeps_what_is_known_of_its_shards() -> None:
    tracker, requests = of_shards()
    tracker.receive(requests[0], "a batch", {"samples": 2})
    tracker.deliver()
    again = tracker.restarted()
    assert again.shards == {0: {"samples": 2, "ended": True}, 1: {"samples": 0}}
    request = again.request()
    assert request is not None
    assert request.order == (0, 1, 0, 4, None)


def test_an_iterable_dataset_with_fewer_shards_than_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one for each rank, got 2 for 3"):
        Plan(8, None, shards=2).sequences(0, 3)


def test_a_batch_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, like 64, got 0"):
        Plan(0, 100)
