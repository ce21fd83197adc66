"""Scripts of two hosts that read a channel of which each host has a share, or all, and what a careful person gets wrong in them.

`run_distributed_scripts.py` runs them in PyTorch, transformers and accelerate, with the folders that SageMaker would give hosts.
"""

from __future__ import annotations

from dataclasses import replace

from distributed_scripts import FOUND_LOOP, LOOP, SCRIPT, Plant, changed

from training_jobs.lint import Job

REPLICATED = Job(entry_point="train.py", hosts=2, processes_per_host=2, launched=True, channels=("train", "validation"))
SHARDED = replace(REPLICATED, sharded=("train",))
ALONE = replace(SHARDED, processes_per_host=1)  # on its host

IMAGES = "    images = TensorDataset(torch.arange(32), inputs, inputs.sum(1, keepdim=True))\n"
FOLDER = 'os.environ["SM_CHANNEL_TRAIN"]'
OF_CHANNEL = f"""    numbers = torch.tensor(sorted(map(int, os.listdir({FOLDER}))))
    images = TensorDataset(numbers, inputs[numbers], inputs[numbers].sum(1, keepdim=True))
"""
ALIKE = """        least = torch.tensor(len(loader))
        dist.all_reduce(least, dist.ReduceOp.MIN)
        for numbers, images, labels in itertools.islice(loader, least.item()):
"""
READS = changed(
    SCRIPT,
    (IMAGES, OF_CHANNEL),
    ("batch_size=4", "batch_size=2"),
    (LOOP, ALIKE),
    ("import json\n", "import itertools\nimport json\n"),
)
SAMPLER = "    sampler = DistributedSampler(images, shuffle=False)\n"
AGAIN = SAMPLER.replace("\n", "  # HERE\n")
OF_HOST = SAMPLER.replace(
    "images,",
    'images, num_replicas=int(os.environ["LOCAL_WORLD_SIZE"]), rank=int(os.environ["LOCAL_RANK"]),',
)
NO_SAMPLER = ("sampler=sampler)", "shuffle=False)")
NO_EPOCHS = ("        sampler.set_epoch(epoch)\n", "")
# The folder as an option, which a function is given.
AS_OPTION = (
    (
        OF_CHANNEL,
        "    images = images_of(parsed().train, inputs)\n",
    ),
    (
        "def main():",
        "def parsed():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('output')\n"
        f"    parser.add_argument('--train', default={FOLDER})\n    return parser.parse_args()\n\n\n"
        "def images_of(folder, inputs):\n    numbers = torch.tensor(sorted(map(int, os.listdir(folder))))\n"
        "    return TensorDataset(numbers, inputs[numbers], inputs[numbers].sum(1, keepdim=True))\n\n\ndef main():",
    ),
    ("import itertools\n", "import argparse\nimport itertools\n"),
)
BY_TRAINER = f"""
import json
import os
import sys

import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments

seen = []


class Numbers(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.numbers = sorted(map(int, os.listdir(folder)))

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        return {{"numbers": torch.tensor(self.numbers[index])}}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, numbers):
        seen.extend(numbers.tolist())
        return {{"loss": self.layer(numbers[:, None].float()).square().mean()}}


args = TrainingArguments("output", per_device_train_batch_size=2, num_train_epochs=int(os.environ["EPOCHS"]), report_to=[],
                         use_cpu=True, save_strategy="no", disable_tqdm=True)
train = Numbers({FOLDER})
trainer = Trainer(model=Model(), args=args, train_dataset=train, eval_dataset=train)
trainer.train()
with open(sys.argv[1], "w") as file:
    json.dump({{"seen": seen}}, file)
"""
BY_ACCELERATE = f"""
import json
import os
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
numbers = torch.tensor(sorted(map(int, os.listdir({FOLDER}))))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(numbers), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
seen = []
for epoch in range(int(os.environ["EPOCHS"])):
    for (batch,) in loader:
        optimizer.zero_grad()
        accelerator.backward(model(batch[:, None].float()).square().mean())
        optimizer.step()
        seen += batch.tolist()
with open(sys.argv[1], "w") as file:
    json.dump({{"seen": seen}}, file)
"""
OF_LIGHTNING = f"""
import os

import lightning

numbers = read({FOLDER})
trainer = lightning.Trainer(max_epochs=3, num_nodes=2)
trainer.fit(Model(), loader_of(numbers))
"""
OF_KERAS = f"""
import os

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
images = tf.data.Dataset.list_files({FOLDER} + "/*").map(read).batch(8)
with strategy.scope():
    model = built()
model.fit(images, epochs=3)
"""
# Scripts that a library trains, whose samples it deals out: the mistake is in the job, on the line with ``# HERE``.
OF_LIBRARIES = {
    "transformers": changed(BY_TRAINER, ("Trainer(model=Model()", "Trainer(  # HERE\n    model=Model()")),
    "accelerate": changed(
        BY_ACCELERATE, ("prepare(model, optimizer, loader)", "prepare(model, optimizer, loader)  # HERE")
    ),
    "Lightning": changed(OF_LIGHTNING, ("loader_of(numbers))", "loader_of(numbers))  # HERE")),
    "Keras": changed(OF_KERAS, ("epochs=3)", "epochs=3)  # HERE")),
}
RUN_LIBRARIES = ("transformers", "accelerate")
# What leaves the samples of these as they are.
NOT_DEALT = {
    "Lightning": ("num_nodes=2", "num_nodes=2, use_distributed_sampler=False"),
    "Keras": (
        "with strategy",
        "options = tf.data.Options()\n"
        "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF\n"
        "images = images.with_options(options)\nwith strategy",
    ),
}
SHARDS = """class Sharded(TensorDataset):
    def shard(self, number, index):
        return Sharded(*(one[index::number] for one in self.tensors))


def values("""
ON_HOST = """    images = images.shard(int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["LOCAL_RANK"]))
"""
OF_WORKER = "        numbers = numbers[get_worker_info().id :: get_worker_info().num_workers]\n"
OF_RANK = "        numbers = numbers[dist.get_rank() :: dist.get_world_size()]\n"
ITERABLE = (
    (OF_CHANNEL, f"    images = Files({FOLDER})\n"),
    (SAMPLER, ""),
    NO_EPOCHS,
    ("sampler=sampler)", "num_workers=2)"),
    ("TensorDataset\n", "IterableDataset, TensorDataset, get_worker_info\n"),
    (ALIKE, LOOP),
    (
        "def values(",
        "class Files(IterableDataset):\n    def __init__(self, folder):\n        self.folder = folder\n\n"
        "    def __iter__(self):\n        numbers = sorted(map(int, os.listdir(self.folder)))\n"
        "        for number in numbers:\n            yield number, torch.ones(4), torch.ones(1)\n\n\ndef values(",
    ),
)
STREAMED = f"""    files = [os.path.join({FOLDER}, name) for name in os.listdir({FOLDER})]
    images = load_dataset("text", data_files=files, split="train", streaming=True)
"""
BY_NODE = "    images = split_dataset_by_node(images, dist.get_rank(), dist.get_world_size())\n"
COLLATED = """def collated(rows):
    return torch.tensor([int(row["text"]) for row in rows]), torch.ones(len(rows), 4), torch.ones(len(rows), 1)


def values("""
SHARE_PLANTS = {
    "a share dealt out among all hosts": Plant("shares", SHARDED, OF_HOST, AGAIN, ((SAMPLER, OF_HOST),), of=READS),
    "a share of an option's folder": Plant(
        "shares", SHARDED, OF_HOST, AGAIN, ((SAMPLER, OF_HOST), *AS_OPTION), of=READS
    ),
    "a share dealt out among hosts of one process": Plant(
        "shares",
        ALONE,
        "batch_size=2, shuffle=False)",
        "batch_size=2, sampler=DistributedSampler(images, shuffle=False))  # HERE",
        (NO_SAMPLER, (SAMPLER, ""), NO_EPOCHS),
        of=READS,
    ),
    "a share dealt out by its shards": Plant(
        "shares",
        SHARDED,
        ON_HOST,
        ON_HOST.replace("LOCAL_", "").replace("\n", "  # HERE\n"),
        (
            (SAMPLER, ON_HOST),
            ("    images = TensorDataset(numbers,", "    images = Sharded(numbers,"),
            ("def values(", SHARDS),
            NO_SAMPLER,
            NO_EPOCHS,
        ),
        of=READS,
    ),
    "all samples dealt out on each host": Plant(
        "sampler-of-host", REPLICATED, SAMPLER, OF_HOST.replace("\n", "  # HERE\n"), of=READS
    ),
    "as many steps as a share has": Plant("uneven-shares", SHARDED, ALIKE, FOUND_LOOP, ((SAMPLER, OF_HOST),), of=READS),
    "workers of an iterable data set": Plant(
        "workers-repeat",
        replace(REPLICATED, hosts=1, processes_per_host=1),
        OF_WORKER,
        "",
        (*ITERABLE, ("        for number in numbers:", OF_WORKER + "        for number in numbers:")),
        (("num_workers=2)", "num_workers=2)  # HERE"),),
        of=READS,
    ),
    "an iterable data set on each process": Plant(
        "samples",
        REPLICATED,
        OF_RANK,
        "",
        (
            *ITERABLE,
            ("        for number in numbers:", OF_RANK + "        for number in numbers:"),
            (", num_workers=2", ""),
        ),
        (("batch_size=2)", "batch_size=2)  # HERE"),),
        of=READS,
    ),
    "a stream on each process": Plant(
        "samples",
        REPLICATED,
        BY_NODE,
        "",
        (
            (OF_CHANNEL, STREAMED),
            ("    loader =", BY_NODE + "    loader ="),
            ("sampler=sampler)", "collate_fn=collated)"),
            (SAMPLER, ""),
            NO_EPOCHS,
            (ALIKE, LOOP),
            (
                "import torch\n",
                "import torch\nfrom datasets import load_dataset\nfrom datasets.distributed import split_dataset_by_node\n",
            ),
            ("def values(", COLLATED),
        ),
        (("collate_fn=collated)", "collate_fn=collated)  # HERE"),),
        of=READS,
    ),
    "a share without a sampler": Plant(
        "samples", SHARDED, "sampler=sampler)", "shuffle=False)  # HERE", ((SAMPLER, OF_HOST),), of=READS
    ),
}
