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
import os
import warnings
from collections.abc import Iterator
from dataclasses import fields
from functools import partial

import torch
import torch.distributed as dist
from arguments import compilation_of, parser_of
from common.checkpoints import Checkpointer
from common.job import Job
from common.optimization import clip_gradients, parameter_groups, require_finite, set_learning_rate, sync_gradients
from common.process_group import freeze_objects, process_group, to_device
from common.schedule import scheduled_rate
from common.training_log import TrainingLog, profile
from degrees import Degrees, degrees_of
from export import export
from flops import flops_per_token
from loss_scale import LossScale
from model import Config, Transformer, batch, initial, loss_of, text
from parallelize import (
    cut,
    data_rank,
    local,
    local_size,
    loss_context,
    mesh_of,
    optimizer_bytes,
    schedule_of,
    stage_modules_of,
)
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


def batches(
    training: Training, job: Job, options: argparse.Namespace, first: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The number of each step from ``first`` on, with this rank's tokens and targets."""
    corpus, share = text(job.channels.get("text"), options.text_bytes), share_of(training, options)
    for number in range(first, options.steps + 1):
        yield number, *batch(corpus, number, options.batch_size, options.context, options.seed, share)


def held_out_batches(training: Training, job: Job, options: argparse.Namespace) -> list[tuple[Tensor, Tensor]]:
    """This rank's tokens and targets of the same batches at each evaluation, of the text behind that to train on."""
    corpus = text(job.channels.get("text"), options.text_bytes + HELD_OUT_BYTES)[options.text_bytes :]
    if len(corpus) <= options.context:
        raise ValueError(
            f"text_bytes must leave more than context, {options.context} bytes, to evaluate on, "
            f"like 900000 of a million, got {options.text_bytes}, which leaves {len(corpus)}"
        )
    share = share_of(training, options)
    numbers = range(1, HELD_OUT_BATCHES + 1)
    return [batch(corpus, number, options.batch_size, options.context, options.seed, share) for number in numbers]


def share_of(training: Training, options: argparse.Namespace) -> slice:
    """The sequences of each batch that are this rank's."""
    per_rank_batch_size = options.batch_size // training.degrees.data
    first_sequence = data_rank(training.mesh) * per_rank_batch_size
    return slice(first_sequence, first_sequence + per_rank_batch_size)


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
        self.loss_scale = LossScale(degrees.precision)
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
        self.schedule = (
            schedule_of(degrees, self.mesh, self.stage_modules, self.loss_of, device) if degrees.pipeline > 1 else None
        )

    def loss_of(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.loss_scale.scaled(loss_of(logits, targets))

    @property
    def pipeline(self) -> dist.ProcessGroup | None:
        return self.mesh.get_group("pipeline") if self.degrees.pipeline > 1 else None

    @property
    def has_loss(self) -> bool:
        return len(self.layers) - 1 in self.stage_modules

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


def step(training: Training, tokens: Tensor, targets: Tensor) -> Tensor:
    """One step on this rank's sequences. Returns their mean loss; 0 on ranks without the last stage."""
    loss = forward(training, tokens, targets, backward=True)
    require_finite(loss, "loss")
    parameters = [parameter for module in training.stage_modules.values() for parameter in module.parameters()]
    finite = training.loss_scale.unscale(parameters)  # where they are not, the step is left out on every rank
    if finite and training.clip:
        clip_gradients(parameters, training.clip, training.pipeline)
    for optimizer in training.optimizers:
        if finite:
            optimizer.step()
        optimizer.zero_grad()
    return loss


@torch.no_grad()
def evaluate(training: Training, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The mean loss of batches that no step trains on; 0 on ranks without the last stage."""
    return torch.stack([forward(training, *batch, backward=False) for batch in batches]).mean()


def forward(training: Training, tokens: Tensor, targets: Tensor, *, backward: bool) -> Tensor:
    """The mean loss of this rank's sequences, whose gradient is computed too with ``backward``."""
    tokens, targets = to_device(tokens, training.device), to_device(targets, training.device)
    with loss_context(training.degrees):
        losses = losses_of(training, tokens, targets, backward)
    if not losses:
        return torch.zeros((), device=training.device)
    return torch.stack([local(loss.detach()) for loss in losses]).mean() / training.loss_scale.value


def losses_of(training: Training, tokens: Tensor, targets: Tensor, backward: bool) -> list[Tensor]:
    """Of each microbatch, scaled; none on ranks without the last stage."""
    microbatches, losses = training.degrees.microbatches, list[Tensor]()
    if training.schedule is None:
        model = training.stage_modules[0]
        for number, (some, following) in enumerate(
            zip(tokens.chunk(microbatches), targets.chunk(microbatches), strict=True), start=1
        ):
            sync_gradients(model, number == microbatches)
            losses.append(training.loss_of(model(some), following))
            if backward:
                (losses[-1] / microbatches).backward()
    else:
        inputs = (tokens,) if 0 in training.stage_modules else ()
        outputs = {"target": targets, "losses": losses} if training.has_loss else {}
        run = training.schedule.step if backward else training.schedule.eval
        run(*inputs, **outputs, return_outputs=False)
    return losses


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, watch: Watch) -> None:
    degrees = degrees_of(options, job)
    training = Training(options, degrees, device)
    say(training.describe(job))
    checkpointer = Checkpointer(job, training.stage_modules.values(), training.optimizers, **training.loss_scale.states)
    before = checkpointer.restore()
    if job.rank == 0:
        say(f"trains on {device.type}, {job.ranks} ranks, compiler {options.compiler}, from step {before}: {degrees}")
    held_out = held_out_batches(training, job, options) if options.evaluate_every else []
    log = TrainingLog(job, device, flops=model_flops(training.config), events=options.tensorboard)
    freeze_objects()
    with profile(job, options.profile) as profiler:
        for steps, tokens, targets in batches(training, job, options, before + 1):
            stop_agreed = watch.start_stop_check(steps)
            set_learning_rate(training.optimizers, scheduled_rate(options, steps, options.steps))
            loss = step(training, tokens, targets)
            log.count(options.batch_size * options.context)
            logged = {"loss": everyones_loss(training, loss)} if steps % options.log_every == 0 else {}
            if held_out and steps % options.evaluate_every == 0:
                logged["validation_loss"] = everyones_loss(training, evaluate(training, held_out))
            if logged:
                log.write(steps, **logged)
            if profiler:
                profiler.step()
            stopping = stop_agreed()
            if stopping or (options.checkpoint_every and steps % options.checkpoint_every == 0):
                checkpointer.save(steps)
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


def everyones_loss(training: Training, loss: Tensor) -> float:
    """The mean over the batch, from the ranks with the last stage; tensor-parallel ranks have the same loss."""
    mean = loss / (training.degrees.data * training.degrees.tensor)
    dist.all_reduce(mean)
    return mean.item()


def main() -> None:
    options = config()
    job = Job.here()
    # The compiler's cache is saved with the checkpoints, so that a resumed job does not compile again.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(job.checkpoints / "compiler-cache"))
    # FSDP warns of operations in place on what the model returns; the loss has none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    with (
        Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch,
        process_group(job, options.timeout) as device,
    ):
        train(job, options, device, watch)


if __name__ == "__main__":
    main()
