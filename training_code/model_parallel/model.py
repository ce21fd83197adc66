"""The workload: a decoder-only transformer that predicts the next byte of a text, without any parallelism."""

from __future__ import annotations

import math
import sysconfig
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from common.order import Order
from head import Head
from torch import Tensor, nn

ROTATION_BASE = 10_000.0


@dataclass(frozen=True)
class Config:
    """The sizes of a model: ``context`` tokens at once, each one of ``vocabulary``; ``hidden`` is the feed-forward's width."""

    layers: int = 4
    width: int = 128
    heads: int = 8
    hidden: int = 352
    context: int = 128
    vocabulary: int = 256

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be divisible by 2 x heads, got width {self.width} and heads {self.heads}")


class Transformer(nn.Module):
    """Tokens [n, context], int64, to the logits of the next ones [n, context, vocabulary].

    A pipeline stage has only some ``layers``, by their global numbers, and the identity in place of ``embed``, or of ``norm`` and
    ``head``: its input or output are then activations [n, context, width].
    """

    rotation: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed: nn.Module = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleDict({str(number): Block(config) for number in range(config.layers)})
        self.norm: nn.Module = nn.RMSNorm(config.width, eps=1e-5)
        self.head: nn.Module = Head(config.width, config.vocabulary, bias=False)
        self.register_buffer("rotation", rotations(config), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for layer in self.layers.values():
            x = layer(x, self.rotation)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Attention(nn.Module):
    """Causal attention. The number of local heads follows from the output of ``query``, which tensor parallelism divides."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._per_head = config.width // config.heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, config.width, bias=False)
        self.value = nn.Linear(config.width, config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, rotation: Tensor) -> Tensor:
        projected = (of(x) for of in (self.query, self.key, self.value))
        query, key, value = (one.unflatten(-1, (-1, self._per_head)) for one in projected)
        query, key = rotated(query, rotation), rotated(key, rotation)
        # Transposed after the rotation, so that the result has its layout, and transposed back is not copied.
        heads = (part.transpose(1, 2) for part in (query, key, value))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def rotations(config: Config) -> Tensor:
    """The cosines and sines [2, context, width of a head / 2] that mark the positions (rotary embeddings)."""
    half = config.width // config.heads // 2
    rates = ROTATION_BASE ** (-torch.arange(half) / half)
    angles = torch.outer(torch.arange(config.context), rates)
    return torch.stack([angles.cos(), angles.sin()])


def rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """x [n, context, heads, width of a head] turned by its positions."""
    cosine, sine = rotation.to(x.dtype).unsqueeze(2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def initial(name: str, shape: torch.Size, config: Config, seed: int) -> Tensor:
    """A parameter's initial value, a function of its name and the seed, so that each rank can compute its shard."""
    if len(shape) == 1:
        return torch.ones(shape)
    random = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    deviation = 0.02 / math.sqrt(2 * config.layers) if name.endswith(("out.weight", "down.weight")) else 0.02
    return torch.randn(shape, generator=random) * deviation


def text(folder: Path | None, most: int) -> Tensor:
    """Up to ``most`` bytes of the Python files in a folder, or of Python's standard library, sorted by name: uint8."""
    found = bytearray()
    for path in sorted(Path(folder or sysconfig.get_path("stdlib")).iterdir()):
        if path.name != "site-packages" and len(found) < most:  # what is installed has 100,000 files
            for file in sorted(path.rglob("*.py")) if path.is_dir() and not path.is_symlink() else [path]:
                if file.suffix == ".py" and "site-packages" not in file.parts:
                    found += file.read_bytes()
    if not found:
        raise ValueError(f"the folder of the text must have files like os.py, got {folder}")
    return torch.frombuffer(found[:most], dtype=torch.uint8)


class Windows:
    """The sequences of a text: ``context`` tokens and the one that follows each. Each epoch is a permutation of all."""

    def __init__(self, text: Tensor, context: int, seed: int) -> None:
        # The last sequence's last target is the token after it.
        self._text, self._context, self._length = text, context, (len(text) - 1) // context
        if self._length < 1:
            raise ValueError(f"context must be less than the text's {len(text)} bytes, got {context}")
        self._order = Order(self._length, 1, seed)

    def __len__(self) -> int:
        """The sequences of an epoch."""
        return self._length

    def batch(self, first: int, size: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets, both int64 [size, context], of the sequences from position ``first`` of the training on."""
        starts = [int(self._order.at(position)[0]) * self._context for position in range(first, first + size)]
        sequences = torch.stack([self._text[start : start + self._context + 1] for start in starts]).long()
        return sequences[:, :-1], sequences[:, 1:]
