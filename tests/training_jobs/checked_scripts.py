"""Scripts that go on where they were after an interruption, and what a careful person gets wrong, each a change of the text.

`test_check.py` runs them whole and interrupted, so that it is PyTorch that says which are wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from distributed_scripts import changed

from training_jobs.lint import Job

SPOT = Job(entry_point="train.py", hosts=1, processes_per_host=1, launched=False, spot=True)

BY_HAND = """
import os
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

folder, epochs = Path(sys.argv[1]), 6


def main():
    torch.manual_seed(7)
    inputs = torch.randn(32, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    first = 0
    if (folder / "last.pt").exists():
        last = torch.load(folder / "last.pt")
        model.load_state_dict(last["model"])
        optimizer.load_state_dict(last["optimizer"])
        scheduler.load_state_dict(last["scheduler"])
        first = last["epoch"] + 1
    for epoch in range(first, epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = (model(images) - labels).square().mean()
            loss.backward()
            optimizer.step()
        scheduler.step()
        last = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
        last["epoch"] = epoch
        torch.save(last, folder / "new.pt")
        os.replace(folder / "new.pt", folder / "last.pt")


if __name__ == "__main__":
    main()
"""
ACCELERATE = """
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

folder, epochs = Path(sys.argv[1]), 6


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(7)
    inputs = torch.randn(32, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=16)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    first = 0
    if any(folder.iterdir()):
        first = max(int(one.name.removeprefix("epoch-")) for one in folder.iterdir())
        accelerator.load_state(folder / f"epoch-{first}")
    for epoch in range(first, epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            accelerator.backward((model(images) - labels).square().mean())
            optimizer.step()
            scheduler.step()
        accelerator.save_state(folder / f"epoch-{epoch + 1}")


if __name__ == "__main__":
    main()
"""
TRAINER = """
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


def main():
    torch.manual_seed(7)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=8, **sizes))
    rows = [{"input_ids": torch.randint(0, 8, (4,)), "labels": torch.tensor(one % 2)} for one in range(32)]
    arguments = TrainingArguments(
        output_dir=sys.argv[1],
        num_train_epochs=3,
        per_device_train_batch_size=8,
        warmup_steps=4,
        save_steps=3,
        use_cpu=True,
        report_to=[],
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))


if __name__ == "__main__":
    main()
"""
KERAS = """
import os
import sys

import keras
import numpy as np

epoch, file = 0, f"{sys.argv[1]}/last.keras"
keras.utils.set_random_seed(7)
inputs = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.1), "mse")
if os.path.exists(file):
    model = keras.models.load_model(file)
    epoch = int(model.optimizer.iterations) // 2
kept = keras.callbacks.ModelCheckpoint(file)
model.fit(inputs, inputs.sum(1), batch_size=16, shuffle=False, epochs=6, initial_epoch=epoch, callbacks=[kept])
"""
LIGHTNING = """
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint

trainer = lightning.Trainer(max_epochs=9, callbacks=[ModelCheckpoint("/opt/ml/checkpoints", save_last=True)])
trainer.fit(model, images, ckpt_path="last")
"""
OPTIONS = """
import os

from transformers import HfArgumentParser, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

[arguments] = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
last = None
if os.path.isdir(arguments.output_dir) and not arguments.overwrite_output_dir:
    last = get_last_checkpoint(arguments.output_dir)
trainer = Trainer(args=arguments, train_dataset=[])
trainer.train(resume_from_checkpoint=last)
"""
TRAIN = "    trainer.train(resume_from_checkpoint=get_last_checkpoint(arguments.output_dir))\n"
SAVE = '        torch.save(last, folder / "new.pt")\n        os.replace(folder / "new.pt", folder / "last.pt")\n'
LOAD = """    if (folder / "last.pt").exists():
        last = torch.load(folder / "last.pt")
"""
NUMBERED = (
    ("epochs = Path(sys.argv[1]), 6", "epochs = Path(sys.argv[1]), 20"),
    (SAVE, '        torch.save(last, folder / f"epoch-{epoch}.pt")\n'),
    (
        LOAD,
        """    if any(folder.iterdir()):
        number = max(int(one.stem.removeprefix("epoch-")) for one in folder.iterdir())
        last = torch.load(folder / f"epoch-{number}.pt")
""",
    ),
)


class Plant(NamedTuple):
    """A mistake.

    Attributes:
        rule: The rule that finds it; "" where none does.
        script: The right script, before `also`.
        right: What it has.
        wrong: What it has in its place; the line with ``# HERE`` is found.
        says: What `check` says of it: subjects, and a part of what it says of each; None where it is not run.
        also: Changes of the right script too.
    """

    rule: str
    script: str
    right: str
    wrong: str
    says: dict[str, str] | None
    also: tuple[tuple[str, str], ...] = ()

    def scripts(self) -> tuple[str, str]:
        """The right script and the wrong one."""
        right = changed(self.script, *self.also)
        return right, changed(right, (self.right, self.wrong))


STARTS = {"parameters": "those at the begin", "steps": "again, where"}
NO_STATE = {"optimizer": "begins without its state", "schedule": "lr is"}
PLANTS: dict[str, Plant] = {
    "nothing is loaded": Plant(
        "checkpoint",
        BY_HAND,
        BY_HAND[BY_HAND.index("    if (folder") : BY_HAND.index("        for images")],
        "    for epoch in range(first, epochs):\n",
        STARTS,
        also=(("        for images, labels in loader:\n", "        for images, labels in loader:  # HERE\n"),),
    ),
    "a Trainer that resumes nothing": Plant("checkpoint", TRAINER, TRAIN, "    trainer.train()  # HERE\n", STARTS),
    "Lightning without ckpt_path": Plant(
        "checkpoint",
        LIGHTNING,
        'trainer.fit(model, images, ckpt_path="last")',
        "trainer.fit(model, images)  # HERE",
        None,
    ),
    "saved after the loop": Plant(
        "saved-at-end",
        BY_HAND,
        SAVE,
        '    torch.save(last, folder / "new.pt")  # HERE\n    os.replace(folder / "new.pt", folder / "last.pt")\n',
        {"checkpoint": "before the last step"},
    ),
    "epochs from 0": Plant(
        "epochs-again",
        BY_HAND,
        "    for epoch in range(first, epochs):\n",
        "    for epoch in range(epochs):  # HERE\n",
        {"steps": "where"},
    ),
    "epochs from 0 with accelerate": Plant(
        "epochs-again",
        ACCELERATE,
        "    for epoch in range(first, epochs):\n",
        "    for epoch in range(epochs):  # HERE\n",
        {"steps": "where"},
    ),
    "no optimizer": Plant(
        "optimizer-state",
        BY_HAND,
        '"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}\n        last["epoch"] = epoch\n'
        '        torch.save(last, folder / "new.pt")\n',
        '"scheduler": scheduler.state_dict()}\n        last["epoch"] = epoch\n'
        '        torch.save(last, folder / "new.pt")  # HERE\n',
        NO_STATE,
        also=(
            (
                '        optimizer.load_state_dict(last["optimizer"])\n',
                '        load(optimizer, last.get("optimizer"))\n',
            ),
            (
                "def main():\n",
                "def load(it, state):\n    if state is not None:\n        it.load_state_dict(state)\n\n\ndef main():\n",
            ),
        ),
    ),
    "no scheduler": Plant(
        "scheduler-state",
        BY_HAND,
        '0.9)\n    first = 0\n    if (folder / "last.pt").exists():\n        last = torch.load(folder / "last.pt")\n'
        '        model.load_state_dict(last["model"])\n        optimizer.load_state_dict(last["optimizer"])\n'
        '        scheduler.load_state_dict(last["scheduler"])\n',
        '0.9)  # HERE\n    first = 0\n    if (folder / "last.pt").exists():\n        last = torch.load(folder / "last.pt")\n'
        '        model.load_state_dict(last["model"])\n        optimizer.load_state_dict(last["optimizer"])\n',
        {"schedule": "lr is"},
        also=(("ExponentialLR(optimizer, 0.9)", "StepLR(optimizer, 4, 0.9)"),),
    ),
    "a scheduler that accelerate does not save": Plant(
        "scheduler-state",
        ACCELERATE,
        "**step)\n    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
        "**step)  # HERE\n    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        {"schedule": "lr is"},
    ),
    "the last of the names": Plant(
        "newest-by-name",
        BY_HAND,
        '        number = max(int(one.stem.removeprefix("epoch-")) for one in folder.iterdir())\n'
        '        last = torch.load(folder / f"epoch-{number}.pt")\n',
        "        last = torch.load(sorted(folder.iterdir())[-1])  # HERE\n",
        {"parameters": "though step"},
        also=NUMBERED,
    ),
    "the model alone": Plant(
        "save-only-model",
        TRAINER,
        "    arguments = TrainingArguments(\n        output_dir=sys.argv[1],\n",
        "    arguments = TrainingArguments(  # HERE\n        output_dir=sys.argv[1],\n        save_only_model=True,\n",
        NO_STATE,
    ),
    "a first start that resumes": Plant(
        "no-checkpoint-yet",
        TRAINER,
        TRAIN,
        "    trainer.train(resume_from_checkpoint=True)  # HERE\n",
        {"script": "No valid checkpoint found"},
    ),
    "Keras from epoch 0": Plant(
        "initial-epoch",
        KERAS,
        "initial_epoch=epoch, callbacks=[kept])\n",
        "callbacks=[kept])  # HERE\n",
        {"steps": "again"},
    ),
    "half of the parameters": Plant(
        "",
        BY_HAND,
        '        model.load_state_dict(last["model"])\n',
        '        model.load_state_dict({"weight": last["model"]["weight"]}, strict=False)\n',
        {"parameters": "but for bias"},
    ),
    "parameters of bfloat16": Plant(
        "",
        BY_HAND,
        'last = {"model": model.state_dict(),',
        'last = {"model": {name: one.bfloat16() for name, one in model.state_dict().items()},',
        {"parameters": "rounded to bfloat16"},
    ),
    "names of a wrapper": Plant(
        "",
        BY_HAND,
        'last = {"model": model.state_dict(),',
        'last = {"model": {f"module.{name}": one for name, one in model.state_dict().items()},',
        {"parameters": "those at the begin"},
        also=(('load_state_dict(last["model"])', 'load_state_dict(last["model"], strict=False)'),),
    ),
    "a folder that is not kept": Plant(
        "",
        BY_HAND,
        "folder, epochs = Path(sys.argv[1]), 6",
        'folder, epochs = Path("."), 6',
        {"checkpoint": "none is saved"},
    ),
    "a file that is not kept": Plant(
        "",
        BY_HAND,
        "kept = folder\n",
        'kept = Path(".")\n',
        {"script": "FileNotFoundError"},
        also=(
            ("        last = torch.load(", '        (kept / "scale").read_text()\n        last = torch.load('),
            ("    for epoch in", '    (kept / "scale").write_text("1")\n    for epoch in'),
            ("epochs = Path(sys.argv[1]), 6\n", "epochs = Path(sys.argv[1]), 6\nkept = folder\n"),
        ),
    ),
}
