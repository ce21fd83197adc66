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
from functools import partial
from pathlib import Path

import torch
from arguments import compilation_of, is_kept, parser_of
from common import compiler_cache, optimization
from common.checkpoints import Progress
from common.job import Job
from common.process_group import freeze_objects, process_group
from common.schedule import scheduled_rate
from common.seeding import seed_step
from common.training_log import TrainingLog, profile
from degrees import Degrees, degrees_of
from loss_scale import LossScale
from microbatches import Microbatches, check_corpus, share_of
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


def corpora(job: Job, options: argparse.Namespace) -> tuple[TokenShards, TokenShards | None]:
    """The sequences to train on, and those to evaluate on, which fit the model."""
    limits = token_limits(job.channels["model"])
    corpus = TokenShards(job.channels["tokens"], options.context, options.seed, **limits)
    check_corpus(corpus, options.batch_size)
    evaluated = TokenShards(job.channels["validation"], options.context, **limits) if options.evaluate_every else None
    return corpus, evaluated


# -- Model ------------------------------------------------------------------------------------------------------------


def microbatches_and_optimizer(
    source: Path, options: argparse.Namespace, degrees: Degrees, mesh: DeviceMesh, device: torch.device
) -> tuple[Microbatches, torch.optim.Optimizer]:
    """What takes a step with this rank's shards of the folder's model, and AdamW: matrices decay, and vectors do not."""
    model = parallel_model(source, degrees, mesh, options.batch_size, options.seed, compilation_of(options))
    stage_modules, scale = {mesh.get_local_rank("pipeline"): model}, LossScale(degrees.precision)
    groups = optimization.parameter_groups(model, options.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=options.learning_rate, fused=True)
    return Microbatches(stage_modules, degrees, mesh, device, scale, options, logits_of), optimizer


# -- Step -------------------------------------------------------------------------------------------------------------


def logits_of(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens, use_cache=False).logits


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device, watch: Watch) -> None:
    degrees, source = degrees_of(options, job), job.channels["model"]
    mesh, size = mesh_of(degrees, device.type), options.batch_size
    corpus, evaluated = corpora(job, options)
    share = partial(share_of, size=size, degrees=degrees, mesh=mesh)
    microbatches, optimizer = microbatches_and_optimizer(source, options, degrees, mesh, device)
    fixed = {"seed": options.seed, "context": options.context, "sequences": len(corpus)}
    checkpointer = microbatches.checkpointer(job, [optimizer], size, **fixed)
    progress = checkpointer.restore()
    first = progress.steps + 1
    if job.rank == 0:
        print(f"trains on {device.type}, {job.ranks} ranks, from step {first - 1}: {degrees}", flush=True)
    log = TrainingLog(job, device, flops=model_flops(source, options.context), events=options.tensorboard)
    freeze_objects()
    with profile(job, options.profile) as profiler:
        for done in range(first, options.steps + 1):
            stop_agreed = watch.start_stop_check(done)
            rate = scheduled_rate(options, done, options.steps, size)
            optimization.set_learning_rate([optimizer], rate)
            seed_step(options.seed, progress.samples, data_rank(mesh), mesh.get_local_rank("pipeline"))
            loss, norm = microbatches.step([optimizer], *share(corpus, progress.samples), options.clip)
            if done == first and options.compiler == "inductor":
                compiler_cache.save(job)
            progress = Progress(done, progress.samples + size)
            log.count(size * options.context)
            logged: dict[str, float] = {}
            if done % options.log_every == 0:
                logged = {"loss": microbatches.whole(loss), "grad_norm": norm.item(), "learning_rate": rate}
            if evaluated and done % options.evaluate_every == 0:
                with log.paused():
                    firsts = range(0, len(evaluated), size)
                    loss = microbatches.evaluate(share(evaluated, first, end=len(evaluated)) for first in firsts)
                    logged["validation_loss"] = microbatches.whole(loss)
            if logged:
                log.write(done, **logged)
            if profiler:
                profiler.step()
            stopping = stop_agreed()
            if stopping or is_kept(done, options):
                checkpointer.save(progress)
            if stopping:
                checkpointer.wait()
                print(f"rank {job.rank} on {job.host} stops after step {done}, with a checkpoint\n", end="", flush=True)
                return
    checkpointer.wait()
    [model] = microbatches.stage_modules.values()
    export(model, source, job.model, mesh)


def main() -> None:
    options, job = config(), Job.here()
    if options.compiler == "inductor":
        compiler_cache.load(job)
    with (
        Watch(job, options.heartbeat_timeout, options.stop_check_every) as watch,
        process_group(job, options.timeout) as device,
    ):
        train(job, options, device, watch)


if __name__ == "__main__":
    main()
