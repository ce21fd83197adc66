"""The order of samples in TensorFlow's scripts, which is NumPy alone, and their rate, which is that of PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.tensorflow_order import Order

TRAINING_CODE = Path(__file__).parents[2] / "training_code"


@pytest.mark.parametrize("batches", [(7,), (50,), (1, 20), (16, 3, 11)])
def test_each_epoch_reads_each_sample_once_whatever_the_batches_are(batches: tuple[int, ...]) -> None:
    read: list[int] = []
    orders = [Order(50, batch, seed=3) for batch in batches]
    while len(read) < 150:
        order = orders[len(read) // 10 % len(orders)]  # another batch on from here
        read += order.at(len(read)).tolist()
    assert [sorted(read[epoch : epoch + 50]) for epoch in (0, 50, 100)] == [[*range(50)]] * 3


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [Order(50, 50, seed).at(epoch * 50).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert Order(50, 50, 1).at(50).tolist() == orders[-1]


def test_devices_share_a_step_in_one_shape_and_the_rest_of_an_epoch_is_filled_with_no_sample() -> None:
    order = Order(50, 16, seed=0)
    assert [order.shares(samples, 2).shape for samples in (0, 48)] == [(2, 8), (2, 8)]
    assert np.array_equal(order.shares(16, 2).ravel(), order.at(16))
    last = order.shares(48, 2)
    assert np.array_equal(last[0][:2], order.at(48))
    assert (last[0][2:] == 50).all()
    assert (last[1] == 50).all()


def test_a_position_is_as_many_steps_as_the_epochs_before_it_have() -> None:
    assert [Order(50, 16, 0).steps(samples) for samples in (0, 16, 48, 50, 82)] == [0, 1, 3, 4, 6]


@pytest.mark.parametrize(
    ("length", "batch", "message"),
    [
        (0, 1, "the dataset must have at least one sample, got 0"),
        (1000, 2000, "batch_size times devices must be from 1 to the number of samples, 1000, like 64, got 2000"),
        (1000, 0, "batch_size times devices must be from 1 to the number of samples, 1000, like 64, got 0"),
    ],
)
def test_a_batch_that_no_epoch_has_is_refused(length: int, batch: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Order(length, batch, seed=0)


def test_the_schedule_and_the_order_need_no_pytorch() -> None:
    text = "import sys; sys.modules['torch'] = None; import common.schedule, common.tensorflow_order"
    subprocess.run([sys.executable, "-c", text], env={"PYTHONPATH": str(TRAINING_CODE)}, check=True)
