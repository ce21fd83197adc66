"""A folder of images in ImageNet's layout, ``CLASS/NAME.JPEG``, decoded with Pillow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

SUFFIXES = (".jpeg", ".jpg", ".png")
LEAST_AREA, MOST_RATIO = 0.08, 4 / 3  # of a random crop, by the image's area and by its height
CENTRE = 224 / 256  # the side of a crop in the middle, by the image's shorter one

Box = tuple[float, float, float, float]  # left, upper, right, lower


class ImageFolder(Dataset[Mapping[str, Tensor]]):
    """``image``: uint8 [size, size, 3]; ``label``: the number of its class, by name.

    Training takes a random crop, which may be mirrored, of PyTorch's generator; without ``training`` it is the middle.
    A model's ``channels_last`` is the layout of these images, so that nothing transposes them on their way.
    """

    def __init__(self, folder: Path, size: int = 224, training: bool = True) -> None:
        self.files = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in SUFFIXES)
        self.classes = sorted({path.parent.name for path in self.files})
        self._labels = {name: number for number, name in enumerate(self.classes)}
        self._size, self._training = size, training
        if not self.files:
            raise ValueError(f"the folder of images must have files like n01440764/name.JPEG, got {folder}")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        file = self.files[index]
        with Image.open(file) as image:
            box = random_box(*image.size) if self._training else centre_box(*image.size)
            pixels = torch.from_numpy(np.array(cropped(image, box, self._size)))
        if self._training and torch.rand(()) < 0.5:
            pixels = pixels.flip(1)
        return {"image": pixels, "label": torch.tensor(self._labels[file.parent.name])}


def cropped(image: Image.Image, box: Box, size: int) -> Image.Image:
    """A box of the image as RGB of ``size`` pixels squared. A JPEG is decoded at a half, fourth or eighth where that will do."""
    width, height = image.size
    scale = min(1.0, size / min(box[2] - box[0], box[3] - box[1]))
    image.draft("RGB", (math.ceil(width * scale), math.ceil(height * scale)))  # at least so large
    x, y = image.size[0] / width, image.size[1] / height
    scaled = (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
    return image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=scaled)


def random_box(width: int, height: int) -> Box:
    """A box of a random share of the area and a random ratio, anywhere (Szegedy et al., https://arxiv.org/abs/1409.4842)."""
    area, log_ratio, x, y = torch.rand(4).tolist()
    target = width * height * (LEAST_AREA + (1 - LEAST_AREA) * area)
    ratio = MOST_RATIO ** (2 * log_ratio - 1)
    box_width, box_height = min(width, math.sqrt(target * ratio)), min(height, math.sqrt(target / ratio))
    left, upper = x * (width - box_width), y * (height - box_height)
    return left, upper, min(width, left + box_width), min(height, upper + box_height)


def centre_box(width: int, height: int) -> Box:
    side = CENTRE * min(width, height)
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side
