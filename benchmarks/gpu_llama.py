"""Measures the half-billion Llama of model_parallel/huggingface/train.py beside a plain PyTorch loop, on one GPU.

    python benchmarks/gpu_llama.py [--batches 8 32] [--turns 2] [--trace] [--json]

Both train the same configuration in bf16 with fp32 weights, `torch.compile`, fused AdamW and a clipped gradient, 1,024 tokens a
sequence. Ours is the script as a job runs it, with FSDP2, its log and its checks for SIGTERM; the plain loop is autocast around
the whole compiled model and loss, its tokens on the device before it begins. Each turn starts both anew, one after the other; a
rate is the median of the intervals of ten steps that follow the first ten, over the turns. MFU is by flops.py.

`--trace` profiles three steps of ours, and prints where the GPU's time goes. It requires PyTorch with CUDA and transformers;
without a GPU it exits with 2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gpu_smoke import LLAMA, TRAINING_CODE, run

SCRIPT = "model_parallel/huggingface/train.py"
CONTEXT, INTERVAL = 1024, 10
PROFILED, STEPS_OF_A_TRACE = 20, 3
# Of kernels, by a part of the name, in this order.
KINDS = {
    "attention": ("flash", "fmha", "sdpa", "attention"),
    "matrix products": ("gemm", "nvjet", "cutlass", "cublas", "splitk", "mm_"),
    "optimizer": ("adam", "multi_tensor"),
    "copies and casts": ("copy", "memcpy", "cat", "split", "memset", "fill"),
    "fused by inductor": ("triton",),
}


def ours(folder: Path, batch: int, steps: int, more: str = "") -> str:
    channels = {"tokens": folder / "tokens", "model": folder / "model"}
    arguments = f"--context {CONTEXT} --batch-size {batch} --steps {steps} --precision bf16 --checkpoint-every 0"
    return run(SCRIPT, f"{arguments} --compiler inductor {more}", gpus=1, channels=channels)


def plain(batch: int, steps: int) -> None:
    """Print the rates of the intervals, and the peak memory, as the script does."""
    import torch
    import torch.nn.functional as F
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = LlamaForCausalLM(LlamaConfig(**LLAMA)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, fused=True)
    tokens = torch.randint(LLAMA["vocab_size"], (steps, batch, CONTEXT + 1), device="cuda")

    @torch.compile
    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(input_ids=inputs, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    began = time.perf_counter()
    for step, rows in enumerate(tokens, start=1):
        loss = loss_of(rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % INTERVAL == 0:
            value, now = loss.item(), time.perf_counter()
            rate = INTERVAL * batch * CONTEXT / (now - began)
            memory = torch.cuda.max_memory_allocated() / 2**30
            print(f"step {step} loss {value:.6f} memory_gib {memory:.6f} tokens/s {rate:.0f}", flush=True)
            began = now


def measured(printed: str) -> dict[str, Any]:
    rates = [float(rate) for rate in re.findall(r"tokens/s (\d+)", printed)]
    return {"rates": rates[1:], "memory_gib": float(re.findall(r"memory_gib ([\d.]+)", printed)[-1])}


def compared(folder: Path, batch: int, turns: int, steps: int, flops: float, peak: float) -> dict[str, Any]:
    sides: dict[str, list[dict[str, Any]]] = {"ours": [], "plain": []}
    alone = [sys.executable, __file__, "--plain", str(batch), "--steps", str(steps)]
    for _ in range(turns):
        sides["ours"].append(measured(ours(folder, batch, steps)))
        sides["plain"].append(measured(subprocess.run(alone, check=True, stdout=subprocess.PIPE, text=True).stdout))
    found: dict[str, Any] = {"batch": batch}
    for name, runs in sides.items():
        rates = [rate for one in runs for rate in one["rates"]]
        median = statistics.median(rates)
        found[name] = {
            "tokens_per_second": {"median": median, "least": min(rates), "most": max(rates)},
            "mfu": median * flops / peak,
            "memory_gib": max(one["memory_gib"] for one in runs),
        }
    found["ratio"] = found["ours"]["tokens_per_second"]["median"] / found["plain"]["tokens_per_second"]["median"]
    return found


def traced(folder: Path, batch: int) -> dict[str, Any]:
    """Of a profiled step of ours: the GPU's milliseconds by kind of kernel and without one, and the kernels that take longest."""
    with tempfile.TemporaryDirectory() as output:
        os.environ["SM_OUTPUT_DATA_DIR"] = output
        ours(folder, batch, 24, f"--profile {PROFILED}")
        del os.environ["SM_OUTPUT_DATA_DIR"]
        trace = json.loads((Path(output) / "trace-0.json").read_text())
    kernels = [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    begin, end = min(event["ts"] for event in kernels), max(event["ts"] + event["dur"] for event in kernels)
    kinds, names = Counter[str](), Counter[str]()
    for event in kernels:
        kinds[kind_of(event["name"])] += event["dur"]
        names[event["name"]] += event["dur"]
    kinds["no kernel"] = end - begin - sum(kinds.values())

    def of_a_step(times: Counter[str], most: int | None = None) -> dict[str, float]:
        return {name: time / 1000 / STEPS_OF_A_TRACE for name, time in times.most_common(most)}

    return {"batch": batch, "ms": of_a_step(kinds), "longest_ms": of_a_step(names, 12)}


def kind_of(kernel: str) -> str:
    lower = kernel.lower()
    return next((kind for kind, parts in KINDS.items() if any(part in lower for part in parts)), "others")


def prepared(folder: Path) -> float:
    """Write the channels; returns the floating-point operations of a token."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(LLAMA))
    prepare = [sys.executable, str(TRAINING_CODE / "model_parallel" / "huggingface" / "prepare_tokens.py")]
    texts = [str(file) for file in TRAINING_CODE.rglob("*.py")]
    subprocess.run([*prepare, "--output", str(folder / "tokens"), *texts], check=True, stdout=subprocess.DEVNULL)

    import torch
    from flops import flops_per_token
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**LLAMA))
    return flops_per_token(model, model.config.num_hidden_layers, model.config.hidden_size, CONTEXT)


def show(result: dict[str, Any]) -> None:
    print(f"{result['device']}, PyTorch {result['torch']}, transformers {result['transformers']}")
    print(f"{'sequences':>9} {'ours, tokens/s':>26} {'plain, tokens/s':>26} {'ratio':>6} {'MFU':>11} {'peak GiB':>11}")
    for one in result["compared"]:
        rates = []
        for side in ("ours", "plain"):
            rate = one[side]["tokens_per_second"]
            rates.append(f"{rate['median']:,.0f} ({rate['least']:,.0f}-{rate['most']:,.0f})")
        mfu, memory = (
            " ".join(f"{one[side][name]:.{digits}f}" for side in ("ours", "plain"))
            for name, digits in (("mfu", 3), ("memory_gib", 1))
        )
        print(
            f"{one['batch']:>9} {rates[0]:>26} {rates[1]:>26} {one['ratio']:>6.3f} {mfu:>11} {memory:>11}", flush=True
        )
    for trace in result["traces"]:
        print(f"\na step of ours with {trace['batch']} sequences, ms of the GPU:")
        for times in (trace["ms"], trace["longest_ms"]):
            for name, each in times.items():
                print(f"{each:>9.2f}  {name[:100]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32], help="sequences of a step")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        plain(options.plain, options.steps)
        return 0
    import torch
    import transformers

    if not torch.cuda.is_available():
        print("this machine has no GPU", file=sys.stderr)
        return 2
    sys.path[:0] = [str(TRAINING_CODE), str(TRAINING_CODE / "model_parallel")]
    from common.training_log import PEAK_FLOPS

    device = torch.cuda.get_device_name()
    peak = next(flops for part, flops in PEAK_FLOPS.items() if part in device)
    with tempfile.TemporaryDirectory() as name:
        flops = prepared(Path(name))
        result = {
            "device": device,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "compared": [
                compared(Path(name), batch, options.turns, options.steps, flops, peak) for batch in options.batches
            ],
            "traces": [traced(Path(name), batch) for batch in options.batches] if options.trace else [],
        }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
