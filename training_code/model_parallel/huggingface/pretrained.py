"""Models of Hugging Face's transformers: laid over ranks by the plan of one, with weights from and to a folder of safetensors."""

from __future__ import annotations

import shutil
import zlib
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from degrees import Degrees
from flops import flops_per_token
from gpt2_pipeline import GPT2Sequence
from parallelize import Compilation, Plan, cut, plain_name, stage_modules_of
from torch import Tensor, nn
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

FILE_BYTES = 5e9  # of a file of weights, at most, unless one tensor has more
# The styles of transformers' own tensor-parallel plans, in PyTorch's terms. A norm of each head sees the rank's heads only.
STYLES: dict[str, ParallelStyle] = {
    "colwise": ColwiseParallel(),
    "rowwise": RowwiseParallel(),
    "embedding_rowwise": RowwiseParallel(input_layouts=Replicate()),
    "replicated_with_grad_allreduce": SequenceParallel(sequence_dim=2, use_local_output=True),
    "colwise_gather_output": ColwiseParallel(
        output_layouts=Shard(-1), use_local_output=False
    ),  # for the loss on shards
}


def parallel_model(
    folder: Path, degrees: Degrees, mesh: DeviceMesh, batch: int, seed: int, compilation: Compilation | None = None
) -> PreTrainedModel:
    """A causal language model with the folder's weights or, where it has none, initial ones; each rank has its shards.

    Of a pipeline, which only GPT-2 is cut into, this rank's stage.
    """
    sizes = AutoConfig.from_pretrained(config_file(folder))
    cuttable = degrees.pipeline > 1 and sizes.model_type == "gpt2"
    of_config = GPT2Sequence._from_config if cuttable else AutoModelForCausalLM.from_config
    build = partial(of_config, sizes, dtype=torch.float32)
    with torch.device("meta"):
        plan = plan_of(build(), degrees)
    divided = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
    named = {name: getattr(sizes, name) for name in divided if hasattr(sizes, name)}
    degrees.check_model(sizes.num_hidden_layers, named, batch)
    [model] = stage_modules_of(
        build,
        plan,
        degrees,
        mesh,
        cut([1] * sizes.num_hidden_layers, degrees.stages),
        initial=partial(initial, seed=seed, deviation=sizes.initializer_range),
        compilation=compilation,
    ).values()
    load(model, folder)
    return model


def config_file(folder: Path) -> Path:
    """config.json or, where the channel is that file alone under another name, such as an asset's, the only JSON file."""
    named, others = folder / "config.json", sorted(folder.glob("*.json"))
    if named not in others and len(others) != 1:
        raise ValueError(f"the channel model must have a config.json, got {[file.name for file in others]} in {folder}")
    return named if named in others else others[0]


def model_flops(folder: Path, context: int) -> float:
    """Floating-point operations of a token, forward and backward, in all of the folder's model."""
    sizes = AutoConfig.from_pretrained(config_file(folder))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(sizes)
    return flops_per_token(model, sizes.num_hidden_layers, sizes.hidden_size, context)


def plan_of(model: PreTrainedModel, degrees: Degrees) -> Plan:
    """The plan that transformers has for a model. Raises ValueError for degrees that it does not allow."""
    kind, styles = type(model).__name__, model._tp_plan or {}
    if degrees.pipeline > 1 and not isinstance(model, GPT2Sequence):
        raise ValueError(f"pipeline must be 1 for {kind}, since only GPT-2 is cut, got {degrees.pipeline}")
    if degrees.stages > degrees.pipeline:
        raise ValueError(f"schedule must have one stage on each rank for {kind}, like 1F1B, got {degrees.schedule}")
    unknown = sorted(set(styles.values()) - set(STYLES))
    if degrees.tensor > 1 and (unknown or not any(".layers." in name for name in styles)):
        why = f"has styles like {unknown[0]!r}" if unknown else "has no plan for its layers"
        raise ValueError(f"tensor must be 1 for {kind}, which {why} in transformers, got {degrees.tensor}")
    layer = next(name for name, part in model.named_modules() if type(part).__name__ in model._no_split_modules)
    layers = layer.rpartition(".")[0]
    names = [name for name, part in model.named_modules() if name == layers or list(part.parameters(recurse=False))]
    outside = [name for name in names if not name.startswith(f"{layers}.")]
    at = outside.index(layers)
    tensor = {name: STYLES[style] for name, style in styles.items()} if degrees.tensor > 1 else {}
    return Plan(layers, tuple(outside[:at]), tuple(outside[at + 1 :]), tensor, set_buffers)


def set_buffers(model: PreTrainedModel) -> None:
    """The rates of rotary embeddings, by the method with which transformers sets a model's initial values."""
    for module in model.modules():
        if list(module.buffers(recurse=False)):
            model._init_weights(module)


def initial(name: str, shape: torch.Size, *, seed: int, deviation: float) -> Tensor:
    """A parameter's initial value, a function of its name and the seed, so that each rank can compute its shard."""
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if len(shape) == 1:  # the scale of a norm
        return torch.ones(shape)
    random = torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    return torch.randn(shape, generator=random) * deviation


def load(model: nn.Module, folder: Path) -> bool:
    """Read the folder's weights, each rank its shards only; returns whether it has any."""
    if not list(folder.glob("*.safetensors")):
        return False
    parameters = {plain_name(name): parameter.detach() for name, parameter in model.named_parameters()}
    dcp.load(parameters, storage_reader=HuggingFaceStorageReader(str(folder)))
    return True


def export(model: PreTrainedModel, source: Path, folder: Path, mesh: DeviceMesh) -> None:
    """Write a folder for ``from_pretrained`` on rank 0, with the tokenizer of ``source``; to be called by every rank."""
    weights = whole_weights(model, mesh)
    if dist.get_rank() != 0:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file() and "safetensors" not in file.name and file != config_file(source):
            shutil.copy(file, folder)
    model.config.dtype = torch.float32
    model.config.save_pretrained(folder)
    writer = HuggingFaceStorageWriter(str(folder), fqn_to_index_mapping=files_of(weights))
    dcp.save(weights, storage_writer=writer, no_dist=True)


def whole_weights(model: nn.Module, mesh: DeviceMesh) -> dict[str, Tensor]:
    """On rank 0 the parameters of all stages, in the host's memory; of tied ones the first."""
    names = {plain_name(name) for name, _ in model.named_parameters()}
    stages = mesh["pipeline"].size()
    # Offloaded to the host they would be rank 0's alone.
    options = StateDictOptions(full_state_dict=True, cpu_offload=stages == 1)
    whole = get_model_state_dict(model, options=options).items()
    weights = {name: value.cpu() for name, value in whole if name in names}
    if stages == 1:
        return weights
    found: list[dict[str, Tensor]] = [{}] * stages
    group = mesh.get_group("pipeline")
    dist.gather_object(weights, found if mesh.get_local_rank("pipeline") == 0 else None, group=group, group_dst=0)
    return {name: value for stage in found for name, value in stage.items()}


def files_of(weights: dict[str, Tensor]) -> dict[str, int]:
    """The number of the file of each tensor, from 1 on."""
    found, number, size = {}, 1, 0
    for name, value in weights.items():
        if size and size + value.nbytes > FILE_BYTES:
            number, size = number + 1, 0
        found[name], size = number, size + value.nbytes
    return found
