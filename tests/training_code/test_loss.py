"""The loss is that of all targets that count, however they are divided among ranks and microbatches."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.loss import IGNORED, MeanLoss, counted, token_loss

CPU = torch.device("cpu")


def uneven() -> tuple[torch.Tensor, torch.Tensor]:
    """The logits and targets of two sequences, of which one has a single target."""
    random = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(2, 4, 7, generator=random), torch.randint(7, (2, 4), generator=random)
    targets[1, 1:] = IGNORED
    return logits, targets


def test_each_token_counts_alike_however_many_each_rank_has() -> None:
    logits, targets = uneven()
    count = counted(targets)
    of_ranks = [token_loss(logits[rank : rank + 1], targets[rank : rank + 1], count, shares=2) for rank in range(2)]
    whole = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert torch.stack(of_ranks).mean().item() == pytest.approx(whole.item(), abs=1e-6)
    mean_of_means = torch.stack([F.cross_entropy(of, to) for of, to in zip(logits, targets, strict=True)]).mean()
    assert abs(mean_of_means.item() - whole.item()) > 0.1


def test_the_parts_of_microbatches_add_up_to_the_loss_of_the_batch() -> None:
    logits, targets = uneven()
    parts = [token_loss(of, to, counted(targets)) for of, to in zip(logits, targets, strict=True)]
    assert sum(parts).item() == pytest.approx(F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item(), abs=1e-6)


def test_a_batch_of_padding_alone_has_a_loss_and_gradients_of_0() -> None:
    logits = torch.randn(3, 5, requires_grad=True)
    loss = token_loss(logits, torch.full((3,), IGNORED), count=0)
    loss.backward()
    assert (loss.item(), logits.grad.abs().sum().item()) == (0, 0)


def test_labels_are_smoothed_as_pytorch_does_it() -> None:
    logits, targets = uneven()
    found = token_loss(logits[0], targets[0], 4, label_smoothing=0.1)
    assert found.item() == pytest.approx(F.cross_entropy(logits[0], targets[0], label_smoothing=0.1).item(), abs=1e-6)


def test_the_mean_of_steps_is_that_of_their_targets_and_starts_anew_once_read() -> None:
    log = MeanLoss(CPU)
    log.add(torch.tensor(1.0), 9)
    log.add(torch.tensor(11.0), 1)
    assert log.read() == pytest.approx(2.0)
    log.add(torch.tensor(3.0), torch.tensor(5))
    assert log.read() == pytest.approx(3.0)


def test_the_mean_of_no_step_is_no_number() -> None:
    assert torch.tensor(MeanLoss(CPU).read()).isnan()


def test_the_mean_of_an_epoch_goes_on_where_it_was_kept() -> None:
    before, after = MeanLoss(CPU), MeanLoss(CPU)
    before.add(torch.tensor(1.0), 3)
    after.load_state_dict(before.state_dict())
    after.add(torch.tensor(5.0), 1)
    assert after.read() == pytest.approx(2.0)
