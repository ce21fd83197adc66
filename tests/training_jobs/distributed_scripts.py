"""A script that trains a model on two processes, and what a careful person gets wrong in it, each a change of its text.

`run_distributed_scripts.py` runs them in PyTorch, so that it is PyTorch that says which are wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from training_jobs.lint import Job

TORCHRUN = Job(entry_point="train.py", hosts=1, processes_per_host=2, launched=True)
WITHOUT = Job(entry_point="train.py", hosts=1, processes_per_host=1, launched=False)
TWO_HOSTS = Job(entry_point="train.py", hosts=2, processes_per_host=1)

SCRIPT = """
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def values(tensor):
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).flatten().tolist()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=5))
    rank = dist.get_rank()
    seen, norms = [], []
    torch.manual_seed(7)
    inputs = torch.randn(32, 4)
    images = TensorDataset(torch.arange(32), inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(images, shuffle=False)
    loader = DataLoader(images, batch_size=4, sampler=sampler)
    model = torch.nn.Linear(4, 1)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    begin = [one.detach().clone() for one in model.parameters()]
    for epoch in range(int(os.environ["EPOCHS"])):
        sampler.set_epoch(epoch)
        for numbers, images, labels in loader:
            optimizer.zero_grad()
            loss = (model(images) - labels).square().mean()
            loss.backward()
            optimizer.step()
            seen += numbers.tolist()
        last = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        if rank == 0:
            torch.save(last, "last.pt")
        dist.barrier()
    parameters, begin = ([values(one) for one in some] for some in (model.parameters(), begin))
    with open(sys.argv[1], "w") as file:
        json.dump({"parameters": parameters, "begin": begin, "seen": seen, "norms": norms}, file)


if __name__ == "__main__":
    main()
"""
OF_TENSORFLOW = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    model.compile("adam", "mse")
model.fit(images, epochs=3)
"""
STEP = "            loss.backward()\n            optimizer.step()\n"
SCALED = """            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            norms.append(torch.stack([one.grad.norm() for one in model.parameters()]).norm().item())
"""
OPTIMIZER = "    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)\n"
DDP = "    model = DistributedDataParallel(model)\n"


class Plant(NamedTuple):
    """A mistake.

    Attributes:
        rule: The rule that finds it.
        job: The job that has it.
        right: What the script has, after the changes of `also`.
        wrong: What it has in its place; the line with ``# HERE`` is found.
        also: Changes of the script, for the right one too.
        beside: More that the wrong one has in the place of others.
        of: The script that has it; "" for `SCRIPT`.
    """

    rule: str
    job: Job
    right: str
    wrong: str
    also: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str], ...] = ()
    of: str = ""

    def scripts(self) -> tuple[str, str]:
        """The right script and the wrong one."""
        right = changed(self.of or SCRIPT, *self.also)
        return right, changed(right, (self.right, self.wrong), *self.beside)


def changed(text: str, *changes: tuple[str, str]) -> str:
    """A script with other texts, each of which it has once."""
    for old, new in changes:
        assert text.count(old) == 1, (text.count(old), old)
        text = text.replace(old, new)
    return text


JOINED = '    dist.init_process_group("gloo", timeout=timedelta(seconds=5))\n    rank = dist.get_rank()\n'
# A script of one process, in place of the group's.
ALONE = (
    (DDP, ""),
    ("    sampler = DistributedSampler(images, shuffle=False)\n", ""),
    (", sampler=sampler", ""),
    ("        sampler.set_epoch(epoch)\n", ""),
    ("        dist.barrier()\n", ""),
)
LATE = """            late = torch.tensor(float(time.monotonic() > limit))
            dist.all_reduce(late)
            if late.item():
"""
HIGH = """            high = torch.tensor(float(loss.item() > 5))
            dist.all_reduce(high)
            if high.item():
"""
STATE = "state = {name: one.full_tensor() for name, one in model.state_dict().items()}"
LOOP = "        for numbers, images, labels in loader:\n"
FOUND_LOOP = LOOP.replace(":\n", ":  # HERE\n")
AS_SCALED = ((STEP, SCALED), ("    begin =", '    scaler = torch.amp.GradScaler("cpu")\n    begin ='))
SHARDED = (
    ("        last = {", "        last = 0  # {"),
    ('        if rank == 0:\n            torch.save(last, "last.pt")\n', ""),
)
NORM = "norms.append(torch.stack([one.grad.norm() for one in model.parameters()]).norm().item())\n"
NORMED = STEP.replace("            optimizer", f"            {NORM}            optimizer")
ACCUMULATED = f"""            (loss / accumulate).backward()
            if (step + 1) % accumulate == 0:
                {NORM}                optimizer.step()
                optimizer.zero_grad()
"""
PLANTS = {
    "a sum of gradients": Plant(
        "accumulates",
        TORCHRUN,
        "(loss / accumulate).backward()",
        "loss.backward()",
        (
            (LOOP, "        for step, (numbers, images, labels) in enumerate(loader):  # HERE\n"),
            ("            optimizer.zero_grad()\n", ""),
            (STEP, ACCUMULATED),
            ("    begin =", "    accumulate = 2\n    begin ="),
        ),
    ),
    "no wrapper": Plant("gradients", TORCHRUN, DDP + OPTIMIZER, OPTIMIZER, ((LOOP, FOUND_LOOP),)),
    "a loss that is averaged": Plant(
        "gradients",
        TORCHRUN,
        DDP + OPTIMIZER,
        OPTIMIZER,
        (
            (LOOP, FOUND_LOOP),
            ("            seen +=", "            dist.all_reduce(loss.detach())\n            seen +="),
        ),
    ),
    "no process group": Plant("process-group", TWO_HOSTS, JOINED, "    rank = 0\n", ((LOOP, FOUND_LOOP),), ALONE),
    "no sampler": Plant("samples", TORCHRUN, "sampler=sampler)", "shuffle=False)  # HERE"),
    "a sampler of all": Plant(
        "samples", TORCHRUN, "sampler=sampler)", "sampler=torch.utils.data.SequentialSampler(images))  # HERE"
    ),
    "clipped before it is unscaled": Plant(
        "unscale",
        TORCHRUN,
        "            scaler.unscale_(optimizer)\n            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # HERE\n",
        AS_SCALED,
    ),
    "gradients that are kept": Plant(
        "zero-grad", TORCHRUN, "            optimizer.zero_grad()\n", "", ((LOOP, FOUND_LOOP),)
    ),
    "an optimizer of what is sharded later": Plant(
        "sharded-later",
        TORCHRUN,
        "    fully_shard(model)\n" + OPTIMIZER,
        OPTIMIZER.replace("\n", "  # HERE\n") + "    fully_shard(model)\n",
        ((DDP, "    fully_shard(model)\n"), *SHARDED),
    ),
    "a barrier of rank 0": Plant(
        "collective",
        TORCHRUN,
        '            torch.save(last, "last.pt")\n        dist.barrier()\n',
        '            torch.save(last, "last.pt")\n            dist.barrier()  # HERE\n',
    ),
    "a barrier in a function that rank 0 calls": Plant(
        "collective",
        TORCHRUN,
        '        if rank == 0:\n            torch.save(last, "last.pt")\n        save()\n',
        '        if rank == 0:\n            torch.save(last, "last.pt")\n            save()  # HERE\n',
        (
            ("        dist.barrier()\n", "        save()\n"),
            ("def main():", "def save():\n    dist.barrier()\n\n\ndef main():"),
        ),
    ),
    "a barrier after the others return": Plant(
        "collective",
        TORCHRUN,
        "    dist.barrier()\n    if rank != 0:\n        return\n",
        "    if rank != 0:\n        return\n    dist.barrier()  # HERE\n",
        (
            (
                '        if rank == 0:\n            torch.save(last, "last.pt")\n        dist.barrier()\n',
                "        keep(last, rank)\n",
            ),
            (
                "def main():",
                "def keep(last, rank):\n    dist.barrier()\n    if rank != 0:\n        return\n"
                '    torch.save(last, "last.pt")\n\n\ndef main():',
            ),
        ),
    ),
    "the state of a sharded model on rank 0": Plant(
        "collective",
        TORCHRUN,
        f"        {STATE}\n",
        f"        if rank == 0:\n            {STATE}  # HERE\n",
        (
            (DDP, "    fully_shard(model)\n"),
            *SHARDED[1:],
            ('        last = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}\n', ""),
            (
                "        dist.barrier()\n",
                "        state = {name: one.full_tensor() for name, one in model.state_dict().items()}\n        dist.barrier()\n",
            ),
        ),
    ),
    "a group without a launcher": Plant(
        "launcher",
        WITHOUT,
        'dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)\n',
        'dist.init_process_group("gloo")  # HERE\n',
        (('"gloo", timeout=timedelta(seconds=5))', '"gloo", store=dist.HashStore(), rank=0, world_size=1)'),),
    ),
    "a rank without a launcher": Plant(
        "launcher",
        WITHOUT,
        '    rank = int(os.environ.get("RANK", "0"))\n',
        '    rank = int(os.environ["RANK"])  # HERE\n',
        ((JOINED, '    rank = int(os.environ.get("RANK", "0"))\n'), *ALONE),
    ),
    "as many ranks as hosts": Plant(
        "rank-of-host",
        TORCHRUN,
        JOINED,
        '    hosts = json.loads(os.environ["SM_HOSTS"])\n'
        '    os.environ["RANK"] = str(hosts.index(os.environ["SM_CURRENT_HOST"]))\n'
        '    os.environ["WORLD_SIZE"] = str(len(hosts))  # HERE\n' + JOINED,
    ),
    "a norm of shards": Plant(
        "clip-shards",
        TORCHRUN,
        "            norms.append(model.clip_grad_norm_(1e9).item())\n",
        "            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9).item())  # HERE\n",
        (
            (DDP, "    model = FullyShardedDataParallel(model, device_id=torch.device('cpu'))\n"),
            ("import fully_shard\n", "import FullyShardedDataParallel, fully_shard\n"),
            (
                "            optimizer.step()\n",
                "            norms.append(model.clip_grad_norm_(1e9).item())\n            optimizer.step()\n",
            ),
            ('        last = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}\n', ""),
            ('        if rank == 0:\n            torch.save(last, "last.pt")\n', ""),
        ),
    ),
    "a step that one process skips": Plant(
        "agree",
        TORCHRUN,
        HIGH,
        "            if loss.item() > 5:  # HERE\n",
        (
            (
                "            loss.backward()\n",
                f"{HIGH}                continue\n            loss.backward()\n",
            ),
        ),
    ),
    "an end by the clock of one process": Plant(
        "agree",
        TORCHRUN,
        LATE,
        "            if time.monotonic() > limit:  # HERE\n",
        (
            ("import sys\n", "import sys\nimport time\n"),
            ("    begin =", "    limit = time.monotonic() + (100 if rank else -1)\n    begin ="),
            (
                "            loss.backward()\n",
                f"{LATE}                break\n            loss.backward()\n",
            ),
        ),
    ),
    "a file of all": Plant(
        "writes",
        TORCHRUN,
        '        if rank == 0:\n            torch.save(last, "last.pt")\n',
        '        torch.save(last, "last.pt")  # HERE\n',
    ),
    "the first GPU": Plant(
        "one-device",
        TORCHRUN,
        "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n    model = model.cuda()\n",
        "    model = model.cuda()  # HERE\n",
        ((DDP, "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n    model = model.cuda()\n" + DDP),),
    ),
    "a strategy of one machine": Plant(
        "strategy",
        TWO_HOSTS,
        "MultiWorkerMirroredStrategy",
        "MirroredStrategy",
        (("model.fit(images, epochs=3)\n", "model.fit(images, epochs=3)  # HERE\n"),),
        of=OF_TENSORFLOW,
    ),
}
# Whether a file is cut short is by chance, there is no GPU, and TensorFlow is no PyTorch: these are held by their sources alone.
NOT_RUN = ("writes", "one-device", "strategy", "tf-config")
