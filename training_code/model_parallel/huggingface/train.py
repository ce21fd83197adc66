"""Train a causal language model of Hugging Face's transformers, such as Llama, Qwen or GPT-2, with FSDP2 and tensor parallelism.

On a laptop, in one process:     see docs/model-parallel.md, which makes a small model and a folder of tokens
Four processes, by torchrun:     torchrun --nproc-per-node 4 train.py --tensor 2
On SageMaker:                    a ModelParallelJob with the channels ``model`` and ``tokens``

The channel ``model`` has a config.json, and the weights, if any, as safetensors; nothing comes from a hub. ``tokens`` has what
prepare_tokens.py writes. The trained model is a folder for ``from_pretrained``. It resumes from a checkpoint of any layout.
"""

# ran: Llama and Qwen3 (`data_shard` x `tensor`), GPT-2 | test_huggingface | test_huggingface (soak) | Llama, one H100 | no
from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from common import optimization
from common.checkpoints import Checkpointer
from common.job import Job
from common.process_group import freeze_objects, process_group, to_device
from common.training_log import TrainingLog, profile
from degrees import Degrees, add_degrees, degrees_of
from gpt2_pipeline import Pipeline
from parallelize import data_rank, local, loss_context, mesh_of
from pretrained import export, model_flops, parallel_model
from token_shards import TokenShards
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel
from watch import Watch

# -- Config -----------------------------------------------------------------------------------------------------------


def config(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch-size", type=int, default=16, help="sequences of a step, over all ranks")
    add("--context", type=int, default=128, help="tokens of a sequence")
    add("--learning-rate", type=float, default=3e-4, help="the peak, which a resumed job may change")
    add("--warm-up", type=int, default=10, help="steps until the peak")
    add("--least-rate", type=float, default=0.1, help="the share of the peak that half a cosine ends at; 1: constant")
    add("--weight-decay", type=float, default=0.1)
    add("--clip", type=float, default=1.0, help="the largest norm of the gradient; 0: any")
    add("--seed", type=int, default=0)
    add("--log-every", type=int, default=10, help="steps")
    add("--checkpoint-every", type=int, default=50, help="steps; 0 for none but at a stop")
    add("--stop-check-every", type=int, default=5, help="steps between collective checks for SIGTERM")
    add("--heartbeat-timeout", type=float, default=20.0, help="seconds without a heartbeat after which a rank is lost")
    add("--tensorboard", type=Path, help="a folder for event files, such as /opt/ml/output/tensorboard")
    add("--profile", type=int, default=0, help="the first of three steps, from 2 on, to trace into the output")
    add_degrees(parser)
    add("--compiler", choices=("none", "inductor"), default=os.environ.get("TRAINING_COMPILER") or "none")
    return parser.parse_args(arguments)


# -- Data -------------------------------------------------------------------------------------------------------------


def microbatches(
    corpus: TokenShards, step: int, batch_size: int, degrees: Degrees, mesh: DeviceMesh, device: torch.device
) -> list[Tensor]:
    """This rank's tokens and targets of a step, [microbatches, n, context] each, a function of its number alone."""
    size = batch_size // degrees.data
    pair = corpus.batch((step - 1) * batch_size + data_rank(mesh) * size, size)
    return [to_device(part, device).unflatten(0, (degrees.microbatches, -1)) for part in pair]


# -- Model ------------------------------------------------------------------------------------------------------------


def model_and_optimizer(
    source: Path, options: argparse.Namespace, degrees: Degrees, mesh: DeviceMesh
) -> tuple[PreTrainedModel, torch.optim.Optimizer]:
    """This rank's shards of the folder's model, and AdamW on them: matrices decay, and vectors do not."""
    model = parallel_model(source, degrees, mesh, options.batch_size, options.seed, options.compiler == "inductor")
    groups = optimization.parameter_groups(model, options.weight_decay)
    return model, torch.optim.AdamW(groups, lr=options.learning_rate, fused=True)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    model: PreTrainedModel,
    optimizer: torch.optim.Optimizer,
    batch: list[Tensor],
    degrees: Degrees,
    clip: float,
    pipeline: Pipeline | None = None,
) -> tuple[Tensor, Tensor]:
    """One step on this rank's microbatches.

    Returns the loss, of which the mean over all ranks with one is that of the batch, and the norm of the gradients of all ranks.
    """
    count = optimization.counted(batch[1])
    loss_of = partial(optimization.token_loss, count=count, shares=dist.get_world_size())
    with loss_context(degrees):
        losses = pipeline.forward_backward(batch, loss_of) if pipeline else list[Tensor]()
        for number, (tokens, targets) in enumerate(zip(*batch, strict=True) if not pipeline else (), start=1):
            optimization.sync_gradients(model, number == degrees.microbatches)
            loss = loss_of(model(input_ids=tokens, use_cache=False).logits, targets)
            loss.backward()
            losses.append(local(loss.detach()))
    loss = torch.stack(losses).sum()
    optimization.require_finite(loss, "loss")
    norm = optimization.clip_gradients(model.parameters(), clip, pipeline.group if pipeline else None)
    optimizer.step()
    optimizer.zero_grad()
    return loss, norm


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, watch: Watch) -> None:
    degrees, source = degrees_of(options, job), job.channels["model"]
    mesh = mesh_of(degrees, device.type)
    corpus = TokenShards(job.channels["tokens"], options.context, options.seed)
    model, optimizer = model_and_optimizer(source, options, degrees, mesh)
    pipeline = Pipeline(model, degrees, mesh, device) if degrees.pipeline > 1 else None
    checkpointer = Checkpointer(job.checkpoints, [model], [optimizer], job.local_rank == 0)
    first = checkpointer.restore() + 1
    if job.rank == 0:
        print(f"trains on {device.type}, {job.ranks} ranks, from step {first - 1}: {degrees}", flush=True)
    flops = model_flops(source, options.context)
    log = TrainingLog(job.rank, device, flops=flops, ranks=job.ranks, events=options.tensorboard)
    freeze_objects()
    with profile(job.output, job.rank, options.profile) as profiler, checkpointer:
        for done in range(first, options.steps + 1):
            stop_agreed = watch.start_stop_check(done)
            share = optimization.warmup_cosine(done, options.steps, options.warm_up, options.least_rate)
            optimization.set_learning_rate([optimizer], rate := options.learning_rate * share)
            batch = microbatches(corpus, done, options.batch_size, degrees, mesh, device)
            loss, norm = step(model, optimizer, batch, degrees, options.clip, pipeline)
            log.count(options.batch_size * options.context)
            if done % options.log_every == 0:
                dist.all_reduce(loss)
                mean = loss.item() * degrees.pipeline / job.ranks
                log.write(done, loss=mean, grad_norm=norm.item(), learning_rate=rate)
            if profiler:
                profiler.step()
            stopping = stop_agreed()
            if stopping or (options.checkpoint_every and done % options.checkpoint_every == 0):
                checkpointer.save(done, wait=stopping)
            if stopping:
                print(f"rank {job.rank} on {job.host} stops after step {done}, with a checkpoint\n", end="", flush=True)
                return
    export(model, source, job.model, mesh)


def main() -> None:
    options, job = config(), Job.here()
    # The compiler's cache is saved with the checkpoints, so that a resumed job does not compile again.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(job.checkpoints / "compiler-cache"))
    with Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch, process_group(job) as device:
        train(job, options, device, watch)


if __name__ == "__main__":
    main()
