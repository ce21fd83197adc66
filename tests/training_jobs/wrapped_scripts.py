"""What a careful person gets wrong with a model that is wrapped, prepared or moved, as changes of scripts.

`run_wrapped_scripts.py` runs them in PyTorch and in accelerate.
"""

from __future__ import annotations

from dataclasses import replace

from distributed_scripts import (
    DDP,
    LOOP,
    NORM,
    NORMED,
    OPTIMIZER,
    SHARDED,
    STEP,
    TORCHRUN,
    Plant,
)
from share_scripts import OF_LIBRARIES, RUN_LIBRARIES

from training_jobs.lint import Job

HOSTS = Job(entry_point="train.py", hosts=2, processes_per_host=1, launched=True, device="cpu")
NOT_LAUNCHED = replace(HOSTS, launched=False)
GPUS = Job(entry_point="train.py", hosts=1, processes_per_host=1)  # of one process
GPU_HOSTS = Job(entry_point="train.py", hosts=2, processes_per_host=8, launched=True)
ALONE = Job(entry_point="train.py", hosts=1, processes_per_host=1)

FORWARD = "            loss = (model(images) - labels).square().mean()\n"
# The weights that a checkpoint would have, which are not those that the model begins with.
WEIGHTS = "{name: 2 * one for name, one in model.state_dict().items()}"
LOADED = f"model.load_state_dict({WEIGHTS})"
OTHER = "optimizer.load_state_dict(torch.optim.Adam(model.parameters(), lr=0.3).state_dict())"
ADDED = f"""            loss.backward()
            for one in model.parameters():
                dist.all_reduce(one.grad)
                one.grad /= dist.get_world_size()
            {NORM}            optimizer.step()
"""
TRAINED = """def trained(model, loader, optimizer, seen):
    for numbers, images, labels in loader:
        optimizer.zero_grad()
        loss = (model(images) - labels).square().mean()
        loss.backward()
        optimizer.step()
        seen += numbers.tolist()


def main():"""
LOOPED = f"""{LOOP}            optimizer.zero_grad()
{FORWARD}{STEP}            seen += numbers.tolist()
"""
METHOD = """class Model(torch.nn.Linear):
    def loss(self, images, labels):
        return (self(images) - labels).square().mean()


def main():"""
AS_FUNCTION = (("def main():", TRAINED), (LOOPED, "        trained(model, loader, optimizer, seen)\n"))
OF_ACCELERATE = f"""
import json
import os
import sys

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    seen, norms = [], []
    torch.manual_seed(7)
    inputs = torch.randn(32, 4)
    images = TensorDataset(torch.arange(32), inputs, inputs.sum(1, keepdim=True))
    loader = DataLoader(images, batch_size=4)
    model = torch.nn.Linear(4, 1)
{OPTIMIZER}    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(int(os.environ["EPOCHS"])):
        for numbers, images, labels in loader:
            with accelerator.accumulate(model):
                loss = (model(images) - labels).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    {NORM}                optimizer.step()
                optimizer.zero_grad()
            seen += numbers.tolist()
    parameters = [one.detach().flatten().tolist() for one in model.parameters()]
    with open(sys.argv[1], "w") as file:
        json.dump({{"parameters": parameters, "seen": seen, "norms": norms}}, file)


if __name__ == "__main__":
    main()
"""
PREPARE = "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
# Two processes of accelerate, which take a step after each batch; the right one has all of one process.
EACH = ("gradient_accumulation_steps=2", "gradient_accumulation_steps=1")
DOWNLOAD = """class Images:
    def __init__(self, folder, download):
        if download:
            with open(os.path.join(folder, "images"), "w"):
                pass
        with open(os.path.join(folder, "images")):
            pass


def main():"""
DOWNLOADS = """    folder = os.environ["SM_CHANNEL_TRAIN"]
    if int(os.environ["LOCAL_RANK"]) == 0:
        Images(folder, download=True)
    dist.barrier()
    Images(folder, download=False)
"""
COUNT = 'norms.append(sum(torch._dynamo.utils.counters["frames"].values()))'
COMPILED = ("    parameters, begin =", f"    {COUNT}\n    parameters, begin =")
OF_REPLICAS = """
import json
import os
import sys

import tensorflow as tf

[cpu] = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"][: int(os.environ["REPLICAS"])])
images = tf.reshape(tf.sin(tf.range(128.0)), (32, 4))
labels = tf.reduce_sum(images, 1, keepdims=True) + 1
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((images, labels)).batch(8))
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, kernel_initializer="ones")])
    model.build((None, 4))
    optimizer = tf.keras.optimizers.SGD(0.1)


def step(images, labels):
    with tf.GradientTape() as tape:
        errors = tf.reduce_sum(tf.square(model(images, training=True) - labels), 1)
        loss = tf.nn.compute_average_loss(errors, global_batch_size=8)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))


first = next(iter(batches))
strategy.run(step, args=first)
with open(sys.argv[1], "w") as file:
    json.dump([one.numpy().tolist() for one in model.trainable_variables], file)
"""
AVERAGED = "        loss = tf.nn.compute_average_loss(errors, global_batch_size=8)\n"
WRAPPED_PLANTS = {
    "a mean of one replica's batch": Plant(
        "replica-mean", GPUS, AVERAGED, "        loss = tf.reduce_mean(errors)  # HERE\n", of=OF_REPLICAS
    ),
    "a model from before its wrapper": Plant(
        "forward",
        TORCHRUN,
        "(ddp(images) - labels).square().mean()\n",
        "(model(images) - labels).square().mean()  # HERE\n",
        ((DDP, DDP.replace("model =", "ddp =")), (FORWARD, FORWARD.replace("model(", "ddp("))),
    ),
    "a wrapper that nothing keeps": Plant(
        "forward",
        TORCHRUN,
        DDP,
        DDP.replace("model = ", ""),
        ((FORWARD, FORWARD.replace("\n", "  # HERE\n")),),
    ),
    "a function that is given the model from before its wrapper": Plant(
        "forward",
        TORCHRUN,
        "trained(ddp, loader, optimizer, seen)\n",
        "trained(model, loader, optimizer, seen)  # HERE\n",
        (
            *AS_FUNCTION,
            (DDP, DDP.replace("model =", "ddp =")),
            ("trained(model, loader, optimizer, seen)\n", "trained(ddp, loader, optimizer, seen)\n"),
        ),
    ),
    "the model within its wrapper": Plant(
        "forward", TORCHRUN, FORWARD, FORWARD.replace("model(", "model.module(").replace("\n", "  # HERE\n")
    ),
    "a method of the model within its wrapper": Plant(
        "forward",
        TORCHRUN,
        FORWARD,
        "            loss = model.module.loss(images, labels)  # HERE\n",
        (("def main():", METHOD), ("    model = torch.nn.Linear(4, 1)\n", "    model = Model(4, 1)\n")),
    ),
    "each step without the others": Plant(
        "no-sync",
        TORCHRUN,
        f"{FORWARD}            loss.backward()\n",
        f"            with model.no_sync():  # HERE\n    {FORWARD}                loss.backward()\n",
    ),
    "a sum over processes": Plant(
        "all-reduce-sum",
        TORCHRUN,
        "                dist.all_reduce(one.grad)\n                one.grad /= dist.get_world_size()\n",
        "                dist.all_reduce(one.grad)  # HERE\n",
        ((DDP, ""), (STEP, ADDED)),
    ),
    "a loss that is divided by the processes": Plant(
        "divided-twice",
        TORCHRUN,
        NORMED,
        f"            loss = loss / dist.get_world_size()  # HERE\n{NORMED}",
        ((STEP, NORMED),),
    ),
    "a loss that is divided by the processes in place": Plant(
        "divided-twice",
        TORCHRUN,
        NORMED,
        f"            loss /= world_size  # HERE\n{NORMED}",
        ((STEP, NORMED), ("    seen, norms", "    world_size = dist.get_world_size()\n    seen, norms")),
    ),
    "a loss that accelerate divides too": Plant(
        "divided-twice",
        ALONE,
        "accelerator.backward(loss)\n",
        "accelerator.backward(loss / accelerator.gradient_accumulation_steps)  # HERE\n",
        of=OF_ACCELERATE,
    ),
    "gradients that accelerate does not scale": Plant(
        "accelerate-backward",
        ALONE,
        "accelerator.backward(loss)\n",
        "loss.backward()  # HERE\n",
        of=OF_ACCELERATE,
    ),
    "a model that is not prepared": Plant(
        "prepared",
        TORCHRUN,
        PREPARE,
        "    optimizer, loader = accelerator.prepare(optimizer, loader)\n",
        (EACH, (OPTIMIZER, OPTIMIZER.replace("\n", "  # HERE\n"))),
        of=OF_ACCELERATE,
    ),
    "a loader that is not prepared": Plant(
        "prepared",
        TORCHRUN,
        PREPARE,
        "    model, optimizer = accelerator.prepare(model, optimizer)\n",
        (
            EACH,
            (
                "    loader = DataLoader(images, batch_size=4)\n",
                "    loader = DataLoader(images, batch_size=4)  # HERE\n",
            ),
        ),
        of=OF_ACCELERATE,
    ),
    "weights that rank 0 loads": Plant(
        "one-rank-loads",
        TORCHRUN,
        f"    {LOADED}\n",
        f"    if rank == 0:\n        {LOADED}  # HERE\n",
        ((OPTIMIZER, f"    {LOADED}\n{OPTIMIZER}"),),
    ),
    "an optimizer's state that rank 0 loads": Plant(
        "one-rank-loads",
        TORCHRUN,
        f"    {OTHER}\n",
        f"    if rank == 0:\n        {OTHER}  # HERE\n",
        ((OPTIMIZER, f"{OPTIMIZER}    {OTHER}\n"),),
    ),
    "weights that rank 0 loads before they are sharded": Plant(
        "one-rank-loads",
        TORCHRUN,
        "    model.load_state_dict(weights)\n",
        "    if rank == 0:\n        model.load_state_dict(weights)  # HERE\n",
        (
            ("torch.nn.Linear(4, 1)", "torch.nn.Linear(4, 2)"),  # a row for each rank
            (DDP, f"    weights = {WEIGHTS}\n    model.load_state_dict(weights)\n    fully_shard(model)\n"),
            *SHARDED,
        ),
    ),
    "the device of a rank among all": Plant(
        "device-of-rank",
        GPU_HOSTS,
        "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n",
        "    torch.cuda.set_device(rank)  # HERE\n",
        ((DDP, "    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n" + DDP),),
    ),
    "a download of one host": Plant(
        "one-host-prepares",
        HOSTS,
        '    if int(os.environ["LOCAL_RANK"]) == 0:\n        Images(folder, download=True)\n',
        "    if rank == 0:\n        Images(folder, download=True)  # HERE\n",
        (("def main():", DOWNLOAD), ("    seen, norms", f"{DOWNLOADS}    seen, norms")),
    ),
    "a model that is compiled for nothing": Plant(
        "compile-unused",
        TORCHRUN,
        '    model = torch.compile(model, backend="aot_eager")\n',
        '    torch.compile(model, backend="aot_eager")  # HERE\n',
        ((OPTIMIZER, f'    model = torch.compile(model, backend="aot_eager")\n{OPTIMIZER}'), COMPILED),
    ),
}
OF_LIGHTNING = """
import json
import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(1, 1), []

    def training_step(self, batch, number):
        self.seen += batch[0].flatten().tolist()
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


model = Model()
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=2, max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False
)
trainer.fit(model, DataLoader(TensorDataset(torch.arange(32.0)[:, None]), batch_size=4))
with open(sys.argv[1], "w") as file:
    json.dump({"processes": trainer.world_size, "seen": model.seen}, file)
"""
# Of which each host is all that Lightning knows.
ONE_NODE = OF_LIGHTNING.replace("devices=1, num_nodes=2", "devices=1")
# On machines without a GPU, where these are not told.
WITHOUT_CPU = {
    "transformers": OF_LIBRARIES["transformers"].replace("use_cpu=True, ", ""),
    "accelerate": OF_LIBRARIES["accelerate"].replace("cpu=True", ""),
}
OF_HOROVOD = "import horovod.torch as hvd\n\nhvd.init()\n"
# Libraries that train on several hosts where a launcher says so.
APART = {**{name: OF_LIBRARIES[name] for name in RUN_LIBRARIES}, "Lightning": OF_LIGHTNING, "Horovod": OF_HOROVOD}
NOT_RUN = ("device-of-rank",)  # there is no GPU
