"""A training step of training_code/model_parallel beside one of torchtitan's Trainer: time, and peak memory of tensors.

    python benchmarks/model_parallel_torchtitan.py [--rounds 5] [--ranks 1 2 4] [--microbatches 1 4]
        [--precision fp32 bf16] [--recompute off on] [--layers 4] ... [--torchtitan-python PATH] [--json]

Both train the same Llama, from the same weights, on the same tokens, with FSDP2 over all ranks, AdamW and clipping: their losses
are compared, and where they differ the command fails. In each case both run at the same time, each in its own processes, and
take turns: in each round both run twice, the one that begins also last, and every other round the other begins. A round's ratio
is ours over torchtitan's time; a case's is the median. On a busy machine the CPU seconds of all ranks say more.

Memory is the peak of the bytes of tensors on rank 0 over two steps with the optimizer's state allocated
(memory_use.Allocations, parameters included), which is the same at each run. With several microbatches a rank's sequences are
divided; with recomputation each layer's activations are computed again in the backward (torchtitan's FullAC).

It runs on CPUs, over gloo. Of torchtitan everything in a step is its own; benchmarks/contestants/training_torchtitan.py says what
is replaced so that it runs without an accelerator. Its default chunked cross-entropy is on; its defaults FlexAttention, the
SPMD backend spmd_types and CUDA graphs need an accelerator or a newer PyTorch. It is installed into build/peers at the first run,
beside this environment's PyTorch, which both use. Not measured here: GPUs, overlap of communication, compilation.

bf16 is slow on CPUs without instructions for it, which both are then equally. Ends with 1 where a ratio is above 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from contestants.training import Case

ROOT = Path(__file__).parents[1]
CONTESTANTS = Path(__file__).parent / "contestants"
PEERS = ROOT / "build" / "peers"
PEER = "torchtitan==0.3.0"
WITH_IT = "triton"  # which it imports; it comes with PyTorch for GPUs
SCRIPTS = {"ours": "training_ours.py", "torchtitan": "training_torchtitan.py"}
MOST = 1.0
SAME_LOSS = {"fp32": 1e-4, "bf16": 1e-2}
SIZES = {"layers": 4, "width": 128, "heads": 8, "hidden": 352, "vocabulary": 1024, "context": 128, "sequences": 4}


class Contestant:
    """The processes of one training, a rank each, which run steps when they read a number of them."""

    def __init__(self, script: str, python: str, case: Case, folder: Path) -> None:
        self._stderr = folder / f"{script}.txt"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WORLD_SIZE": str(case.ranks),
            "LOCAL_WORLD_SIZE": str(case.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        with self._stderr.open("w") as stderr:
            self._ranks = [
                subprocess.Popen(
                    [python, CONTESTANTS / script, case.as_json()],
                    env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                    stderr=stderr,
                    text=True,
                )
                for rank in range(case.ranks)
            ]
        self.start = dict[str, Any]()

    def run(self, steps: int) -> dict[str, float]:
        """The seconds and CPU seconds of one of so many steps."""
        for rank in self._ranks:
            print(steps, file=rank.stdin, flush=True)
        return self.measured()

    def measured(self) -> dict[str, Any]:
        stdout = self._ranks[0].stdout
        assert stdout is not None
        for line in stdout:
            if line.startswith("MEASURED "):
                return dict(json.loads(line.removeprefix("MEASURED ")))
        raise RuntimeError(f"{self._stderr.stem} ended:\n{self._stderr.read_text()[-3000:]}")

    def close(self) -> None:
        for rank in self._ranks:
            assert rank.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                rank.stdin.close()
        for rank in self._ranks:
            try:
                rank.wait(30)
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
            if rank.stdout is not None:
                rank.stdout.close()


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextlib.contextmanager
def contestants(case: Case, python: str) -> Iterator[dict[str, Contestant]]:
    """Both, started one after the other, with what each measured of its memory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
        both = {}
        for name, script in SCRIPTS.items():
            both[name] = Contestant(script, python if name == "torchtitan" else sys.executable, case, Path(folder))
            closing.callback(both[name].close)
            both[name].start = both[name].measured()
        yield both


def measure(case: Case, rounds: int, steps: int, python: str) -> dict[str, Any]:
    with contestants(case, python) as both:
        start = {name: one.start for name, one in both.items()}
        require_same_training(case, start)
        taken = []
        for number in range(rounds):
            turns: dict[str, list[dict[str, float]]] = {name: [] for name in both}
            first, second = both if number % 2 == 0 else reversed(both)
            for name in (first, second, second, first):
                turns[name].append(both[name].run(steps))
            taken.append(
                {name: {of: sum(turn[of] for turn in two) / 2 for of in two[0]} for name, two in turns.items()}
            )
    peaks = {name: values["peak"] for name, values in start.items()}
    found: dict[str, Any] = {
        "case": vars(case),
        **{
            name: {
                "ms": spread([1000 * one[name]["seconds"] for one in taken]),
                "cpu_ms": spread([1000 * one[name]["cpu_seconds"] for one in taken]),
                "peak_bytes": peaks[name],
            }
            for name in both
        },
        "time": spread([one["ours"]["seconds"] / one["torchtitan"]["seconds"] for one in taken]),
        "cpu_time": spread([one["ours"]["cpu_seconds"] / one["torchtitan"]["cpu_seconds"] for one in taken]),
        "memory": peaks["ours"] / peaks["torchtitan"],
        "losses": {name: values["losses"] for name, values in start.items()},
    }
    return {**found, "passed": max(found["time"]["median"], found["memory"]) <= MOST}


def require_same_training(case: Case, start: dict[str, dict[str, Any]]) -> None:
    ours, theirs = start["ours"], start["torchtitan"]
    if ours["parameters"] != theirs["parameters"]:
        raise RuntimeError(f"ours has {ours['parameters']} parameters, torchtitan's model {theirs['parameters']}")
    for number, (loss, other) in enumerate(zip(ours["losses"], theirs["losses"], strict=True), start=1):
        if abs(loss - other) > SAME_LOSS[case.precision]:
            raise RuntimeError(f"the losses of step {number} differ in {case}: ours {loss}, torchtitan's {other}")


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def show(result: dict[str, Any]) -> None:
    case, time = result["case"], result["time"]
    cells = [
        f"{case['ranks']:>5} {case['microbatches']:>7} {case['precision']:>5} {'on' if case['recompute'] else 'off':>9}"
    ]
    for name in ("ours", "torchtitan"):
        ms = result[name]["ms"]
        cells.append(f"{ms['median']:>7.1f} ({ms['least']:.1f}-{ms['most']:.1f})".ljust(26))
    cells.append(f"{time['median']:.3f} ({time['least']:.2f}-{time['most']:.2f})".rjust(19))
    cells.append(f"{result['cpu_time']['median']:>6.3f}")
    cells += [f"{result[name]['peak_bytes'] / 2**20:>8.2f}" for name in ("ours", "torchtitan")]
    cells.append(f"{result['memory']:>6.3f}  {'kept' if result['passed'] else 'missed'}")
    print(" ".join(cells), flush=True)


def heading(options: argparse.Namespace) -> str:
    sizes = ", ".join(f"{name} {getattr(options, name)}" for name in SIZES)
    return (
        f"{sizes} of each rank; {options.rounds} rounds of {2 * options.steps} steps of each; {machine()}, {PEER}\n"
        f"{'ranks':>5} {'batches':>7} {'':>5} {'recompute':>9} {'ours, ms':>26} {'torchtitan, ms':>26} "
        f"{'ratio of time':>19} {'of CPU':>6} {'ours, MiB':>8} {'theirs':>8} {'ratio':>6}  limit {MOST}"
    )


def machine() -> str:
    import importlib.metadata

    return f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}, {os.cpu_count()} cores"


def peer() -> str:
    """The Python of an environment with torchtitan, installed where it is not yet, and with what this one has besides."""
    home = PEERS / PEER.replace("==", "-")
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        venv.EnvBuilder(clear=True).create(home)
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(home), "platbase": str(home)}))
        (packages / "this_environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--quiet"]
        subprocess.run([*pip, "--disable-pip-version-check", PEER, WITH_IT], check=True)
        (home / "complete").touch()
    return str(python)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="of each at a time, twice a round")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--microbatches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    parser.add_argument("--recompute", nargs="+", choices=("off", "on"), default=["off", "on"])
    for name, size in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--torchtitan-python", help="a Python that has it; by default one is made in build/peers")
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    options = parser.parse_args()
    python = options.torchtitan_python or peer()
    if not options.json:
        print(heading(options))
    results = []
    for precision, recompute, ranks, microbatches in product(
        options.precision, options.recompute, options.ranks, options.microbatches
    ):
        case = Case(
            **{name: getattr(options, name) for name in SIZES},
            ranks=ranks,
            microbatches=microbatches,
            precision=precision,
            recompute=recompute == "on",
        )
        results.append(measure(case, options.rounds, options.steps, python))
        if not options.json:
            show(results[-1])
    if options.json:
        print(json.dumps({"machine": machine(), "peer": PEER, "limit": MOST, "results": results}, indent=2))
    return 0 if all(result["passed"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
