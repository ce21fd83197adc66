"""Models of Hugging Face's transformers: laid over ranks by the plan of one, with weights from and to a folder of safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import torch.distributed as dist
from degrees import Degrees
from flops import flops_per_token
from gpt2_pipeline import GPT2Sequence
from head import Head
from parallelize import Compilation, Plan, VocabularyParallel, cut, plain_name, stage_modules_of, whole_weights
from torch import nn
from torch._guards import detect_fake_mode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from weights import InitialWeights, stored_weights, whole_model

CHANGED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # in the config of models that do it
TEXTS = {".jinja", ".json", ".model", ".txt"}  # files of tokenizers
# The styles of transformers' own tensor-parallel plans, in PyTorch's terms. A norm of each head sees the rank's heads only.
STYLES: dict[str, ParallelStyle] = {
    "colwise": ColwiseParallel(),
    "rowwise": RowwiseParallel(),
    "embedding_rowwise": RowwiseParallel(input_layouts=Replicate()),
    "replicated_with_grad_allreduce": SequenceParallel(sequence_dim=2, use_local_output=True),
    "colwise_gather_output": VocabularyParallel(),
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

    def build() -> PreTrainedModel:
        return with_loss_in_head(of_config(sizes, dtype=torch.float32))

    with torch.device("meta"):
        plan = plan_of(build(), degrees)
    divided = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
    named = {name: getattr(sizes, name) for name in divided if hasattr(sizes, name)}
    degrees.check_model(sizes.num_hidden_layers, named, batch)
    stored = {} if detect_fake_mode() else stored_weights(folder, sizes)  # fits.py calls this within FakeTensorMode
    [model] = stage_modules_of(
        build,
        plan,
        degrees,
        mesh,
        cut([1] * sizes.num_hidden_layers, degrees.stages),
        initial=(lambda name, _: stored[name]) if stored else InitialWeights(sizes, seed),
        compilation=compilation,
    ).values()
    for name, buffer in model.named_buffers():
        if plain_name(name) in stored:
            buffer.copy_(stored[plain_name(name)])
    return model


def with_loss_in_head(model: PreTrainedModel) -> PreTrainedModel:
    """Let the head return the loss, unless the model changes the logits that it gets from there."""
    head, sizes = model.get_output_embeddings(), model.config.get_text_config()
    if type(head) is nn.Linear and not any(getattr(sizes, name, None) for name in CHANGED_LOGITS):
        head.__class__ = Head
    return model


def config_file(folder: Path) -> Path:
    """config.json or, where the channel is that file alone under another name, such as an asset's, the only JSON file."""
    named, others = folder / "config.json", sorted(folder.glob("*.json"))
    if named not in others and len(others) != 1:
        raise ValueError(f"the channel model must have a config.json, got {[file.name for file in others]} in {folder}")
    return named if named in others else others[0]


def token_limits(folder: Path) -> dict[str, int | None]:
    """What tokens have to fit, for ``TokenShards``: the vocabulary and, of most models, the positions of the folder's model."""
    sizes = AutoConfig.from_pretrained(config_file(folder)).get_text_config()
    return {"vocabulary": sizes.vocab_size, "positions": getattr(sizes, "max_position_embeddings", None)}


def model_flops(folder: Path, context: int) -> float:
    """Floating-point operations of a token, forward and backward, in all of the folder's model."""
    sizes = AutoConfig.from_pretrained(config_file(folder))
    model = whole_model(sizes)
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


def export(model: PreTrainedModel, source: Path, folder: Path, mesh: DeviceMesh) -> None:
    """Write a folder for ``from_pretrained`` on rank 0, with the tokenizer of ``source``; to be called by every rank."""
    weights = whole_weights([model], mesh)
    if dist.get_rank() != 0:
        return
    whole_model(model.config).save_pretrained(folder, state_dict=weights, max_shard_size="5GB")
    for file in source.iterdir():
        if file.suffix in TEXTS and ".index." not in file.name and file != config_file(source):
            shutil.copy(file, folder)
