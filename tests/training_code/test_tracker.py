"""What has become of an epoch's batches, without a thread or a socket: in any order of events, each is delivered once."""

from __future__ import annotations

import random
from collections.abc import Sequence as Several

import pytest
import serving  # noqa: F401, which finds the training code
from data_service.plan import BatchTracker, Key, Plan, Request, Sequence


def tracker_of(plan: Plan, position: Several[object] = (), *, ordered: bool) -> BatchTracker:
    return BatchTracker(0, plan.sequences(1), position, ordered=ordered)


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
        elif what == "deliver" and tracker.deliverable:
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
    found = delivered(tracker_of(Plan(4, None, shards=3), ordered=ordered), random.Random(seed), ends)
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


def test_ranks_read_every_batch_of_an_epoch_once() -> None:
    plan = Plan(8, 100, even=False)
    assert sorted(numbers(plan.sequences(3))) == list(range(13))


def numbers(sequences: list[Sequence]) -> list[int]:
    return [one.number(n) for one in sequences for n in range(one.length or 0)]


def test_an_iterable_dataset_with_fewer_shards_than_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one for each rank, got 2 for 3"):
        Plan(8, None, shards=2).sequences(3)


def test_a_batch_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, like 64, got 0"):
        Plan(0, 100)
