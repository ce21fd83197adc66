"""Whole runs of the digits and JPEG examples on this machine, beside what ``training-jobs measure`` predicts of them.

    python benchmarks/measured_runs.py [--workers 1 2 4] [--seconds 10] [--rounds 3]

For each example the script is measured once; then it trains with 1, 2 and 4 worker processes of the data service, which says
what an epoch took. Without an accelerator the step takes vCPUs from the workers, so a step is predicted as the longest of its own
time, of its batch's preparation by so many workers, and of both over all vCPUs. Ends with 1 where a run is not within 15 % of
that. The machine is to be otherwise quiet: a busy one has other vCPUs during the runs than during the measurement.
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
from pathlib import Path
from typing import Any

CODE = Path(__file__).parents[1] / "training_code"
CLOSE = 0.15
EPOCH = re.compile(r"data_service epoch=(\d+) batches=(\d+) .*?epoch_seconds=([0-9.]+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| example | workers | predicted, s a step | here, s a step (least-most) | off by |\n|---|---|---|---|---|")
    close = True
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        program([str(CODE / "heterogeneous" / "images" / "make_images.py"), str(images), "--images", "800"], folder)
        scripts, folders = (
            CODE / "heterogeneous",
            ["--train", str(images / "train"), "--validation", str(images / "val")],
        )
        small = ["--epochs", "2", "--batch-size", "16", "--width", "8", "--size", "64"]
        examples = {
            "digits": [str(scripts / "train.py"), "--epochs", "4", "--batch-size", "64"],
            "JPEG": [str(scripts / "images" / "train.py"), *folders, *small],
        }
        for name, command in examples.items():
            measured = measure(command, options.seconds, folder)
            for workers in options.workers:
                expected = predicted(measured, workers)
                found = [run(command, workers, folder) for _ in range(options.rounds)]
                off = expected / statistics.median(found) - 1
                close &= abs(off) <= CLOSE
                middle, spread = statistics.median(found), f"{min(found):.4f}-{max(found):.4f}"
                print(f"| {name} | {workers} | {expected:.4f} | {middle:.4f} ({spread}) | {off:+.1%} |", flush=True)
    print(f"\n{measured['machine']}, load {os.getloadavg()[0]:.1f}")
    return 0 if close else 1


def measure(command: list[str], seconds: float, folder: str) -> dict[str, Any]:
    words = [str(CODE / "measure" / "measure.py"), "--seconds", f"{seconds:g}", "--json"]
    return dict(json.loads(program([*words, *command], folder).stdout))


def predicted(measured: dict[str, Any], workers: int) -> float:
    """Seconds of a step."""
    step, batch = next(iter(measured["step_seconds"].values())), measured["batch_size"]
    rates = {int(count): rate for count, rate in measured["scaling"].items()}
    rate = rates.get(workers, rates[max(rates)])
    alone = 1 / rates[1]  # vCPU seconds of a sample
    return max(step, batch / rate, (batch * alone + step) / measured["vcpus"])


def run(command: list[str], workers: int, folder: str) -> float:
    """Seconds of a step of the last epoch."""
    with tempfile.TemporaryDirectory() as own:  # each run begins anew
        done = program([*command, "--workers", str(workers)], own)
    _, batches, seconds = EPOCH.findall(done.stderr)[-1]
    return float(seconds) / int(batches)


def program(words: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )


if __name__ == "__main__":
    sys.exit(main())
