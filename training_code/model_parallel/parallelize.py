"""Parallelizes a model by a plan: tensor parallelism, pipeline stages, and sharding with FSDP2.

The model is any module. Its plan names the container of its layers, the modules before and after them, and the tensor
parallelism of each module; ``plan.py`` has that of our transformer, and ``huggingface/pretrained.py`` those of others.
"""

# ran: order of collectives at 64 ranks, PyTorch's fake process group | test_parallelize | no | no | no

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from common.optimization import sync_gradients
from degrees import AXES, Degrees
from head import Head
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.autograd.graph import save_on_cpu
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper, checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, loss_parallel, parallelize_module

# It warns where a tensor is gathered over two axes in turn, as it must be for an export, once and at the end.
logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Plan:
    """How a model is distributed. Modules are named as in ``named_modules``.

    ``layers``: the ModuleDict or ModuleList of the layers, each of which is compiled, recomputed and sharded alone. ``first`` and
    ``last``: what is before and after them, such as an embedding and a head; each group is gathered alone, and is the identity in
    the other pipeline stages. ``tensor``: the style of each module by its name, where ``*`` is any layer; parameters of
    modules without one are replicated. ``buffers`` sets the model's buffers, which the meta device leaves without values.
    """

    layers: str
    first: tuple[str, ...]
    last: tuple[str, ...]
    tensor: Mapping[str, ParallelStyle] = field(default_factory=dict)
    buffers: Callable[[Any], None] = lambda model: None

    def named_layers(self, model: nn.Module) -> dict[str, nn.Module]:
        return dict(model.get_submodule(self.layers).named_children())


def mesh_of(degrees: Degrees, device_type: str) -> DeviceMesh:
    return init_device_mesh(device_type, degrees.sizes, mesh_dim_names=AXES)


def data_rank(mesh: DeviceMesh) -> int:
    """The index of this rank's share of each batch."""
    return mesh.get_local_rank("data_replicate") * mesh["data_shard"].size() + mesh.get_local_rank("data_shard")


# -- The cut into stages ----------------------------------------------------------------------------------------------


def balanced(costs: Sequence[int], stages: int) -> list[range]:
    """The partition of the layers into contiguous stages that minimizes the cost of the most expensive stage; the first such."""
    sums = [0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    # best[n]: for the first n layers in the stages so far, the cost of the most expensive one and the cut points.
    best: list[tuple[float, list[int]]] = [(0, [0])] + [(float("inf"), [])] * len(costs)
    for _ in range(stages):
        best = [(float("inf"), [])] + [
            min((max(best[first][0], sums[last] - sums[first]), [*best[first][1], last]) for first in range(last))
            for last in range(1, len(sums))
        ]
    return [range(first, last) for first, last in pairwise(best[-1][1])]


def cut(costs: Sequence[int], stages: int, points: Sequence[int] = ()) -> list[range]:
    """The layers of each stage: cut before the layers ``points``, or, where there are none, balanced by the layers' costs."""
    if not points:
        return balanced(costs, stages)
    bounds = [0, *points, len(costs)]
    if len(points) != stages - 1 or any(first >= last for first, last in pairwise(bounds)):
        raise ValueError(
            f"cut must be {stages - 1} rising layers between 1 and {len(costs) - 1}, one before each stage but the "
            f"first, got {','.join(map(str, points))}"
        )
    return [range(first, last) for first, last in pairwise(bounds)]


def keep_stage(model: nn.Module, plan: Plan, layers: range) -> None:
    """Remove all but the layers of a pipeline stage from the model, and the ends that are other stages'."""
    container, names = model.get_submodule(plan.layers), list(plan.named_layers(model))
    for number in set(range(len(names))) - set(layers):
        del container[names[number]]
    for name in (*(plan.first if layers.start > 0 else ()), *(plan.last if layers.stop < len(names) else ())):
        model.set_submodule(name, nn.Identity())


# -- What is divided inside a stage -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compilation:
    """How inductor compiles: torch.compile's arguments."""

    mode: str = "default"
    dynamic: bool | None = None


def parallelize(
    model: nn.Module,
    plan: Plan,
    degrees: Degrees,
    mesh: DeviceMesh,
    *,
    reshard: bool = True,
    compilation: Compilation | None = None,
) -> nn.Module:
    """Apply tensor parallelism, compilation, activation checkpointing and sharding, in this order and in place.

    Each layer is compiled alone: neither its recomputation nor the gathering of its parameters is in the graph.
    """
    if degrees.tensor > 1:
        divide(model, plan, mesh["tensor"])
    layers = model.get_submodule(plan.layers)
    for name, layer in plan.named_layers(model).items():
        if compilation:
            layer.compile(**asdict(compilation))  # equal layers share the compiled code
        if degrees.activation_checkpointing:
            layer = checkpoint_wrapper(layer)
        if degrees.activation_offloading:
            layer = Offloaded(layer, pin_memory=mesh.device_type == "cuda")
        layers.register_module(name, layer)
    if compilation and degrees.tensor > 1:
        # The output is an AsyncCollectiveTensor, whose gradient a compiled layer loses. A copy waits for it.
        for _, end in ends(model, plan.first):
            end.register_forward_hook(lambda _, __, output: output.clone())
    if degrees.data > 1 or degrees.precision != "fp32" or degrees.cpu_offload:
        shard(model, plan, degrees, mesh, reshard)
    return model


def divide(model: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    """Tensor parallelism by the plan. Parameters that it does not name are replicated, and tied ones stay tied."""
    tied = tied_names(model)
    absent = {*plan.first, *plan.last} - {name for name, _ in ends(model, (*plan.first, *plan.last))}
    parallelize_module(model, mesh, {name: style for name, style in plan.tensor.items() if name not in absent})
    for module in model.modules():
        if any(not isinstance(parameter, DTensor) for parameter in module.parameters(recurse=False)):
            Replicated()._apply(module, mesh)
    tie(model, tied)


def tied_names(model: nn.Module) -> list[list[str]]:
    """The names of each parameter that has several."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return [several for several in names.values() if len(several) > 1]


def tie(model: nn.Module, tied: Sequence[Sequence[str]]) -> None:
    for first, *others in tied:
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(owner), attribute, model.get_parameter(first))


class Replicated(ParallelStyle):
    """A module whose parameters and activations are the same on all ranks, as DTensors, like all others of the model."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def wrapped(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(
                DTensor.from_local(value, device_mesh, [Replicate()], run_check=False)
                if isinstance(value, Tensor) and not isinstance(value, DTensor)
                else value
                for value in inputs
            )

        return distribute_module(
            module,
            device_mesh,
            input_fn=lambda _, inputs, __: wrapped(inputs),
            output_fn=lambda _, output, __: output.to_local() if isinstance(output, DTensor) else output,
        )


class VocabularyParallel(ColwiseParallel):
    """The style of a head, of whose logits each rank has a shard of the vocabulary; a loss is returned as it is."""

    def __init__(self, input_layouts: Placement | None = None) -> None:
        super().__init__(input_layouts=input_layouts, output_layouts=Shard(-1), use_local_output=False)

    @staticmethod
    def _prepare_output_fn(layouts: Any, use_local: Any, module: Any, output: Tensor, mesh: Any) -> Any:
        return ColwiseParallel._prepare_output_fn(layouts, use_local, module, output, mesh) if output.ndim else output


class Offloaded(ActivationWrapper):
    """A layer whose saved activations wait in the host's memory for the backward; its parameters stay on the device."""

    def __init__(self, layer: nn.Module, *, pin_memory: bool) -> None:
        super().__init__(layer)
        self._pin_memory = pin_memory

    def forward(self, *inputs: Any, **named: Any) -> Any:
        with SaveActivationsOnCpu(self._pin_memory):
            return self._checkpoint_wrapped_module(*inputs, **named)


class SaveActivationsOnCpu(save_on_cpu):
    """PyTorch's ``save_on_cpu``, but for parameters and views of them, which would be copied to the host and back too."""

    def __init__(self, pin_memory: bool) -> None:
        super().__init__(pin_memory)
        copy, copy_back = self.pack_hook, self.unpack_hook
        self.pack_hook = lambda tensor: tensor if is_parameter(tensor) else copy(tensor)
        self.unpack_hook = lambda saved: saved if isinstance(saved, Tensor) else copy_back(saved)


def is_parameter(tensor: Tensor) -> bool:
    """Whether it is a parameter, gathered or not, or a view of one, such as the transposed weight of a linear layer."""
    base = tensor._base if tensor._base is not None else tensor
    return base.is_leaf and base.requires_grad


def shard(model: nn.Module, plan: Plan, degrees: Degrees, mesh: DeviceMesh, reshard: bool) -> None:
    """FSDP2: the parameters of each layer are gathered together, those before the layers, and those after them.

    HSDP, over two axes of the mesh, with replicas. A pipeline keeps what it has gathered: each microbatch would gather it anew.
    """
    data = mesh["data_replicate", "data_shard"] if degrees.data_replicate > 1 else mesh["data_shard"]
    dtype = DTYPES.get(degrees.precision)
    low = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32) if dtype else MixedPrecisionPolicy()
    offload = CPUOffloadPolicy(pin_memory=mesh.device_type == "cuda") if degrees.cpu_offload else OffloadPolicy()
    policies = {"mp_policy": low, "offload_policy": offload}
    reshard = reshard and degrees.pipeline == 1
    for layer in plan.named_layers(model).values():
        fully_shard(layer, mesh=data, reshard_after_forward=reshard, **policies)
    first, last = ([end for _, end in ends(model, names)] for names in (plan.first, plan.last))
    shared = {id(p) for end in first for p in end.parameters()} & {id(p) for end in last for p in end.parameters()}
    if not shared:  # tied weights are gathered once, with the model
        if first:
            fully_shard(first, mesh=data, reshard_after_forward=reshard, **policies)
            if only_embeddings(first):  # a look-up's gradient needs the indices alone
                first[0].set_unshard_in_backward(False)  # type: ignore[operator]
        if last:
            fully_shard(last, mesh=data, reshard_after_forward=False, **policies)  # the backward begins with it
    fully_shard(model, mesh=data, reshard_after_forward=reshard, **policies)


def only_embeddings(modules: Sequence[nn.Module]) -> bool:
    """Whether all parameters are those of embeddings, which no backward reads."""
    parts = [part for module in modules for part in module.modules()]
    return all(isinstance(part, nn.Embedding) for part in parts if [*part.parameters(recurse=False)])


def ends(model: nn.Module, names: Sequence[str]) -> list[tuple[str, nn.Module]]:
    """The modules of these names that are in this stage of the model."""
    found = [(name, model.get_submodule(name)) for name in names]
    return [(name, module) for name, module in found if not isinstance(module, nn.Identity)]


@torch.no_grad()
def allocate(model: nn.Module, plan: Plan, device: torch.device) -> None:
    """Allocate this rank's shards of parameters, with any values, and buffers with theirs."""
    tied = tied_names(model)
    model.to_empty(device=device)
    tie(model, tied)
    plan.buffers(model)


@torch.no_grad()
def fill(model: nn.Module, plan: Plan, initial: Callable[[str, torch.Size], Tensor], device: torch.device) -> None:
    """Allocate this rank's shards, and set them to the initial values, a function of name and shape, equal in all layouts."""
    allocate(model, plan, device)
    for name, parameter in model.named_parameters():
        value = initial(plain_name(name), parameter.shape)
        if isinstance(parameter, DTensor):  # of a file, this reads the shard alone
            mesh, placements = parameter.device_mesh, parameter.placements
            sizes, starts = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
            value = value[tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))]
        local(parameter).copy_(value)


def plain_name(name: str) -> str:
    """A parameter's name without the names of wrappers."""
    return name.replace("_checkpoint_wrapped_module.", "")


# -- All of it --------------------------------------------------------------------------------------------------------


def stage_modules_of(
    build: Callable[[], nn.Module],
    plan: Plan,
    degrees: Degrees,
    mesh: DeviceMesh,
    layers: list[range],
    *,
    initial: Callable[[str, torch.Size], Tensor],
    reshard: bool = True,
    compilation: Compilation | None = None,
) -> dict[int, nn.Module]:
    """This rank's modules by the number of the stage: one, or two with an interleaved schedule.

    The model is built on PyTorch's meta device, so that it may be larger than a rank's memory.
    """
    device = torch.device(mesh.device_type, torch.cuda.current_device() if mesh.device_type == "cuda" else None)
    stage_modules = {}
    for stage in range(mesh.get_local_rank("pipeline"), len(layers), degrees.pipeline):
        with unset_fake_temporarily(), torch.device("meta"):  # fits.py calls this within FakeTensorMode
            module = build()
        keep_stage(module, plan, layers[stage])
        parallelize(module, plan, degrees, mesh, reshard=reshard, compilation=compilation)
        fill(module, plan, initial, torch.device("cpu") if degrees.cpu_offload else device)
        for part in module.modules():  # buffers are not offloaded
            for name, buffer in part.named_buffers(recurse=False):
                setattr(part, name, buffer.to(device))
        stage_modules[stage] = module
    return stage_modules


class Stage(PipelineStage):
    """PyTorch's, with the targets of each microbatch for its head, and gradients that are reduced with each microbatch.

    PyTorch's keeps the whole gradient of the stage until the last backward. With ``each`` off so does this one.
    """

    targets: Sequence[Tensor] = ()
    head: Head | None = None
    each = True

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        if self.head is not None:
            self.head.targets = self.targets[fwd_chunk_id]
        return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> Any:
        if not self.each or backward_type != "full" or not isinstance(self.submod, FSDPModule):
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        self.submod.set_reshard_after_backward(False)  # perform_reduce_grad does it, after all microbatches
        sync_gradients(self.submod, last_backward)
        names = ("stage_output", "output_grads", "input_values")
        return stage_backward(*(bwd_kwargs[name] for name in names)), None


def schedule_of(  # type: ignore[no-untyped-def]
    degrees: Degrees,
    mesh: DeviceMesh,
    stage_modules: dict[int, nn.Module],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    device: torch.device,
    head: Head | None,
    each: bool,
):
    """This rank's stages, and PyTorch's pipeline schedule of them, of which gradients are those of the sum of losses."""
    group = mesh.get_group("pipeline")
    stages = [Stage(module, number, degrees.stages, device, group=group) for number, module in stage_modules.items()]
    for stage in stages:
        stage.head, stage.each = head if stage.is_last else None, each
    kind = get_schedule_class(degrees.schedule)
    given = stages[0] if issubclass(kind, PipelineScheduleSingle) else stages
    return stages, kind(given, n_microbatches=degrees.microbatches, loss_fn=loss_of, scale_grads=False)


def loss_context(degrees: Degrees) -> AbstractContextManager[None]:
    """Around forward and backward: cross-entropy on logits of which each rank has a shard of the vocabulary."""
    return loss_parallel() if degrees.tensor > 1 else nullcontext()


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_size(module: nn.Module) -> tuple[int, int]:
    """The number of a module's local parameters on this rank, and their bytes."""
    shards = [local(parameter) for parameter in module.parameters()]
    return sum(shard.numel() for shard in shards), sum(shard.numel() * shard.element_size() for shard in shards)


def whole_weights(modules: Iterable[nn.Module], mesh: DeviceMesh) -> dict[str, Tensor]:
    """On rank 0 the parameters and saved buffers of all stages, in the host's memory; of tied ones the first.

    To be called by every rank. They are gathered one by one, on the device.
    """
    found, first = dict[str, Tensor](), all(mesh.get_local_rank(axis) == 0 for axis in AXES[1:])
    for module in modules:
        others = {plain_name(other) for _, *others in tied_names(module) for other in others}
        for name, value in module.state_dict().items():
            whole = value.to(mesh.device_type).full_tensor() if isinstance(value, DTensor) else value
            if first and name not in others:
                found[plain_name(name)] = whole.cpu()
    if not first or mesh["pipeline"].size() == 1:
        return found
    stages = [found for _ in range(mesh["pipeline"].size())]
    group = mesh.get_group("pipeline")
    dist.gather_object(found, stages if dist.get_rank() == 0 else None, group=group, group_dst=0)
    return {name: value for stage in stages for name, value in stage.items()}


def optimizer_bytes(optimizers: list[torch.optim.Optimizer]) -> int:
    """The bytes of the optimizers' state on this rank."""
    states = [local(value) for one in optimizers for state in one.state.values() for value in state.values()]
    return sum(value.numel() * value.element_size() for value in states)
