"""The workload of heterogeneous training: its digits, what is done to them, and its network."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code" / "heterogeneous"))

from model import SIDE, Digits, accuracy, blurred, enlarged, held_out, held_out_accuracy, network

DIGITS = 1797  # in scikit-learn's copy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A channel of eleven digits, of which the pixels of number n are all n, and the labels n % 10."""
    images = np.repeat(np.arange(11, dtype=np.uint8), 64).reshape(11, 8, 8)
    np.savez(tmp_path / "digits.npz", images=images, labels=np.arange(11) % 10)
    return tmp_path


def test_a_sample_is_an_image_and_its_label() -> None:
    sample = Digits()[0]
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in sample.items()} == {
        "image": (torch.float32, (1, SIDE, SIDE)),
        "label": (torch.int64, ()),
    }


def test_every_digit_is_either_trained_on_or_held_out() -> None:
    assert len(Digits()) + len(held_out()[1]) == DIGITS


def test_each_fifth_digit_is_held_out(folder: Path) -> None:
    assert held_out(folder)[1].tolist() == [0, 5, 0]


def test_the_digits_of_a_channel_are_read_in_place_of_scikit_learns(folder: Path) -> None:
    digits = Digits(folder)
    assert [digits[index]["label"].item() for index in range(len(digits))] == [1, 2, 3, 4, 6, 7, 8, 9]


def test_a_channel_without_its_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"digits\.npz"):
        Digits(tmp_path)


def test_a_digit_is_the_same_each_time_it_is_asked_for() -> None:
    digits = Digits()
    assert torch.equal(digits[7]["image"], digits[7]["image"])


def test_a_digit_does_not_depend_on_what_was_drawn_at_random_before() -> None:
    first = Digits(seed=3)[7]["image"]
    torch.rand(5)
    assert torch.equal(Digits(seed=3)[7]["image"], first)


def test_another_seed_distorts_a_digit_otherwise() -> None:
    assert not torch.equal(Digits(seed=1)[7]["image"], Digits(seed=2)[7]["image"])


def test_two_digits_are_distorted_by_different_amounts(tmp_path: Path) -> None:
    np.savez(tmp_path / "digits.npz", images=np.full((3, 8, 8), 8, dtype=np.uint8), labels=np.zeros(3))
    digits = Digits(tmp_path)
    assert not torch.equal(digits[0]["image"], digits[1]["image"])


def test_a_digit_is_turned_counter_clockwise() -> None:
    image = torch.rand(8, 8)
    assert torch.allclose(enlarged(image, math.pi / 2), enlarged(image).rot90(1, (2, 3)), atol=1e-5)


def test_the_blur_reaches_five_pixels_each_way_and_no_further() -> None:
    point = torch.zeros(1, 1, SIDE, SIDE)
    point[0, 0, 14, 14] = 1.0
    reached = (blurred(point)[0, 0] > 0).nonzero()
    assert (reached.min().item(), reached.max().item(), len(reached)) == (9, 19, 11 * 11)


def test_the_blur_neither_adds_nor_takes_light() -> None:
    point = torch.zeros(1, 1, SIDE, SIDE)
    point[0, 0, 14, 14] = 1.0
    assert blurred(point).sum().item() == pytest.approx(1.0)


def test_held_out_digits_carry_no_noise(folder: Path) -> None:
    # Its pixels are all 0, so that anything else would be noise.
    assert held_out(folder)[0][0].abs().max().item() == 0.0


def test_the_network_gives_ten_logits_for_an_image() -> None:
    assert network()(torch.zeros(2, 1, SIDE, SIDE)).shape == (2, 10)


def test_accuracy_is_the_share_of_images_that_are_right() -> None:
    class AlwaysThree(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(torch.full((len(images),), 3), 10).float()

    assert accuracy(AlwaysThree(), torch.zeros(4, 1, SIDE, SIDE), torch.tensor([3, 1, 3, 3])) == 0.75


def test_a_saved_network_is_as_accurate_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = network()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert held_out_accuracy(tmp_path / "model.pt") == accuracy(model, *held_out())
