"""The loop of both train.py: steps with their log, evaluations and checkpoints, until the last one or SIGTERM."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence

from arguments import is_kept
from common import compiler_cache
from common.checkpoints import Progress
from common.job import Job
from common.optimization import set_learning_rate
from common.process_group import freeze_objects, process_group
from common.schedule import scheduled_rate
from common.seeding import seed_step
from common.training_log import TrainingLog, profile
from microbatches import Batch, Corpus, Microbatches, batches, held_out_batches
from parallelize import data_rank
from torch import Tensor
from torch.optim import Optimizer
from watch import Watch


def run(
    job: Job,
    options: argparse.Namespace,
    watch: Watch,
    microbatches: Microbatches,
    optimizers: Sequence[Optimizer],
    corpus: Corpus,
    held_out: Corpus | None,
    step: Callable[[Tensor, Tensor], Batch],
    flops: float,
    **fixed: object,
) -> bool:
    """Train from the newest checkpoint on. Returns whether all steps are made, and not ended by SIGTERM, with a checkpoint.

    Args:
        step: Takes this rank's share of a batch, and returns the loss and the norm that ``Microbatches.step`` returns.
        flops: Of a token.
        fixed: As of ``Microbatches.checkpointer``, beside the seed and the number of sequences.
    """
    size, degrees, mesh, device = options.batch_size, microbatches.degrees, microbatches.mesh, microbatches.device
    fixed = {"seed": options.seed, "sequences": len(corpus), **fixed}
    checkpointer = microbatches.checkpointer(job, optimizers, size, **fixed)
    progress = checkpointer.restore()
    first = progress.steps + 1
    if job.rank == 0:
        where = f"trains on {device.type}, {job.ranks} ranks, compiler {options.compiler}"
        say(f"{where}, from step {progress.steps}: {degrees}")
    log = TrainingLog(job, device, flops=flops, events=options.tensorboard)
    freeze_objects()
    with profile(job, options.profile) as profiler:
        for done, batch in batches(corpus, progress, options, degrees, mesh):
            stop_agreed = watch.start_stop_check(done)
            rate = scheduled_rate(options, done, options.steps, size)
            set_learning_rate(optimizers, rate)
            seed_step(options.seed, progress.samples, data_rank(mesh), mesh.get_local_rank("pipeline"))
            loss, norm = step(*batch)
            if done == first and options.compiler == "inductor":
                compiler_cache.save(job)
            progress = Progress(done, progress.samples + size)
            log.count(size * options.context)
            logged: dict[str, float] = {}
            if done % options.log_every == 0:
                logged = {"loss": microbatches.whole(loss), "grad_norm": norm.item(), "learning_rate": rate}
            if held_out is not None and done % options.evaluate_every == 0:
                with log.paused():
                    loss = microbatches.evaluate(held_out_batches(held_out, size, degrees, mesh))
                    logged["validation_loss"] = microbatches.whole(loss)
            if logged:
                log.write(done, **logged)
            if profiler:
                profiler.step()
            stopping = stop_agreed()
            if stopping or is_kept(done, options):
                checkpointer.save(progress)
            if stopping:
                break
    checkpointer.wait()
    if stopped := progress.steps < options.steps:
        say(f"rank {job.rank} on {job.host} stops after step {progress.steps}, with a checkpoint")
    return not stopped


def main(config: Callable[[], argparse.Namespace], train: Callable[..., None]) -> None:
    """Call a script's ``train`` with the job, its options, this rank's device, and a watch over the other ranks."""
    options, job = config(), Job.here()
    if options.compiler == "inductor":
        compiler_cache.load(job)
    # FSDP warns of operations in place on what a model returns; the loss has none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    with (
        Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch,
        process_group(job, options.timeout) as device,
    ):
        train(job, options, device, watch)


def say(line: str) -> None:
    """One write, so that the lines of several ranks do not mix."""
    print(f"{line}\n", end="", flush=True)
