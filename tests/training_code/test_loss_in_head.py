"""The loss that a head returns by chunks of tokens is that of all logits at once; what a model of transformers refuses."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from preloaded import start
from torch import Tensor

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
KIND = TRAINING_CODE / "model_parallel"
SCRIPTS = TRAINING_CODE.parent / "training_jobs" / "training_jobs" / "torch_scripts"
sys.path[:0] = [str(TRAINING_CODE), str(KIND), str(SCRIPTS)]
try:
    from common.loss import IGNORED, token_loss
    from head import Head
    from memory_use import Allocations
finally:
    del sys.path[1:3]  # whose modules' names are those of other tests' modules too

PROGRAM = """
import json, sys, torch, train
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from common.job import Job
from common.process_group import process_group
from degrees import Degrees
from microbatches import Microbatches
from loss_scale import LossScale
from parallelize import mesh_of
from pretrained import with_loss_in_head
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig

folder, found = Path(sys.argv[1]), {"heads": {}}
sizes = dict(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, max_position_embeddings=32)
sizes |= dict(num_attention_heads=2, num_key_value_heads=2, head_dim=8)
gemma = Gemma2Config(**sizes, sliding_window=16)
for name, config in {"llama": LlamaConfig(**sizes), "gemma2": gemma}.items():
    model = with_loss_in_head(AutoModelForCausalLM.from_config(config))
    found["heads"][name] = type(model.get_output_embeddings()).__name__

class Doubled(type(AutoModelForCausalLM.from_config(LlamaConfig(**sizes)))):
    def forward(self, *inputs, **named):
        output = super().forward(*inputs, **named)
        output.logits = 2 * output.logits
        return output

with process_group(Job.here({})) as device:
    degrees = Degrees(microbatches=2)
    mesh = mesh_of(degrees, "cpu")
    def losses(kind, chunk):
        torch.manual_seed(0)
        model = with_loss_in_head(kind(LlamaConfig(**sizes)))
        options = SimpleNamespace(gradient_sync="each", loss_chunk=chunk)
        parts = Microbatches({0: model}, degrees, mesh, device, LossScale(), options, train.logits_of)
        tokens = torch.randint(64, (4, 8), generator=torch.Generator().manual_seed(1))
        targets = tokens.roll(-1, 1).masked_fill(torch.arange(4)[:, None] > 2, -100)
        loss = parts.whole(parts.loss(tokens, targets))
        return loss, [parameter.grad for parameter in model.parameters()]
    def difference(one, other):
        return max((a - b).abs().max().item() for a, b in zip(one[1], other[1])), abs(one[0] - other[0])
    llama = Doubled.__mro__[1]
    found["difference"] = difference(losses(llama, 0), losses(llama, 3))
    try: losses(Doubled, 3)
    except ValueError as error: found["changed"] = str(error)
    found["unchunked"] = losses(Doubled, 0)[0] > 0

    def overflowing(precision):
        torch.manual_seed(0)
        model = with_loss_in_head(llama(LlamaConfig(**sizes)))
        options = SimpleNamespace(gradient_sync="each", loss_chunk=3)
        parts = Microbatches({0: model}, degrees, mesh, device, LossScale(precision), options, train.logits_of)
        torch.nn.init.constant_(model.get_output_embeddings().weight, 3e38)
        before = [parameter.clone() for parameter in model.parameters()]
        tokens = torch.randint(64, (4, 8), generator=torch.Generator().manual_seed(1))
        optimizer = torch.optim.AdamW(model.parameters())
        try: loss, norm = parts.step([optimizer], tokens, tokens.roll(-1, 1), 1.0)
        except RuntimeError as error: return str(error)
        same = all(map(torch.equal, before, model.parameters()))
        return [bool(loss.isfinite()), float(norm), same, parts.scale.value]
    found["overflowing"] = {precision: overflowing(precision) for precision in ("bf16", "fp16")}

    (folder / "model").mkdir(); (folder / "tokens").mkdir()
    LlamaConfig(**sizes).save_pretrained(folder / "model")
    job = SimpleNamespace(channels={"model": folder / "model", "tokens": folder / "tokens"})
    found["refused"] = []
    for context, batch, largest in ((33, 1, 5), (8, 1, 64), (8, 13, 63)):
        np.save(folder / "tokens" / "tokens-00000.npy", np.array([*[0] * 100, largest], np.uint16))
        try: train.corpora(job, train.config(["--context", str(context), "--batch-size", str(batch)]))
        except ValueError as error: found["refused"].append(str(error))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("loss")
    program, errors = folder / "program.py", folder / "errors"
    program.write_text(PROGRAM)
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, (TRAINING_CODE, KIND / "huggingface", KIND))),
    }
    with start([program, folder], cwd=folder, env=variables, errors=errors) as process:
        printed, _ = process.communicate()
        assert process.wait() == 0, errors.read_text()
    return dict(json.loads(printed.splitlines()[-1]))


@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_and_the_gradients_of_chunks_are_those_of_all_logits_which_are_never_there(bias: bool) -> None:
    random = torch.Generator().manual_seed(0)
    head, hidden = Head(8, 32, bias=bias), torch.randn(2, 7, 8, generator=random)
    targets, of_all, of_chunks = torch.randint(32, (2, 7), generator=random), hidden.clone(), hidden.clone()
    targets[1, 2:] = IGNORED
    logits = F.linear(of_all.requires_grad_(), head.weight, head.bias)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    gradients = torch.autograd.grad(expected, [*head.parameters()], retain_graph=True)
    expected.backward(inputs=[of_all])
    rows: list[int] = []

    def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
        rows.append(len(logits))
        return token_loss(logits, targets, count=9)

    head.targets, head.loss, head.chunk = targets, loss_of, 4
    found = head(of_chunks.requires_grad_())
    found.backward()
    assert rows == [2] * 7  # of 14 tokens, an eighth at most, each computed once
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert (of_chunks.grad - of_all.grad).abs().max() < 1e-6  # type: ignore[operator]
    for parameter, gradient in zip(head.parameters(), gradients, strict=True):
        assert (parameter.grad - gradient).abs().max() < 1e-6  # type: ignore[operator]


def test_the_gradient_of_the_heads_weight_is_there_once_while_chunks_add_to_it() -> None:
    with Allocations() as allocated:
        head, hidden = Head(64, 4096, bias=False), torch.randn(16, 64, requires_grad=True)
        head.targets, head.chunk, head.loss = (
            torch.arange(16),
            2,
            lambda logits, targets: token_loss(logits, targets, 16),
        )
        allocated.reset()
        head(hidden).backward()
    gradients, chunk = head.weight.nbytes + hidden.nbytes, 2 * 4096 * 4
    assert gradients < allocated.peak - gradients < gradients + 4 * chunk  # parameters take as much


def test_a_head_without_targets_returns_logits() -> None:
    head, hidden = Head(8, 32), torch.randn(3, 8)
    head.loss, head.chunk = (lambda logits, targets: logits.sum()), 2
    assert torch.equal(head(hidden), F.linear(hidden, head.weight, head.bias))


def test_a_model_of_transformers_has_the_loss_and_gradients_of_all_its_logits(found: dict[str, Any]) -> None:
    assert max(found["difference"]) < 1e-6


def test_a_model_that_changes_its_logits_keeps_them(found: dict[str, Any]) -> None:
    assert found["heads"] == {"llama": "Head", "gemma2": "Linear"}


def test_a_model_that_changes_its_logits_and_is_not_known_to_is_refused_with_what_to_set(found: dict[str, Any]) -> None:
    assert found["changed"] == "loss_chunk must be 0 for Doubled, which changes its head's logits, got 3"
    assert found["unchunked"]


def test_tokens_that_the_model_cannot_take_and_a_batch_beyond_an_epoch_are_refused(found: dict[str, Any]) -> None:
    assert [error.partition(" got ")[0] for error in found["refused"]] == [
        "context must be at most the model's positions, 32 in config.json,",
        "the channel tokens must have tokens below vocab_size in config.json, 64,",
        "batch_size must be at most the sequences of an epoch, 12,",
    ]


def test_a_step_whose_loss_overflows_is_an_error_and_with_fp16_left_out_as_by_gradscaler(found: dict[str, Any]) -> None:
    assert "the loss is not finite, so that the weights are not updated" in found["overflowing"]["bf16"]
    assert found["overflowing"]["fp16"] == [False, float("inf"), True, 2.0**15]
