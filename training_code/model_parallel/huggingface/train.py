"""Train a causal language model of Hugging Face's transformers, such as Llama, Qwen or GPT-2, with FSDP2 and tensor parallelism.

On a laptop, in one process:     see docs/model-parallel.md, which makes a small model and a folder of tokens
Four processes, by torchrun:     torchrun --nproc-per-node 4 train.py --tensor 2
On SageMaker:                    a ModelParallelJob with the channels ``model`` and ``tokens``

The channel ``model`` has a config.json, and the weights, if any, as safetensors; nothing comes from a hub. ``tokens`` has what
prepare_tokens.py writes, and so has ``validation``, with --evaluate-every. The trained model is a folder for ``from_pretrained``.
It resumes from a checkpoint of any layout.
"""

# ran: Llama and Qwen3 (`data_shard` x `tensor`), GPT-2 | test_huggingface | test_huggingface (soak) | one H200 | no
from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import torch
from arguments import compilation_of, parser_of
from common import optimization
from common.job import Job
from degrees import Degrees, degrees_of
from loop import main, run
from loss_scale import LossScale
from microbatches import Microbatches, check_corpus
from parallelize import mesh_of
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
    mesh = mesh_of(degrees, device.type)
    corpus, evaluated = corpora(job, options)
    microbatches, optimizer = microbatches_and_optimizer(source, options, degrees, mesh, device)
    step = partial(microbatches.step, [optimizer], clip=options.clip)
    flops = model_flops(source, options.context)
    if run(job, options, watch, microbatches, [optimizer], corpus, evaluated, step, flops, context=options.context):
        [model] = microbatches.stage_modules.values()
        export(model, source, job.model, mesh)


if __name__ == "__main__":
    main(config, train)
