"""torchtitan's own Trainer: its llama3, FSDP2, chunked loss, clipping, optimizer and train_step, as its package has them.

It is written for accelerators. Replaced here, so that it runs on CPUs:
- without an accelerator it takes "cuda" for the device (tools/utils.py, get_device_info), and Trainer's constructor selects one
  with torch.cuda.set_device: PyTorch's "cpu" is named in its place;
- DeviceMemoryMonitor (components/metrics.py) wants a device's name and memory: a monitor without figures;
- FlexAttention, its default, has no backward on CPUs, and varlen is for GPUs: its ScaledDotProductAttention, which is causal
  without the masks and positions of packed documents, and so has less to do;
- spmd_backend is partial_dtensor: the default, spmd_types, needs a newer PyTorch than 2.13 with more than one rank (FSDP2 refuses
  its parameters, which are not DTensors);
- FSDP's factor of 1 for gradients is PREMUL_SUM, which gloo has not: FSDP2's own option for a plain sum.

Neither a data loader nor a tokenizer, metrics or checkpoints are measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

torch._utils._get_available_device_type = lambda: "cpu"  # type: ignore[attr-defined]

import torchtitan.components.metrics  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.components.validate import Validator  # noqa: E402
from torchtitan.config import ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.config.configs import DebugConfig  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC  # noqa: E402
from torchtitan.models import llama3  # noqa: E402
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.protocols.model_spec import ModelSpec  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402
from training import CLIP, LEARNING_RATE, Case, Training, fill, serve, weight  # noqa: E402

SELDOM = 1_000_000  # steps; no step is logged but the first


class Batches(BaseDataLoader):
    """The contestants' batch again and again, a microbatch at a time."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config: Config, **arguments: Any) -> None:
        case = Case.here()
        tokens, targets = case.batch()
        self._microbatches = list(zip(tokens.chunk(case.microbatches), targets.chunk(case.microbatches), strict=True))

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        while True:
            for tokens, targets in self._microbatches:
                yield {"input": tokens}, targets

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **arguments: Any) -> None:
        super().__init__()

    def encode(self, *arguments: Any, **named: Any) -> list[int]:
        raise NotImplementedError

    def decode(self, *arguments: Any, **named: Any) -> str:
        raise NotImplementedError

    def get_vocab_size(self) -> int:
        return Case.here().vocabulary


def no_memory_monitor() -> Any:
    """In place of the monitor of an accelerator's memory."""
    stats = SimpleNamespace(
        max_active_gib=0.0,
        max_active_pct=0.0,
        max_reserved_gib=0.0,
        max_reserved_pct=0.0,
        num_alloc_retries=0,
        num_ooms=0,
    )
    return SimpleNamespace(device_name="cpu", get_peak_stats=lambda: stats, reset_peak_stats=lambda: None)


def model_of(case: Case) -> Any:
    """A llama3 of these sizes, as torchtitan's registry makes those of its own."""
    layers = llama3._build_llama3_layers(
        n_layers=case.layers,
        dim=case.width,
        n_heads=case.heads,
        hidden_dim=case.hidden,
        rope=ComplexRoPE.Config(dim=case.width // case.heads, max_seq_len=case.context, theta=10_000.0, scaling="none"),
        attn_backend="flex",
    )
    for layer in layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    return llama3.Llama3Model.Config(
        dim=case.width,
        vocab_size=case.vocabulary,
        tok_embeddings=Embedding.Config(
            num_embeddings=case.vocabulary, embedding_dim=case.width, param_init=llama3._EMBEDDING_INIT
        ),
        norm=RMSNorm.Config(normalized_shape=case.width, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(
            in_features=case.width, out_features=case.vocabulary, param_init=llama3._output_linear_init(case.width)
        ),
        layers=layers,
    )


NAMES = {
    "tok_embeddings": "embed",
    "lm_head": "head",
    "ffn_norm": "feed_forward_norm",
    "attention.wo": "attention.out",
    "feed_forward.w1": "feed_forward.gate",
    "feed_forward.w2": "feed_forward.down",
    "feed_forward.w3": "feed_forward.up",
}


def weight_of(case: Case, name: str, shape: torch.Size) -> Tensor:
    """The value of torchtitan's parameter: a head's query, key and value are one, and rotation turns neighbours, not halves."""
    layer, fused, _ = name.partition("qkv_linear.wqkv")
    if not fused:
        for theirs, ours in NAMES.items():
            name = name.replace(theirs, ours)
        return weight(name, shape)
    query, key, value = (
        weight(f"{layer}{part}.weight", (case.width, case.width)).view(case.heads, -1, case.width)
        for part in ("query", "key", "value")
    )
    query, key = (halves.view(case.heads, 2, -1, case.width).transpose(1, 2).flatten(1, 2) for halves in (query, key))
    return torch.stack([query, key, value], dim=1).view(shape)


def config_of(case: Case, folder: str) -> Trainer.Config:
    per_microbatch = case.sequences // case.microbatches
    return Trainer.Config(
        model_spec=ModelSpec(
            name="llama3",
            flavor="benchmark",
            model=model_of(case),
            parallelize_fn=llama3.parallelize_llama,
            pipelining_fn=None,
            post_optimizer_build_fn=None,
            state_dict_adapter=None,
        ),
        dump_folder=folder,
        loss=ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=case.vocabulary)),
        tokenizer=NoTokenizer.Config(),
        dataloader=Batches.Config(),
        optimizer=default_adamw(LEARNING_RATE, betas=(0.9, 0.999), weight_decay=0.01),  # as ours
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=0),
        metrics=MetricsProcessor.Config(log_freq=SELDOM),
        training=TrainingConfig(
            local_batch_size=per_microbatch,
            global_batch_size=case.sequences * case.ranks,
            seq_len=case.context,
            max_norm=CLIP,
            steps=SELDOM,
            mixed_precision_param="bfloat16" if case.precision == "bf16" else "float32",
        ),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
        activation_checkpoint=FullAC.Config() if case.recompute else None,
        validator=Validator.Config(enable=False),
        debug=DebugConfig(enable_structured_logging=False),
    )


def main() -> None:
    case = Case.here()
    torchtitan.components.metrics.build_device_memory_monitor = no_memory_monitor
    os.environ.setdefault("LOCAL_RANK", os.environ["RANK"])
    with tempfile.TemporaryDirectory() as folder:

        def build() -> Training:
            trainer = config_of(case, folder).build()
            fill(trainer.model_parts[0], partial(weight_of, case))
            for module in trainer.model_parts[0].modules():
                if isinstance(module, FSDPModule):
                    module.set_force_sum_reduction_for_comms(True)
            losses: list[Tensor] = []  # a microbatch's each: this rank's sum over the tokens of all ranks
            forward_and_backward = trainer.fwd_bwd_fn

            def kept(*arguments: Any) -> Tensor:
                losses.append(forward_and_backward(*arguments))
                return losses[-1]

            trainer.fwd_bwd_fn = kept
            batches = trainer.batch_generator(trainer.dataloader)

            def step() -> float:
                trainer.step += 1
                trainer.gc_handler.run(trainer.step)
                losses.clear()
                trainer.train_step(batches)
                return float(sum(losses)) * case.ranks

            return Training(step, trainer.model_parts)

        serve(build)


if __name__ == "__main__":
    main()
