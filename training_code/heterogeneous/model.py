"""The workload: scikit-learn's handwritten digits, enlarged and distorted at some cost, and a small convolutional network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

SIDE = 28  # pixels of an enlarged digit
HELD_OUT_EVERY = 5  # every fifth digit is held out
MOST_DEGREES = 15
NOISE = 0.1


class Digits(Dataset[Mapping[str, Tensor]]):
    """The digits to train on: ``image``, float32 [1, 28, 28] of 0 to about 1, and ``label``, int64.

    Each is turned by up to 15 degrees, made noisy, and blurred with an 11 x 11 Gaussian: the same way each time at one ``seed``.
    ``folder`` holds ``digits.npz``; without one the digits are scikit-learn's own copy.
    """

    def __init__(self, folder: Path | None = None, seed: int = 0) -> None:
        images, labels = _read(folder)
        training = torch.arange(len(labels)) % HELD_OUT_EVERY != 0
        self._images, self._labels, self._seed = images[training], labels[training], seed

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        random = torch.Generator().manual_seed(self._seed * 1_000_003 + index)
        angle = math.radians(MOST_DEGREES) * (2 * torch.rand((), generator=random).item() - 1)
        noise = NOISE * torch.randn(1, 1, SIDE, SIDE, generator=random)
        return {"image": blurred(enlarged(self._images[index], angle) + noise)[0], "label": self._labels[index]}


def enlarged(image: Tensor, angle: float = 0.0) -> Tensor:
    """An image [8, 8] turned counter-clockwise by ``angle`` radians, as [1, 1, 28, 28]."""
    cosine, sine = math.cos(angle), math.sin(angle)
    turned = _GRID @ torch.tensor([[cosine, sine], [-sine, cosine]])
    return F.grid_sample(image[None, None], turned, align_corners=False)


def blurred(images: Tensor) -> Tensor:
    """Images [n, 1, 28, 28] under an 11 x 11 Gaussian of 1.5 pixels, first along their columns and then along their rows."""
    columns = F.conv2d(images, _GAUSSIAN.view(1, 1, -1, 1), padding=(5, 0))
    return F.conv2d(columns, _GAUSSIAN.view(1, 1, 1, -1), padding=(0, 5))


def _gaussian() -> Tensor:
    bell = torch.exp(-((torch.arange(11.0) - 5) ** 2) / (2 * 1.5**2))
    return bell / bell.sum()


# Where each pixel of an enlarged image comes from, [1, 28, 28, 2], and the blur's weights [11].
_GRID = F.affine_grid(torch.eye(2, 3)[None], [1, 1, SIDE, SIDE], align_corners=False)
_GAUSSIAN = _gaussian()


def network() -> nn.Module:
    """Images [n, 1, 28, 28] to the logits of ten digits [n, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def held_out(folder: Path | None = None) -> tuple[Tensor, Tensor]:
    """Images [n, 1, 28, 28], not distorted, and labels [n] of the held-out digits."""
    images, labels = _read(folder)
    kept = torch.arange(len(labels)) % HELD_OUT_EVERY == 0
    return torch.cat([blurred(enlarged(image)) for image in images[kept]]), labels[kept]


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The accuracy of the model."""
    return (model(images).argmax(dim=1) == labels).float().mean().item()


def held_out_accuracy(file: Path) -> float:
    """The accuracy of a saved model on the held-out digits."""
    model = network()
    model.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return accuracy(model.eval(), *held_out())


def _read(folder: Path | None) -> tuple[Tensor, Tensor]:
    if folder is not None:
        with np.load(folder / "digits.npz") as file:
            images, labels = file["images"], file["labels"]
    else:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = digits.images, digits.target
    return torch.from_numpy(images.astype(np.float32) / 16), torch.from_numpy(labels.astype(np.int64))
