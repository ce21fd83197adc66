"""Train a causal language model of Hugging Face's transformers, such as Llama, Qwen or GPT-2, with FSDP2 and tensor parallelism.

On a laptop, in one process:     see docs/model-parallel.md, which makes a small model and a folder of tokens
Four processes, by torchrun:     torchrun --nproc-per-node 4 train.py --tensor 2
On SageMaker:                    a ModelParallelJob with the channels ``model`` and ``tokens``

The channel ``model`` has a config.json, and the weights, if any, as safetensors; nothing comes from a hub. ``tokens`` has what
prepare_tokens.py writes, and so has ``validation``, with --evaluate-every. The trained model is a folder for ``from_pretrained``.
It resumes from a checkpoint of any layout.
"""

# ran: Llama and Qwen3 (`data_shard` x `tensor`), GPT-2 | test_huggingface | test_huggingface (soak) | Llama, one H100 | no
from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

import torch
from arguments import compilation_of, parser_of
from common import optimization
from common.checkpoints import Checkpointer
from common.job import Job
from common.process_group import freeze_objects, process_group, to_device
from common.training_log import TrainingLog, profile
from degrees import Degrees, degrees_of
from loss_scale import LossScale
from microbatches import Accumulated, Pipelined, evaluate, loss_of, mean
from parallelize import data_rank, mesh_of
from pretrained import export, model_flops, parallel_model, token_limits
from token_shards import TokenShards
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel
from watch import Watch

# -- Config -----------------------------------------------------------------------------------------------------------


def config(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.set_defaults(learning_rate=3e-4, warm_up=10, least_rate=0.1, weight_decay=0.1, clip=1.0)
    parser.add_argument("--context", type=int, default=128, help="tokens of a sequence")
    return parser.parse_args(arguments)


# -- Data -------------------------------------------------------------------------------------------------------------


def batch_of(
    corpus: TokenShards, number: int, size: int, degrees: Degrees, mesh: DeviceMesh, device: torch.device
) -> list[Tensor]:
    """This rank's tokens and targets of a batch, [microbatches, n, context] each, a function of its number alone."""
    share = size // degrees.data
    pair = corpus.batch((number - 1) * size + data_rank(mesh) * share, share)
    return [to_device(part, device).unflatten(0, (degrees.microbatches, -1)) for part in pair]


# -- Model ------------------------------------------------------------------------------------------------------------


def model_and_optimizer(
    source: Path, options: argparse.Namespace, degrees: Degrees, mesh: DeviceMesh
) -> tuple[PreTrainedModel, torch.optim.Optimizer]:
    """This rank's shards of the folder's model, and AdamW on them: matrices decay, and vectors do not."""
    model = parallel_model(source, degrees, mesh, options.batch_size, options.seed, compilation_of(options))
    groups = optimization.parameter_groups(model, options.weight_decay)
    return model, torch.optim.AdamW(groups, lr=options.learning_rate, fused=True)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    parts: Accumulated | Pipelined, optimizer: torch.optim.Optimizer, batch: list[Tensor], degrees: Degrees, clip: float
) -> tuple[Tensor, Tensor]:
    """One step on this rank's share. Returns its loss, and the norm of all ranks' gradients, infinite where fp16 skips it."""
    loss = loss_of(parts, batch, degrees)
    optimization.require_finite(loss, "loss")
    norm = torch.full_like(loss, torch.inf)
    if parts.scale.unscale(parts.model.parameters()):
        norm = optimization.clip_gradients(parts.model.parameters(), clip, parts.pipeline)
        optimizer.step()
    optimizer.zero_grad()
    return loss, norm


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, watch: Watch) -> None:
    degrees, source = degrees_of(options, job), job.channels["model"]
    mesh = mesh_of(degrees, device.type)
    share = partial(batch_of, size=options.batch_size, degrees=degrees, mesh=mesh, device=device)
    limits = token_limits(source)
    corpus = TokenShards(job.channels["tokens"], options.context, options.seed, **limits)
    validation = TokenShards(job.channels["validation"], options.context, **limits) if options.evaluate_every else None
    model, optimizer = model_and_optimizer(source, options, degrees, mesh)
    scale = LossScale(degrees.precision)
    parts = Pipelined(model, scale, degrees, mesh, device) if degrees.pipeline > 1 else Accumulated(model, scale)
    checkpointer = Checkpointer(job, [model], [optimizer], **scale.states)
    first = checkpointer.restore() + 1
    if job.rank == 0:
        print(f"trains on {device.type}, {job.ranks} ranks, from step {first - 1}: {degrees}", flush=True)
    log = TrainingLog(job, device, flops=model_flops(source, options.context), events=options.tensorboard)
    freeze_objects()
    with profile(job, options.profile) as profiler:
        for done in range(first, options.steps + 1):
            stop_agreed = watch.start_stop_check(done)
            rate = optimization.scheduled_rate(options, done, options.steps)
            optimization.set_learning_rate([optimizer], rate)
            loss, norm = step(parts, optimizer, share(corpus, done), degrees, options.clip)
            log.count(options.batch_size * options.context)
            logged: dict[str, float] = {}
            if done % options.log_every == 0:
                logged = {"loss": mean(loss, degrees), "grad_norm": norm.item(), "learning_rate": rate}
            if validation and done % options.evaluate_every == 0:
                numbers = range(1, max(1, len(validation) // options.batch_size) + 1)
                loss = evaluate(parts, (share(validation, number) for number in numbers), degrees)
                logged["validation_loss"] = mean(loss, degrees)
            if logged:
                log.write(done, **logged)
            if profiler:
                profiler.step()
            stopping = stop_agreed()
            if stopping or (options.checkpoint_every and done % options.checkpoint_every == 0):
                checkpointer.save(done)
            if stopping:
                checkpointer.wait()
                print(f"rank {job.rank} on {job.host} stops after step {done}, with a checkpoint\n", end="", flush=True)
                return
    checkpointer.wait()
    export(model, source, job.model, mesh)


def main() -> None:
    options, job = config(), Job.here()
    # The compiler's cache is saved with the checkpoints, so that a resumed job does not compile again.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(job.checkpoints / "compiler-cache"))
    with (
        Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch,
        process_group(job, options.timeout) as device,
    ):
        train(job, options, device, watch)


if __name__ == "__main__":
    main()
