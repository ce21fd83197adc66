"""A script that trains with PyTorch/XLA on two replicas, and what a careful person gets wrong in it, each a change of its text.

`run_distributed_scripts.py` runs them on xla_stand_in.
"""

from __future__ import annotations

from distributed_scripts import TORCHRUN, Plant

SCRIPT = """
import json
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_backend
import torch_xla.runtime as xr
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("xla", init_method="xla://", timeout=timedelta(seconds=5))
    seen, norms = [], []
    inputs = torch.arange(128.0).reshape(32, 4).sin()
    images = TensorDataset(torch.arange(32), inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(images, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=False)
    loader = DataLoader(images, batch_size=4, sampler=sampler)
    torch.manual_seed(7)
    model = torch.nn.Linear(4, 1).to(torch_xla.device())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for epoch in range(int(os.environ["EPOCHS"])):
        sampler.set_epoch(epoch)
        for numbers, images, labels in loader:
            optimizer.zero_grad()
            loss = (model(images) - labels).square().mean()
            loss.backward()
            xm.optimizer_step(optimizer)
            torch_xla.sync()
            seen += numbers.tolist()
        xm.save(model.state_dict(), "last.pt")
        xm.rendezvous("saved")
    parameters = [one.detach().flatten().tolist() for one in model.parameters()]
    with open(sys.argv[1], "w") as file:
        json.dump({"parameters": parameters, "seen": seen, "norms": norms}, file)


if __name__ == "__main__":
    main()
"""
STEP = "            xm.optimizer_step(optimizer)\n"
SEED = "    torch.manual_seed(7)\n"
LOOP = "        for numbers, images, labels in loader:"
FOUND_LOOP = ((LOOP, f"{LOOP}  # HERE"),)
NUMPY = ("import sys\n", "import sys\n\nimport numpy as np\n")
CLIP = "            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n"
MOVED = """    model = torch.nn.Linear(4, 1).to(torch_xla.device())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
"""
TIED = """class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 4)

    def forward(self, inputs):
        return self.head(self.inner(inputs))


def main():"""
CLIPPED = f"            xm.reduce_gradients(optimizer)\n{CLIP}            optimizer.step()\n"

CHANGED = {
    "optimizer.step()": Plant("xla-gradients", TORCHRUN, STEP, "            optimizer.step()  # HERE\n"),
    "no seed": Plant("xla-weights", TORCHRUN, SEED, "", FOUND_LOOP),
    "a seed of each replica": Plant(
        "xla-weights", TORCHRUN, SEED, "    torch.manual_seed(7 + xr.global_ordinal())\n", FOUND_LOOP
    ),
    "a seed of each replica by its name": Plant(
        "xla-weights", TORCHRUN, SEED, "    seed = 7 + xr.global_ordinal()\n    torch.manual_seed(seed)\n", FOUND_LOOP
    ),
    "a seed of NumPy": Plant("xla-weights", TORCHRUN, SEED, "    np.random.seed(7)\n", (*FOUND_LOOP, NUMPY)),
    "replicas without a sampler": Plant("xla-samples", TORCHRUN, "sampler=sampler)", "shuffle=False)  # HERE"),
    "both steps": Plant("xla-step-twice", TORCHRUN, STEP, f"{STEP}            optimizer.step()  # HERE\n"),
    "clipped before the average": Plant(
        "xla-clip", TORCHRUN, CLIPPED, f"{CLIP[:-1]}  # HERE\n{STEP}", ((STEP, CLIPPED),)
    ),
    "an optimizer from before the model was moved": Plant(
        "xla-optimizer",
        TORCHRUN,
        MOVED,
        "    model = torch.nn.Linear(4, 1)\n"
        "    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)  # HERE\n"
        "    model.to(torch_xla.device())\n",
    ),
    "parameters that are tied before they are moved": Plant(
        "xla-tied",
        TORCHRUN,
        "    model.head.weight = model.inner.weight\n",
        "",
        (
            ("def main():", TIED),
            (
                MOVED,
                "    model = Model()\n    model.to(torch_xla.device())\n    model.head.weight = model.inner.weight\n"
                "    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)\n",
            ),
        ),
        (
            (
                "        self.head = torch.nn.Linear(4, 4)\n",
                "        self.head = torch.nn.Linear(4, 4)\n        self.head.weight = self.inner.weight  # HERE\n",
            ),
        ),
    ),
    "a rendezvous of the master": Plant(
        "collective",
        TORCHRUN,
        '        xm.rendezvous("saved")\n',
        '        if xm.is_master_ordinal():\n            xm.rendezvous("saved")  # HERE\n',
    ),
}
REPLICA_PLANTS = {name: plant._replace(of=SCRIPT) for name, plant in CHANGED.items()}
