"""Models of transformers begin and load as transformers has them, and a folder that does not fit is refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from preloaded import start

HERE = Path(__file__).parent
TRAINING_CODE = HERE.parents[1] / "training_code"
KIND = TRAINING_CODE / "model_parallel"
CASES = (
    ("gpt2, of the hub", "data_shard"),
    ("llama, bf16 in files", "tensor"),
    ("llama, several types", "data_shard"),
    ("qwen3, both names", "data_shard"),
    ("qwen3, the other name", "tensor"),
    ("mixtral", "data_shard"),
    ("qwen3_moe", "data_shard"),
    ("gpt2, untied, initial", "pipeline"),
    ("gemma3, initial", "tensor"),
    ("qwen3_moe, initial", "data_shard"),
)
MORE_CASES = (
    ("gpt2", "data_shard"),
    ("gpt2, untied", "pipeline"),
    ("llama, bf16 in files", "data_shard"),
    ("llama", "tensor"),
    ("mistral", "data_shard"),
    ("mistral", "tensor"),
    ("qwen3, both names", "tensor"),
    ("gemma2", "data_shard"),
    ("gemma2", "tensor"),
    ("gemma3", "data_shard"),
    ("gemma3", "tensor"),
    ("mixtral, fused", "data_shard"),
    ("deepseek_v3", "data_shard"),
    ("gpt2, untied, initial", "data_shard"),
    ("llama, initial", "tensor"),
    ("llama, initial", "data_shard"),
    ("gemma2, initial", "data_shard"),
    ("mixtral, initial", "data_shard"),
)
MUST = "the channel model must have"
EXPERT = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
LISTED = "model.layers.0.input_layernorm.weight"
SHARD = f"the whole file model-00002-of-00004.safetensors with {LISTED}"
MODELS = (
    "gpt2",
    "gpt2, untied",
    "llama",
    "mistral",
    "qwen3",
    "gemma2",
    "gemma3",
    "mixtral",
    "qwen3_moe",
    "deepseek_v3",
)


class Made:
    """The folders of huggingface_models.py, and what it printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        made = self.run("make", folder)
        self.values, self.of_seeds, self.refused = made["values"], made["of_seeds"], made["refused"]

    def load(self, cases: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], tuple[float, float]]:
        """By case, over two ranks, the largest difference of a logit, and of an exported weight."""
        degrees = [(name, {axis: 2} | ({"microbatches": 2} if axis == "pipeline" else {})) for name, axis in cases]
        found = self.run("load", self.folder, json.dumps(degrees), ranks=2)
        return dict(zip(cases, found, strict=True))

    def run(self, *arguments: object, ranks: int = 1) -> Any:
        paths = os.pathsep.join(map(str, (TRAINING_CODE, KIND / "huggingface", KIND, HERE)))
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
        command, errors = [HERE / "huggingface_models.py", *arguments], self.folder / "errors"
        with start(command, cwd=self.folder, env=environment, ranks=ranks, errors=errors) as program:
            printed, _ = program.communicate()
            assert program.wait() == 0, errors.read_text()
            return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def loaded(made: Made) -> dict[tuple[str, str], tuple[float, float]]:
    return made.load(CASES)


@pytest.mark.soak  # test_huggingface.py has the losses and the export of four ranks
@pytest.mark.parametrize("case", CASES, ids=" over ".join)
def test_two_ranks_have_the_logits_of_from_pretrained_and_export_its_weights(
    loaded: dict[tuple[str, str], tuple[float, float]], case: tuple[str, str]
) -> None:
    """Where the folder has no weights: of one process with our initial values."""
    logits, weights = loaded[case]
    assert logits < 1e-5
    assert weights == 0


@pytest.mark.soak
def test_two_ranks_have_the_logits_of_from_pretrained_for_each_kind_of_folder_and_layout(made: Made) -> None:
    for case, (logits, weights) in made.load(MORE_CASES).items():
        assert logits < 1e-5, case
        assert weights == 0, case


@pytest.mark.parametrize("model", MODELS)
def test_initial_values_are_distributed_as_those_of_transformers(made: Made, model: str) -> None:
    ours, theirs = made.values[model]
    assert ours.keys() == theirs.keys()
    for kind, (mean, deviation, zeros, size) in ours.items():
        expected_mean, expected_deviation, expected_zeros, _ = theirs[kind]
        assert mean == pytest.approx(expected_mean, abs=6 * expected_deviation / size**0.5), kind
        assert deviation == pytest.approx(expected_deviation, rel=6 / (2 * size) ** 0.5), kind
        assert zeros == expected_zeros, kind


def test_each_parameter_and_each_seed_has_values_of_its_own(made: Made) -> None:
    """Of each parameter the last value, 0 and 1 aside."""
    values = [[value for value in of_seed if value not in (0, 1)] for of_seed in made.of_seeds]
    assert len(values[0]) == len(values[1]) > 20
    assert len({*values[0], *values[1]}) == 2 * len(values[0])


def test_residual_projections_of_gpt2_and_norms_of_gemma_begin_as_their_papers_have_them(made: Made) -> None:
    gpt2, gemma = made.values["gpt2"][0], made.values["gemma3"][0]
    assert gpt2["transformer.h.*.mlp.c_proj.weight"][1] == pytest.approx(0.02 / 4**0.5, rel=0.05)
    assert gpt2["transformer.h.*.mlp.c_fc.weight"][1] == pytest.approx(0.02, rel=0.05)
    assert gemma["model.norm.weight"][:2] == [0, 0]  # it multiplies by 1 + weight


REFUSED = {
    "llama, missing": f"{MUST}, as config.json says, model.norm.weight of shape (32,), got none in model.safetensors",
    "llama, extra": f"{MUST}, as config.json says, no model.layers.2.mlp.up_proj.weight, got it in model.safetensors",
    "llama, misshapen": (
        f"{MUST}, as config.json says, model.layers.0.self_attn.k_proj.weight of shape (16, 32), got (17, 32) in "
        "model.safetensors"
    ),
    "mixtral, misshapen": f"{MUST}, as config.json says, {EXPERT} of shape (32, 32), got (31, 32) in model.safetensors",
    "mixtral, missing": f"{MUST}, as config.json says, {EXPERT} of shape (32, 32), got none in model.safetensors",
    "mixtral, one expert more": (
        f"{MUST}, as config.json says, model.layers.1.mlp.experts.down_proj of shape (4, 32, 32), got (5, 32, 32) in "
        "model.safetensors"
    ),
    "mixtral over tensor": (
        "tensor must be 1 for MixtralForCausalLM, which has styles like 'moe_tp_experts' in transformers, got 2"
    ),
    "qwen3, differing": (
        "tie_word_embeddings must be false in config.json where lm_head.weight and model.embed_tokens.weight have different "
        "values, got true"
    ),
    "llama, truncated": f"{MUST} {SHARD}, got Error while deserializing header: incomplete metadata, file not fully covered",
    "llama, without a file": f"{MUST} {SHARD}, got No such file or directory: ",
    "llama, without files": (
        f"{MUST} the whole file model-00001-of-00004.safetensors with model.embed_tokens.weight, got No such file or directory: "
    ),
    "llama, without a listed tensor": f"{MUST} {SHARD}, got File does not contain tensor {LISTED}",
    "llama, pickled": (
        f"{MUST} weights as model.safetensors or files with model.safetensors.index.json, got pytorch_model.bin"
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_or_a_layout_that_does_not_fit_the_model_is_refused_by_name(made: Made, name: str) -> None:
    refused = made.refused[name].partition(str(made.folder))[0]
    assert refused == REFUSED[name]
