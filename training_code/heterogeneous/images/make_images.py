"""Make a small data set in ImageNet's layout: ``FOLDER/train/CLASS/NAME.JPEG``, and ``FOLDER/val`` alike.

    python make_images.py FOLDER [--images 2000] [--classes 10] [--side 128]

The images are crops of scikit-learn's two photographs. The photograph and the tint, one of several, are the class; place,
brightness and mirroring differ by image. They are for trying out a training, not for measuring one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

TINTS = ((1, 1, 1), (1, 0.4, 0.4), (0.4, 1, 0.4), (0.4, 0.4, 1), (1, 1, 0.4), (1, 0.4, 1), (0.4, 1, 1))
LEAST_SHARE = 0.5  # of a photograph's height that a crop has


def photographs() -> list[np.ndarray]:
    from sklearn.datasets import load_sample_images

    return [np.asarray(image) for image in load_sample_images().images]


def crop(photograph: np.ndarray, random: np.random.Generator, side: int) -> np.ndarray:
    """A mirrored or plain square of the photograph, uint8 [side, side, 3]."""
    height, width, _ = photograph.shape
    edge = int(height * random.uniform(LEAST_SHARE, 1.0))
    top, left = int(random.integers(height - edge + 1)), int(random.integers(width - edge + 1))
    square = Image.fromarray(photograph[top : top + edge, left : left + edge]).resize((side, side))
    pixels = np.asarray(square)
    return pixels[:, ::-1] if random.random() < 0.5 else pixels


def write(folder: Path, images: int, classes: int, side: int, seed: int) -> None:
    """Write ``images`` files into the folders of ``classes``, as equally many as can be."""
    sources, random = photographs(), np.random.default_rng(seed)
    for number in range(images):
        kind = number % classes
        tint = TINTS[kind // len(sources)]
        pixels = crop(sources[kind % len(sources)], random, side) * np.array(tint) * random.uniform(0.7, 1.0)
        place = folder / f"class-{kind:02d}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number:06d}.JPEG", quality=85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=2000, help="to train on; a tenth as many more are in val")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--side", type=int, default=128, help="pixels")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    most = 2 * len(TINTS)
    if not 1 <= options.classes <= most:
        parser.error(f"--classes must be between 1 and {most}, got {options.classes}")
    write(options.folder / "train", options.images, options.classes, options.side, options.seed)
    write(options.folder / "val", options.images // 10, options.classes, options.side, options.seed + 1)


if __name__ == "__main__":
    main()
