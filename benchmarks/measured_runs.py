"""Whole runs of the digits and JPEG examples on this machine, beside what ``training-jobs measure`` predicts of them.

    python benchmarks/measured_runs.py [--workers 1 2 4] [--seconds 2] [--rounds 5] [--json]

For each example, round after round, the script is measured, and then trains with 1, 2 and 4 worker processes of the data service,
which says what an epoch took. Without an accelerator the step takes vCPUs from the workers, so a step is predicted as the longest
of its own time, of its batch's preparation by so many workers, and of both over all vCPUs. A round's run is compared with its own
measurement, since the speed of a virtual machine changes within minutes, and the median of the rounds counts. Ends with 1 where
that is not within 15 %. The machine is to be otherwise quiet.
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

ROOT = Path(__file__).parents[1]
CODE = ROOT / "training_code"
CLOSE = 0.15
EPOCH = re.compile(r"data_service epoch=(\d+) batches=(\d+) .*?epoch_seconds=([0-9.]+)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one object of the same figures")
    options = parser.parse_args()
    rows, machine = [], ""
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        program([str(CODE / "heterogeneous" / "images" / "make_images.py"), str(images), "--images", "800"], folder)
        scripts, folders = (
            CODE / "heterogeneous",
            ["--train", str(images / "train"), "--validation", str(images / "val")],
        )
        small = ["--epochs", "5", "--batch-size", "16", "--width", "8", "--size", "64"]
        examples = {
            "digits": [str(scripts / "train.py"), "--epochs", "20", "--batch-size", "64"],
            "JPEG": [str(scripts / "images" / "train.py"), *folders, *small],
        }
        for name, command in examples.items():
            expected: dict[int, list[float]] = {workers: [] for workers in options.workers}
            found: dict[int, list[float]] = {workers: [] for workers in options.workers}
            for number in range(options.rounds):
                print(f"{name}, round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
                measured = measure(command, options.seconds, folder)
                machine = measured["machine"]
                for workers in options.workers:
                    expected[workers].append(predicted(measured, workers))
                    found[workers].append(run(command, workers, folder))
            rows += [row(name, workers, expected[workers], found[workers]) for workers in options.workers]
    if options.json:
        print(json.dumps({"machine": machine, "load": os.getloadavg()[0], "rows": rows}, indent=2))
    else:
        heads = ("predicted, s a step", "here, s a step")
        print(
            f"| example | workers | {heads[0]} (least-most) | {heads[1]} (least-most) | off by |\n|---|---|---|---|---|"
        )
        for it in rows:
            figures = " | ".join(
                f"{it[key][1]:.4f} ({it[key][0]:.4f}-{it[key][2]:.4f})" for key in ("predicted", "here")
            )
            print(f"| {it['example']} | {it['workers']} | {figures} | {it['off']:+.1%} |")
        print(f"\n{machine}, load {os.getloadavg()[0]:.1f}")
    return 0 if all(abs(it["off"]) <= CLOSE for it in rows) else 1


def row(example: str, workers: int, expected: list[float], found: list[float]) -> dict[str, Any]:
    """Least, median and most of both, in seconds of a step."""
    figures = {
        name: [min(it), statistics.median(it), max(it)] for name, it in (("predicted", expected), ("here", found))
    }
    off = statistics.median(one / other for one, other in zip(expected, found, strict=True)) - 1
    return {"example": example, "workers": workers, **figures, "off": off}


def measure(command: list[str], seconds: float, folder: str) -> dict[str, Any]:
    words = [
        str(ROOT / "training_jobs" / "training_jobs" / "torch_scripts" / "measure.py"),
        "--seconds",
        f"{seconds:g}",
        "--json",
    ]
    return dict(json.loads(program([*words, *command], folder).stdout))


def predicted(measured: dict[str, Any], workers: int) -> float:
    """Seconds of a step."""
    step, batch = next(iter(measured["step_seconds"].values())), measured["batch_size"]
    rates = {int(count): rate for count, rate in measured["scaling"].items()}
    rate = rates.get(workers, rates[max(rates)])
    alone = 1 / rates[1]  # vCPU seconds of a sample
    return max(step, batch / rate, (batch * alone + step) / measured["vcpus"])


def run(command: list[str], workers: int, folder: str) -> float:
    """Seconds of a step: the median of the epochs but the first, which waits for data, and the last, whose data are prepared."""
    with tempfile.TemporaryDirectory() as own:  # each run begins anew
        done = program([*command, "--workers", str(workers)], own)
    return statistics.median(float(seconds) / int(batches) for _, batches, seconds in EPOCH.findall(done.stderr)[1:-1])


def program(words: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )


if __name__ == "__main__":
    sys.exit(main())
