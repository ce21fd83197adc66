"""Train a small language model on text with one compiled step, by PyTorch's inductor.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/compiled/train.py --compiler inductor
Two processes, by torchrun:      PYTHONPATH=training_code torchrun --nproc-per-node 2 training_code/compiled/train.py
On SageMaker:                    the stack CompiledTraining of app.py

The text is the channel ``text``, or without one the running Python's standard library. All batches have one shape, and a guard
stops the job before a later step is compiled again, or reads a value; ``--pad longest`` shows it.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. On SIGTERM, which SageMaker sends two minutes
before it kills a job, it saves a checkpoint after the current step.
"""

# ran: `compiled/train.py`, inductor | test_compiled_train | test_compiled | one H100, one H200 | no

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import nullcontext

import numpy as np
import torch
from common import compiler_cache
from common.checkpoints import Checkpointer
from common.job import Job
from common.loss import batch_loss
from common.optimization import parameter_groups, require_finite, set_learning_rate, sync_gradients
from common.order import Order, share
from common.precision import Precision
from common.process_group import freeze_objects, process_group, to_device
from common.schedule import positive, scheduled_rate
from common.seeding import seed_step
from common.stopping import Stop
from guard import Guard, compilations
from measures import Log, process_peak_mib
from model import build
from text import FIXED, Text, add_workload, batches_from, inputs_and_targets, padded
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

MOST_HELD_OUT = 512  # samples, and about a tenth of all
PRECISIONS = {"auto": "auto", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> Namespace:
    arguments = ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add_workload(arguments)
    add("--microbatches", type=positive, default=1, help="a batch's equal parts, whose gradients are added")
    add("--pad", choices=("sequence", "longest"), default="sequence", help="longest: a bad example")
    add("--precision", choices=tuple(PRECISIONS), default="float32")
    add("--evaluate-every", type=int, default=0, help="steps; 0: no text is held out")
    add("--on-recompile", choices=("fail", "warn"), default="fail")
    compiler_cache.add_compiler(arguments)
    options = arguments.parse_args()
    if options.batch_size % options.microbatches:
        arguments.error(
            f"batch_size must be a multiple of microbatches, {options.microbatches}, "
            f"like {8 * options.microbatches}, got {options.batch_size}"
        )
    return options


# -- Data -------------------------------------------------------------------------------------------------------------


def held_out(text: Text, options: Namespace) -> int:
    """How many samples, the last ones, no step trains on. No function of ranks or batch, which a resumed job may change."""
    return min(MOST_HELD_OUT, 1 + len(text) // 10) if options.evaluate_every else 0


# -- Model ------------------------------------------------------------------------------------------------------------


def parallel(model: nn.Module, job: Job, options: Namespace) -> nn.Module:
    """The model for the step: compiled, and data parallel over all ranks."""
    if options.compiler == "inductor":
        # Model and loss are one graph, and their backward another; a graph break is an error. Within DDP, the compiler splits
        # them at gradient buckets, so that all-reduces overlap with computation.
        dynamic = bool(options.compiler_dynamic)
        model = torch.compile(model, fullgraph=True, dynamic=dynamic, mode=options.compiler_mode)  # type: ignore[assignment]
    return DistributedDataParallel(model) if job.ranks > 1 else model


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    batch: tuple[Tensor, Tensor],
    shares: Tensor,
    options: Namespace,
) -> Tensor:
    """Tokens, and the number of targets over all ranks, to this rank's part of the loss; without reading a value."""
    tokens, count = batch
    whole = torch.zeros((), device=tokens.device)
    for number, part in enumerate(tokens.chunk(options.microbatches), start=1):
        sync_gradients(model, number == options.microbatches)
        with precision.autocast():
            loss = model(*inputs_and_targets(part), count, shares)
        precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        whole += loss.detach()
    require_finite(whole, "loss")
    if options.clip:
        precision.scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        if not precision.scaler.is_enabled():  # which leaves a step out whose gradients are not finite
            require_finite(norm, "norm of the gradients")
    precision.scaler.step(optimizer)
    precision.scaler.update()
    optimizer.zero_grad()
    return whole


@torch.no_grad()
def evaluate(model: nn.Module, precision: Precision, text: Text, order: Order, job: Job, options: Namespace) -> float:
    """The mean loss of the held-out text over all ranks, in the format of the training. The model is not compiled for it."""
    device = next(model.parameters()).device
    numbers = np.arange(order.length, len(text))
    count, parts = to_device(text.targets(numbers), device), []
    for batch in np.split(numbers, range(order.batch, len(numbers), order.batch)):  # of which each rank has a share
        mine = share(batch, job.rank, job.ranks, options.batch_size).tolist()
        tokens = to_device(padded([text[number] for number in mine], options.sequence), device)
        with precision.autocast():
            parts.append(model(*inputs_and_targets(tokens), count, job.ranks))
    return batch_loss(torch.stack(parts).sum())


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: Namespace, device: torch.device, stop: Stop) -> None:
    text, compiled = Text(job.channels.get("text"), options.sequence), options.compiler == "inductor"
    order = Order(len(text) - held_out(text, options), options.batch_size * job.ranks, options.seed)
    whole = build(options).to(device)
    # Fused: one kernel, which need not be compiled, and does not read the scaler's result.
    optimizer = torch.optim.AdamW(parameter_groups(whole, options.weight_decay), lr=options.learning_rate, fused=True)
    precision, log = Precision(PRECISIONS[options.precision], device), Log(job, options, device)
    fixed = {name: getattr(options, name) for name in FIXED} | {"samples": order.length}
    free = {name: getattr(options, name) for name in ("batch_size", "microbatches", "precision")}
    states = {"scaler": precision.scaler, "loss": log.loss}
    checkpointer = Checkpointer(job, [whole], [optimizer], fixed=fixed, free=free, states=states)
    progress = checkpointer.restore()
    first = progress.steps + 1
    if job.local_rank == 0:
        where = f"host {job.host} trains on {device.type}, {job.local_ranks} of {job.ranks} processes"
        print(f"{where}, compiler {options.compiler}, from step {progress.steps}", flush=True)
    if compiled:
        compiler_cache.load(job)
    model, guard = parallel(whole, job, options), Guard(fail=options.on_recompile == "fail")
    # No constant of the graph, which other numbers of ranks then find in the cache.
    shares = torch.tensor(job.ranks, device=device)
    length = options.sequence if options.pad == "sequence" else None
    data = batches_from(progress.samples, text, order, job, options, length)
    freeze_objects()
    log.start(first)
    for done, (tokens, count, samples) in zip(range(first, options.steps + 1), data, strict=False):
        rate = scheduled_rate(options, done, options.steps, order.batch)
        set_learning_rate([optimizer], rate)
        seed_step(options.seed, progress.samples, job.rank)
        batch = to_device(tokens, device), to_device(count, device)
        with guard.step(done) if compiled else nullcontext():
            loss = step(model, optimizer, precision, batch, shares, options)
        if compiled and done == first:
            compiler_cache.save(job)
        progress.steps, progress.samples = done, progress.samples + samples
        log.add(done, loss, batch[1], rate)
        if options.evaluate_every and done % options.evaluate_every == 0:
            with log.paused():
                held_out_loss = evaluate(whole, precision, text, order, job, options)
            if job.rank == 0:
                print(f"step {done} loss on held-out text {held_out_loss:.6f}", flush=True)
        if stop.check() or done == options.steps or done % options.checkpoint_every == 0:
            checkpointer.save(progress)
        if stop.agreed:
            break
    checkpointer.wait()
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else process_peak_mib()
    log.end(compilations() if compiled else "", peak)
    if job.rank == 0 and progress.steps < options.steps:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(whole.state_dict(), job.model / "model.pt")


def main() -> None:
    options, job = config(), Job.here()
    with process_group(job) as device:
        train(job, options, device, Stop())


if __name__ == "__main__":
    main()
