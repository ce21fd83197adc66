"""The model spread over the ranks: what each layer's tensors become, how layers are cut into stages, and what is sharded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from degrees import AXES, Degrees
from model import Config, Transformer, initial, loss_of, rotations
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

TOKENS = Shard(1)  # activations [n, context, width] between the layers: each rank has a piece of the context

# What each module becomes under tensor parallelism: heads and hidden units are divided, and between them the tokens are.
TENSOR_PLAN: dict[str, ParallelStyle] = {
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
    "head": ColwiseParallel(input_layouts=TOKENS, output_layouts=Replicate()),
}


def mesh_of(degrees: Degrees, device_type: str) -> DeviceMesh:
    return init_device_mesh(device_type, degrees.sizes, mesh_dim_names=AXES)


# -- The cut into stages ----------------------------------------------------------------------------------------------


def costs(config: Config, by: str) -> list[int]:
    """What each layer costs, in ``parameters`` or in ``flops`` of a token; the ends' costs are in the first and last."""
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


def balanced(costs: Sequence[int], stages: int) -> list[range]:
    """The cut into so many runs of layers, at least one in each, whose dearest is as cheap as can be; the first such."""
    sums = [0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    # best[n]: for the first n layers in as many stages as were looked at, the dearest one's cost and the cut points.
    best: list[tuple[float, list[int]]] = [(0, [0])] + [(float("inf"), [])] * len(costs)
    for _ in range(stages):
        best = [(float("inf"), [])] + [
            min((max(best[first][0], sums[last] - sums[first]), [*best[first][1], last]) for first in range(last))
            for last in range(1, len(sums))
        ]
    return [range(first, last) for first, last in pairwise(best[-1][1])]


def cut(config: Config, stages: int, points: Sequence[int] = (), by: str = "parameters") -> list[range]:
    """The layers of each stage: cut before the layers ``points``, or, where there are none, into balanced stages."""
    if not points:
        return balanced(costs(config, by), stages)
    bounds = [0, *points, config.layers]
    if len(points) != stages - 1 or any(first >= last for first, last in pairwise(bounds)):
        raise ValueError(
            f"cut must be {stages - 1} rising layers between 1 and {config.layers - 1}, one before each stage but the "
            f"first, got {','.join(map(str, points))}"
        )
    return [range(first, last) for first, last in pairwise(bounds)]


def piece(config: Config, layers: range) -> Transformer:
    """The model's part with these layers. It has no memory yet (PyTorch's meta device), so that a model may be of any size."""
    with torch.device("meta"):
        model = Transformer(config)
    for number in set(range(config.layers)) - set(layers):
        del model.layers[str(number)]
    if layers.start > 0:
        model.embed = None
    if layers.stop < config.layers:
        model.norm = model.head = None
    return model


# -- What is divided inside a stage -----------------------------------------------------------------------------------


def parallelize(model: Transformer, degrees: Degrees, mesh: DeviceMesh, reshard: bool = True) -> Transformer:
    """The model with its tensors divided, its layers checkpointed and its parameters sharded, in this order, in place."""
    if degrees.tensor > 1:
        present = {name.split(".")[0] for name, _ in model.named_children()}
        plan = {name: style for name, style in TENSOR_PLAN.items() if name.split(".")[0] in present}
        parallelize_module(model, mesh["tensor"], plan)
    for name, layer in list(model.layers.items()):
        if degrees.activation_checkpointing:
            layer = checkpoint_wrapper(layer)
        if degrees.activation_offloading:
            layer = offload_wrapper(layer)
        model.layers[name] = layer
    if degrees.data > 1 or degrees.precision != "fp32" or degrees.cpu_offload:
        shard(model, degrees, mesh, reshard)
    return model


def shard(model: Transformer, degrees: Degrees, mesh: DeviceMesh, reshard: bool) -> None:
    """FSDP2: each layer is gathered as one when it is needed. Where ranks replicate too, over a mesh of two named axes."""
    data = mesh["data_replicate", "data_shard"] if degrees.data_replicate > 1 else mesh["data_shard"]
    pinned = mesh.device_type == "cuda"
    policies = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if degrees.precision == "bf16"
        else MixedPrecisionPolicy(),
        "offload_policy": CPUOffloadPolicy(pin_memory=pinned) if degrees.cpu_offload else OffloadPolicy(),
    }
    for layer in model.layers.values():
        fully_shard(layer, mesh=data, reshard_after_forward=reshard, **policies)
    fully_shard(model, mesh=data, reshard_after_forward=reshard, **policies)


@torch.no_grad()
def fill(model: Transformer, seed: int, device: torch.device) -> None:
    """Give each parameter its memory and its initial value, of which every rank keeps its piece: the same in all layouts."""
    model.to_empty(device=device)
    model.rotation.copy_(rotations(model.config))
    for name, parameter in model.named_parameters():
        value = initial(plain_name(name), parameter.shape, model.config, seed).to(parameter.device)
        if isinstance(parameter, DTensor):
            # No rank sends: each has made the whole value itself.
            value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.copy_(value)


def plain_name(name: str) -> str:
    """A parameter's name without what the wrappers put in between."""
    return name.replace("_checkpoint_wrapped_module.", "")


# -- All of it --------------------------------------------------------------------------------------------------------


def parts_of(
    config: Config, degrees: Degrees, mesh: DeviceMesh, layers: list[range], *, seed: int, reshard: bool = True
) -> dict[int, Transformer]:
    """This rank's parts of the model by the number of the stage: one, or two where the schedule interleaves."""
    device = torch.device(mesh.device_type, torch.cuda.current_device() if mesh.device_type == "cuda" else None)
    parts = {}
    for stage in range(mesh.get_local_rank("pipeline"), len(layers), degrees.pipeline):
        part = parallelize(piece(config, layers[stage]), degrees, mesh, reshard)
        fill(part, seed, torch.device("cpu") if degrees.cpu_offload else device)
        part.rotation = part.rotation.to(device)  # a buffer is not offloaded
        parts[stage] = part
    return parts


def schedule_of(degrees: Degrees, mesh: DeviceMesh, parts: dict[int, nn.Module], device: torch.device):  # type: ignore[no-untyped-def]
    """PyTorch's schedule that takes a batch through the pipeline, forward and backward."""
    group = mesh.get_group("pipeline")
    stages = [PipelineStage(part, number, degrees.stages, device, group=group) for number, part in parts.items()]
    kind = get_schedule_class(degrees.schedule)
    given = stages[0] if issubclass(kind, PipelineScheduleSingle) else stages
    return kind(given, n_microbatches=degrees.microbatches, loss_fn=loss_of)


def held(part: nn.Module) -> tuple[int, int]:
    """How many numbers of a part's parameters this rank holds, and in how many bytes."""
    local = [p.to_local() if isinstance(p, DTensor) else p for p in part.parameters()]
    return sum(p.numel() for p in local), sum(p.numel() * p.element_size() for p in local)
