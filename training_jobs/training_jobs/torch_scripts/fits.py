"""Predict each rank's memory before a machine is rented: whether a layout of a model fits.

    python fits.py --ranks 8 --gpu-memory 80 --data-shard 8 --activation-checkpointing --layers 32 --width 4096 ...
    python fits.py --ranks 512 --gpu-memory 80 --model llama/ --tensor 8 --precision bf16 --batch-size 64 --context 8192
    python fits.py --ranks 8 --gpu-memory 80 --module model.py:build --precision bf16 --batch-size 64
    python fits.py --ranks 8 --gpu-memory 80 --model llama/ --precision bf16 --context 8192 --smallest-layout

``training-jobs fits`` runs this with training_code and training_code/model_parallel on Python's path. The other arguments are
those of model_parallel/train.py, or with ``--model``, a folder with a config.json of transformers, those of
huggingface/train.py, or with ``--module`` those of own_module.py. The model is built and takes a step with PyTorch's
FakeTensorMode, whose tensors have no memory, and its fake process group of any number of ranks, in one process. In a pipeline
each rank's stages are run in the schedule's order.

Predicted is what tensors take. A GPU needs about 1 GiB besides for its context and NCCL's buffers, and its allocator some
more for fragments. Compiled layers (``--compiler inductor``) save less; they are predicted as if they were not compiled.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import json
import multiprocessing
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from common.optimization import sync_gradients
from degrees import Degrees, degrees_of
from fits_search import largest_batch, smallest_layout
from memory_use import Allocations, Saved
from own_module import loaded
from parallelize import DTYPES, allocate, local_size, loss_context, mesh_of, optimizer_bytes
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining.schedules import PipelineScheduleMulti
from torch.testing._internal.distributed.fake_pg import FakeStore

MODEL_PARALLEL = Path(inspect.getfile(Degrees)).parent
GIB = 2**30


@dataclass(frozen=True)
class Prediction:
    """Bytes on the rank that has the most of each. ``activations``: the most that autograd saves at one time.

    ``peak``: the most that is allocated at one time: parameters, gradients, optimizer state, activations, gathered parameters
    and temporary tensors. ``communicated``: by kind of collective, in a step.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    peak: int
    communicated: dict[str, int]


def predict(ranks: int, arguments: list[str], folder: Path | None = None) -> Prediction:
    """The memory of a layout. Raises ValueError for degrees that the ranks, the model or the batch do not allow.

    Args:
        ranks: Number of ranks, as many as you like.
        arguments: As those of train.py, or of huggingface/train.py with a folder.
        folder: A folder with a config.json of transformers.
    """
    script = script_of(folder)
    options = script.config(arguments)
    degrees = degrees_of(options, Ranks(ranks))  # type: ignore[arg-type]
    if degrees.precision == "fp16":  # as many bytes, and no gradients to read
        degrees = replace(degrees, precision="bf16")
    first_ranks = [
        stage * ranks // degrees.pipeline for stage in range(degrees.pipeline)
    ]  # of each stage of a pipeline
    # DTensor's caches outlive a process group, so that each rank is predicted in a process of its own.
    with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as processes:
        tasks = [(options, degrees, ranks, rank, folder) for rank in first_ranks]
        found = processes.starmap(predict_rank, tasks, chunksize=1)
    most = {name: max(getattr(one, name) for one in found) for name in asdict(found[0]) if name != "communicated"}
    kinds = {kind for one in found for kind in one.communicated}
    communicated = {kind: max(one.communicated.get(kind, 0) for one in found) for kind in sorted(kinds)}
    return Prediction(**most, communicated=communicated)


def smallest_batch(ranks: int, arguments: list[str], folder: Path | None) -> int:
    """Sequences of a step, at least. Raises ValueError for degrees that the ranks do not allow."""
    degrees = degrees_of(script_of(folder).config(arguments), Ranks(ranks))  # type: ignore[arg-type]
    return degrees.data * degrees.microbatches


def search(options: argparse.Namespace, arguments: list[str]) -> tuple[Prediction, dict[str, object]]:
    """What --largest-batch or --smallest-layout finds: its prediction, and what it is."""
    limit, folder = options.gpu_memory * GIB, options.model

    def with_batch(ranks: int, layout: list[str]) -> Prediction:
        given = [*arguments, *layout]
        if not any(one.startswith("--batch-size") for one in given):
            given += ["--batch-size", str(smallest_batch(ranks, given, folder))]
        return predict(ranks, given, folder)

    if options.smallest_layout:
        machines, layout, found = smallest_layout(with_batch, options.ranks, limit)
        return found, {"machines": machines, "layout": " ".join(layout)}
    unit = smallest_batch(options.ranks, arguments, folder)
    units, found = largest_batch(
        lambda units: predict(options.ranks, [*arguments, "--batch-size", str(units * unit)], folder), limit
    )
    return found, {"batch_size": units * unit}


@dataclass(frozen=True)
class Ranks:
    """What ``degrees_of`` reads of a job."""

    ranks: int
    group_hosts: tuple[str, ...] = ("algo-1",)


def script_of(folder: Path | None) -> ModuleType:
    """train.py of model_parallel, or that of Hugging Face's models, or own_module.py."""
    if folder is not None and folder.suffix == ".py":
        return loaded(folder)
    return loaded(MODEL_PARALLEL / ("huggingface/train.py" if folder else "train.py"))


def predict_rank(
    options: argparse.Namespace, degrees: Degrees, ranks: int, rank: int, folder: Path | None
) -> Prediction:
    script = script_of(folder)
    # FSDP with tensor parallelism joins meshes, whose numbers of ranks are to be real.
    joined = unset_fake_temporarily()(DeviceMesh._concatenate)
    # Fake tensors have no values, and to divide whole ones among the ranks takes a third of the time.
    unfilled = mock.patch("parallelize.fill", lambda model, plan, initial, device: allocate(model, plan, device))
    with fake_process_group(ranks, rank), mock.patch.object(DeviceMesh, "_concatenate", joined), unfilled:
        mesh = mesh_of(degrees, "cpu")
        with FakeTensorMode(allow_non_fake_inputs=True), Allocations() as allocations:
            if hasattr(script, "built"):
                modules, optimizers, step = script.built(options, degrees, mesh)
            else:
                modules, optimizers, step = built(script, options, degrees, mesh, folder)
            saved = Saved()  # whose hooks keep some tensors longer, so that the peak is another step's
            with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
                step()  # allocates the optimizer's state, and lets DTensor find the layout of each operation
            gc.collect()  # fake tensors are in cycles, which are to be gone by the peak
            allocations.reset()
            step()
            parameters = sum(local_size(module)[1] for module in modules)
            return Prediction(
                parameters=parameters,
                gradients=parameters,
                optimizer=optimizer_bytes(optimizers),
                activations=saved.most,
                peak=allocations.peak,
                communicated=dict(allocations.communicated),
            )


@contextmanager
def fake_process_group(ranks: int, rank: int) -> Iterator[None]:
    """PyTorch's own for tests: its collectives return at once and move nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


Built = tuple[list[nn.Module], list[torch.optim.Optimizer], Callable[[], object]]


def built(script: Any, options: argparse.Namespace, degrees: Degrees, mesh: DeviceMesh, folder: Path | None) -> Built:
    options.compiler, device = "none", torch.device("cpu")
    if folder is None:
        training = script.Training(options, degrees, device, mesh)
        parts, optimizers = training.microbatches, training.optimizers
    elif degrees.pipeline > 1:
        raise ValueError(f"pipeline must be 1 for a prediction of a model of transformers, got {degrees.pipeline}")
    else:
        parts, optimizer = script.microbatches_and_optimizer(folder, options, degrees, mesh, device)
        optimizers = [optimizer]
    modules, sequences = list(parts.stage_modules.values()), options.batch_size // degrees.data
    if degrees.pipeline > 1:
        return modules, optimizers, lambda: step_of_pipeline(training, sequences // degrees.microbatches)
    tokens = torch.zeros(sequences, options.context, dtype=torch.long)
    return modules, optimizers, lambda: parts.step(optimizers, tokens, tokens, options.clip)


def step_of_pipeline(training: Any, sequences: int) -> None:
    """One step of this rank's stages in the order of the schedule, without the messages between them."""
    config, degrees, parts, last = training.config, training.degrees, training.microbatches, len(training.layers) - 1
    tokens, number = torch.zeros(sequences, config.context, dtype=torch.long), degrees.microbatches
    several = isinstance(parts.schedule, PipelineScheduleMulti)
    orders = parts.schedule.pipeline_order if several else parts.schedule._get_pipeline_order()

    def received() -> list[Tensor]:
        """What a stage has a buffer for, of each microbatch: the other stages' activations or gradients."""
        size, dtype = (sequences, config.context // degrees.tensor, config.width), DTYPES.get(degrees.precision)
        return [torch.empty(size, dtype=dtype) for _ in range(number)]

    stages = training.stage_modules
    inputs = {
        stage: deque([part.requires_grad_() for part in received()] if stage else [tokens] * number) for stage in stages
    }
    gradients = {stage: received() if stage != last else [None] * number for stage in stages}
    running: dict[int, deque[tuple[Tensor, Tensor]]] = {stage: deque() for stage in stages}
    parts.begin(tokens)
    with loss_context(degrees):
        for action in orders[training.mesh.get_local_rank("pipeline")]:
            kind = action.computation_type.name if action else None
            if kind == "FORWARD":
                model, given = stages[action.stage_index], inputs[action.stage_index][0]
                inputs[action.stage_index].rotate(-1)
                output = parts.of_microbatch(model, given, tokens) if action.stage_index == last else model(given)
                running[action.stage_index].append((given, output))
                del output
            elif kind == "FULL_BACKWARD":  # of the oldest microbatch; what else there is reduces gradients
                sync_gradients(stages[action.stage_index], action.microbatch_index == number - 1, parts.each)
                given, output = running[action.stage_index].popleft()
                output.backward(gradients[action.stage_index][action.microbatch_index])
                given.grad = None
                del output
    for optimizer in training.optimizers:
        optimizer.step()
        optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--ranks", type=int, default=1, help="of all machines: GPUs")
    parser.add_argument("--model", type=Path, help="a folder with a config.json of transformers; else that of model.py")
    parser.add_argument("--gpu-memory", type=float, default=None, help="GiB of a GPU; exits with 1 where it is less")
    find = parser.add_mutually_exclusive_group()
    find.add_argument("--largest-batch", action="store_true", help="find the largest --batch-size that fits")
    find.add_argument(
        "--smallest-layout", action="store_true", help="find the layout on the fewest machines of --ranks GPUs each"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--module", metavar="FILE.py:FUNCTION", help="a module of your own; see own_module.py")
    options, arguments = parser.parse_known_args()
    if options.module:
        options.model, arguments = Path(__file__).with_name("own_module.py"), ["--module", options.module, *arguments]
    searching = options.largest_batch or options.smallest_layout
    if searching and options.gpu_memory is None:
        parser.error("--largest-batch and --smallest-layout need --gpu-memory, like --gpu-memory 80")
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    more: dict[str, object] = {}
    try:
        if searching:
            found, more = search(options, arguments)
        else:
            found = predict(options.ranks, arguments, options.model)
    except ValueError as error:
        raise SystemExit(f"{parser.prog}: {error}") from None
    fits = options.gpu_memory is None or found.peak <= options.gpu_memory * GIB
    if options.json:
        print(json.dumps({**asdict(found), "gpu_memory_gib": options.gpu_memory, "fits": fits, **more}))
    else:
        print(
            "\n".join(
                [
                    *table(found, options.gpu_memory),
                    *(f"{name.replace('_', ' ')} {value or 'FSDP'}" for name, value in more.items()),
                ]
            )
        )
    sys.exit(0 if fits else 1)


def table(found: Prediction, gpu_memory: float | None) -> list[str]:
    rows = {
        "parameters": found.parameters,
        "gradients": found.gradients,
        "optimizer state": found.optimizer,
        "activations": found.activations,
        "peak": found.peak,
    }
    lines = [f"{name:<16}{size / GIB:10.2f} GiB" for name, size in rows.items()]
    lines += [f"{kind:<16}{size / GIB:10.2f} GiB communicated in a step" for kind, size in found.communicated.items()]
    if gpu_memory is not None:
        lines.append(f"{'fits' if found.peak <= gpu_memory * GIB else 'does not fit'} into {gpu_memory:g} GiB")
    return lines


if __name__ == "__main__":
    main()
