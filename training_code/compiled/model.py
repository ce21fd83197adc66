"""The workload: text as bytes, each sample padded or truncated to one length, and a small GPT that predicts the next byte."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

PAD = 256  # after the 256 bytes
VOCABULARY = 257
LEAST = 2  # bytes of a sample: an input and a target


class Text(Dataset[bytes]):
    """The samples of every ``.py`` and ``.txt`` file of ``folder``, or of the one file: at most ``sequence`` bytes each.

    A file is split at blank lines, and longer paragraphs are truncated, so that samples differ in length, as sentences do.
    Without a ``folder`` the text is the running Python's standard library.
    """

    def __init__(self, folder: Path | None, sequence: int) -> None:
        source = folder or Path(sysconfig.get_path("stdlib"))
        # The library's packages are left out: its modules alone are 5 MB.
        found = source.glob("*.py") if folder is None else source.rglob("*")
        files = [source] if source.is_file() else sorted(file for file in found if file.suffix in (".py", ".txt"))
        parts = (part for file in files for part in file.read_bytes().split(b"\n\n"))
        cut = (part[start : start + sequence] for part in parts for start in range(0, len(part), sequence))
        self._samples = [sample for sample in cut if len(sample) >= LEAST]
        if not self._samples:
            raise ValueError(f"the channel text must have .py or .txt files that are not empty, got {source}")

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> bytes:
        return self._samples[index]


def padded(samples: Sequence[bytes], length: int) -> Tensor:
    """Samples as int64 [n, length], with ``PAD`` behind each."""
    batch = torch.full((len(samples), length), PAD)
    for row, sample in zip(batch, samples, strict=True):
        row[: len(sample)] = torch.frombuffer(bytearray(sample), dtype=torch.uint8)
    return batch


class LanguageModel(nn.Module):
    """A GPT: tokens, int64 [n, length], to the mean loss of the prediction of each next token.

    ``padding`` is a token that is ignored in the loss. With ``causal`` off it is a BERT: attention is bidirectional, and
    ``forward`` has the tokens to predict as ``targets``.
    """

    def __init__(
        self,
        *,
        sequence: int,
        width: int,
        layers: int,
        heads: int,
        vocabulary: int = VOCABULARY,
        padding: int = PAD,
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.padding, self.causal = padding, causal
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(sequence, width)
        self.blocks = nn.Sequential(*(Block(width, heads, causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        if targets is None:
            tokens, targets = tokens[:, :-1], tokens[:, 1:]
        embedded = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = F.linear(self.norm(self.blocks(embedded)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=self.padding)


class Block(nn.Module):
    """A pre-norm transformer block: attention and a feed-forward network with residual connections, [n, length, width]."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, inputs: Tensor) -> Tensor:
        batch, length, width = inputs.shape
        projected = self.queries_keys_values(self.before_attention(inputs))
        each = projected.view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = each.permute(2, 0, 3, 1, 4)
        # Padding follows the text, so a causal mask also hides it.
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=self.causal)
        outputs = inputs + self.attended(attended.transpose(1, 2).reshape(batch, length, width))
        return outputs + self.network(self.before_network(outputs))
