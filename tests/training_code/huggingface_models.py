"""Small models of transformers, compared with from_pretrained and from_config.

    python huggingface_models.py make FOLDER        makes folders, with what transformers reads of them in expected.pt
    python huggingface_models.py load FOLDER CASES  as one rank of several; CASES is JSON, pairs of a folder and of degrees

Each prints JSON. Of `make`: by model and kind of parameter the mean, the deviation and the number of zeros of our initial values
and of from_config's, and by name the error with which a bad folder is refused. Of `load`, by case: the largest difference of a
logit, 0 in a pipeline, and that of a weight in the folder that is exported.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common.job import Job
from common.process_group import process_group
from degrees import Degrees
from parallelize import mesh_of
from pretrained import export, parallel_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from weights import InitialWeights

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64, "pad_token_id": 0}
EXPERTS = {"moe_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2}
GPT2 = {"vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
GROUPS = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "moe_intermediate_size": 16}
MODELS = {
    "gpt2": ("gpt2", GPT2),
    "gpt2, untied": ("gpt2", GPT2 | {"tie_word_embeddings": False}),
    "llama": ("llama", SIZES),
    "mistral": ("mistral", SIZES),
    "qwen3": ("qwen3", SIZES | {"tie_word_embeddings": True}),
    "gemma2": ("gemma2", SIZES | {"head_dim": 16}),
    "gemma3": ("gemma3_text", SIZES | {"head_dim": 16}),
    "mixtral": ("mixtral", SIZES | EXPERTS),
    "qwen3_moe": ("qwen3_moe", SIZES | EXPERTS),
    "deepseek_v3": ("deepseek_v3", SIZES | LATENT | GROUPS | {"num_key_value_heads": 4, "num_experts_per_tok": 2}),
}
TOKENS = torch.arange(24).view(2, 12) % 64
ONE, EXPERT = "model.safetensors", "model.layers.1.block_sparse_moe.experts.2.w3.weight"
SHARD = "model-00002-of-00004.safetensors"
KEYS = "model.layers.0.self_attn.k_proj.weight"


def make(folder: Path) -> None:
    expected, values = {}, {}
    for name, (kind, sizes) in MODELS.items():
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, bos_token_id=1, eos_token_id=2, **sizes)
        model = AutoModelForCausalLM.from_config(config)
        values[name] = [by_kind(begun(config, seed=0)), by_kind(model)]
        config.save_pretrained(folder / f"{name}, initial")
        expected[f"{name}, initial"] = described(begun(config, seed=0))
        for value in model.state_dict(keep_vars=True).values():  # those that begin as ones or zeros too
            torch.nn.init.normal_(value, 0.1, 0.2)
        model.save_pretrained(folder / name)
        if name == "mixtral":
            model.save_pretrained(folder / "mixtral, fused", save_original_format=False)
        if name == "llama":
            model.to(torch.bfloat16).save_pretrained(folder / "llama, bf16 in files", max_shard_size="10KB")
    # As the hub has GPT-2: without the prefix, and with masks, which are computed now.
    stored = load_file(folder / "gpt2" / ONE)
    masks = {f"h.{layer}.attn.{name}": torch.ones(1) for layer in range(2) for name in ("bias", "masked_bias")}
    store(folder, "gpt2, of the hub", {key.removeprefix("transformer."): stored[key] for key in stored} | masks)
    stored = load_file(folder / "qwen3" / ONE)
    store(folder, "qwen3, both names", stored | {"lm_head.weight": stored["model.embed_tokens.weight"].clone()})
    stored["lm_head.weight"] = stored.pop("model.embed_tokens.weight")
    store(folder, "qwen3, the other name", stored)
    stored = load_file(folder / "llama" / ONE)
    stored["model.embed_tokens.weight"][5, 0] = 1e-10  # which fp16 has not, as bf16 has not the norms' other bits
    types = {key: torch.float16 if "norm" in key else torch.bfloat16 for key in stored}
    store(folder, "llama, several types", {key: stored[key].to(types[key]) for key in stored})
    for path in folder.iterdir():
        if list(path.glob("*.safetensors")):
            expected[path.name] = described(from_pretrained(path))
    torch.save(expected, folder / "expected.pt")
    of_seeds = [[value.flatten()[-1].item() for value in begun(config, seed).state_dict().values()] for seed in (0, 1)]
    print(json.dumps({"values": values, "of_seeds": of_seeds, "refused": refused(folder)}))


def store(folder: Path, name: str, tensors: dict[str, Tensor]) -> None:
    """A folder of one file, with the config.json of the model that it is named after."""
    (folder / name).mkdir()
    shutil.copy(folder / name.partition(",")[0] / "config.json", folder / name)
    save_file(tensors, folder / name / ONE, {"format": "pt"})


def refused(folder: Path) -> dict[str, str]:
    """What is wrong with folders, and the error of each."""
    llama, mixtral = (load_file(folder / name / ONE) for name in ("llama", "mixtral"))
    qwen3 = load_file(folder / "qwen3" / ONE)
    store(folder, "llama, missing", {key: llama[key] for key in llama if key != "model.norm.weight"})
    store(folder, "llama, extra", llama | {"model.layers.2.mlp.up_proj.weight": torch.ones(4, 3)})
    store(folder, "llama, misshapen", llama | {KEYS: torch.ones(17, 32)})
    store(folder, "mixtral, misshapen", mixtral | {EXPERT: torch.ones(31, 32)})
    store(folder, "mixtral, missing", {key: mixtral[key] for key in mixtral if key != EXPERT})
    store(folder, "mixtral, one expert more", mixtral | {EXPERT.replace("2.w3", "4.w2"): torch.ones(32, 32)})
    store(folder, "qwen3, differing", qwen3 | {"lm_head.weight": qwen3["model.embed_tokens.weight"] + 1})
    for name in ("truncated", "without a file", "without a listed tensor"):
        shutil.copytree(folder / "llama, bf16 in files", folder / f"llama, {name}")
    cut = folder / "llama, truncated" / SHARD
    cut.write_bytes(cut.read_bytes()[:-1])
    (folder / "llama, without a file" / SHARD).unlink()
    for name in ("config.json", "model.safetensors.index.json"):
        (folder / "llama, without files").mkdir(exist_ok=True)
        shutil.copy(folder / "llama, bf16 in files" / name, folder / "llama, without files")
    less = folder / "llama, without a listed tensor" / SHARD
    save_file(dict([*load_file(less).items()][1:]), less)
    shutil.copytree(folder / "llama, initial", folder / "llama, pickled")
    (folder / "llama, pickled" / "pytorch_model.bin").touch()
    errors = {}
    known = torch.load(folder / "expected.pt")
    cases = [(path.name, path, Degrees()) for path in folder.iterdir() if path.is_dir() and path.name not in known]
    cases.append(("mixtral over tensor", folder / "mixtral", Degrees(tensor=2)))
    with process_group(Job.here()):
        mesh = mesh_of(Degrees(), "cpu")
        for name, path, degrees in cases:
            try:
                parallel_model(path, degrees, mesh, batch=2, seed=0)
            except ValueError as error:
                errors[name] = str(error)
    return errors


def begun(config: Any, seed: int) -> PreTrainedModel:
    """One process's model with our initial values."""
    initial = InitialWeights(config, seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial(name, parameter.shape))
    return model


def by_kind(model: PreTrainedModel) -> dict[str, tuple[float, float, int, int]]:
    """Mean, deviation, zeros and size of the parameters of a name, whatever their layer."""
    kinds: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        kinds.setdefault(re.sub(r"\.\d+\.", ".*.", name), []).append(parameter.detach().flatten())
    joined = {kind: torch.cat(parts) for kind, parts in kinds.items()}
    return {
        kind: (value.mean().item(), value.std().item(), (value == 0).sum().item(), len(value))
        for kind, value in joined.items()
    }


def from_pretrained(folder: Path) -> PreTrainedModel:
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not info["missing_keys"] | info["mismatched_keys"], info
    return model


def described(model: PreTrainedModel) -> tuple[Tensor, dict[str, Tensor]]:
    return logits_of(model), model.state_dict()


@torch.no_grad()
def logits_of(model: PreTrainedModel) -> Tensor:
    logits = model.eval()(input_ids=TOKENS, use_cache=False).logits
    return logits.full_tensor() if isinstance(logits, DTensor) else logits


def load(folder: Path, cases: list[tuple[str, dict[str, int]]]) -> None:
    expected, found = torch.load(folder / "expected.pt"), []
    for number, (name, layout) in enumerate(cases):
        degrees, (logits, weights) = Degrees(**layout), expected[name]
        mesh, exported = mesh_of(degrees, "cpu"), folder / f"exported-{number}"
        model = parallel_model(folder / name, degrees, mesh, batch=4, seed=0)
        difference = 0.0 if degrees.pipeline > 1 else (logits_of(model) - logits).abs().max().item()
        export(model, folder / name, exported, mesh)
        dist.barrier()
        others = from_pretrained(exported).state_dict()
        assert ("lm_head.weight" in load_file(exported / ONE)) != model.config.tie_word_embeddings
        assert others.keys() == weights.keys()
        found.append((difference, max((weights[key] - others[key]).abs().max().item() for key in weights)))
    if dist.get_rank() == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    else:
        with process_group(Job.here()):
            load(Path(sys.argv[2]), json.loads(sys.argv[3]))
