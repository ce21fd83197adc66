"""The datasets of the oracle's cases: of any size, whose samples all differ, so that each is known by its values."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def make_points(folder: Path, points: int, reach: float = 2) -> None:
    (folder / "points").mkdir(parents=True)
    chosen = random.Random(points)
    rows = [
        f"{chosen.uniform(-reach, reach):.6f},{chosen.uniform(-reach, reach):.6f},{chosen.randrange(2)}"
        for _ in range(points)
    ]
    (folder / "points" / "points.csv").write_text("\n".join(["x,y,spiral", *rows]))


def make_digits(folder: Path, digits: int) -> None:
    """Every fifth of them is held out."""
    (folder / "digits").mkdir(parents=True)
    chosen = np.random.default_rng(digits)
    images = chosen.integers(0, 17, (digits, 8, 8)).astype(np.float64)
    np.savez(folder / "digits" / "digits.npz", images=images, labels=chosen.integers(0, 10, digits))


def make_images(folder: Path, images: int) -> None:
    """Of one colour each, so that every crop is known."""
    chosen = random.Random(images)
    for number, colour in enumerate(chosen.sample(range(256**3), images)):
        place = folder / "train" / f"class-{chosen.randrange(4)}"
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 64), (colour % 256, colour // 256 % 256, colour // 256**2)).save(place / f"{number}.png")


SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "max_position_embeddings": 32}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES},
    "qwen3": {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 4, "tie_word_embeddings": True, **SIZES},
    # Attention's dropout stays in its kernel, where its mask is not seen.
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 64, "n_positions": 32, "n_embd": 16,
             "n_layer": 2, "n_head": 4, "attn_pdrop": 0.0, "embd_pdrop": 0.1, "resid_pdrop": 0.1,
             "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": False},
}  # fmt: skip


def make_model_and_tokens(folder: Path, model: str, files: int, tokens: int) -> None:
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(MODELS[model]))
    (folder / "tokens").mkdir()
    (folder / "validation").mkdir()
    chosen = np.random.default_rng(tokens)
    for number in range(files):
        np.save(
            folder / "tokens" / f"tokens-{number:05d}.npy", chosen.integers(0, 64, tokens + number).astype(np.uint16)
        )
    np.save(folder / "validation" / "tokens-00000.npy", chosen.integers(0, 64, 60).astype(np.uint16))


def make_text(folder: Path, files: int, length: int) -> None:
    (folder / "text").mkdir(parents=True)
    chosen = random.Random(length)
    for number in range(files):
        (folder / "text" / f"{number}.py").write_bytes(bytes(chosen.randrange(128) for _ in range(length)))


def make_texts(folder: Path, texts: int, longest: int) -> None:
    """Of any length, between blank lines."""
    (folder / "text").mkdir(parents=True)
    chosen = random.Random(texts)
    lengths = [chosen.randrange(4, longest + 1) for _ in range(texts)]
    parts = [bytes(chosen.randrange(97, 123) for _ in range(length)) for length in lengths]
    (folder / "text" / "text.txt").write_bytes(b"\n\n".join(parts))


DATA: dict[str, Any] = {
    "data_parallel": make_points,
    "heterogeneous": make_digits,
    "images": make_images,
    "compiled": make_texts,
    "model_parallel": make_text,
    "huggingface": make_model_and_tokens,
}
