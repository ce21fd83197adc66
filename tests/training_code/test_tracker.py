"""What has become of an epoch's batches, without a thread or a socket: in any order of events, each is delivered once."""

from __future__ import annotations

import random
from collections.abc import Sequence as Several

import pytest
import serving  # noqa: F401, which finds the training code
from data_service.plan import BatchTracker, Key, Plan, Sequence


def tracker_of(plan: Plan, position: Several[object] = (), *, ordered: bool) -> BatchTracker:
    return BatchTracker(0, plan.sequences(1), position, ordered=ordered)


def delivered(
    tracker: BatchTracker, dice: random.Random, ends: dict[int, int] | None = None, most: int = 10**9
) -> list[Key]:
    """What is delivered while batches are requested, requeued and received, in an order of the dice's."""
    requested: list[Key] = []
    found: list[Key] = []
    while not tracker.done and len(found) < most:
        what = dice.choice(["request", "request", "receive", "requeue", "deliver"])
        if what == "request" and (key := tracker.request()) is not None:
            requested.append(key)
        elif what == "deliver" and tracker.deliverable:
            found.append(tracker.deliver())
        elif what in ("receive", "requeue") and requested:
            key = requested.pop(dice.randrange(len(requested)))
            if what == "requeue":
                tracker.requeue(key)
            elif ends is not None and key[1] >= ends[key[0]]:
                tracker.end(key)
            else:
                tracker.receive(key, key)
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_each_batch_is_delivered_once_and_in_order_where_that_is_wanted(seed: int, ordered: bool) -> None:
    found = delivered(tracker_of(Plan(4, 100), ordered=ordered), random.Random(seed))
    assert sorted(found) == [(0, n) for n in range(25)]
    assert found == sorted(found) or not ordered


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_each_batch_is_delivered_once_across_a_position_that_is_kept(seed: int, ordered: bool) -> None:
    dice = random.Random(seed)
    tracker = tracker_of(Plan(4, 100), ordered=ordered)
    first = delivered(tracker, dice, most=dice.randrange(1, 24))
    rest = delivered(tracker_of(Plan(4, 100), tracker.position, ordered=ordered), dice)
    assert sorted(first + rest) == [(0, n) for n in range(25)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_shards_end_where_they_say_and_are_delivered_by_turns(seed: int, ordered: bool) -> None:
    ends = {0: 3, 1: 0, 2: 7}
    found = delivered(tracker_of(Plan(4, None, shards=3), ordered=ordered), random.Random(seed), ends)
    everything = sorted(((lane, n) for lane, end in ends.items() for n in range(end)), key=lambda key: key[::-1])
    assert sorted(found) == sorted(everything)
    assert found == everything or not ordered


@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_that_was_requested_twice_and_comes_twice_is_delivered_once(ordered: bool) -> None:
    tracker = tracker_of(Plan(4, 8), ordered=ordered)
    first, second = tracker.request(), tracker.request()
    assert first is not None
    assert second is not None
    for key in (first, first, second, second):
        tracker.receive(key, key)
    assert [tracker.deliver(), tracker.deliver()] == [first, second]
    tracker.receive(first, first)
    assert (tracker.done, tracker.ready) == (True, 0)


def test_ranks_read_every_batch_of_an_epoch_once() -> None:
    plan = Plan(8, 100, even="")
    assert sorted(numbers(plan.sequences(3))) == list(range(13))


def numbers(sequences: list[Sequence]) -> list[int]:
    return [one.number(n) for one in sequences for n in range(one.length or 0)]


def test_an_iterable_dataset_with_fewer_shards_than_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one for each rank, got 2 for 3"):
        Plan(8, None, shards=2).sequences(3)


def test_a_batch_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, like 64, got 0"):
        Plan(0, 100)
