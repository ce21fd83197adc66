"""Train the same transformer with the SageMaker model-parallel library, version 2, which only its own container has.

On SageMaker:                    a ModelParallelJob with SmpV2(...), whose image has SAGEMAKER_PROGRAM=smp.py

The library reads its settings from the job's `mp_parameters`; a script has to initialize it, transform the model, and wrap it in
FSDP1, whose process groups the library sets by `hybrid_shard_degree`. Its tensor parallelism supports models of Hugging Face
only, so `tensor_parallel_degree` is 1 here. The container's PyTorch (at most 2.5) is older than train.py requires, so
parallelize.py is not imported. The transformer's nn.RMSNorm is in PyTorch since 2.4 (its page torch.nn.RMSNorm), so of the
library's containers those with 2.4.1 and 2.5.1, the default of `SmpV2.image`, run this file.

Checkpoints are `torch.distributed.checkpoint`'s, of each rank's shards, as in train.py: SIGTERM writes one, and a job goes on
from the last, with any number of ranks and any `hybrid_shard_degree`.

The steps are those of AWS's "Get started with the SageMaker model parallelism library v2" and of its examples.
"""

# ran: `model_parallel/smp.py`, SMP v2 | stand-in: test_model_parallel_run | no | no | no

from __future__ import annotations

import argparse
import functools
from dataclasses import fields

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.sagemaker as tsm
from common.checkpoints import Checkpointer, Progress
from common.job import Job, use_the_jobs_network
from common.loss import batch_loss, counted, token_loss
from common.process_group import device_of
from common.schedule import positive
from common.seeding import seed_step
from common.stopping import Stop
from model import Block, Config, Transformer, Windows, initial, text
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

if not hasattr(nn, "RMSNorm"):
    raise SystemExit(
        "the transformer needs nn.RMSNorm, so PyTorch must be 2.4 or later, like SmpV2.image(region, pytorch_version='2.5.1'), "
        f"got {torch.__version__}"
    )


def config() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=positive, default=100)
    parser.add_argument("--batch-size", type=positive, default=16, help="sequences of a step, over all ranks")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text-bytes", type=int, default=4_000_000)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--checkpoint-every", type=int, default=50, help="steps; 0 for none but at a stop")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="bf16")
    for field in fields(Config):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    return parser.parse_known_args()[0]  # mp_parameters comes as an argument too


def build(options: argparse.Namespace, device: torch.device) -> nn.Module:
    sizes = Config(**{field.name: getattr(options, field.name) for field in fields(Config)})
    model = Transformer(sizes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape, sizes, options.seed))
    model = tsm.transform(model)
    low = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
        mixed_precision=low if options.precision == "bf16" else None,
        device_id=device,
        use_orig_params=True,
    )


def train(job: Job, options: argparse.Namespace, device: torch.device, stop: Stop) -> None:
    model = build(options, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    sizes = {field.name: getattr(options, field.name) for field in fields(Config)}
    corpus = Windows(text(job.channels.get("text"), options.text_bytes), options.context, options.seed)
    if options.batch_size > len(corpus) or options.batch_size % job.ranks:
        allowed = f"a multiple of the ranks, {job.ranks}, and at most the sequences of the text, {len(corpus)}"
        raise ValueError(f"batch_size must be {allowed}, got {options.batch_size}")
    fixed = {"seed": options.seed, "sequences of the text": len(corpus), **sizes}
    free = {"batch_size": options.batch_size}
    # FSDP1's shards are ShardedTensors, of which dcp.async_save cannot make the copy that it writes (_state_dict_stager.py).
    checkpointer = Checkpointer(job, [model], [optimizer], fixed=fixed, free=free, write=dcp.save)
    progress, share = checkpointer.restore(), options.batch_size // job.ranks
    while progress.steps < options.steps:
        tokens, targets = (part.to(device) for part in corpus.batch(progress.samples + job.rank * share, share))
        seed_step(options.seed, progress.samples, job.rank)
        loss = token_loss(model(tokens), targets, counted(targets), shares=job.ranks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress = Progress(progress.steps + 1, progress.samples + options.batch_size)
        if progress.steps % options.log_every == 0:
            mean = batch_loss(loss)
            if job.rank == 0:
                print(f"step {progress.steps} loss {mean:.6f}", flush=True)
        every = options.checkpoint_every or options.steps
        if stop.check() or progress.steps % every == 0 or progress.steps == options.steps:
            checkpointer.save(progress)
        if stop.agreed:
            checkpointer.wait()
            print(f"rank {job.rank} on {job.host} stops after step {progress.steps}, with a checkpoint", flush=True)
            return
    checkpointer.wait()
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        parameters = {name.replace("_fsdp_wrapped_module.", ""): value for name, value in model.named_parameters()}
        state = {name: value.detach().cpu().clone() for name, value in parameters.items()}
    if job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save({"config": sizes, "model": state}, job.model / "model.pt")


def main() -> None:
    options, job = config(), Job.here()
    use_the_jobs_network()
    device = device_of(job)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    tsm.init()
    train(job, options, device, Stop())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
