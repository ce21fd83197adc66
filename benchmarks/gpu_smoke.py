"""Runs each kind of PyTorch training for about a minute on this machine's GPUs, and prints one table.

    python benchmarks/gpu_smoke.py [PART OF A ROW'S NAME ...]

It requires PyTorch with CUDA, transformers for one row, and Pillow and scikit-learn for those of images. The loss's difference is
the largest, over the first steps in fp32 (TF32 on the GPU), from one process on the CPU with the same arguments. In
data_parallel's row of fp16 both compute in fp16; in that of images, whose convolutions in fp16 take a CPU minutes, the CPU
computes in fp32. Tokens, samples or images a second, memory and MFU are those that the scripts log in bf16; the compile ratio
is the eager step's time over the compiled one's. Without a GPU it exits with 2.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

TRAINING_CODE = Path(__file__).parents[1] / "training_code"
SMALL = "--layers 2 --width 128 --heads 4"
SMALL_IMAGES = "--epochs 1 --log-every 1 --batch-size 100 --depth 26 --width 16 --size 64 --workers 2"
PARITY_STEPS = 10
# Llama of half a billion parameters.
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1536,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_hidden_layers": 16,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
SMALL_SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 256}
SMALL_LLAMA = LLAMA | SMALL_SIZES
SMALL_QWEN3 = SMALL_LLAMA | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 8}
SMALL_GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": 128,
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}


def run(script: str, arguments: str, *, gpus: int, channels: dict[str, Path] | None = None) -> str:
    """What a script prints, on that many GPUs, or on the CPU for 0."""
    # huggingface/ uses what is in the folder above; each kind has a `model` of its own.
    paths = [TRAINING_CODE, *([TRAINING_CODE / "model_parallel"] if "huggingface" in script else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "4"}
    if gpus == 0:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    for name, folder in (channels or {}).items():
        environment[f"SM_CHANNEL_{name.upper()}"] = str(folder)
    environment["SM_CHANNELS"] = json.dumps(list(channels or {}))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"] if gpus > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *launcher, str(TRAINING_CODE / script), *arguments.split()]
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    if done.returncode:
        sys.exit(f"{script} {arguments} exited with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def losses(printed: str, of: str = "step") -> list[float]:
    return [float(loss) for loss in re.findall(rf"^{of} \d+ loss ([\d.]+)", printed, re.M)]


def last(pattern: str, printed: str) -> float | None:
    found = re.findall(pattern, printed, re.M)
    return float(found[-1]) if found else None


def difference(
    script: str, arguments: str, gpus: int, channels: dict[str, Path] | None = None, of: str = "step", on_gpus: str = ""
) -> float:
    """`on_gpus`: arguments that the CPU's process does not get."""
    one, many = (
        losses(run(script, given, gpus=count, channels=channels), of)
        for count, given in ((0, arguments), (gpus, f"{arguments} {on_gpus}"))
    )
    return max(abs(first - second) for first, second in zip(one, many, strict=True))


def compiled(gpus: int) -> dict[str, float | None]:
    # The batch is each process's own, so that one process on the CPU has those of all GPUs.
    parity = f"{SMALL} --steps {PARITY_STEPS} --log-every 1"
    alone = losses(run("compiled/train.py", f"{parity} --batch-size {4 * gpus}", gpus=0))
    together = losses(run("compiled/train.py", f"{parity} --batch-size 4", gpus=gpus))
    large = "--layers 12 --width 768 --heads 12 --sequence 1024 --batch-size 16 --steps 60 --precision bfloat16"
    eager, fast = (run("compiled/train.py", f"{large} --compiler {name}", gpus=gpus) for name in ("none", "inductor"))
    steps = [last(r"^steady step ([\d.]+) ms", printed) or 0.0 for printed in (eager, fast)]
    return {
        "difference": max(abs(one - other) for one, other in zip(alone, together, strict=True)),
        "rate": last(r"tokens/s (\d+)", fast),
        "ratio": steps[0] / steps[1],
        "memory": (last(r"^peak memory (\d+) MiB", fast) or 0) / 1024,
    }


def model_parallel(gpus: int, on_gpus: str = "", precision: str = "bf16") -> dict[str, float | None]:
    """With `on_gpus`, arguments of the GPUs' processes alone, gradients are clipped and a checkpoint is saved on the way."""
    clipped = "--clip 1.0 --checkpoint-every 5" if on_gpus else "--checkpoint-every 0"
    parity = f"{SMALL} --hidden 256 --batch-size 16 --steps {PARITY_STEPS} --log-every 1 {clipped}"
    large = "--layers 16 --width 1536 --heads 16 --hidden 4096 --context 1024"
    length = f"--batch-size {8 * gpus} --steps 40 --clip 1.0 --learning-rate 3e-4 --checkpoint-every 0"
    arguments = f"{large} {length} --precision {precision} {on_gpus}"
    printed = run("model_parallel/train.py", arguments, gpus=gpus)
    return {
        "difference": difference("model_parallel/train.py", parity, gpus, on_gpus=on_gpus),
        "rate": last(r"tokens/s (\d+)", printed),
        "memory": last(r" memory_gib ([\d.]+)", printed),
    }


def huggingface_parity(gpus: int, model: dict[str, object], on_gpus: str = "") -> dict[str, float | None]:
    """A small model of transformers, in the first steps alone."""
    script = "model_parallel/huggingface/train.py"
    with tempfile.TemporaryDirectory() as name:
        channels = prepared(Path(name), model)
        parity = f"--steps {PARITY_STEPS} --log-every 1 --batch-size {8 * gpus} --checkpoint-every 5"
        return {"difference": difference(script, parity, gpus, channels, on_gpus=on_gpus)}


def prepared(folder: Path, model: dict[str, object]) -> dict[str, Path]:
    """The channels of a model's configuration, and of tokens."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(model))
    prepare = [sys.executable, str(TRAINING_CODE / "model_parallel" / "huggingface" / "prepare_tokens.py")]
    texts = [str(file) for file in TRAINING_CODE.rglob("*.py")]
    subprocess.run([*prepare, "--output", str(folder / "tokens"), *texts], check=True, stdout=subprocess.DEVNULL)
    return {"model": folder / "model", "tokens": folder / "tokens"}


def huggingface(gpus: int) -> dict[str, float | None]:
    script = "model_parallel/huggingface/train.py"
    with tempfile.TemporaryDirectory() as name:
        channels = prepared(Path(name), LLAMA)
        arguments = f"--context 1024 --batch-size {8 * gpus} --steps 40 --precision bf16 --checkpoint-every 0"
        printed = run(script, f"{arguments} --compiler inductor", gpus=gpus, channels=channels)
        eager = run(script, arguments, gpus=gpus, channels=channels)
        rate, eager_rate = (last(r"tokens/s (\d+)", text) or 0.0 for text in (printed, eager))
        return {
            **huggingface_parity(gpus, SMALL_LLAMA),
            "rate": rate,
            "ratio": rate / eager_rate,
            "mfu": last(r" mfu ([\d.]+)", printed),
            "memory": last(r" memory_gib ([\d.]+)", printed),
        }


def data_parallel(gpus: int) -> dict[str, float | None]:
    # Ranks read different points than one process does, so that they are compared where there is one GPU.
    script, arguments = "data_parallel/train.py", "--epochs 3 --precision fp16"
    run(script, arguments, gpus=gpus)
    return {"difference": difference(script, arguments, 1, of="epoch") if gpus == 1 else None}


def heterogeneous(gpus: int) -> dict[str, float | None]:
    # Ranks read different batches than one process does, so that they are compared where there is one GPU.
    arguments = "--epochs 2 --workers 4"
    printed = run("heterogeneous/train.py", arguments, gpus=gpus)
    parity = difference("heterogeneous/train.py", "--epochs 1", 1) if gpus == 1 else None
    return {"difference": parity, "rate": last(r"samples/s (\d+)", printed)}


def images(gpus: int, precision: str) -> dict[str, float | None]:
    # Ranks read different images than one process does, so that they are compared where there is one GPU.
    script = "heterogeneous/images/train.py"
    with tempfile.TemporaryDirectory() as folder:
        make = [sys.executable, str(TRAINING_CODE / "heterogeneous" / "images" / "make_images.py"), folder]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        channels = {"train": Path(folder) / "train"}
        large = f"--epochs 2 --warm-up-epochs 0 --batch-size 64 --workers 8 --precision {precision}"
        printed = run(script, large, gpus=gpus, channels=channels)
        # The later of two `--precision` counts.
        parity, on_gpus = f"{SMALL_IMAGES} --precision fp32", "--precision fp16" if precision == "fp16" else ""
        return {
            "difference": difference(script, parity, 1, channels, on_gpus=on_gpus) if gpus == 1 else None,
            "rate": last(r"images/s (\d+)", printed),
            "memory": last(r" memory_gib ([\d.]+)", printed),
        }


KINDS = {
    "compiled/train.py": compiled,
    "model_parallel/train.py": model_parallel,
    "model_parallel/train.py --precision fp16": partial(model_parallel, on_gpus="--precision fp16", precision="fp16"),
    "model_parallel/train.py --cpu-offload": partial(model_parallel, on_gpus="--cpu-offload"),
    "model_parallel/train.py --activation-offloading": partial(
        model_parallel, on_gpus="--activation-checkpointing --activation-offloading"
    ),
    "model_parallel/huggingface/train.py": huggingface,
    "model_parallel/huggingface/train.py (Qwen3)": partial(huggingface_parity, model=SMALL_QWEN3),
    "model_parallel/huggingface/train.py (GPT-2)": partial(huggingface_parity, model=SMALL_GPT2),
    "model_parallel/huggingface/train.py --precision fp16": partial(
        huggingface_parity, model=SMALL_LLAMA, on_gpus="--precision fp16"
    ),
    "data_parallel/train.py --precision fp16": data_parallel,
    "heterogeneous/train.py": heterogeneous,
    "heterogeneous/images/train.py": partial(images, precision="bf16"),
    "heterogeneous/images/train.py --precision fp16": partial(images, precision="fp16"),
}
COLUMNS = {
    "difference": "loss, largest difference from the CPU",
    "rate": "tokens/s (heterogeneous: samples/s or images/s)",
    "mfu": "MFU",
    "ratio": "compile ratio",
    "memory": "peak GiB",
}


def shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}" if value < 0.01 else f"{value:.2f}"


def main() -> None:
    import torch

    gpus = torch.cuda.device_count()
    if gpus == 0:
        print("this machine has no GPU", file=sys.stderr)
        sys.exit(2)
    print(f"{gpus} x {torch.cuda.get_device_name()}, PyTorch {torch.__version__}\n")
    print("| script | " + " | ".join(COLUMNS.values()) + " |")
    print("|---" * (1 + len(COLUMNS)) + "|", flush=True)
    for name, measure in KINDS.items():
        if sys.argv[1:] and not any(part in name for part in sys.argv[1:]):
            continue
        found = measure(gpus)
        print(f"| `{name}` | " + " | ".join(shown(found.get(column)) for column in COLUMNS) + " |", flush=True)


if __name__ == "__main__":
    main()
