"""The order of samples is a function of the seed and of the samples that were read, whatever the batch and the ranks are."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

import common.order
from common.order import Order, share


def read(order: Order, samples: int, steps: int) -> list[int]:
    return np.concatenate(list(islice(order.steps_from(samples), steps))).tolist()


@pytest.mark.parametrize("batch", [1, 3, 4, 10])
def test_an_epoch_has_each_sample_once(batch: int) -> None:
    order = Order(10, batch, seed=0)
    for epoch in range(3):
        assert sorted(read(order, 10 * epoch, order.steps_of_an_epoch)) == list(range(10))


def test_the_last_step_of_an_epoch_has_what_is_left_of_it() -> None:
    assert [len(batch) for batch in islice(Order(10, 4, seed=0).steps_from(0), 5)] == [4, 4, 2, 4, 4]


def test_each_epoch_and_each_seed_has_another_order() -> None:
    orders = [read(Order(50, 50, seed), 50 * epoch, 1) for seed in (-1, 0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 6


def test_another_batch_goes_on_at_the_sample() -> None:
    before = read(Order(10, 4, seed=0), 0, 1)
    after = read(Order(10, 3, seed=0), len(before), 2)
    assert sorted(before + after) == list(range(10))


def test_a_position_in_steps_grows_by_one_with_each_and_does_not_jump_where_the_batch_changes() -> None:
    order = Order(10, 4, seed=0)
    assert [order.steps(samples) for samples in (0, 4, 8, 10, 14)] == [0, 1, 2, 3, 4]
    assert Order(10, 2, seed=0).steps(14) == 7


def test_the_shares_of_all_ranks_are_the_batch_filled_up_to_one_size() -> None:
    shares = [share(np.arange(5), rank, ranks=2, size=4).tolist() for rank in range(2)]
    assert shares == [[0, 2, 4, -1], [1, 3, -1, -1]]
    assert share(np.arange(5), 1, 2, 4, filling=50).tolist() == [1, 3, 50, 50]


@pytest.mark.parametrize(("length", "batch"), [(10, 11), (10, 0)])
def test_a_batch_that_an_epoch_cannot_fill_is_refused(length: int, batch: int) -> None:
    message = f"batch_size times ranks must be from 1 to the number of samples, 10, like 10, got {batch}"
    with pytest.raises(ValueError, match=message):
        Order(length, batch, seed=0)


def test_a_dataset_without_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="the dataset must have at least one sample, got 0"):
        Order(0, 1, seed=0)


def test_the_order_and_the_schedule_need_no_pytorch() -> None:
    text = "import sys; sys.modules['torch'] = None; import common.schedule, common.order"
    path = Path(common.order.__file__).parents[1]
    subprocess.run([sys.executable, "-c", text], env={"PYTHONPATH": str(path)}, check=True)
