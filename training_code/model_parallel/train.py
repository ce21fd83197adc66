"""Train a transformer that is spread over ranks, on the source text of Python's standard library.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/model_parallel/train.py
Four processes, by torchrun:     PYTHONPATH=training_code torchrun --nproc-per-node 4 training_code/model_parallel/train.py
On SageMaker:                    the stack ModelParallelTraining of app.py

The degrees of parallelism are arguments, or, where these are not given, those of the variable TRAINING_PARALLELISM. Ranks that no
degree asks for shard the data. All layouts train alike: the same batches, from the same weights. It goes on from the last
checkpoint, whatever layout wrote it; on a laptop, remove ``./output`` to begin anew.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta

import checkpoint
import torch
import torch.distributed as dist
from common.job import Job, use_the_jobs_network
from degrees import Degrees
from model import Config, batch, loss_of, text
from parallelize import Compilation, cut, held, mesh_of, parts_of, schedule_of
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from watch import Watch

# -- Config -----------------------------------------------------------------------------------------------------------


def config(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch-size", type=int, default=16, help="sequences of a step, over all ranks")
    add("--learning-rate", type=float, default=3e-3)
    add("--seed", type=int, default=0)
    add("--text-bytes", type=int, default=4_000_000, help="of text to train on, at most")
    add("--log-every", type=int, default=10, help="steps")
    add("--checkpoint-every", type=int, default=50, help="steps; 0 for none but at a stop")
    add("--timeout", type=float, default=300.0, help="seconds after which a rank that waits for another gives up")
    # SageMaker gives a job that it stops two minutes.
    add("--ask-every", type=int, default=5, help="steps from asking all ranks whether any was told to stop to the next")
    add("--silence", type=float, default=20.0, help="seconds after which a rank that is not heard of is lost")
    for field in fields(Config):
        add(f"--{field.name}", type=int, default=field.default)
    given = json.loads(os.environ.get("TRAINING_PARALLELISM", "{}"))
    for name in ("data_shard", "data_replicate", "tensor", "pipeline", "microbatches"):
        # What is left over shards the data.
        add(f"--{flag(name)}", type=int, default=given.get(name) or (None if name == "data_shard" else 1))
    for name in ("activation_checkpointing", "activation_offloading", "cpu_offload"):
        add(f"--{flag(name)}", action=argparse.BooleanOptionalAction, default=given.get(name) or False)
    add("--schedule", default=given.get("schedule") or "1F1B", help="GPipe, 1F1B or Interleaved1F1B")
    add("--precision", default=given.get("precision") or "fp32", help="fp32 or bf16")
    add("--cut", type=layer_numbers, default=[], help="the first layers of all stages but the first, like 3,6")
    add("--balance", choices=("parameters", "flops"), default="parameters", help="what a cut of its own makes equal")
    add("--sharded", choices=("parameters", "optimizer"), default="parameters", help="optimizer: a layer stays whole "
        "from its forward to its backward, so that only gradients and optimizer state are sharded")  # fmt: skip
    # The variables are those that the constructs' compilers set.
    add("--compiler", type=compiler, default=os.environ.get("TRAINING_COMPILER") or "none", help="none or inductor")
    add("--compiler-mode", default=os.environ.get("TRAINING_COMPILER_MODE") or "default", help="torch.compile's")
    add("--compiler-dynamic", type=true, default=os.environ.get("TRAINING_COMPILER_DYNAMIC") or None)
    return parser.parse_args(arguments)


def compiler(text: str) -> str:
    if text not in ("none", "inductor"):
        raise argparse.ArgumentTypeError(f"must be none or inductor, got {text!r}")
    return text


def true(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return text.lower() == "true"


def flag(name: str) -> str:
    return name.replace("_", "-")


def layer_numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def degrees_of(options: argparse.Namespace, job: Job) -> Degrees:
    """The degrees, which must need as many ranks as there are."""
    given = {field.name: getattr(options, field.name) for field in fields(Degrees)}
    if given["data_shard"] is None:
        others = Degrees(**given | {"data_shard": 1}).ranks
        given["data_shard"] = max(1, job.ranks // others)
    degrees = Degrees(**given)
    degrees.check_ranks(len(job.group_hosts), job.ranks)
    return degrees


# -- Data -------------------------------------------------------------------------------------------------------------


def batches(
    training: Training, job: Job, options: argparse.Namespace, first: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each step's number from ``first`` on, with this rank's tokens and what follows them."""
    known = text(job.channels.get("text"), options.text_bytes)
    each = options.batch_size // training.degrees.data
    share = slice(training.data_rank * each, (training.data_rank + 1) * each)
    for number in range(first, options.steps + 1):
        yield number, *batch(known, number, options.batch_size, options.context, options.seed, share)


# -- Model ------------------------------------------------------------------------------------------------------------


class Training:
    """This rank's parts of the model, with an optimizer for each, and what takes a batch through them."""

    def __init__(self, options: argparse.Namespace, degrees: Degrees, device: torch.device) -> None:
        self.config = Config(**{field.name: getattr(options, field.name) for field in fields(Config)})
        degrees.check_model(self.config, options.batch_size)
        self.degrees, self.device = degrees, device
        self.layers = cut(self.config, degrees.stages, options.cut, options.balance)
        self.mesh = mesh_of(degrees, device.type)
        self.parts = parts_of(
            self.config,
            degrees,
            self.mesh,
            self.layers,
            seed=options.seed,
            reshard=options.sharded == "parameters",
            compilation=Compilation(options.compiler_mode, options.compiler_dynamic)
            if options.compiler == "inductor"
            else None,
        )
        self.optimizers = [
            torch.optim.AdamW(part.parameters(), lr=options.learning_rate, fused=True) for part in self.parts.values()
        ]
        self.schedule = schedule_of(degrees, self.mesh, self.parts, device) if degrees.pipeline > 1 else None

    @property
    def has_loss(self) -> bool:
        return len(self.layers) - 1 in self.parts

    @property
    def data_rank(self) -> int:
        """Which share of each batch is this rank's."""
        replica = self.mesh.get_local_rank("data_replicate")
        return replica * self.degrees.data_shard + self.mesh.get_local_rank("data_shard")

    def describe(self, job: Job) -> str:
        numbers, size = (sum(pair) for pair in zip(*map(held, self.parts.values()), strict=True))
        of = f" of {len(self.layers)}" if len(self.layers) > 1 else ""
        stages = ", ".join(
            f"stage {stage}{of} (layers {self.layers[stage].start}-{self.layers[stage].stop - 1})"
            for stage in self.parts
        )
        return f"rank {job.rank} on {job.host}: {stages}, {numbers} parameters, {size} bytes"


def optimizer_bytes(optimizers: list[torch.optim.Optimizer]) -> int:
    """What the optimizers' state takes on this rank."""
    values = [value for optimizer in optimizers for state in optimizer.state.values() for value in state.values()]
    local = [value.to_local() if isinstance(value, DTensor) else value for value in values]
    return sum(value.numel() * value.element_size() for value in local)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(training: Training, tokens: Tensor, targets: Tensor) -> Tensor:
    """One step on this rank's sequences. Returns their mean loss; 0 where another stage has it."""
    tokens, targets = tokens.to(training.device), targets.to(training.device)
    if training.schedule is None:
        loss = forward_backward(training.parts[0], tokens, targets, training.degrees.microbatches)
    else:
        losses: list[Tensor] = []
        inputs = (tokens,) if 0 in training.parts else ()
        outputs = {"target": targets, "losses": losses} if training.has_loss else {}
        training.schedule.step(*inputs, **outputs, return_outputs=False)
        loss = torch.stack(losses).detach().mean() if losses else torch.zeros((), device=training.device)
    for optimizer in training.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss


def forward_backward(model: nn.Module, tokens: Tensor, targets: Tensor, microbatches: int) -> Tensor:
    total = torch.zeros((), device=tokens.device)
    for some, following in zip(tokens.chunk(microbatches), targets.chunk(microbatches), strict=True):
        loss = loss_of(model(some), following) / microbatches
        loss.backward()
        total += loss.detach()
    return total


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, watch: Watch) -> None:
    degrees = degrees_of(options, job)
    training = Training(options, degrees, device)
    say(training.describe(job))
    parts = training.parts.values()
    before = checkpoint.restore(job.checkpoints, parts, training.optimizers)
    if job.rank == 0:
        say(f"trains on {device.type}, {job.ranks} ranks, compiler {options.compiler}, from step {before}: {degrees}")
    began = time.perf_counter()
    for steps, tokens, targets in batches(training, job, options, before + 1):
        answer = watch.ask_for_stop(steps)
        loss = step(training, tokens, targets)
        if steps % options.log_every == 0:
            mean = everyones_loss(training, loss)
            if job.rank == 0:
                rate = (steps - before) * options.batch_size * options.context / (time.perf_counter() - began)
                say(f"step {steps} loss {mean:.6f} tokens/s {rate:.0f}")
        stopping = answer()
        if stopping or (options.checkpoint_every and steps % options.checkpoint_every == 0):
            checkpoint.save(job.checkpoints, steps, parts, training.optimizers, job.local_rank == 0)
        if stopping:
            say(f"rank {job.rank} on {job.host} stops after step {steps}, with a checkpoint")
            return
    say(f"rank {job.rank} on {job.host}: {optimizer_bytes(training.optimizers)} bytes of optimizer state")
    file = job.model / "model.pt"
    checkpoint.export(file, training.config, training.parts, training.layers, training.mesh, device)


def say(line: str) -> None:
    """One write, so that the lines of several ranks do not mix."""
    print(f"{line}\n", end="", flush=True)


def everyones_loss(training: Training, loss: Tensor) -> float:
    """The mean over the batch. Only ranks of the last stage have one, and tensor-parallel ranks the same."""
    mean = loss / (training.degrees.data * training.degrees.tensor)
    dist.all_reduce(mean)
    return mean.item()


@contextmanager
def process_group(job: Job, options: argparse.Namespace) -> Iterator[torch.device]:
    """The ranks, joined. A laptop's one process is the only rank of a group of its own."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", job.local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    alone = {} if job.ranks > 1 else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"  # gloo too for what is agreed on besides the training
    dist.init_process_group(backend, timeout=timedelta(seconds=options.timeout), **alone)
    yield device
    dist.destroy_process_group()


def main() -> None:
    options = config()
    job = Job.here()
    use_the_jobs_network()
    # The compiler's cache goes with the checkpoints, so that a job which goes on elsewhere does not compile again.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(job.checkpoints / "compiler-cache"))
    torch.set_num_threads(1)  # the other cores are the other ranks'
    # FSDP warns of operations in place on what the model returns; the loss has none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    watch = Watch(job, options.silence, options.ask_every)
    signal.signal(signal.SIGTERM, watch.on_signal)
    with watch, process_group(job, options) as device:
        train(job, options, device, watch)


if __name__ == "__main__":
    main()
