"""Models of Hugging Face's transformers train in every layout like one process, and from_pretrained reads what is exported."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from preloaded import agents_store, start

HERE = Path(__file__).parent
TRAINING_CODE = HERE.parents[1] / "training_code"
KIND = TRAINING_CODE / "model_parallel"
STEPS = 4
COMMON = (
    "--context 16 --batch-size 8 --log-every 1 --checkpoint-every 0 "
    f"--learning-rate 0.01 --warm-up 3 --least-rate 1 --steps {STEPS}"
)
EVALUATED = "--evaluate-every 2"
ALONE = {name: f"--model {name}" for name in ("llama", "qwen3", "gpt2", "untied_gpt2")}
ON_FOUR_RANKS = {
    "llama, tensor x fsdp, recomputed": "--model llama --tensor 2 --activation-checkpointing --activation-offloading",
    "qwen3, tensor x fsdp": "--model qwen3 --tensor 2 --microbatches 2",
    "untied_gpt2, pipeline x fsdp": "--model untied_gpt2 --pipeline 2 --microbatches 2",
}
# On two hosts of two ranks each.
MORE_ON_FOUR_RANKS = {
    "llama, tensor x fsdp": "--model llama --tensor 2",
    "qwen3, tensor x fsdp, one batch": "--model qwen3 --tensor 2",
    "llama, fsdp": "--model llama --data-shard 4",
    "llama, tensor": "--model llama --tensor 4",
    "llama, hybrid shard": "--model llama --data-replicate 2 --data-shard 2",
    "qwen3, tensor": "--model qwen3 --tensor 4",
    "gpt2, fsdp": "--model gpt2 --data-shard 4",
    "qwen3, fsdp": "--model qwen3 --data-shard 4",
    "qwen3, hybrid shard": "--model qwen3 --data-replicate 2 --data-shard 2",
    "llama, tensor x fsdp, microbatches": "--model llama --tensor 2 --microbatches 2",
    "llama, kept": "--model llama --tensor 4 --steps 2 --checkpoint-every 2 --log-every 10",
    "llama, resumed": "--model llama --data-shard 4 --from llama,-kept",
    "untied_gpt2, kept": "--model untied_gpt2 --pipeline 2 --microbatches 4 --steps 2 --checkpoint-every 2 --log-every 10",
    "untied_gpt2, resumed": "--model untied_gpt2 --data-shard 4 --from untied_gpt2,-kept",
}
BEGUN_ON_FOUR_RANKS = {
    "mixtral, fsdp": "--model mixtral --data-shard 4",
    "qwen3_moe, hybrid shard": "--model qwen3_moe --data-replicate 2 --data-shard 2 --activation-checkpointing",
    "gemma3, tensor x fsdp": "--model gemma3 --tensor 2",
    "mistral, tensor x fsdp": "--model mistral --tensor 2",
}
IN_FP16 = {f"{name}, fp16": f"{arguments} --precision fp16" for name, arguments in ON_FOUR_RANKS.items()}
COMPILED = {"llama, tensor x fsdp, compiled": "--model llama --tensor 2 --activation-checkpointing --compiler inductor"}
KEPT = {"qwen3, kept": "--model qwen3 --data-shard 4 --steps 2 --checkpoint-every 2 --log-every 10"}
RESUMED = {"qwen3, resumed": "--model qwen3 --tensor 2 --from qwen3,-kept"}
UNTRAINED = {"qwen3, untrained": "--model qwen3 --tensor 2 --steps 1 --learning-rate 0"}
# Small models with the parts that differ: heads that share keys, norms of heads, tied weights, fused projections.
MODELS = """
import sys, torch
from pathlib import Path
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config
sizes = dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, max_position_embeddings=64)
for name, config in {
    "llama": LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4),
    "qwen3": Qwen3Config(**sizes, num_attention_heads=4, num_key_value_heads=4, head_dim=8, tie_word_embeddings=True),
    "gpt2": GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0,
                       attn_pdrop=0, embd_pdrop=0, resid_pdrop=0),
    "untied_gpt2": GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=0,
                              eos_token_id=0, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, tie_word_embeddings=False),
}.items():
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(Path(sys.argv[1]) / name)
"""
FROM_SCRATCH = """
import sys
from pathlib import Path
from transformers import AutoConfig
sizes = dict(vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, max_position_embeddings=64)
heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16)
experts = dict(moe_intermediate_size=16, num_experts=4, num_local_experts=4, num_experts_per_tok=2)
for name, kind in {"mixtral": "mixtral", "qwen3_moe": "qwen3_moe", "gemma3": "gemma3_text", "mistral": "mistral"}.items():
    others = experts if name in ("mixtral", "qwen3_moe") else {}
    AutoConfig.for_model(kind, **sizes, **heads, **others).save_pretrained(Path(sys.argv[1]) / name)
"""
COMPARED = """
import sys, torch
from transformers import AutoModelForCausalLM
tokens = torch.arange(16)[None]
logits = [AutoModelForCausalLM.from_pretrained(folder)(tokens).logits for folder in sys.argv[1:]]
for one, other in zip(logits[::2], logits[1::2]):
    print((one - other).abs().max().item())
"""


class Launched:
    """The layouts that ran in one folder, on one process and on four."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for seed, (channel, tokens) in enumerate({"tokens": 5000, "validation": 300}.items()):
            (folder / channel).mkdir()
            walk = np.cumsum(np.random.default_rng(seed).integers(0, 3, tokens)) % 128
            np.save(folder / channel / "tokens-00000.npy", walk.astype(np.uint16))
        self.program(MODELS, folder)

    def run(self, ranks: int, layouts: dict[str, str], hosts: int = 1) -> None:
        pairs = [(folder_of(name), [*COMMON.split(), *arguments.split()]) for name, arguments in layouts.items()]
        command = [HERE / "parallel_layouts.py", self.folder, json.dumps(pairs)]
        errors, store = self.folder / "errors", agents_store() if hosts > 1 else None
        options = {"cwd": self.folder, "env": self.environment(), "ranks": ranks // hosts, "world": ranks}
        with contextlib.ExitStack() as stack:
            programs = [
                stack.enter_context(start(command, first=first, store=store, errors=errors, **options))
                for first in range(0, ranks, ranks // hosts)
            ]
            printed = [program.communicate()[0] for program in programs]
            assert [program.wait() for program in programs] == [0] * hosts, (printed, errors.read_text())

    def program(self, code: str, *arguments: object) -> str:
        script, errors = self.folder / "program.py", self.folder / "errors"
        script.write_text(code)
        with start([script, *arguments], cwd=self.folder, env=self.environment(), errors=errors) as program:
            printed, _ = program.communicate()
            assert program.wait() == 0, errors.read_text()
            return printed

    def environment(self) -> dict[str, str]:
        paths = os.pathsep.join(map(str, (TRAINING_CODE, KIND / "huggingface", KIND, HERE)))
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": paths,
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "compiler-cache"),
            "HF_HUB_OFFLINE": "1",
            "SM_CHANNELS": '["tokens", "validation"]',
            "SM_CHANNEL_TOKENS": str(self.folder / "tokens"),
            "SM_CHANNEL_VALIDATION": str(self.folder / "validation"),
        }

    def losses(self, layout: str) -> dict[int, float]:
        return self.logged(layout, "loss")

    def logged(self, layout: str, value: str) -> dict[int, float]:
        """A value of each step that the first rank printed."""
        printed = (self.folder / folder_of(layout) / "rank-0.txt").read_text()
        found = re.findall(rf"^step (\d+) .*?\b{value} ([\d.]+) ", printed, re.M)
        return {int(step): float(number) for step, number in found}

    def exported(self, layout: str) -> Path:
        return self.folder / folder_of(layout) / "model"


def folder_of(layout: str) -> str:
    return layout.replace(" ", "-")


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    found = Launched(tmp_path_factory.mktemp("huggingface"))
    found.run(1, {f"{name}, alone": f"{arguments} {EVALUATED}" for name, arguments in ALONE.items()})
    evaluated = {name: f"{arguments} {EVALUATED}" for name, arguments in ON_FOUR_RANKS.items()}
    found.run(4, evaluated | KEPT | RESUMED | UNTRAINED)
    return found


def reference(launched: Launched, layout: str) -> dict[int, float]:
    return launched.losses(f"{layout.partition(',')[0]}, alone")


@pytest.mark.parametrize("layout", ON_FOUR_RANKS)
def test_four_ranks_have_the_losses_of_one_process(launched: Launched, layout: str) -> None:
    assert list(launched.losses(layout)) == list(range(1, STEPS + 1))
    assert launched.losses(layout) == pytest.approx(reference(launched, layout), abs=1e-4)


@pytest.mark.parametrize("layout", ON_FOUR_RANKS)
def test_the_norm_that_gradients_are_clipped_by_is_of_all_shards_and_stages(launched: Launched, layout: str) -> None:
    """AdamW's steps, and so the losses, are nearly the same where every gradient of a rank is scaled alike."""
    alone = launched.logged(f"{layout.partition(',')[0]}, alone", "grad_norm")
    assert list(alone) == list(range(1, STEPS + 1))
    assert launched.logged(layout, "grad_norm") == pytest.approx(alone, rel=1e-2)


@pytest.mark.soak
def test_every_layout_on_two_hosts_of_two_ranks_has_the_losses_of_one_process_and_goes_on_from_anothers_checkpoint(
    launched: Launched,
) -> None:
    launched.run(4, MORE_ON_FOUR_RANKS, hosts=2)
    for layout in MORE_ON_FOUR_RANKS:
        expected = reference(launched, layout)
        first = 3 if layout.endswith("resumed") else 1
        if not layout.endswith("kept"):
            steps = {step: expected[step] for step in range(first, STEPS + 1)}
            assert launched.losses(layout) == pytest.approx(steps, abs=1e-4), layout
            alone = launched.exported(f"{layout.partition(',')[0]}, alone")
            assert float(launched.program(COMPARED, alone, launched.exported(layout))) < 1e-3, layout


@pytest.mark.soak
def test_models_without_weights_begin_and_train_on_four_ranks_as_on_one(launched: Launched) -> None:
    launched.program(FROM_SCRATCH, launched.folder)
    models = [layout.partition(",")[0] for layout in BEGUN_ON_FOUR_RANKS]
    launched.run(1, {f"{name}, alone": f"--model {name}" for name in models})
    launched.run(4, BEGUN_ON_FOUR_RANKS)
    for layout in BEGUN_ON_FOUR_RANKS:
        assert launched.losses(layout) == pytest.approx(reference(launched, layout), abs=1e-4), layout
        alone = launched.exported(f"{layout.partition(',')[0]}, alone")
        assert float(launched.program(COMPARED, alone, launched.exported(layout))) < 1e-3, layout


@pytest.mark.soak
def test_compiled_layers_have_the_losses_of_one_process(launched: Launched) -> None:
    launched.run(4, COMPILED)
    [layout] = COMPILED
    assert launched.losses(layout) == pytest.approx(reference(launched, layout), abs=1e-4)


@pytest.mark.soak
def test_four_ranks_in_fp16_have_nearly_the_losses_of_one_process_in_fp32(launched: Launched) -> None:
    launched.run(4, IN_FP16)
    for layout in IN_FP16:
        expected = reference(launched, layout)
        assert launched.losses(layout) != expected
        assert launched.losses(layout) == pytest.approx(expected, abs=0.02), layout


def test_another_layout_goes_on_from_a_checkpoint(launched: Launched) -> None:
    [layout] = RESUMED
    expected = reference(launched, layout)
    assert launched.losses(layout) == pytest.approx({step: expected[step] for step in (3, 4)}, abs=1e-4)


def test_a_resumed_training_goes_on_in_its_schedule(launched: Launched) -> None:
    """The rate rises for three steps: of a schedule that began again step 3 would have a third of the peak."""
    [resumed] = RESUMED
    rates = [launched.logged(layout, "learning_rate") for layout in ("qwen3, alone", resumed)]
    assert rates[0] == pytest.approx({1: 0.01 / 3, 2: 0.02 / 3, 3: 0.01, 4: 0.01}, abs=1e-6)
    assert rates[1] == {step: rates[0][step] for step in (3, 4)}


@pytest.mark.parametrize("layout", ON_FOUR_RANKS)
def test_four_ranks_evaluate_to_the_loss_of_one_process(launched: Launched, layout: str) -> None:
    alone = launched.logged(f"{layout.partition(',')[0]}, alone", "validation_loss")
    assert list(alone) == [2, 4]
    assert launched.logged(layout, "validation_loss") == pytest.approx(alone, abs=1e-4)


@pytest.fixture(scope="module")
def differences(launched: Launched) -> dict[str, float]:
    """How far the logits of what four ranks have exported are from those of one process, or of what was read."""
    layouts = ["llama, tensor x fsdp, recomputed", "qwen3, resumed", "untied_gpt2, pipeline x fsdp"]
    pairs = [(launched.exported(f"{layout.partition(',')[0]}, alone"), launched.exported(layout)) for layout in layouts]
    pairs += [(launched.folder / "qwen3", launched.exported(layout)) for layout in UNTRAINED]
    printed = launched.program(COMPARED, *(folder for pair in pairs for folder in pair)).splitlines()
    return dict(zip([*layouts, *UNTRAINED], map(float, printed), strict=True))


def test_from_pretrained_reads_what_four_ranks_export(differences: dict[str, float]) -> None:
    assert {layout for layout, apart in differences.items() if apart >= 1e-3} == set()


def test_weights_that_are_not_trained_are_exported_as_they_were_read(differences: dict[str, float]) -> None:
    [layout] = UNTRAINED
    assert differences[layout] == 0.0


def test_what_transformers_has_no_plan_for_is_refused(launched: Launched) -> None:
    code = """
import torch
from degrees import Degrees
from pretrained import plan_of
from transformers import AutoConfig, AutoModelForCausalLM
with torch.device("meta"):
    models = [AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(name)) for name in ("gpt2", "llama")]
for model, degrees in zip(models, (Degrees(tensor=2), Degrees(pipeline=2, microbatches=2))):
    try:
        print(plan_of(model, degrees))
    except ValueError as error:
        print(error)
"""
    assert launched.program(code).splitlines() == [
        "tensor must be 1 for GPT2LMHeadModel, which has no plan for its layers in transformers, got 2",
        "pipeline must be 1 for LlamaForCausalLM, since only GPT-2 is cut, got 2",
    ]
