"""What a careful person gets wrong with transformers' Trainer, as changes of scripts, which `run_trainer_scripts.py` runs."""

from __future__ import annotations

from dataclasses import replace

from distributed_scripts import Plant

from training_jobs.lint import Job

VERSION = "5.23.0"  # of transformers in requirements-jobs.txt
ONE = Job(entry_point="train.py", hosts=1, processes_per_host=1, launched=True, versions={"transformers": VERSION})
RANKS = replace(ONE, processes_per_host=2)
MODEL = "LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))"
TRAINER = "trainer = Trainer(model=model, args=args, train_dataset=samples)\n"
# Eight samples in a step, of which each has eleven labels after the first token.
SCRIPT = f"""
import json
import os
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM
from transformers import Trainer, TrainerCallback, TrainingArguments

SIZES = {{"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}}
torch.manual_seed(7)
samples = [{{"input_ids": ids, "labels": ids}} for ids in torch.randint(3, 64, (8, 12))]
args = TrainingArguments(
    "output",
    per_device_train_batch_size=2 // int(os.environ["WORLD_SIZE"]),
    gradient_accumulation_steps=4,
    max_steps=1,
    logging_steps=1,
    max_grad_norm=1e9,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
model = {MODEL}
{TRAINER}trainer.train()
with open(sys.argv[1], "w") as file:
    json.dump({{"norms": [one["grad_norm"] for one in trainer.state.log_history if "grad_norm" in one]}}, file)
"""
# The samples of a step in one batch: its gradient is what accumulating them must have.
WHOLE = (
    ("per_device_train_batch_size=2", "per_device_train_batch_size=8"),
    ("gradient_accumulation_steps=4", "gradient_accumulation_steps=1"),
)
OWN = ("trainer = Trainer(", "trainer = Own(")
LOSS = "    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(){})"
METHOD = """class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        logits, labels = model(inputs["input_ids"]).logits, inputs["labels"]
"""
MEAN = f"{METHOD}    {LOSS.format('')}\n\n\nSIZES ="
FUNCTION = """def loss_of(outputs, labels, num_items_in_batch=None):
    logits = outputs.logits
"""
GIVEN = ("train_dataset=samples)", "train_dataset=samples, compute_loss_func=loss_of)")
SUM = f"{LOSS.format(', reduction=@sum@').replace('@', chr(34))} / num_items_in_batch"
LOGS = """class Logs(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print(logs)


SIZES ="""
CLASSES = (
    (
        MODEL,
        "BertForSequenceClassification(BertConfig(**SIZES, hidden_dropout_prob=0, attention_probs_dropout_prob=0))",
    ),
    ('"labels": ids}', '"labels": int(ids[0]) % 2}'),
)
SAVES = """class Own(Trainer):
    def save_model(self, output_dir=None, _internal_call=False):
        super().save_model(output_dir)


SIZES ="""
TRAINER_PLANTS = {
    "a compute_loss without num_items_in_batch": Plant(
        "override",
        ONE,
        "return_outputs=False, num_items_in_batch=None):\n",
        "return_outputs=False):  # HERE\n",
        (("SIZES =", MEAN), OWN, ("_steps=4", "_steps=1")),
        of=SCRIPT,
    ),
    "a callback that takes no others": Plant(
        "override",
        ONE,
        "control, logs=None, **kwargs):\n",
        "control, logs=None):  # HERE\n",
        (("SIZES =", LOGS), ("train_dataset=samples)", "train_dataset=samples, callbacks=[Logs()])")),
        of=SCRIPT,
    ),
    "a save_model of older versions": Plant(
        "override",
        ONE,
        "output_dir=None, _internal_call=False):\n",
        "output_dir=None):  # HERE\n",
        (("SIZES =", SAVES), OWN, ('save_strategy="no"', 'save_strategy="steps", save_steps=1')),
        of=SCRIPT,
    ),
    "a loss function without num_items_in_batch": Plant(
        "override",
        ONE,
        "outputs, labels, num_items_in_batch=None):\n",
        "outputs, labels):\n",
        (("SIZES =", f"{FUNCTION}{LOSS.format('')}\n\n\nSIZES ="), GIVEN, ("_steps=4", "_steps=1")),
        ((GIVEN[1], f"{GIVEN[1]}  # HERE"),),
        of=SCRIPT,
    ),
    "the mean of a batch of those that are accumulated": Plant(
        "accumulated-loss",
        ONE,
        "trainer.model_accepts_loss_kwargs = False\n",
        "",
        (("SIZES =", MEAN), OWN, ("trainer.train()", "trainer.model_accepts_loss_kwargs = False\ntrainer.train()")),
        (("samples)\n", "samples)  # HERE\n"),),
        of=SCRIPT,
    ),
    "a loss function with such a mean": Plant(
        "accumulated-loss",
        ONE,
        ', reduction="sum") / num_items_in_batch',
        ")",
        (
            (
                "SIZES =",
                f"{FUNCTION}{SUM}\n\n\nSIZES =",
            ),
            GIVEN,
        ),
        ((GIVEN[1], f"{GIVEN[1]}  # HERE"),),
        of=SCRIPT,
    ),
    "batches of classes that are accumulated": Plant(
        "accumulated-loss",
        ONE,
        "trainer.model_accepts_loss_kwargs = False\n",
        "",
        (*CLASSES, ("trainer.train()", "trainer.model_accepts_loss_kwargs = False\ntrainer.train()")),
        (("samples)\n", "samples)  # HERE\n"),),
        of=SCRIPT,
    ),
    "the items of all processes, given to the model": Plant(
        "items-of-all",
        RANKS,
        ".loss * self.accelerator.num_processes\n",
        ".loss  # HERE\n",
        (
            (
                "SIZES =",
                METHOD.partition("        logits")[0]
                + "        more = inputs | {}\n        return model(**more, num_items_in_batch=num_items_in_batch)"
                ".loss * self.accelerator.num_processes\n\n\nSIZES =",
            ),
            OWN,
        ),
        of=SCRIPT,
    ),
    "the items of all processes": Plant(
        "items-of-all",
        RANKS,
        " / num_items_in_batch * self.accelerator.num_processes\n",
        " / num_items_in_batch  # HERE\n",
        (("SIZES =", f"{METHOD}    {SUM} * self.accelerator.num_processes\n\n\nSIZES ="), OWN),
        of=SCRIPT,
    ),
}
