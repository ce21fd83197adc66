"""Parts of an optimizer's step: groups, schedule, microbatches and clipping."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.optimization import clip_gradients, parameter_groups, require_finite, set_learning_rate
from common.schedule import add_schedule, scheduled_rate, warmup_cosine


def test_matrices_decay_and_vectors_do_not() -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3))
    shapes = {
        group["weight_decay"]: [parameter.ndim for parameter in group["params"]]
        for group in parameter_groups(model, 0.1)
    }
    assert shapes == {0.1: [2, 2], 0.0: [1, 1, 1]}


def test_a_frozen_parameter_is_in_no_group() -> None:
    model = nn.Linear(4, 3, bias=False).requires_grad_(False)
    assert parameter_groups(model, 0.1) == []


def test_the_rate_rises_to_its_peak_and_falls_to_its_least() -> None:
    rates = [warmup_cosine(step, 10, 2, least=0.1) for step in range(1, 11)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[5] == pytest.approx(0.55)
    assert rates[-1] == pytest.approx(0.1)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_a_rate_whose_least_is_its_peak_is_constant() -> None:
    assert {warmup_cosine(step, 10, 0, least=1.0) for step in range(1, 15)} == {1.0}


@pytest.mark.parametrize(
    ("arguments", "rates"),
    [
        ("", [0.01, 0.01, 0.01, 0.01]),
        ("--learning-rate 0.4 --warm-up 2", [0.2, 0.4, 0.4, 0.4]),
        ("--learning-rate 0.4 --least-rate 0.5", [0.371, 0.3, 0.229, 0.2]),
    ],
)
def test_a_scripts_arguments_are_its_schedule_which_is_constant_by_default(arguments: str, rates: list[float]) -> None:
    parser = argparse.ArgumentParser()
    add_schedule(parser, peak=0.01)
    options = parser.parse_args(arguments.split())
    assert [scheduled_rate(options, step, 4, batch=64) for step in range(1, 5)] == pytest.approx(rates, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "rate"),
    [("", 0.1), ("--base-batch-size 64", 0.4), ("--base-batch-size 64 --rate-rule square-root", 0.2)],
)
def test_the_rate_grows_with_the_batch_or_its_root_where_it_has_a_base(arguments: str, rate: float) -> None:
    parser = argparse.ArgumentParser()
    add_schedule(parser, peak=0.1)
    assert scheduled_rate(parser.parse_args(arguments.split()), 1, 4, batch=256) == pytest.approx(rate)


@pytest.mark.parametrize("value", ["0", "-64", "6.4"])
def test_a_base_batch_that_is_no_number_of_samples_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_schedule(parser, peak=0.1)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--base-batch-size={value}"])
    assert f"--base-batch-size: must be a whole number from 1 on, like 256, got '{value}'" in capsys.readouterr().err


def test_the_rate_is_that_of_all_groups() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.1), lr=0.1)
    set_learning_rate([optimizer], 0.3)
    assert [group["lr"] for group in optimizer.param_groups] == [0.3, 0.3]


def test_gradients_are_scaled_to_the_limit_and_their_norm_is_returned() -> None:
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    weights[0].grad, weights[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert clip_gradients(weights, 1.0).item() == pytest.approx(5.0)
    assert weights[0].grad.tolist() == pytest.approx([0.6, 0.0], abs=1e-5)
    assert weights[1].grad.tolist() == pytest.approx([0.8], abs=1e-5)


def test_without_a_limit_gradients_are_left_as_they_are() -> None:
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    assert clip_gradients([weight], 0.0).item() == pytest.approx(5.0)
    assert weight.grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_or_a_norm_that_is_not_finite_is_an_error(value: float) -> None:
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([1.0, value])
    with pytest.raises(RuntimeError, match="the norm of the gradients is not finite"):
        clip_gradients([weight], 1.0)
    with pytest.raises(RuntimeError, match="the loss is not finite"):
        require_finite(torch.tensor(value), "loss")
