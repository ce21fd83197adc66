"""Train a small language model on text with PyTorch/XLA: it traces a step's operations, and compiles them as one graph.

On a laptop:    PJRT_DEVICE=CPU PYTHONPATH=training_code:training_code/compiled python training_code/compiled/xla/train.py
On SageMaker:   a CompiledJob with TorchXla, on one CPU host (docs/compiled.md)

PyTorch/XLA ends at 2.9.0, with PyTorch 2.9. It runs today, by PJRT_DEVICE, on a CPU, whose client has no collectives, in one
process; on TPUs, which SageMaker does not have; on NVIDIA GPUs up to release 2.7; and on Trainium with AWS's container of Neuron,
whose torch_xla it is. Only the CPU was tried. On GPUs ../train.py is the one under development.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint after the
current step.
"""

# ran: `compiled/xla/train.py`, PyTorch/XLA on a CPU | no | test_compiled (soak) | no | no

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch_xla
from common.checkpoints import Checkpointer
from common.job import Job
from common.optimization import parameter_groups, set_learning_rate
from common.order import Order
from common.precision import Precision
from common.process_group import freeze_objects, process_group
from common.schedule import scheduled_rate
from common.stopping import Stop
from measures import Log, process_peak_mib
from model import build
from text import FIXED, Text, add_workload, batches_from, inputs_and_targets
from torch import Tensor, nn
from torch.optim import Optimizer
from torch_xla import runtime
from torch_xla.core import xla_model
from torch_xla.debug import metrics

WARM_UP = 2  # steps that compile: the first creates the optimizer's state, which is an input of the second
PRECISIONS = {"float32": "fp32", "bfloat16": "bf16"}
Step = Callable[[Tensor, Tensor], Tensor]

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_workload(arguments)
    arguments.add_argument("--precision", choices=tuple(PRECISIONS), default="float32")
    return arguments.parse_args()


def check_world(xla_world: int, ranks: int) -> None:
    """Exit where XLA's collectives do not reach every rank, so that each would train a separate model."""
    if xla_world != ranks:
        raise SystemExit(
            f"XLA's world size must be WORLD_SIZE, like {ranks}, got {xla_world}: "
            "on PJRT_DEVICE=CPU, which has no collectives, start one process on one host"
        )


# -- Data -------------------------------------------------------------------------------------------------------------

# That of ../text.py, in batches of one shape.

# -- Model ------------------------------------------------------------------------------------------------------------

# That of ../model.py.

# -- Step -------------------------------------------------------------------------------------------------------------


def compiled_step(model: nn.Module, optimizer: Optimizer, precision: Precision, clip: float, ranks: int) -> Step:
    """Tokens, and the number of targets over all ranks, to this rank's part of the loss; all on the device."""

    def step(tokens: Tensor, count: Tensor) -> Tensor:
        with precision.autocast():
            loss = model(*inputs_and_targets(tokens), count, ranks)
        loss.backward()  # type: ignore[no-untyped-call]
        xla_model.reduce_gradients(optimizer)  # their mean
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    # Marks the step's end, and fails where the step reads a value before.
    return torch_xla.compile(step, full_graph=True, name="step")  # type: ignore[no-any-return]


def compilations() -> int:
    measured = metrics.metric_data("CompileTime")  # number, sum, samples; None before the first
    return int(measured[0]) if measured else 0


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, stop: Stop) -> None:
    check_world(runtime.world_size(), job.ranks)
    device = torch_xla.device()
    text = Text(job.channels.get("text"), options.sequence)
    order = Order(len(text), options.batch_size * job.ranks, options.seed)
    model, log = build(options).to(device), Log(job, options, device, WARM_UP)
    # Capturable: the number of steps is a tensor, and not read back, which would break the graph.
    groups = parameter_groups(model, options.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, capturable=True)
    fixed = {name: getattr(options, name) for name in FIXED} | {"samples": order.length}
    free, states = {"batch_size": options.batch_size}, {"loss": log.loss}
    checkpointer = Checkpointer(job, [model], [optimizer], fixed=fixed, free=free, states=states, on_host=True)
    progress = checkpointer.restore()
    first, compiled = progress.steps + 1, 0
    where = f"host {job.host} trains on XLA, {job.local_ranks} of {job.ranks} processes"
    print(f"{where}, from step {first - 1}", flush=True)
    step = compiled_step(model, optimizer, Precision(PRECISIONS[options.precision], device), options.clip, job.ranks)
    data = batches_from(progress.samples, text, order, job, options, options.sequence)
    freeze_objects()
    log.start(first)
    for done, (tokens, count, samples) in zip(range(first, options.steps + 1), data, strict=False):
        # XLA compiles no number but 0 and 1 into its graph: https://github.com/pytorch/xla/issues/8414.
        rate = scheduled_rate(options, done, options.steps, order.batch)
        set_learning_rate([optimizer], rate)
        targets, before = count.to(device), compilations()
        loss = step(tokens.to(device), targets)
        compiled += compilations() - before
        if done >= first + WARM_UP and compilations() > before:
            graphs = f"{compilations()} graphs after {before}"
            raise RuntimeError(f"step {done} compiled again, {graphs}: keep shapes static")
        progress.steps, progress.samples = done, progress.samples + samples
        log.add(done, loss, targets, rate)
        torch_xla.sync()  # what the log computes is no part of the next step's graph
        if stop.check() or done == options.steps or done % options.checkpoint_every == 0:
            checkpointer.save(progress)
        if stop.agreed:
            break
    checkpointer.wait()
    log.end(f"{compiled}", process_peak_mib())
    if job.rank == 0 and progress.steps < options.steps:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
        return
    job.model.mkdir(parents=True, exist_ok=True)
    xla_model.save(model.state_dict(), job.model / "model.pt", master_only=True, global_master=True)


def main() -> None:
    options, job = config(), Job.here()
    with process_group(job):
        train(job, options, Stop())


if __name__ == "__main__":
    main()
