"""Prints how many times as long a gradient is that trl's trainers accumulate over four batches, by trainer, as JSON.

The folder `release` is on its path.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import warnings
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from measure_accumulation import first_norm, one_step
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast

WORDS = ["<pad>", "<eos>", *(f"w{number}" for number in range(60))]
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
CONFIG = LlamaConfig(vocab_size=64, **SIZES, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, num_labels=1)


def text(length: int) -> str:
    return " ".join(random.choices(WORDS[2:], k=length))


def rewards(completions: list[str], **_: object) -> list[float]:
    return [float(number) for number, _ in enumerate(completions)]


def norm(name: str, accumulated: int, folder: str, samples: Dataset) -> float:
    torch.manual_seed(1)
    more: dict[str, Any] = {"num_generations": 2, "max_completion_length": 4} if name == "GRPO" else {}
    args = getattr(trl, f"{name}Config")(**one_step(folder, 8, accumulated), bf16=False, **more)
    given: dict[str, Any] = {"reward_funcs": rewards} if name == "GRPO" else {}
    model = LlamaForSequenceClassification(CONFIG) if name == "Reward" else folder
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    trainer = getattr(trl, f"{name}Trainer")(
        model=model, args=args, train_dataset=samples, processing_class=tokenizer, **given
    )
    return first_norm(trainer)


def main() -> None:
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    random.seed(0)
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    pairs = {"chosen": [text(6) for _ in range(8)], "rejected": [text(6) for _ in range(8)]}
    samples = {
        "SFT": Dataset.from_dict({"text": [text(8) for _ in range(8)]}),
        "DPO": Dataset.from_dict({"prompt": [text(4) for _ in range(8)], **pairs}),
        "GRPO": Dataset.from_dict({"prompt": [text(4) for _ in range(8)]}),
        "Reward": Dataset.from_dict(pairs),
    }
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(1)
        LlamaForCausalLM(CONFIG).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)
        lengths = {name: norm(name, 4, folder, of) / norm(name, 1, folder, of) for name, of in samples.items()}
    print(json.dumps(lengths), file=sys.stderr)


main()
