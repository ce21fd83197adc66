"""The workload: text as bytes, in sequences of one length, and a small Transformer that predicts the next byte."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import keras
import numpy as np
from keras import layers

PADDING = 0  # a byte that text does not contain
BYTES = 256


def sequences(folder: Path | None, length: int) -> np.ndarray:
    """Paragraphs of the text in ``folder``, uint8 [sequences, length + 1]: longer ones are cut, shorter ones padded.

    The last one is empty, for what a batch lacks. Without a folder the text is the standard library of the Python that runs this.
    """
    files = sorted(folder.rglob("*")) if folder else sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = b"\n\n".join(file.read_bytes() for file in files if file.is_file())
    parts = text.split(b"\n\n")
    rows = [part[start : start + length + 1] for part in parts for start in range(0, len(part) - 1, length)]
    if not rows:
        raise ValueError(f"the channel text must have text files, like 'os.py', got none in {folder}")
    return np.stack([np.frombuffer(row.ljust(length + 1, bytes([PADDING])), np.uint8) for row in [*rows, b""]])


def network(length: int, width: int, depth: int, heads: int) -> keras.Model:
    """Bytes, int32 [n, t] with t of at most ``length``, to the logits of each next byte, float32 [n, t, 256]."""
    given = keras.Input((None,), dtype="int32")
    x = layers.Embedding(BYTES, width)(given) + Positions(length, width)(given)
    for _ in range(depth):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    return keras.Model(given, layers.Dense(BYTES)(layers.LayerNormalization()(x)))


class Positions(layers.Layer):
    """A learned position embedding."""

    def __init__(self, length: int, width: int, **about: object) -> None:
        super().__init__(**about)
        self.length, self.width = length, width

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=(self.length, self.width), name="table")

    def call(self, given: keras.KerasTensor) -> keras.KerasTensor:
        return self.table[: keras.ops.shape(given)[1]]

    def get_config(self) -> dict[str, object]:
        return {**super().get_config(), "length": self.length, "width": self.width}
