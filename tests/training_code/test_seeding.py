"""The random numbers of a step are a function of seed, samples, rank and stage."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.seeding import seed_step


def drawn(*where: int) -> float:
    seed_step(*where)
    return torch.rand(()).item()


def test_a_step_has_the_same_random_numbers_each_time() -> None:
    assert drawn(1, 640, 2, 3) == drawn(1, 640, 2, 3)


def test_another_seed_step_rank_or_stage_has_other_random_numbers() -> None:
    places = list(itertools.product((0, 1), (0, 64), (0, 1), (0, 1)))
    assert len({drawn(*place) for place in places}) == len(places)
