"""What the batches of an epoch are: permutations, what ranks read, and which hosts they read from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import serving  # noqa: F401, which finds the training code
import torch
from data_service.plan import Plan, home_shares, permuted
from torch.utils.data import DistributedSampler, IterableDataset, SequentialSampler, TensorDataset

# -- The permutation


@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 200, 4_099, 65_537])
def test_every_sample_is_in_an_epoch_once(length: int) -> None:
    found = permuted(np.arange(length, dtype=np.uint64), length, (0, 0))
    assert sorted(found.tolist()) == list(range(length))


def test_the_samples_of_all_batches_are_one_permutation() -> None:
    plan = Plan(8, 100, seed=1)
    assert sorted(
        sample for first in range(0, 100, 7) for sample in plan.samples(2, first, min(7, 100 - first))
    ) == list(range(100))


def test_seeds_and_epochs_have_permutations_of_their_own() -> None:
    orders = {tuple(Plan(50, 50, seed=seed).samples(epoch, 0, 50)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_an_order_stays_what_it_was_in_earlier_versions() -> None:
    assert Plan(8, 1_000, seed=3).samples(5, 0, 8) == [344, 21, 742, 147, 585, 714, 581, 167]


def test_a_batch_of_a_hundred_billion_samples_is_found_without_the_others() -> None:
    length = 10**11
    samples = Plan(4096, length, seed=1).samples(0, length - 4096, 4096)
    assert len(set(samples)) == 4096
    assert 0 <= min(samples) <= max(samples) < length


def test_neighbours_lie_as_far_apart_as_by_chance() -> None:
    length = 20_000
    order = permuted(np.arange(length, dtype=np.uint64), length, (0, 0)).astype(np.int64)
    # The mean distance of two uniform numbers is a third of their range; of 20,000 it strays from that by some 0.3 %.
    assert np.abs(np.diff(order)).mean() == pytest.approx(length / 3, rel=0.02)
    assert abs(np.corrcoef(order, np.arange(length))[0, 1]) < 0.03


# -- Ranks


def read_by(plan: Plan, ranks: int, samples: int = 0) -> list[list[list[int]]]:
    """The places in the epoch that each rank reads, step by step, from a position on."""
    found = []
    for rank in range(ranks):
        [sequence] = plan.sequences(rank, ranks, samples=samples)
        batches = [sequence.batch(n) for n in range(sequence.length or 0)]
        found.append([[place % (plan.length or 1) for place in range(first, first + size)] for first, size in batches])
    return found


def places(read: list[list[list[int]]]) -> list[int]:
    return sorted(place for of_rank in read for batch in of_rank for place in batch)


@pytest.mark.parametrize("batch_size", [2, 3, 8, 64])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [7, 16, 97, 100])
def test_every_sample_is_read_once_and_ranks_step_equally_often(length: int, ranks: int, batch_size: int) -> None:
    read = read_by(Plan(batch_size, length), ranks)
    assert places(read) == list(range(length))
    assert len({len(of_rank) for of_rank in read}) == 1
    for step in zip(*read, strict=True):
        sizes = [len(batch) for batch in step]
        assert 1 <= min(sizes) <= max(sizes) <= batch_size
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", range(30))
def test_a_position_in_an_epoch_is_continued_by_any_ranks_and_batch_size(seed: int) -> None:
    dice = random.Random(seed)
    length, at, found = dice.randrange(20, 300), 0, []
    while at < length:
        ranks, batch_size = dice.randrange(1, 5), dice.randrange(2, 9)
        if length - at < ranks:
            ranks = 1
        plan = Plan(batch_size, length)
        read = read_by(plan, ranks, at)
        steps = dice.randrange(1, len(read[0]) + 1)
        found += places([of_rank[:steps] for of_rank in read])
        [position] = {plan.sequences(rank, ranks, samples=at)[0].position(steps) for rank in range(ranks)}
        assert sorted(found) == list(range(position))
        at = position


def test_only_what_is_no_sample_for_each_rank_is_dropped_with_a_batch_of_one() -> None:
    plan = Plan(1, 11)
    assert places(read_by(plan, 4)) == list(range(8))
    assert plan.steps(4) == (2, [], 3)


def test_with_drop_last_all_batches_are_whole_and_what_is_left_is_counted() -> None:
    plan = Plan(8, 100, drop_last=True)
    assert {len(batch) for of_rank in read_by(plan, 3) for batch in of_rank} == {8}
    assert plan.steps(3) == (4, [], 4)


def test_uneven_ranks_read_every_sample_and_differ_by_one_batch() -> None:
    read = read_by(Plan(8, 100, even=False), 3)
    assert places(read) == list(range(100))
    assert [len(of_rank) for of_rank in read] == [5, 4, 4]
    assert [len(of_rank) for of_rank in read_by(Plan(8, 100, even=False, drop_last=True), 3)] == [4, 4, 4]


def test_more_ranks_than_samples_are_refused() -> None:
    said = "an epoch of 3 samples must have one for each rank .* got batch_size 8 and 4 ranks"
    with pytest.raises(ValueError, match=said):
        Plan(8, 3).sequences(0, 4)


def test_an_epoch_without_a_whole_batch_of_each_rank_is_refused_where_others_are_dropped() -> None:
    with pytest.raises(ValueError, match=r"an epoch of 1000 samples must have .* got batch_size 2000 and 1 ranks"):
        Plan(2000, 1000, drop_last=True).sequences()


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="dataset must have at least one sample in an epoch, got 0"):
        Plan(8, 0)


# -- Shards


def dealt(plan: Plan, ranks: int, epoch: int) -> list[list[int | None]]:
    return [[one.shard for one in plan.sequences(rank, ranks, epoch)] for rank in range(ranks)]


def test_shards_are_dealt_to_ranks_anew_in_each_epoch() -> None:
    plan = Plan(8, None, shards=8, shuffle=False)
    epochs = [dealt(plan, 2, epoch) for epoch in range(10)]
    assert all(sorted(one[0] + one[1]) == list(range(8)) for one in epochs)
    assert len({tuple(one[0]) for one in epochs}) >= 8
    assert all(of_rank == sorted(of_rank) for one in epochs for of_rank in one)


def test_shuffled_shards_have_another_order_in_each_epoch() -> None:
    assert len({tuple(dealt(Plan(8, None, shards=8), 1, epoch)[0]) for epoch in range(10)}) == 10
    assert dealt(Plan(8, None, shards=8, shuffle=False), 1, 3) == [list(range(8))]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def test_shuffling_what_decides_its_order_itself_is_a_warning_that_says_what_it_does() -> None:
    with pytest.warns(
        UserWarning, match="shuffles its shards; within a shard it decides the order itself, .*got Stream"
    ):
        assert Plan.of(Stream(), batch_size=8, shards=2, shuffle=True).shuffle
    assert not Plan.of(Stream(), batch_size=8, shards=2).shuffle


def test_a_sampler_that_a_dataloader_would_refuse_is_refused() -> None:
    data = TensorDataset(torch.arange(10))
    sampler = SequentialSampler(data)
    for dataset, shuffle in ((data, True), (Stream(), None)):
        with pytest.raises(ValueError, match="sampler must be of a map-style dataset, without shuffle=True"):
            Plan.of(dataset, batch_size=2, shards=1, shuffle=shuffle, sampler=sampler)
    with pytest.raises(ValueError, match=r"sampler must be of the whole dataset, .*got a DistributedSampler"):
        Plan.of(data, batch_size=2, sampler=DistributedSampler(data, 2, 0))


# -- Hosts


@pytest.mark.parametrize("hosts", [1, 2, 3, 7, 16, 64])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 64])
def test_every_host_is_home_to_some_rank_and_no_rank_has_more_than_its_share(hosts: int, ranks: int) -> None:
    homes = [list(home_shares(rank, ranks, hosts)) for rank in range(ranks)]
    assert {host for one in homes for host in one} == set(range(hosts))
    assert all(len(one) == len(set(one)) <= max(2, -(-hosts // ranks)) + 1 for one in homes)


@pytest.mark.parametrize("hosts", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_have_equal_shares_of_all_hosts_workers_together(hosts: int, ranks: int) -> None:
    shares = [home_shares(rank, ranks, hosts) for rank in range(ranks)]
    assert {sum(of_rank.values()) for of_rank in shares} == {Fraction(hosts, ranks)}
    assert {sum(of_rank.get(host, 0) for of_rank in shares) for host in range(hosts)} == {1}
    assert all(share > 0 for of_rank in shares for share in of_rank.values())


def test_64_ranks_and_64_hosts_have_two_connections_each() -> None:
    homes = [home_shares(rank, 64, 64) for rank in range(64)]
    assert {len(one) for one in homes} == {2}
    assert set(Counter(host for one in homes for host in one).values()) == {2}
