"""Train a transformer with model parallelism on the source text of Python's standard library.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/model_parallel/train.py
Four processes, by torchrun:     PYTHONPATH=training_code torchrun --nproc-per-node 4 training_code/model_parallel/train.py
On SageMaker:                    the stack ModelParallelTraining of app.py

The degrees of parallelism are arguments, or by default those of the variable TRAINING_PARALLELISM. The remaining ranks shard the
data. All layouts train equally: with the same batches, from the same weights. It resumes from the last checkpoint of any layout;
on a laptop, remove ``./output`` to start over.
"""

# ran: the transformer, every degree, up to 8 ranks | test_model_parallel | test_model_parallel | one H100, one rank | no

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from itertools import count

import torch
from arguments import compilation_of, is_kept, parser_of
from common import compiler_cache
from common.checkpoints import Progress
from common.job import Job
from common.optimization import parameter_groups, set_learning_rate
from common.process_group import freeze_objects, process_group
from common.schedule import scheduled_rate
from common.seeding import seed_step
from common.training_log import TrainingLog, profile
from degrees import Degrees, degrees_of
from export import export
from flops import flops_per_token
from loss_scale import LossScale
from microbatches import Corpus, Microbatches, check_corpus, share_of
from model import Config, Transformer, Windows, initial, text
from parallelize import cut, data_rank, local_size, mesh_of, optimizer_bytes, stage_modules_of
from plan import PLAN, costs
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from watch import Watch

HELD_OUT_BATCHES = 4
HELD_OUT_BYTES = 400_000

# -- Config -----------------------------------------------------------------------------------------------------------


def config(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--text-bytes", type=int, default=4_000_000, help="of text to train on, at most")
    for field in fields(Config):
        add(f"--{field.name}", type=int, default=field.default)
    add("--cut", type=layer_numbers, default=[], help="the first layers of all stages but the first, like 3,6")
    add("--balance", choices=("parameters", "flops"), default="parameters", help="the cost that automatic cuts balance")
    add("--sharded", choices=("parameters", "optimizer"), default="parameters", help="optimizer: a layer stays gathered "
        "from its forward to its backward, so that only gradients and optimizer state are sharded")  # fmt: skip
    return parser.parse_args(arguments)


def layer_numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


# -- Data -------------------------------------------------------------------------------------------------------------


def corpus_of(job: Job, options: argparse.Namespace) -> Windows:
    found = text(job.channels.get("text"), options.text_bytes)
    if (largest := int(found.max())) >= options.vocabulary:
        raise ValueError(f"vocabulary must be more than the text's largest byte, {largest}, got {options.vocabulary}")
    corpus = Windows(found, options.context, options.seed)
    check_corpus(corpus, options.batch_size)
    return corpus


def batches(
    training: Training, corpus: Corpus, options: argparse.Namespace, progress: Progress
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The number of each step that is left, with this rank's tokens and targets."""
    steps = range(progress.steps + 1, options.steps + 1)
    for step, first in zip(steps, count(progress.samples, options.batch_size)):  # the second has no end
        yield step, *share_of(corpus, first, options.batch_size, training.degrees, training.mesh)


def held_out_batches(training: Training, job: Job, options: argparse.Namespace) -> list[tuple[Tensor, Tensor]]:
    """This rank's tokens and targets of the same batches at each evaluation, of the text behind that to train on."""
    held_out = text(job.channels.get("text"), options.text_bytes + HELD_OUT_BYTES)[options.text_bytes :]
    if len(held_out) <= options.context:
        raise ValueError(
            f"text_bytes must leave more than context, {options.context} bytes, to evaluate on, "
            f"like 900000 of a million, got {options.text_bytes}, which leaves {len(held_out)}"
        )
    corpus, size = Windows(held_out, options.context, options.seed), options.batch_size
    firsts = range(0, min(len(corpus), HELD_OUT_BATCHES * size), size)
    return [share_of(corpus, first, size, training.degrees, training.mesh, len(corpus)) for first in firsts]


# -- Model ------------------------------------------------------------------------------------------------------------


class Training:
    """This rank's modules, an optimizer for each, and the pipeline schedule."""

    def __init__(
        self, options: argparse.Namespace, degrees: Degrees, device: torch.device, mesh: DeviceMesh | None = None
    ) -> None:
        self.config = Config(**{field.name: getattr(options, field.name) for field in fields(Config)})
        sizes = {name: getattr(self.config, name) for name in ("heads", "hidden", "context", "vocabulary")}
        degrees.check_model(self.config.layers, sizes, options.batch_size)
        self.degrees, self.device, self.clip = degrees, device, options.clip
        self.layers = cut(costs(self.config, options.balance), degrees.stages, options.cut)
        self.mesh = mesh or mesh_of(degrees, device.type)
        self.stage_modules = stage_modules_of(
            partial(Transformer, self.config),
            PLAN,
            degrees,
            self.mesh,
            self.layers,
            initial=partial(initial, config=self.config, seed=options.seed),
            reshard=options.sharded == "parameters",
            compilation=compilation_of(options),
        )
        decay = options.weight_decay
        self.optimizers = [
            torch.optim.AdamW(
                module.parameters() if decay is None else parameter_groups(module, decay),
                lr=options.learning_rate,
                fused=True,
            )
            for module in self.stage_modules.values()
        ]
        self.microbatches = Microbatches(
            self.stage_modules, degrees, self.mesh, device, LossScale(degrees.precision), options
        )

    def describe(self, job: Job) -> str:
        numbers, size = (sum(pair) for pair in zip(*map(local_size, self.stage_modules.values()), strict=True))
        of = f" of {len(self.layers)}" if len(self.layers) > 1 else ""
        stages = ", ".join(
            f"stage {stage}{of} (layers {self.layers[stage].start}-{self.layers[stage].stop - 1})"
            for stage in self.stage_modules
        )
        return f"rank {job.rank} on {job.host}: {stages}, {numbers} parameters, {size} bytes"


def model_flops(config: Config) -> float:
    """Floating-point operations of a token, forward and backward, in all stages."""
    with torch.device("meta"):
        return flops_per_token(Transformer(config), config.layers, config.width, config.context)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(training: Training, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """One step on this rank's sequences. Returns its part of the loss, 0 without the last stage, and all gradients' norm."""
    return training.microbatches.step(training.optimizers, tokens, targets, training.clip)


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, watch: Watch) -> None:
    degrees, corpus = degrees_of(options, job), corpus_of(job, options)
    training = Training(options, degrees, device)
    say(training.describe(job))
    microbatches, mesh = training.microbatches, training.mesh
    fixed = {"seed": options.seed, "sequences": len(corpus), **vars(training.config)}
    checkpointer = microbatches.checkpointer(job, training.optimizers, options.batch_size, **fixed)
    progress = checkpointer.restore()
    before = progress.steps
    if job.rank == 0:
        say(f"trains on {device.type}, {job.ranks} ranks, compiler {options.compiler}, from step {before}: {degrees}")
    held_out = held_out_batches(training, job, options) if options.evaluate_every else []
    log = TrainingLog(job, device, flops=model_flops(training.config), events=options.tensorboard)
    freeze_objects()
    with profile(job, options.profile) as profiler:
        for steps, tokens, targets in batches(training, corpus, options, progress):
            stop_agreed = watch.start_stop_check(steps)
            rate = scheduled_rate(options, steps, options.steps, options.batch_size)
            set_learning_rate(training.optimizers, rate)
            seed_step(options.seed, progress.samples, data_rank(mesh), mesh.get_local_rank("pipeline"))
            loss, norm = step(training, tokens, targets)
            if steps == before + 1 and options.compiler == "inductor":
                compiler_cache.save(job)
            progress = Progress(steps, progress.samples + options.batch_size)
            log.count(options.batch_size * options.context)
            logged: dict[str, float] = {}
            if steps % options.log_every == 0:
                logged = {"loss": microbatches.whole(loss), "grad_norm": norm.item(), "learning_rate": rate}
            if held_out and steps % options.evaluate_every == 0:
                with log.paused():
                    logged["validation_loss"] = microbatches.whole(microbatches.evaluate(held_out))
            if logged:
                log.write(steps, **logged)
            if profiler:
                profiler.step()
            stopping = stop_agreed()
            if stopping or is_kept(steps, options):
                checkpointer.save(progress)
            if stopping:
                checkpointer.wait()
                say(f"rank {job.rank} on {job.host} stops after step {steps}, with a checkpoint")
                return
    checkpointer.wait()
    say(f"rank {job.rank} on {job.host}: {optimizer_bytes(training.optimizers)} bytes of optimizer state")
    export(job.model / "model.pt", training.config, training.stage_modules, training.layers, training.mesh, device)


def say(line: str) -> None:
    """One write, so that the lines of several ranks do not mix."""
    print(f"{line}\n", end="", flush=True)


def main() -> None:
    options = config()
    job = Job.here()
    if options.compiler == "inductor":
        compiler_cache.load(job)
    # FSDP warns of operations in place on what the model returns; the loss has none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    with (
        Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch,
        process_group(job, options.timeout) as device,
    ):
        train(job, options, device, watch)


if __name__ == "__main__":
    main()
