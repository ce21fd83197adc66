"""What ``training-jobs fits`` predicts of the memory that torchtitan publishes of Llama 3.1 8B and 70B on H100s.

    python benchmarks/published_memory.py [--json]

Published are gigabytes that PyTorch's allocator had reserved at most (benchmarks/llama3_h100_202412_torchtitan.md in
pytorch/torchtitan, tables 1 to 4; torchtitan/components/metrics.py logs ``max_reserved_gib``); predicted is what tensors take.
Each row is predicted from the same model with 2 and 4 layers, since each further one adds the same. Its model is transformers'
Llama. Tables 1 and 3 have selective activation checkpointing, which is not offered here: it saves, beside what full checkpointing
saves, the output of every second matrix product and of attention (torchtitan, "selective_ac_option = op"). For a token of a
layer these are q, v, w1, w2 and attention in bf16, and attention's fp32 sum for each head, and they are added.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = ROOT / "training_code"
sys.path[:0] = map(str, (ROOT / "training_jobs" / "training_jobs" / "torch_scripts", CODE / "model_parallel", CODE))

import fits  # noqa: E402, which is found there

GIB = 2**30
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
}
MODELS = {
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32},
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80},
}


@dataclass(frozen=True)
class Row:
    """A row of a table; ``tokens`` are those of a rank."""

    table: str
    model: str
    ranks: int
    arguments: str
    tokens: int
    selective: bool
    published: tuple[float, ...]  # GiB


ROWS = (
    Row("1: FSDP 8", "8B", 8, "--batch-size 16 --context 8192", 2 * 8192, True, (82.4, 77.0, 76.8)),
    Row("3: FSDP 128", "8B", 128, "--batch-size 256 --context 8192", 2 * 8192, True, (67.0, 62.0, 61.8)),
    Row("2: FSDP 8, 32,768 tokens", "8B", 8, "--batch-size 8 --context 32768", 32768, False, (83.9,)),
    Row("4: FSDP 32, TP 8", "70B", 256, "--tensor 8 --batch-size 512 --context 8192", 16 * 8192, False, (71.9,)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one object of the same figures")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    if not options.json:
        print("| table | GPUs | published, GiB | predicted state, GiB | predicted peak, GiB | off by |")
        print("|---|---|---|---|---|---|")
    for row in ROWS:
        model = MODELS[row.model]
        layers = model["num_hidden_layers"]
        with tempfile.TemporaryDirectory() as folder:
            two, four = (predicted(row, count, Path(folder)) for count in (2, 4))
        state, peak = (less + (more - less) / 2 * (layers - 2) for less, more in zip(two, four, strict=True))
        peak += layers * row.tokens * saved_by_selective(model) if row.selective else 0
        off = [peak / GIB / gib - 1 for gib in row.published]
        figures = {"table": row.table, "gpus": row.ranks, "published_gib": row.published}
        found.append({**figures, "state_gib": state / GIB, "peak_gib": peak / GIB, "off": off})
        if not options.json:
            published, deviation = (
                " / ".join(it) for it in ([f"{gib:g}" for gib in row.published], [f"{it:+.0%}" for it in off])
            )
            print(
                f"| {row.table} | {row.ranks} | {published} | {state / GIB:.1f} | {peak / GIB:.1f} | {deviation} |",
                flush=True,
            )
    if options.json:
        print(json.dumps({"rows": found}, indent=2))


def predicted(row: Row, layers: int, folder: Path) -> tuple[int, int]:
    """Bytes of parameters, gradients and optimizer state, and of the peak, with full activation checkpointing."""
    config = {**LLAMA, **MODELS[row.model], "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps(config))
    found = fits.predict(row.ranks, f"--precision bf16 --activation-checkpointing {row.arguments}".split(), folder)
    return found.parameters + found.gradients + found.optimizer, found.peak


def saved_by_selective(model: dict[str, int]) -> int:
    """Bytes for a token of a layer."""
    width, heads = model["hidden_size"], model["num_attention_heads"]
    value = width // heads * LLAMA["num_key_value_heads"]  # type: ignore[operator]
    return 2 * (width + value + model["intermediate_size"] + width + width) + 4 * heads


if __name__ == "__main__":
    main()
