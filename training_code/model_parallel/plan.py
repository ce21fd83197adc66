"""How model.py's transformer is distributed: its plan, and the costs of its layers for a cut into stages."""

from __future__ import annotations

from model import Config, Transformer, rotations
from parallelize import Plan, VocabularyParallel
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel

TOKENS = Shard(1)  # activations [n, context, width] between the layers: each rank has a shard of the context


def set_rotation(model: Transformer) -> None:
    model.rotation.copy_(rotations(model.config))


# Heads and hidden units are sharded, and between them the tokens.
PLAN = Plan(
    layers="layers",
    first=("embed",),
    last=("norm", "head"),
    tensor={
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=TOKENS),
        "layers.*.attention_norm": SequenceParallel(),
        "layers.*.attention": PrepareModuleInput(
            input_layouts=(TOKENS, None), desired_input_layouts=(Replicate(), None), use_local_output=False
        ),
        "layers.*.attention.query": ColwiseParallel(),
        "layers.*.attention.key": ColwiseParallel(),
        "layers.*.attention.value": ColwiseParallel(),
        "layers.*.attention.out": RowwiseParallel(output_layouts=TOKENS),
        "layers.*.feed_forward_norm": SequenceParallel(),
        "layers.*.feed_forward": PrepareModuleInput(
            input_layouts=(TOKENS,), desired_input_layouts=(Replicate(),), use_local_output=False
        ),
        "layers.*.feed_forward.gate": ColwiseParallel(),
        "layers.*.feed_forward.up": ColwiseParallel(),
        "layers.*.feed_forward.down": RowwiseParallel(output_layouts=TOKENS),
        "norm": SequenceParallel(),
        "head": VocabularyParallel(input_layouts=TOKENS),
    },
    buffers=set_rotation,
)


def costs(config: Config, by: str) -> list[int]:
    """The cost of each layer, in ``parameters`` or in ``flops`` per token; embedding and head count to the first and last."""
    width, layer = config.width, 4 * config.width**2 + 3 * config.width * config.hidden
    ends = config.vocabulary * width
    if by == "parameters":
        found = [layer + 2 * width] * config.layers
        found[0] += ends
        found[-1] += ends + width
    else:
        found = [2 * layer + 2 * config.context * width] * config.layers  # half of the attention is masked
        found[-1] += 2 * ends  # a look-up in the embedding costs none
    return found
