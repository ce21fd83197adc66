"""The account of an epoch's batches, without a thread or a socket: any order of what happens, each batch given once."""

from __future__ import annotations

import random

import pytest
import serving  # noqa: F401, which finds the training code
from data_service.desk import Desk, Key
from data_service.epochs import Plan


def given(desk: Desk, dice: random.Random, ends: dict[int, int] | None = None, most: int = 10**9) -> list[Key]:
    """What a desk gives while batches are asked for, lost and come, in an order of the dice's."""
    asked: list[Key] = []
    found: list[Key] = []
    while not desk.done and len(found) < most:
        what = dice.choice(["ask", "ask", "come", "lose", "take"])
        if what == "ask" and (key := desk.ask()) is not None:
            asked.append(key)
        elif what == "take":
            found += desk.take()
        elif what != "ask" and asked:
            key = asked.pop(dice.randrange(len(asked)))
            if what == "lose":
                desk.lost(key)
            elif ends is not None and key[1] >= ends[key[0]]:
                desk.end(key)
            else:
                desk.come(key, key)
    return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_each_batch_is_given_once_and_in_order_where_that_is_asked_for(seed: int, ordered: bool) -> None:
    desk = Desk(Plan(4, 100).lanes(0, 1), ordered=ordered)
    found = given(desk, random.Random(seed))
    assert sorted(found) == [(0, n) for n in range(25)]
    assert found == sorted(found) or not ordered


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_each_batch_is_given_once_across_a_position_that_is_kept(seed: int, ordered: bool) -> None:
    dice = random.Random(seed)
    desk = Desk(Plan(4, 100).lanes(0, 1), ordered=ordered)
    first = given(desk, dice, most=dice.randrange(1, 24))
    rest = given(Desk(Plan(4, 100).lanes(0, 1), desk.position, ordered=ordered), dice)
    assert sorted(first + rest) == [(0, n) for n in range(25)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ordered", [True, False])
def test_shards_end_where_they_say_and_are_given_by_turns(seed: int, ordered: bool) -> None:
    ends = {0: 3, 1: 0, 2: 7}
    desk = Desk(Plan(4, None, shards=3).lanes(0, 1), ordered=ordered)
    found = given(desk, random.Random(seed), ends)
    everything = sorted(((lane, n) for lane, end in ends.items() for n in range(end)), key=lambda key: key[::-1])
    assert sorted(found) == sorted(everything)
    assert found == everything or not ordered


def test_ranks_own_every_batch_of_an_epoch_once() -> None:
    plan = Plan(8, 100)
    owned = [lane.number(n) for rank in range(3) for lane in plan.lanes(rank, 3) for n in range(lane.length or 0)]
    assert sorted(owned) == list(range(13))


def test_the_samples_of_all_batches_are_one_permutation() -> None:
    plan = Plan(8, 100, seed=1)
    assert sorted(sample for number in range(13) for sample in plan.samples(2, number)) == list(range(100))


def test_an_iterable_dataset_with_fewer_shards_than_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one for each rank, got 2 for 3"):
        Plan(8, None, shards=2).lanes(0, 3)


def test_a_batch_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, like 64, got 0"):
        Plan(0, 100)
