"""Measures the memory of each layout of a model-parallel training on four ranks: parameters, optimizer state, activations.

    python benchmarks/memory.py [--json] [--write docs/memory-by-layout.md]

Four real ranks over gloo on this machine's CPU; torchrun starts them. A model of 12 layers takes two steps in each layout.
Parameters and optimizer state are the bytes of each rank's local tensors, the maximum of all ranks, and the ideal share:
the total divided by the number of ranks that shard it. Activations are the peak of the bytes that autograd saves on any
rank, measured by hooks; parameters, and activations that recomputing a layer saves during its backward, are not counted. It
exits with 1 where parameters or optimizer state of any layout are more than 10 % off their ideal share.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRAINING_CODE = HERE.parent / "training_code"
SCRIPTS = HERE.parent / "training_jobs" / "training_jobs" / "torch_scripts"
RANKS = 4
MOST_OFF = 0.10
MODEL = "--layers 12 --width 128 --heads 8 --hidden 352 --context 64 --batch-size 16 --text-bytes 200000"
LAYOUTS = {
    "replicas": "--data-shard 1 --data-replicate 4",
    "replicas, checkpointed": "--data-shard 1 --data-replicate 4 --activation-checkpointing",
    "FSDP": "--data-shard 4",
    "FSDP, checkpointed": "--data-shard 4 --activation-checkpointing",
    "hybrid shard 2 x 2": "--data-shard 2 --data-replicate 2",
    "tensor": "--tensor 4",
    "tensor 2 x FSDP 2": "--tensor 2 --data-shard 2",
    "pipeline, GPipe": "--pipeline 4 --microbatches 8 --schedule GPipe",
    "pipeline, 1F1B": "--pipeline 4 --microbatches 8 --schedule 1F1B",
    "pipeline, interleaved": "--pipeline 4 --microbatches 8 --schedule Interleaved1F1B",
    "pipeline 2 x FSDP 2": "--pipeline 2 --data-shard 2 --microbatches 4",
    "pipeline 2 x tensor 2": "--pipeline 2 --tensor 2 --microbatches 4",
}


def measure(layouts: list[str]) -> None:
    """On each rank: the layouts in turn; rank 0 prints all results as JSON."""
    import torch
    import torch.distributed as dist
    import train
    from common.job import Job
    from common.process_group import process_group

    job = Job.here()
    torch.set_num_threads(1)
    found = {}
    with process_group(job) as device:
        for name in layouts:
            options = train.config([*MODEL.split(), "--steps", "2", *LAYOUTS[name].split()])
            everyones: list[dict[str, int]] = [{}] * RANKS
            dist.all_gather_object(everyones, measured(train, job, options, device))
            found[name] = everyones
    if job.rank == 0:
        print(json.dumps(found))


def measured(train: Any, job: Any, options: argparse.Namespace, device: Any) -> dict[str, int]:
    import torch
    from common.checkpoints import Progress
    from memory_use import Saved
    from microbatches import batches

    degrees = train.degrees_of(options, job)
    training = train.Training(options, degrees, device)
    corpus = train.corpus_of(job, options)
    for number, (tokens, targets) in batches(corpus, Progress(), options, degrees, training.mesh):
        if number == 1:  # a pipeline's first step tries its stages out
            train.step(training, tokens, targets)
            continue
        saved = Saved()
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
            train.step(training, tokens, targets)
    sizes = train.local_size(torch.nn.ModuleList(training.stage_modules.values()))
    return {
        "parameters": sizes[1],
        "optimizer": train.optimizer_bytes(training.optimizers),
        "activations": saved.most,
        "divided_by": degrees.ranks // degrees.data_replicate,
    }


def launch() -> dict[str, list[dict[str, int]]]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    paths = os.pathsep.join(map(str, (TRAINING_CODE, TRAINING_CODE / "model_parallel", SCRIPTS)))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, *torchrun, __file__, "--measure", *LAYOUTS]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@dataclasses.dataclass(frozen=True)
class Row:
    """A layout: the bytes of the rank that has the most, and the ideal share where there is one."""

    layout: str
    parameters: int
    parameters_ideal: float
    optimizer: int
    optimizer_ideal: float
    activations: int

    @property
    def off(self) -> float:
        return max(abs(self.parameters / self.parameters_ideal - 1), abs(self.optimizer / self.optimizer_ideal - 1))


def rows(found: dict[str, list[dict[str, int]]]) -> list[Row]:
    whole = found["replicas"][0]  # each replica has all of it
    result = []
    for layout, ranks in found.items():
        most = {key: max(rank[key] for rank in ranks) for key in ranks[0]}
        ideal = {key: whole[key] / most["divided_by"] for key in ("parameters", "optimizer")}
        result.append(
            Row(
                layout,
                most["parameters"],
                ideal["parameters"],
                most["optimizer"],
                ideal["optimizer"],
                most["activations"],
            )
        )
    return result


def document(rows: list[Row]) -> str:
    lines = [
        "# Memory of each layout on each rank",
        "",
        "Made by `python benchmarks/memory.py --write docs/memory-by-layout.md`, whose docstring describes the measurement.",
        f"KiB on the rank that has the most, of {RANKS} ranks over gloo, in fp32; in brackets, against the ideal share.",
        f"The model: `{MODEL}`.",
        "",
        "| layout | parameters | optimizer state | activations |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        parameters = f"{row.parameters / 1024:,.0f} ({row.parameters / row.parameters_ideal:.2f})"
        optimizer = f"{row.optimizer / 1024:,.0f} ({row.optimizer / row.optimizer_ideal:.2f})"
        lines.append(f"| {row.layout} | {parameters} | {optimizer} | {row.activations / 1024:,.0f} |")
    return "\n".join([*lines, "", machine(), ""])


def machine() -> str:
    import importlib.metadata

    return f"Python {platform.python_version()}, PyTorch {importlib.metadata.version('torch')}."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print everything measured as one object, not as a table")
    parser.add_argument("--write", type=Path, help="write the table to this file too")
    parser.add_argument("--measure", nargs="+", choices=LAYOUTS, help="as one of the ranks, which torchrun starts")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return 0
    table = rows(launch())
    print(json.dumps([dataclasses.asdict(row) for row in table], indent=2) if options.json else document(table))
    if options.write:
        options.write.write_text(document(table))
    return 0 if all(row.off <= MOST_OFF for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
