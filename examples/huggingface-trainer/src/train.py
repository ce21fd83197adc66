"""Train a BERT to tell two kinds of sentences apart with Hugging Face's Trainer, whose step torch.compile compiles once.

On a laptop, in one process:     python examples/huggingface-trainer/src/train.py --compiler inductor
On SageMaker:                    the stack in app.py, whose compiler=TorchCompile() sets the compiler's variables

What AWS's pages on compilers want of such a script: a tokenizer that pads to one length (``padding="max_length"``), batches of
one size (``dataloader_drop_last``), logs every few steps. A guard, as a callback, ends the job before a step that would be
compiled again; ``--pad longest`` shows it. Sentences are lines ``0<TAB>text`` or ``1<TAB>text`` of ``sentences.tsv`` in the
channel ``text``; without it they are made. ``--model`` is a folder for ``from_pretrained``, with a tokenizer, else a small one.

It resumes from the last checkpoint.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from guard import Guard, compilations
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch.utils.data import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

SPECIAL = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
GOOD, BAD = ("good", "bright", "calm", "warm"), ("bad", "dull", "loud", "cold")
OTHERS = ("the", "film", "was", "a", "very", "and", "rather", "room", "day", "song", "seems", "quite")

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add("--steps", type=int, default=200)
    add("--batch-size", type=int, default=32, help="of each process")
    add("--learning-rate", type=float, default=1e-3)
    add("--length", type=int, default=32, help="tokens of each sentence")
    add("--pad", choices=("max_length", "longest"), default="max_length", help="longest: a bad example")
    add("--on-recompile", choices=("fail", "warn"), default="fail")
    add("--model", help="a folder of transformers, also a channel's")
    add("--log-every", type=int, default=10)
    add("--checkpoint-every", type=int, default=50)
    add("--seed", type=int, default=0)
    add("--compiler", default=os.environ.get("TRAINING_COMPILER", "none"), help="none or inductor")
    add("--compiler-mode", default=os.environ.get("TRAINING_COMPILER_MODE", "default"), help="torch.compile's")
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


class Sentences(Dataset[dict[str, Any]]):
    """Sentences and whether each is of the second kind."""

    def __init__(self, folder: Path | None, seed: int) -> None:
        if folder is None:
            self.pairs = made(random.Random(seed))
        else:
            lines = (line.split("\t", 1) for line in (folder / "sentences.tsv").read_text().splitlines())
            self.pairs = [(text, int(kind)) for kind, text in lines]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, number: int) -> dict[str, Any]:
        text, kind = self.pairs[number]
        return {"text": text, "label": kind}


def made(choice: random.Random) -> list[tuple[str, int]]:
    """2,000 sentences of 4 to 20 words, of which one says the kind."""
    found = []
    for number in range(2_000):
        words = choice.choices(OTHERS, k=choice.randint(3, 19))
        words.insert(choice.randrange(len(words)), choice.choice((GOOD, BAD)[number % 2]))
        found.append((" ".join(words), number % 2))
    return found


def tokenizer_of(sentences: Sentences, options: argparse.Namespace) -> Any:
    if options.model:
        return AutoTokenizer.from_pretrained(options.model)
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=[*SPECIAL.values()])
    tokenizer.train_from_iterator((text for text, _ in sentences.pairs), trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


# -- Model ------------------------------------------------------------------------------------------------------------


def model_of(tokenizer: Any, options: argparse.Namespace) -> Any:
    # Else the first forward sets it, by the labels, and a second one is compiled again: the guard says so.
    fixed = {"problem_type": "single_label_classification"}
    if options.model:
        return AutoModelForSequenceClassification.from_pretrained(options.model, **fixed)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    small = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=options.length, **sizes, **fixed)
    return AutoModelForSequenceClassification.from_config(small)


# -- Step -------------------------------------------------------------------------------------------------------------


class GuardedSteps(TrainerCallback):  # type: ignore[misc]
    """The guard of ``guard.py`` around each of Trainer's steps, and how long the first and the others take."""

    def __init__(self, fail: bool) -> None:
        self._guard, self._step, self._times = Guard(fail=fail), ExitStack(), list[float]()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._began = time.perf_counter()
        self._step.enter_context(self._guard.step(state.global_step + 1))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._step.close()
        self._times.append(time.perf_counter() - self._began)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        first, *others = self._times or [0.0]
        steady = sorted(others)[len(others) // 2] if others else 0.0
        print(f"compile time {first - steady:.3f} s, steady step {1000 * steady:.1f} ms", flush=True)
        print(f"compilations {compilations()}", flush=True)


class Log(TrainerCallback):  # type: ignore[misc]
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.6f}", flush=True)


# -- Run --------------------------------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> None:
    model = Path(os.environ.get("SM_MODEL_DIR", "output/model"))
    checkpoints, channel = model.parent / "checkpoints", os.environ.get("SM_CHANNEL_TEXT")
    sentences, compiled = Sentences(Path(channel) if channel else None, options.seed), options.compiler == "inductor"
    tokenizer = tokenizer_of(sentences, options)

    def batch_of(samples: list[dict[str, Any]]) -> Any:
        limits = {"padding": options.pad, "truncation": True, "max_length": options.length}
        batch = tokenizer([one["text"] for one in samples], return_tensors="pt", **limits)
        return {**batch, "labels": batch["input_ids"].new_tensor([one["label"] for one in samples])}

    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        learning_rate=options.learning_rate,
        lr_scheduler_type="constant",
        dataloader_drop_last=True,
        logging_steps=options.log_every,
        logging_nan_inf_filter=False,  # which reads the loss in each step
        save_steps=options.checkpoint_every,
        save_total_limit=2,
        seed=options.seed,
        torch_compile=compiled,
        torch_compile_mode=options.compiler_mode if compiled else None,
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    guard = [GuardedSteps(options.on_recompile == "fail")] if compiled else []
    trainer = Trainer(model_of(tokenizer, options), arguments, batch_of, sentences, callbacks=[Log(), *guard])
    resumed = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    trainer.train(resume_from_checkpoint=resumed)
    if trainer.is_world_process_zero():
        trainer.save_model(str(model))
        tokenizer.save_pretrained(str(model))


def main() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # which a loader's processes would warn of
    train(config())


if __name__ == "__main__":
    main()
