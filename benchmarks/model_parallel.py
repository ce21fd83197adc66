"""Measures a training step of training_code/model_parallel against a plain PyTorch loop with the same layout.

    python benchmarks/model_parallel.py [--rounds 20] [--ranks 1 2 4] [--json]

For each number of ranks, which torchrun starts, both train the same model on the same batches, sharded by FSDP2, in the
same processes: ours with train.py's loop, which checks for SIGTERM, and the plain one with only fully_shard and AdamW. In each
round both run twice, some steps at a time, the one that begins also last, so that a machine whose speed changes steadily slows
both; every other round the other begins. A round's ratio is ours over the plain one's time. Cost against the number of ranks: the
global batch grows with them. Ends with 1 where the median of the ratios is above 1.03 for any number of ranks.

Both shard the embedding, each layer, and the norm with the head apart, as torchtitan's apply_fsdp_to_decoder does. The FSDP2
tutorial's one group of embedding and head has fewer collectives, but gathers both ends of a large model at once.

On GPUs, where there are some, the model is larger and in bf16, and the table has tokens/s and the share of the peak that
a GPU has according to `--peak-tflops` (model FLOPs utilisation). THIS HAS NOT BEEN RUN: there was no GPU to run it on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TRAINING_CODE = ROOT / "training_code"
SCRIPTS = ROOT / "training_jobs" / "training_jobs" / "torch_scripts"
MOST = 1.03
STEPS = 5  # of each at a time, twice a round
SMALL = "--layers 4 --width 128 --heads 8 --hidden 352 --context 128 --text-bytes 200000"
LARGE = "--layers 24 --width 2048 --heads 16 --hidden 5632 --context 2048 --text-bytes 4000000 --precision bf16"
SEQUENCES = 4  # of each rank and step


def measure(rounds: int) -> None:
    """On each rank; rank 0 prints the seconds of a step in each round as JSON."""
    import torch
    import torch.distributed as dist
    import train
    from common.checkpoints import Progress
    from common.job import Job
    from common.process_group import freeze_objects, process_group
    from measure import keep_memory_of_steps
    from microbatches import batches
    from watch import Watch

    job = Job.here()
    torch.set_num_threads(1)
    model = LARGE if torch.cuda.is_available() else SMALL
    options = train.config([*model.split(), "--batch-size", str(SEQUENCES * job.ranks), "--steps", str(STEPS)])
    with Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch, process_group(job) as device:
        training = train.Training(options, train.degrees_of(options, job), device)
        steps = batches(train.corpus_of(job, options), Progress(), options, training.degrees, training.mesh)
        shares = [share for _, share in steps]
        sides = {"ours": ours(train, training, watch, shares), "plain": plain(training, options, device, shares)}
        for side in sides.values():
            side()  # the first step allocates
        keep_memory_of_steps()
        freeze_objects()
        found = []
        for number in range(rounds):
            seconds = dict.fromkeys(sides, 0.0)
            first, second = sides if number % 2 == 0 else reversed(sides)
            for name in (first, second, second, first):
                dist.barrier()
                began = time.perf_counter()
                sides[name]()
                if device.type == "cuda":
                    torch.cuda.synchronize()
                dist.barrier()
                seconds[name] += (time.perf_counter() - began) / (2 * STEPS)
            found.append(seconds)
        flops = 6 * sum(
            parameter.numel() for part in training.stage_modules.values() for parameter in part.parameters()
        )
        flops += (
            6 * options.layers * options.width * options.context
        )  # of a token: causal attention, forward and backward
    if job.rank == 0:
        tokens = options.batch_size * options.context
        print(json.dumps({"device": device.type, "tokens": tokens, "flops_of_token": flops, "rounds": found}))


def ours(train: Any, training: Any, watch: Any, batches: list[Any]) -> Callable[[], None]:
    def steps() -> None:
        for number, (tokens, targets) in enumerate(batches, start=1):
            stop_agreed = watch.start_stop_check(number)
            train.step(training, tokens, targets)
            stop_agreed()

    return steps


def plain(training: Any, options: argparse.Namespace, device: Any, batches: list[Any]) -> Callable[[], None]:
    """The loop as PyTorch's FSDP2 tutorial writes it, on a model of the same sizes, with torchtitan's groups of parameters.

    See https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/fsdp.py.
    """
    import torch
    import torch.nn.functional as F
    from model import Transformer
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.manual_seed(options.seed)
    model = Transformer(training.config).to(device)
    if training.degrees.data > 1 or options.precision == "bf16":
        low = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        policy = low if options.precision == "bf16" else MixedPrecisionPolicy()
        for group in (model.embed, *model.layers.values()):
            fully_shard(group, mp_policy=policy)
        fully_shard([model.norm, model.head], mp_policy=policy, reshard_after_forward=False)
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, fused=True)

    def steps() -> None:
        for tokens, targets in batches:
            logits = model(tokens.to(device))
            loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.to(device).flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


def launch(ranks: int, rounds: int) -> dict[str, Any]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    paths = os.pathsep.join(map(str, (TRAINING_CODE, TRAINING_CODE / "model_parallel", SCRIPTS)))
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore::UserWarning"}
    command = [sys.executable, *torchrun, __file__, "--measure", "--rounds", str(rounds)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def summary(ranks: int, measured: dict[str, Any], peak_tflops: float | None) -> dict[str, Any]:
    times = {side: [one[side] for one in measured["rounds"]] for side in ("ours", "plain")}
    ratios = [one["ours"] / one["plain"] for one in measured["rounds"]]
    found: dict[str, Any] = {"ranks": ranks, "device": measured["device"]}
    for side, seconds in times.items():
        rate = measured["tokens"] / statistics.median(seconds)
        found[side] = {"ms": spread([1000 * second for second in seconds]), "tokens_per_second": rate}
        if measured["device"] == "cuda" and peak_tflops:
            found[side]["mfu"] = rate * measured["flops_of_token"] / (ranks * peak_tflops * 1e12)
    return {**found, "ratio": spread(ratios), "passed": statistics.median(ratios) <= MOST}


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def show(results: list[dict[str, Any]], rounds: int) -> None:
    print(f"a training step, median of {rounds} rounds of {2 * STEPS} steps of each (least-most); {machine()}")
    print(f"{'ranks':>5} {'ours, ms':>22} {'plain, ms':>22} {'tokens/s':>9} {'ratio':>20}")
    for result in results:
        ours, plain = (
            f"{result[side]['ms']['median']:.1f} ({result[side]['ms']['least']:.1f}-{result[side]['ms']['most']:.1f})"
            for side in ("ours", "plain")
        )
        ratio = f"{result['ratio']['median']:.3f} ({result['ratio']['least']:.2f}-{result['ratio']['most']:.2f})"
        rate = f"{result['ours']['tokens_per_second']:,.0f}"
        verdict = "kept" if result["passed"] else "missed"
        print(f"{result['ranks']:>5} {ours:>22} {plain:>22} {rate:>9} {ratio:>20}  limit {MOST}: {verdict}")
        if "mfu" in result["ours"]:
            print(f"      model FLOPs utilisation: {result['ours']['mfu']:.1%}, plain {result['plain']['mfu']:.1%}")


def machine() -> str:
    import importlib.metadata

    return f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}, {os.cpu_count()} cores"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--peak-tflops", type=float, help="of one GPU in bf16, like 989 for an H100")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.rounds)
        return 0
    results = [summary(ranks, launch(ranks, options.rounds), options.peak_tflops) for ranks in options.ranks]
    if options.json:
        print(json.dumps({"machine": machine(), "rounds": options.rounds, "limit": MOST, "results": results}, indent=2))
    else:
        show(results, options.rounds)
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
