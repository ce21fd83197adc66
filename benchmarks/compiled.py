"""Measures compiled training steps against eager ones, alternating in one process.

    python benchmarks/compiled.py [--rounds 15] [--json]                 # on the CPU: a small model
    python benchmarks/compiled.py --model gpt2 [--largest] [--json]      # on a GPU: bfloat16, sequence 512; or --model bert

A round is some steps of each, in alternating order, so that a slower minute affects both. FLOPs
are 6 for each parameter and token, and 12 x layers x width x sequence for attention; utilisation is of the GPU's dense peak in
bfloat16. XLA is measured where this Python has torch_xla, and has no limit. Then train.py is started twice with one cache.
Ends with 1 where a limit is missed: compiled is as fast as eager on the CPU, and 1.5 times as fast on a GPU; and a second start
compiles in less than a third of the first's time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1] / "training_code"))
sys.path.insert(0, str(Path(__file__).parents[1] / "training_code" / "compiled"))

from common.loss import IGNORED
from model import LanguageModel

Step = Callable[[], Tensor]
TRAINING_CODE = Path(__file__).parents[1] / "training_code"
PEAK_FLOPS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "A10G": 70e12, "L4": 121e12, "L40S": 362e12}
MOST_OF_FIRST = 1 / 3
LEAST_SPEEDUP = {"cpu": 1.0, "cuda": 1.5}


@dataclass(frozen=True)
class Size:
    layers: int
    width: int
    heads: int
    sequence: int
    batch: int
    vocabulary: int
    causal: bool = True


SIZES = {
    "small": Size(layers=2, width=64, heads=4, sequence=128, batch=8, vocabulary=257),
    "gpt2": Size(layers=12, width=768, heads=12, sequence=512, batch=32, vocabulary=50304),
    "bert": Size(layers=12, width=768, heads=12, sequence=512, batch=32, vocabulary=30528, causal=False),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SIZES, help="small on the CPU, gpt2 on a GPU")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=5, help="steps of each in a round")
    parser.add_argument("--mode", default="default", help="of torch.compile")
    parser.add_argument("--largest", action="store_true", help="also look for the largest batch that fits the GPU")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as lines")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = options.model or ("gpt2" if device.type == "cuda" else "small")
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory() as cache:  # so that nothing compiled before is found
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        report = {"machine": machine(device), "model": name, "rounds": options.rounds, **measure(name, device, options)}
        if options.largest and device.type == "cuda":
            report["largest_batch"] = {
                kind: largest(SIZES[name], device, kind, options.mode) for kind in report["steps"]
            }
    report["compile_seconds"] = starts()
    first, second = report["compile_seconds"]
    report["passed"] = report["speedup"]["inductor"] >= LEAST_SPEEDUP[device.type] and second < MOST_OF_FIRST * first
    print(json.dumps(report, indent=2) if options.json else "\n".join(lines(report)))
    return 0 if report["passed"] else 1


def stepper(size: Size, device: torch.device, kind: str, mode: str, batch: int) -> Step:
    """One training step of its own model on one batch: forward, backward, update. ``kind``: eager, inductor or xla."""
    torch.manual_seed(0)
    shape = {"sequence": size.sequence, "width": size.width, "layers": size.layers, "heads": size.heads}
    model = LanguageModel(**shape, vocabulary=size.vocabulary, causal=size.causal).to(device)
    host = device.type in ("cpu", "cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=host, capturable=not host)
    tokens = torch.randint(size.vocabulary, (batch, size.sequence + 1), device=device)
    inputs, targets = (tokens[:, :-1], tokens[:, 1:]) if size.causal else (tokens[:, 1:], masked(tokens[:, 1:]))
    count = (targets != IGNORED).sum()
    loss_of: nn.Module = torch.compile(model, fullgraph=True, dynamic=False, mode=mode) if kind == "inductor" else model  # type: ignore[assignment]
    mixed = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")

    def step() -> Tensor:
        with mixed:
            loss: Tensor = loss_of(inputs, targets, count)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    if kind == "xla":
        import torch_xla

        return torch_xla.compile(step, full_graph=True)  # type: ignore[no-any-return]
    return step


def masked(tokens: Tensor) -> Tensor:
    """BERT's targets: about every seventh token."""
    return tokens.where(torch.rand(tokens.shape, device=tokens.device) < 0.15, IGNORED)


def timed(step: Step, steps: int) -> float:
    """Seconds of a step, until the device is done."""
    began = time.perf_counter()
    for _ in range(steps):
        loss = step()
    loss.item()
    return (time.perf_counter() - began) / steps


def measure(name: str, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    size = SIZES[name]
    steps = {kind: stepper(size, device, kind, options.mode, size.batch) for kind in ("eager", "inductor")}
    if device.type == "cpu" and importlib.util.find_spec("torch_xla"):
        import torch_xla

        steps["xla"] = stepper(size, torch_xla.device(), "xla", options.mode, size.batch)
    first = {kind: timed(step, 1) for kind, step in steps.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in steps}
    with torch.compiler.set_stance("fail_on_recompile"):
        for step in steps.values():
            timed(step, options.steps)
        for number in range(options.rounds):
            for kind in steps if number % 2 == 0 else reversed(steps):
                seconds[kind].append(timed(steps[kind], options.steps))
    medians = {kind: statistics.median(found) for kind, found in seconds.items()}
    return {
        "steps": {kind: summary(found, first[kind], size, device) for kind, found in seconds.items()},
        "speedup": {kind: medians["eager"] / medians[kind] for kind in steps if kind != "eager"},
    }


def summary(seconds: list[float], first: float, size: Size, device: torch.device) -> dict[str, float | None]:
    median = statistics.median(seconds)
    tokens = size.batch * size.sequence / median
    parameters = size.layers * 12 * size.width**2 + size.vocabulary * size.width
    flops = tokens * (6 * parameters + 12 * size.layers * size.width * size.sequence)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else ""
    peak = next((peak for known, peak in sorted(PEAK_FLOPS.items(), reverse=True) if known in gpu), None)
    return {
        "first_step_seconds": first,
        "median_ms": 1000 * median,
        "least_ms": 1000 * min(seconds),
        "most_ms": 1000 * max(seconds),
        "tokens_per_second": tokens,
        "flops_utilisation": flops / peak if peak else None,
    }


def largest(size: Size, device: torch.device, kind: str, mode: str) -> int:
    """The largest batch, of whole eighths of a power of two, with which two steps fit the GPU's memory."""

    def fits(batch: int) -> bool:
        torch.compiler.reset()
        torch.cuda.empty_cache()
        try:
            timed(stepper(size, device, kind, mode, batch), 2)
        except torch.cuda.OutOfMemoryError:
            return False
        return True

    power = size.batch
    while fits(2 * power):
        power *= 2
    return max([power, *(batch for batch in range(power, 2 * power, max(power // 8, 1))[1:] if fits(batch))])


def starts() -> list[float]:
    """Seconds that train.py's first start and its second one spend on compiling, with one cache."""
    command = [
        sys.executable,
        str(TRAINING_CODE / "compiled" / "train.py"),
        "--compiler=inductor",
        "--steps=40",
        "--log-every=5",
    ]
    found = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(TRAINING_CODE), "TORCHINDUCTOR_CACHE_DIR": cache}
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run(
                    command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
                )
            [line] = [line for line in done.stdout.splitlines() if line.startswith("compile time ")]
            found.append(float(line.split()[2]))
    return found


def lines(report: dict[str, Any]) -> list[str]:
    found = [f"{report['model']}, {report['rounds']} rounds in turn; {report['machine']}"]
    for kind, step in report["steps"].items():
        utilisation = step["flops_utilisation"]
        found.append(
            f"{kind:9} {step['median_ms']:9.2f} ms a step ({step['least_ms']:.2f}-{step['most_ms']:.2f}), "
            f"{step['tokens_per_second']:.0f} tokens/s, first step {step['first_step_seconds']:.1f} s"
            + (f", {utilisation:.1%} of the GPU's peak" if utilisation else "")
        )
    found += [f"{kind} is {ratio:.2f} times as fast as eager" for kind, ratio in report["speedup"].items()]
    first, second = report["compile_seconds"]
    found.append(f"train.py compiles for {first:.1f} s, started again with the cache for {second:.1f} s")
    found += [f"largest batch, {kind}: {batch}" for kind, batch in report.get("largest_batch", {}).items()]
    if "xla" not in report["steps"]:
        found.append("xla: not in this Python; run this in one with torch==2.9.0 and torch_xla==2.9.0, PJRT_DEVICE=CPU")
    return [*found, "limit kept" if report["passed"] else "limit missed"]


def machine(device: torch.device) -> str:
    about = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU, {os.cpu_count()} cores"
    return f"{about}, torch {torch.__version__}, Python {platform.python_version()}"


if __name__ == "__main__":
    sys.exit(main())
