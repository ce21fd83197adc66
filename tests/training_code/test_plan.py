"""What the batches of an epoch are: permutations, what ranks read, and which hosts they read from."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import serving  # noqa: F401, which finds the training code
from data_service.plan import Plan, home_shares, permuted

# -- The permutation


@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 17, 200, 4_099, 65_537])
def test_every_sample_is_in_an_epoch_once(length: int) -> None:
    found = permuted(np.arange(length, dtype=np.uint64), length, (0, 0))
    assert sorted(found.tolist()) == list(range(length))


def test_the_samples_of_all_batches_are_one_permutation() -> None:
    plan = Plan(8, 100, seed=1)
    assert sorted(sample for number in range(13) for sample in plan.samples(2, number)) == list(range(100))


def test_seeds_and_epochs_have_permutations_of_their_own() -> None:
    orders = {tuple(Plan(50, 50, seed=seed).samples(epoch, 0)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_an_order_stays_what_it_was_in_earlier_versions() -> None:
    assert Plan(8, 1_000, seed=3).samples(5, 0) == [344, 21, 742, 147, 585, 714, 581, 167]


def test_a_batch_of_a_hundred_billion_samples_is_found_without_the_others() -> None:
    length = 10**11
    samples = Plan(4096, length, seed=1).samples(0, length // 4096 - 1)
    assert len(set(samples)) == 4096
    assert 0 <= min(samples) <= max(samples) < length


def test_neighbours_lie_as_far_apart_as_by_chance() -> None:
    length = 20_000
    order = permuted(np.arange(length, dtype=np.uint64), length, (0, 0)).astype(np.int64)
    # The mean distance of two uniform numbers is a third of their range; of 20,000 it strays from that by some 0.3 %.
    assert np.abs(np.diff(order)).mean() == pytest.approx(length / 3, rel=0.02)
    assert abs(np.corrcoef(order, np.arange(length))[0, 1]) < 0.03


# -- Ranks


def test_every_rank_reads_as_many_batches_and_what_is_left_over_is_counted() -> None:
    plan = Plan(8, 100)
    assert [sequence.length for sequence in plan.sequences(3)] == [4, 4, 4]
    assert plan.left_over(3) == 1


def test_padded_ranks_read_every_batch_and_the_first_of_them_again() -> None:
    plan = Plan(8, 100, even="pad")
    counted = Counter(one.number(n) for one in plan.sequences(3) for n in range(one.length or 0))
    assert counted == Counter([*range(13), 0, 1])
    assert plan.left_over(3) == -2


def test_more_ranks_than_batches_are_refused_unless_they_are_padded() -> None:
    with pytest.raises(
        ValueError, match="every batch of 2 for 3 ranks: set a smaller batch_size than 8, or even='pad'"
    ):
        Plan(8, 16).sequences(3)
    assert [one.number(0) for one in Plan(8, 16, even="pad").sequences(3)] == [0, 1, 0]


def test_an_iterable_dataset_cannot_be_padded() -> None:
    with pytest.raises(ValueError, match="even='pad' needs a dataset with a length"):
        Plan(8, None, shards=2, even="pad")


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
