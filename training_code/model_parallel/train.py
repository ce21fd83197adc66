"""Train a transformer with model parallelism on the source text of Python's standard library.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/model_parallel/train.py
Four processes, by torchrun:     PYTHONPATH=training_code torchrun --nproc-per-node 4 training_code/model_parallel/train.py
On SageMaker:                    the stack ModelParallelTraining of app.py

The degrees of parallelism are arguments, or by default those of the variable TRAINING_PARALLELISM. The remaining ranks shard the
data. All layouts train equally: with the same batches, from the same weights. It resumes from the last checkpoint of any layout;
on a laptop, remove ``./output`` to start over.
"""

# ran: the transformer, every degree, up to 8 ranks | test_model_parallel | test_model_parallel | one H200, one rank | no

from __future__ import annotations

import argparse
from dataclasses import fields
from functools import partial

import torch
from arguments import compilation_of, parser_of
from common.job import Job
from common.optimization import parameter_groups
from degrees import Degrees, degrees_of
from flops import flops_per_token
from loop import main, run, say
from loss_scale import LossScale
from microbatches import Microbatches, check_corpus
from model import Config, Transformer, Windows, initial, text
from parallelize import cut, local_size, mesh_of, optimizer_bytes, stage_modules_of, whole_weights
from plan import PLAN, costs
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from watch import Watch

HELD_OUT_BATCHES = 4

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


def held_out_corpus(job: Job, options: argparse.Namespace) -> Windows:
    """The sequences to evaluate on, four batches of them at most, of the text behind that to train on."""
    most = HELD_OUT_BATCHES * options.batch_size * options.context + 1
    held_out = text(job.channels.get("text"), options.text_bytes + most)[options.text_bytes :]
    if len(held_out) <= options.context:
        raise ValueError(
            f"text_bytes must leave more than context, {options.context} bytes, to evaluate on, "
            f"like 900000 of a million, got {options.text_bytes}, which leaves {len(held_out)}"
        )
    return Windows(held_out, options.context, options.seed)


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
        decay, modules = options.weight_decay, self.stage_modules.values()
        groups = [one.parameters() if decay is None else parameter_groups(one, decay) for one in modules]
        self.optimizers = [torch.optim.AdamW(group, lr=options.learning_rate, fused=True) for group in groups]
        scale = LossScale(degrees.precision)
        self.microbatches = Microbatches(self.stage_modules, degrees, self.mesh, device, scale, options)

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
    held_out = held_out_corpus(job, options) if options.evaluate_every else None
    training = Training(options, degrees, device)
    say(training.describe(job))
    parts, optimizers, flops = training.microbatches, training.optimizers, model_flops(training.config)
    take = partial(step, training)
    if run(job, options, watch, parts, optimizers, corpus, held_out, take, flops, **vars(training.config)):
        say(f"rank {job.rank} on {job.host}: {optimizer_bytes(optimizers)} bytes of optimizer state")
        model = whole_weights(training.stage_modules.values(), training.mesh)
        if job.rank == 0:
            job.model.mkdir(parents=True, exist_ok=True)
            torch.save({"config": vars(training.config), "model": model}, job.model / "model.pt")


if __name__ == "__main__":
    main(config, train)
