"""Prints how many times as long a gradient is that transformers' Trainer accumulates over four batches of two, as JSON.

    python release/measure_accumulation.py

The measure is one batch of the same eight samples, whose mean loss has the same gradient: it is 1 where the library is right.
By class of a model, and by who computes the loss: "model"; "label_smoothing_factor"; a Trainer's own "compute_loss" or a
"compute_loss_func", each the mean of a batch; or "num_items_in_batch", such a function that divides the sum by that.
`accumulation_table.py` runs it with each version.
"""

from __future__ import annotations

import gc
import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

_WORDS, _LENGTH = 64, 12
_SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BERT = {"vocab_size": _WORDS, **_SIZES, **_NO_DROPOUT}
_LLAMA = {"vocab_size": _WORDS, **_SIZES, "num_key_value_heads": 2, "pad_token_id": 0}
_DISTIL = {
    **{"vocab_size": _WORDS, "dim": 16, "hidden_dim": 32, "n_layers": 1, "n_heads": 2},
    **{"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
}
_PAIR = {
    **{
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    },
    **{"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "dropout": 0.0, "vocab_size": _WORDS},
}
_OPT = {
    **{"vocab_size": _WORDS, "hidden_size": 16, "ffn_dim": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"word_embed_proj_dim": 16, "dropout": 0.0},
}
_T5 = {"vocab_size": _WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "dropout_rate": 0.0}
_GPT2 = {
    "vocab_size": _WORDS,
    "n_embd": 16,
    "n_layer": 1,
    "n_head": 2,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
_IMAGES = {**_SIZES, **_NO_DROPOUT, "image_size": 16, "patch_size": 8}
# By the class that makes a model of a name: the models, each with its configuration and what that has.
HEADS: Mapping[str, Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "AutoModelForCausalLM": {
        "LlamaForCausalLM": ("LlamaConfig", _LLAMA),
        "GPT2LMHeadModel": ("GPT2Config", _GPT2),
        "OPTForCausalLM": ("OPTConfig", _OPT),
    },
    "AutoModelForSequenceClassification": {
        "BertForSequenceClassification": ("BertConfig", _BERT),
        "DistilBertForSequenceClassification": ("DistilBertConfig", _DISTIL),
        "LlamaForSequenceClassification": ("LlamaConfig", _LLAMA),
    },
    "AutoModelForTokenClassification": {
        "BertForTokenClassification": ("BertConfig", _BERT),
        "DistilBertForTokenClassification": ("DistilBertConfig", _DISTIL),
    },
    "AutoModelForQuestionAnswering": {
        "BertForQuestionAnswering": ("BertConfig", _BERT),
        "DistilBertForQuestionAnswering": ("DistilBertConfig", {**_DISTIL, "qa_dropout": 0.0}),
    },
    "AutoModelForMaskedLM": {
        "BertForMaskedLM": ("BertConfig", _BERT),
        "DistilBertForMaskedLM": ("DistilBertConfig", _DISTIL),
    },
    "AutoModelForMultipleChoice": {
        "BertForMultipleChoice": ("BertConfig", _BERT),
    },
    "AutoModelForSeq2SeqLM": {
        "T5ForConditionalGeneration": ("T5Config", {**_T5, "decoder_start_token_id": 0}),
        "BartForConditionalGeneration": ("BartConfig", _PAIR),
    },
    "AutoModelForSpeechSeq2Seq": {
        "WhisperForConditionalGeneration": (
            "WhisperConfig",
            {
                **{
                    **_PAIR,
                    "num_mel_bins": 8,
                    "max_source_positions": 10,
                    "max_target_positions": 32,
                    "pad_token_id": 0,
                },
                **{"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
            },
        ),
    },
    "AutoModelForImageClassification": {
        "ViTForImageClassification": ("ViTConfig", _IMAGES),
        "BeitForImageClassification": ("BeitConfig", {**_IMAGES, "drop_path_rate": 0.0}),
    },
}
_ACCUMULATED = 4


class _OwnLoss(Trainer):  # type: ignore[misc]
    """Computes a batch's mean loss itself, as transformers' pages have it."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):  # type: ignore[no-untyped-def]
        outputs = model(**inputs)
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]


def mean_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: object = None) -> torch.Tensor:
    """The mean loss of a batch, which does not ask how many items the accumulated ones have."""
    return cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten())


def divided_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """The losses of a batch, divided by how many items the accumulated ones have."""
    total = cross_entropy(outputs["logits"].flatten(0, -2), labels.flatten(), reduction="sum")
    return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


WAYS: Mapping[str, tuple[type[Trainer], Mapping[str, object], Mapping[str, object]]] = {
    "model": (Trainer, {}, {}),
    "label_smoothing_factor": (Trainer, {}, {"label_smoothing_factor": 0.1}),
    "compute_loss": (_OwnLoss, {}, {}),
    "compute_loss_func": (Trainer, {"compute_loss_func": mean_loss}, {}),
    "num_items_in_batch": (Trainer, {"compute_loss_func": divided_loss}, {}),
}


def samples_of(head: str) -> list[dict[str, Any]]:
    """Eight samples of a kind of model, with as many labels each."""
    torch.manual_seed(0)

    def words(*sizes: int) -> torch.Tensor:
        return torch.randint(3, _WORDS, sizes or (_LENGTH,))

    def position(end: int) -> int:
        return int(torch.randint(0, end, ()))

    of_words: dict[str, Callable[[], dict[str, Any]]] = {
        "AutoModelForSequenceClassification": lambda: {"input_ids": words(), "labels": position(2)},
        "AutoModelForTokenClassification": lambda: {"input_ids": words(), "labels": words() % 2},
        "AutoModelForQuestionAnswering": lambda: {
            "input_ids": words(),
            "start_positions": position(_LENGTH),
            "end_positions": position(_LENGTH),
        },
        "AutoModelForMultipleChoice": lambda: {"input_ids": words(2, _LENGTH), "labels": position(2)},
        # As DataCollatorForSeq2Seq adds them: a Trainer with a loss of its own takes the labels from the model.
        "AutoModelForSeq2SeqLM": lambda: {"input_ids": words(), "labels": words(), "decoder_input_ids": words()},
        "AutoModelForSpeechSeq2Seq": lambda: {
            "input_features": torch.randn(8, 20),
            "labels": words(6),
            "decoder_input_ids": words(6),
        },
        "AutoModelForImageClassification": lambda: {"pixel_values": torch.randn(3, 16, 16), "labels": position(2)},
    }
    made = of_words.get(head, lambda: {"input_ids": words(), "labels": words()})
    return [made() for _ in range(8)]


def one_step(folder: str, samples: int, accumulated: int) -> dict[str, Any]:
    """The arguments of a training of one step, with so many batches, whose gradient is not clipped."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": samples // accumulated,
        "gradient_accumulation_steps": accumulated,
        "max_steps": 1,
        "logging_steps": 1,
        "max_grad_norm": 1e9,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }


def norm(way: str, model: Any, samples: list[dict[str, Any]], accumulated: int, folder: str) -> float:
    """The norm of the first step's gradient."""
    trainer_class, of_trainer, of_arguments = WAYS[way]
    arguments = TrainingArguments(**one_step(folder, len(samples), accumulated), **of_arguments)
    return first_norm(trainer_class(model=model, args=arguments, train_dataset=samples, **of_trainer))


def first_norm(trainer: Trainer) -> float:
    """Train, and return the norm of the first step's gradient."""
    trainer.train()
    return float(next(row["grad_norm"] for row in trainer.state.log_history if "grad_norm" in row))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    gc.freeze()  # each training ends with a collection, of all that is imported too
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for head, models in HEADS.items():
            samples = samples_of(head)
            for name, (config, sizes) in models.items():
                for way in WAYS:
                    if way != "model" and "labels" not in samples[0]:
                        continue  # the labels are of another name, which these do not read
                    if not {*WAYS[way][1]} <= {*inspect.signature(Trainer).parameters}:
                        continue  # as in transformers 4.45
                    norms = []
                    for accumulated in (1, _ACCUMULATED):
                        torch.manual_seed(1)
                        model = getattr(transformers, name)(getattr(transformers, config)(**sizes))
                        norms.append(norm(way, model, samples, accumulated, folder))
                    found.setdefault(name, {})[way] = norms[1] / norms[0]
    json.dump({"version": transformers.__version__, "lengths": found}, sys.stdout)


if __name__ == "__main__":
    main()
