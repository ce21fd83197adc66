"""Writes JPEGs in ImageNet's layout, FOLDER/train/CLASS/NAME.JPEG and FOLDER/val alike: noise, tinted by class."""

import random
import sys
from pathlib import Path

from PIL import Image

TINTS = {"red": (255, 90, 90), "green": (90, 255, 90), "blue": (90, 90, 255)}

random.seed(0)
for part, count in (("train", 60), ("val", 10)):
    for name, tint in TINTS.items():
        folder = Path(sys.argv[1], part, name)
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(count):
            noise = Image.frombytes("L", (48, 48), random.randbytes(48 * 48))
            channels = [noise.point(lambda value, most=most: value * most // 255) for most in tint]
            Image.merge("RGB", channels).save(folder / f"{number:03}.JPEG")
