"""Models that are wrapped, prepared, compiled or moved, of which the step trains another; PyTorch and accelerate say so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed_scripts import DDP, OPTIMIZER, SCRIPT, STEP, TORCHRUN, changed
from packages import TENSORFLOW, packages
from planted import found_in, line_of, outcomes_of
from share_scripts import OF_LIBRARIES, RUN_LIBRARIES
from wrapped_scripts import (
    APART,
    AS_FUNCTION,
    AVERAGED,
    FORWARD,
    GPU_HOSTS,
    GPUS,
    HOSTS,
    NOT_LAUNCHED,
    NOT_RUN,
    OF_ACCELERATE,
    OF_LIGHTNING,
    OF_REPLICAS,
    ONE_NODE,
    PREPARE,
    WITHOUT_CPU,
    WRAPPED_PLANTS,
)

from training_jobs.lint import Job, lint_folder

ONE = Job(entry_point="train.py", hosts=1, processes_per_host=1)


@pytest.mark.parametrize("name", WRAPPED_PLANTS)
def test_a_mistake_is_found_on_its_line_and_the_right_script_has_none(name: str, tmp_path: Path) -> None:
    plant = WRAPPED_PLANTS[name]
    right, wrong = plant.scripts()
    assert found_in(tmp_path, right, plant.job) == []
    assert found_in(tmp_path, wrong, plant.job) == [(plant.rule, line_of(wrong))]


@pytest.mark.parametrize("name", WRAPPED_PLANTS)
def test_one_process_has_what_is_wrong_without_others_alone(name: str, tmp_path: Path) -> None:
    plant = WRAPPED_PLANTS[name]
    of_one = plant.rule in ("compile-unused", "accelerate-backward") or plant.job is not TORCHRUN
    of_one = of_one and plant.job not in (HOSTS, GPU_HOSTS)
    assert [rule for rule, _ in found_in(tmp_path, plant.scripts()[1], ONE)] == [plant.rule] * of_one


AS_DDP = DDP.replace("model =", "ddp =")
SYNCED = """            if step % 2:
                with model.no_sync():
                    loss = (model(images) - labels).square().mean()
                    loss.backward()
            else:
                loss = (model(images) - labels).square().mean()
                loss.backward()
                optimizer.step()
"""
LOOP = "        for numbers, images, labels in loader:\n"
RIGHT: dict[str, tuple[Job, Sequence[tuple[str, str]]]] = {
    "the model without its wrapper, to evaluate": (
        TORCHRUN,
        (
            (DDP, AS_DDP),
            (
                FORWARD,
                FORWARD.replace("model(", "ddp(")
                + "            with torch.no_grad():\n                model(images)\n",
            ),
        ),
    ),
    "the model where there is no wrapper": (
        TORCHRUN,
        (
            (DDP, f"    ddp = None\n    if dist.get_world_size() > 1:\n    {AS_DDP}"),
            (
                FORWARD,
                "            outputs = model(images) if ddp is None else ddp(images)\n"
                "            loss = (outputs - labels).square().mean()\n",
            ),
        ),
    ),
    "a method of the model within its wrapper, for no loss": (
        TORCHRUN,
        ((FORWARD, f"{FORWARD}            model.module.extra_repr()\n"),),
    ),
    "the last step of several with the others": (
        TORCHRUN,
        (
            (LOOP, "        for step, (numbers, images, labels) in enumerate(loader):\n"),
            (FORWARD + STEP, SYNCED),
        ),
    ),
    "a model that is wrapped, and computes no gradients": (
        TORCHRUN,
        (
            (DDP, f"{DDP}    other = torch.nn.Linear(4, 1)\n    wrapped = DistributedDataParallel(other)\n"),
            (FORWARD, f"{FORWARD}            with torch.no_grad():\n                other(images)\n"),
        ),
    ),
    "a function that is given the model before there is a wrapper": (
        TORCHRUN,
        (
            *AS_FUNCTION,
            (DDP, f"    trained(model, [], None, seen)\n{AS_DDP}"),
            ("        trained(model, loader, optimizer, seen)\n", "        trained(ddp, loader, optimizer, seen)\n"),
        ),
    ),
    "a function that is given both": (
        TORCHRUN,
        (
            *AS_FUNCTION,
            (DDP, AS_DDP),
            ("def trained(model, loader, optimizer, seen):", "def trained(model, loader, optimizer, seen, wrapper):"),
            ("        loss = (model(", "        loss = model(images).mean() if wrapper is None else (wrapper("),
            ("trained(model, loader, optimizer, seen)\n", "trained(model, loader, optimizer, seen, ddp)\n"),
        ),
    ),
    "no_sync on a condition alone": (
        TORCHRUN,
        (
            ("import sys\n", "import sys\nfrom contextlib import nullcontext\n"),
            (
                f"{FORWARD}            loss.backward()\n",
                "            with model.no_sync() if len(images) < 4 else nullcontext():\n"
                f"    {FORWARD}                loss.backward()\n",
            ),
        ),
    ),
    "an optimizer of a model that another function shards": (
        TORCHRUN,
        (
            (DDP, "    fully_shard(model)\n"),
            ("def main():", "def built(model):\n    return torch.optim.Adam(model.parameters())\n\n\ndef main():"),
            ('        if rank == 0:\n            torch.save(last, "last.pt")\n', ""),
            ("        last = {", "        last = 0  # {"),
        ),
    ),
    "a backward without the others and one with them": (
        TORCHRUN,
        (
            (
                f"{FORWARD}            loss.backward()\n",
                f"            with model.no_sync():\n    {FORWARD}                loss.backward()\n"
                f"{FORWARD}            loss.backward()\n",
            ),
        ),
    ),
    "a forward before no_sync, which averages in spite of it": (
        TORCHRUN,
        (("            loss.backward()\n", "            with model.no_sync():\n                loss.backward()\n"),),
    ),
    "an average of all processes": (
        TORCHRUN,
        (
            (DDP, ""),
            (
                "            optimizer.step()\n",
                "            for one in model.parameters():\n"
                "                dist.all_reduce(one.grad, op=dist.ReduceOp.AVG)\n            optimizer.step()\n",
            ),
        ),
    ),
    "a sum that the optimizer's rate divides": (
        TORCHRUN,
        (
            (DDP, ""),
            ("lr=0.1", "lr=0.1 / dist.get_world_size()"),
            (
                "            optimizer.step()\n",
                "            for one in model.parameters():\n                dist.all_reduce(one.grad)\n"
                "            optimizer.step()\n",
            ),
        ),
    ),
    "a sum of what each loss is divided by": (
        TORCHRUN,
        (
            (DDP, ""),
            (
                "            loss.backward()\n",
                "            loss = loss / dist.get_world_size()\n            loss.backward()\n",
            ),
            (
                "            optimizer.step()\n",
                "            for one in model.parameters():\n                dist.all_reduce(one.grad)\n"
                "            optimizer.step()\n",
            ),
        ),
    ),
    "a sum by another library": (
        TORCHRUN,
        (
            (DDP, ""),
            ("import torch\n", "import horovod.torch\nimport torch\n"),
            (
                "            optimizer.step()\n",
                "            for one in model.parameters():\n                dist.all_reduce(one.grad)\n"
                "            optimizer.step()\n",
            ),
        ),
    ),
    "a loss that is divided in place of gradients, by a hook": (
        TORCHRUN,
        (
            (DDP, f"{DDP}    model.register_comm_hook(None, summed)\n"),
            (
                "            loss.backward()\n",
                "            loss = loss / dist.get_world_size()\n            loss.backward()\n",
            ),
        ),
    ),
    "a loss for the log alone": (
        TORCHRUN,
        (
            (
                "            seen +=",
                "            dist.all_reduce(shown := loss.detach().clone())\n            shown /= dist.get_world_size()\n"
                "            print(shown)\n            seen +=",
            ),
        ),
    ),
    "a loss of all tokens of all processes": (
        TORCHRUN,
        (
            (
                FORWARD,
                "            loss = (model(images) - labels).square().sum() * dist.get_world_size()\n"
                "            loss = loss / (4 * dist.get_world_size())\n",
            ),
        ),
    ),
    "weights of rank 0 before the wrapper, which sends them": (
        TORCHRUN,
        ((DDP, f"    if rank == 0:\n        model.load_state_dict(torch.load('model.pt'))\n{DDP}"),),
    ),
    "weights of rank 0 that a wrapper of shards sends": (
        TORCHRUN,
        (
            ("import fully_shard\n", "import FullyShardedDataParallel\n"),
            (
                DDP,
                "    if rank == 0:\n        model.load_state_dict(torch.load('model.pt'))\n"
                "    model = FullyShardedDataParallel(model, sync_module_states=True)\n",
            ),
        ),
    ),
    "weights of rank 0 that are sent": (
        TORCHRUN,
        (
            (
                OPTIMIZER,
                "    if rank == 0:\n        model.load_state_dict(torch.load('model.pt'))\n"
                f"    for one in model.parameters():\n        dist.broadcast(one.data, 0)\n{OPTIMIZER}",
            ),
        ),
    ),
    "other weights on the others": (
        TORCHRUN,
        (
            (
                OPTIMIZER,
                "    if rank == 0:\n        model.load_state_dict(torch.load('model.pt'))\n    else:\n"
                f"        model.load_state_dict(torch.load('same.pt'))\n{OPTIMIZER}",
            ),
        ),
    ),
    "a rank among all by the number of a host's devices": (
        GPU_HOSTS,
        ((DDP, f"    device = rank % torch.cuda.device_count()\n    torch.cuda.set_device(device)\n{DDP}"),),
    ),
    "a rank that may be either": (
        GPU_HOSTS,
        (
            (
                DDP,
                f"    if sys.argv[2:]:\n        rank = int(os.environ['LOCAL_RANK'])\n    torch.cuda.set_device(rank)\n{DDP}",
            ),
        ),
    ),
    "a sampler's rank that may be either": (
        GPU_HOSTS,
        (
            (
                "    sampler = DistributedSampler(images, shuffle=False)\n",
                "    of = rank if sys.argv[2:] else 0\n    of = int(os.environ['LOCAL_RANK'])\n    of = rank\n"
                "    sampler = DistributedSampler(images, shuffle=False, rank=of)\n",
            ),
        ),
    ),
    "a download of each host's first process": (
        HOSTS,
        (
            (
                "    seen, norms",
                '    if os.environ["LOCAL_RANK"] == "0":\n        MNIST("data", download=True)\n    dist.barrier()\n'
                '    MNIST("data")\n    seen, norms',
            ),
        ),
    ),
    "a download of rank 0 to what it alone reads": (
        HOSTS,
        (("    seen, norms", '    if rank == 0:\n        MNIST("data", download=True)\n    seen, norms'),),
    ),
    "a model that compiles in place": (TORCHRUN, ((OPTIMIZER, f"    model.compile()\n{OPTIMIZER}"),)),
    "a compiled model beside its own": (
        TORCHRUN,
        (
            (DDP, f"{DDP}    compiled = torch.compile(model)\n"),
            (FORWARD, FORWARD.replace("model(", "compiled(")),
        ),
    ),
}


def test_no_sync_is_found_where_a_backward_on_a_condition_is_within_it_too(tmp_path: Path) -> None:
    within = f"            with model.no_sync():\n    {FORWARD}                loss.backward()\n"
    again = "                with model.no_sync():\n                    model("
    more = f"            if len(images) < 4:\n{again}images).mean().backward()\n"
    text = changed(SCRIPT, (f"{FORWARD}            loss.backward()\n", within + more))
    assert [rule for rule, _ in found_in(tmp_path, text, TORCHRUN)] == ["no-sync", "no-sync"]
    besides = changed(text, (again, again.replace("with model.no_sync():", "if rank:")))
    assert found_in(tmp_path, besides, TORCHRUN) == []


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_in_another_way_is_not_reported(name: str, tmp_path: Path) -> None:
    job, changes = RIGHT[name]
    assert found_in(tmp_path, changed(SCRIPT, *changes), job) == []


@pytest.mark.parametrize(
    "changes",
    [
        [
            (
                PREPARE,
                "    parts = accelerator.prepare(*[model, optimizer, loader])\n    model, optimizer, loader = parts\n",
            )
        ],
        [(PREPARE, f"    model = accelerator.prepare_model(model)\n{PREPARE.replace('model, ', '')}")],
        [
            ("gradient_accumulation_steps=2", "gradient_accumulation_steps=1"),
            ("accelerator.backward(loss)", "loss.backward()"),
        ],
        [("accelerator.backward(loss)", "accelerator.backward(loss / labels.numel())")],
        [
            ("gradient_accumulation_steps=2", 'mixed_precision="bf16"'),
            ("accelerator.backward(loss)", "loss.backward()"),
        ],
        [("Adam(model.parameters()", "Adam(groups_of(model)")],
        [
            (PREPARE, PREPARE.replace(", loader", "")),
            ("loader = DataLoader(images, ", "loader = DataLoader(images, sampler=of_ranks(images), "),
        ],
        [
            (
                PREPARE,
                "    inputs = prepare_images(images)\n    model, optimizer, loader = distributed(model, optimizer, loader)\n",
            )
        ],
    ],
)
def test_accelerate_is_used_in_other_ways_too(changes: list[tuple[str, str]], tmp_path: Path) -> None:
    assert found_in(tmp_path, changed(OF_ACCELERATE, *changes), TORCHRUN) == []


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        ((PREPARE, "    loader = accelerator.prepare(loader)\n"), ["prepared"]),
        ((PREPARE, "    optimizer, loader = self.accelerator.prepare(optimizer, loader)\n"), ["prepared"]),
        ((PREPARE, "    loader = accelerator.prepare_data_loader(loader)\n"), ["prepared"]),
        ((PREPARE, "    model = accelerator.prepare(model)\n"), ["prepared"]),
        (("gradient_accumulation_steps=2", 'mixed_precision="fp16"'), ["accelerate-backward"]),
    ],
)
def test_what_accelerate_is_not_given_is_found(change: tuple[str, str], rules: list[str], tmp_path: Path) -> None:
    text = changed(OF_ACCELERATE, change)
    if rules == ["accelerate-backward"]:
        assert found_in(tmp_path, text, TORCHRUN) == []
        text = changed(text, ("accelerator.backward(loss)", "loss.backward()"))
    assert [rule for rule, _ in found_in(tmp_path, text, TORCHRUN)] == rules


@pytest.mark.parametrize(
    ("moves", "found"),
    [("model.to(device)", True), ("model.to(torch.bfloat16)", False), ("other.to(device)", False), ("pass", False)],
)
def test_an_optimizer_is_of_what_is_moved_to_a_device_after_it_in_its_function(
    moves: str, found: bool, tmp_path: Path
) -> None:
    built = "def built(model, device):\n    optimizer = Adam(model.parameters())\n    @@\n    return optimizer\n"
    text = f"import torch_xla\n\n\n{built}\n\ndef move(model, device):\n    model.to(device)\n".replace("@@", moves)
    assert [rule for rule, _ in found_in(tmp_path, text, ONE)] == ["xla-optimizer"] * found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("torch.cuda.set_device(int(os.environ['RANK']))", True),
        ("model.cuda(rank)", True),
        ("model.to(f'cuda:{rank}')", True),
        ("torch.device('cuda', rank)", True),
        ("DistributedDataParallel(model, device_ids=[rank])", True),
        ("torch.device('cpu', rank)", False),
        ("model.to(rank)", True),
        ("torch.cuda.set_device(local)", False),
        ("torch.cuda.set_device(int(os.environ['RANK']) % 8)", False),
    ],
)
def test_a_device_is_of_a_rank_among_all_by_what_is_assigned_to_it(given: str, found: bool, tmp_path: Path) -> None:
    text = changed(SCRIPT, (DDP, f"    local = dist.get_node_local_rank()\n    given = {given}\n{DDP}"))
    rules = [rule for rule, _ in found_in(tmp_path, text, GPU_HOSTS) if rule != "forward"]
    assert rules == ["device-of-rank"] * found
    for job in (replace(GPU_HOSTS, hosts=1), replace(GPU_HOSTS, device="cpu")):
        assert "device-of-rank" not in [rule for rule, _ in found_in(tmp_path, text, job)]


OF_CLASS = """
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def wrapped(model, local):
    torch.cuda.set_device(local)
    return DDP(model, device_ids=[local])


class Training:
    def __init__(self, model, images):
        self.local = int(os.environ["LOCAL_RANK"])
        self.model = model.cuda()
        self.ddp = wrapped(self.model, self.local)
        self.loader = DataLoader(images, sampler=DistributedSampler(images))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = self.ddp(batch).mean()
        loss.backward()
        self.optimizer.step()

    def train(self, epochs=3):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            for batch in self.loader:
                self.step(batch)


dist.init_process_group("nccl")
Training(torch.nn.Linear(3, 3), Images()).train()
"""


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ([], []),
        ([("self.ddp(batch)", "self.model(batch)")], ["forward"]),
        ([("self.ddp = ", "self.module = "), ("self.ddp(batch)", "self.module(batch)")], []),
        (
            [
                ("        loss = self.ddp(batch).mean()\n        loss.backward()\n",
                 "        with self.ddp.no_sync():\n            loss = self.ddp(batch).mean()\n            loss.backward()\n"),
            ],
            ["no-sync"],
        ),
        ([("self.ddp(batch)", "self.ddp.module(batch)")], ["forward"]),
        ([("self.ddp = wrapped(self.model, self.local)", "self.ddp: DDP = DDP(self.model)")], []),
        (
            [
                ("self.ddp = wrapped(self.model, self.local)", "self.ddp: DDP = DDP(self.model)"),
                ("self.ddp(batch)", "self.model(batch)"),
            ],
            ["forward"],
        ),
        (
            [
                ("self.ddp(batch)", "self.model(batch)"),
                ("    return DDP(model, device_ids=[local])", "    model = DDP(model, device_ids=[local])\n    return model"),
            ],
            ["forward"],
        ),
        (
            [
                ("self.ddp(batch).mean()", "self.loss_of(batch)"),
                ("    def step(", "    def loss_of(self, batch):\n        return self.model(batch).mean()\n\n    def step("),
            ],
            ["forward"],
        ),
        ([("loss.backward()", "n = dist.get_world_size()\n        (loss / n).backward()")], ["divided-twice"]),
        ([("self.ddp(batch).mean()", "self.ddp(batch).mean().div_(dist.get_world_size())")], ["divided-twice"]),
        ([("DistributedSampler(images)", "DistributedSampler(images, rank=self.local)")], ["sampler-of-host"]),
        (
            [("DistributedSampler(images)", "DistributedSampler(images, num_replicas=8, rank=self.local)")],
            [],  # of how many, is not known
        ),
        (
            [("        self.loader =", "        self.fast = torch.compile(self.ddp)\n        self.loader =")],
            ["compile-unused"],
        ),
        (
            [
                ("    def step(self", "    def load(self):\n        if dist.get_rank() == 0:\n"
                 "            self.ddp.module.load_state_dict(torch.load('m.pt'))\n\n    def step(self"),
            ],
            ["one-rank-loads"],
        ),
        ([("self.local)\n        self.loader", "int(os.environ['RANK']))\n        self.loader")], []),  # by a parameter
    ],
)  # fmt: skip
def test_a_model_is_followed_through_classes_and_functions(
    changes: list[tuple[str, str]], rules: list[str], tmp_path: Path
) -> None:
    text = changed(OF_CLASS, *changes)
    assert [rule for rule, _ in found_in(tmp_path, text, GPU_HOSTS) if rule != "checkpoint"] == rules


@pytest.mark.parametrize("name", APART)
def test_a_library_without_a_launcher_trains_a_model_on_each_host(name: str, tmp_path: Path) -> None:
    assert [rule for rule, _ in found_in(tmp_path, APART[name], NOT_LAUNCHED)] == ["apart"]
    for job in (HOSTS, replace(NOT_LAUNCHED, hosts=1), replace(NOT_LAUNCHED, launched=None), Job()):
        assert found_in(tmp_path, APART[name], job) == []
    starts = f'{APART[name]}\nimport subprocess\nsubprocess.run(["torchrun", "other.py"])\n'
    assert found_in(tmp_path, starts, NOT_LAUNCHED) == []
    assert found_in(tmp_path, f'import os\nos.environ["MASTER_ADDR"] = first\n{APART[name]}', NOT_LAUNCHED) == []


@pytest.mark.parametrize("name", RUN_LIBRARIES)
def test_a_library_on_machines_without_a_gpu_must_be_told(name: str, tmp_path: Path) -> None:
    wrong = WITHOUT_CPU[name]
    assert [rule for rule, _ in found_in(tmp_path, wrong, HOSTS)] == ["use-cpu"]
    assert found_in(tmp_path, OF_LIBRARIES[name], HOSTS) == []
    for job in (replace(HOSTS, device=""), replace(HOSTS, hosts=1), replace(HOSTS, launched=None)):
        assert found_in(tmp_path, wrong, job) == []
    assert found_in(tmp_path, f"import os\nos.environ['ACCELERATE_USE_CPU'] = 'true'\n{wrong}", HOSTS) == []
    assert [rule for rule, _ in found_in(tmp_path, f"{wrong}\nrun(use_cpu=False)\n", HOSTS)] == ["use-cpu"]
    [found] = [one.reason for one in lint_folder(tmp_path, replace(HOSTS, launched=False))]
    assert "launcher=Torchrun() and " in found


def test_the_launcher_that_is_named_is_the_librarys(tmp_path: Path) -> None:
    for name, launcher in (("Lightning", "Torchrun"), ("Horovod", "Mpi")):
        (tmp_path / "train.py").write_text(APART[name])
        [found] = lint_folder(tmp_path, NOT_LAUNCHED)
        assert f"launcher={launcher}(), or one host" in found.reason


def test_a_trainer_of_ones_own_and_what_the_entry_point_imports_are_found_and_no_other_file(tmp_path: Path) -> None:
    own = "import transformers\n\n\nclass Own(transformers.Trainer):\n    pass\n\n\nOwn(model).train()\n"
    assert found_in(tmp_path, own, NOT_LAUNCHED) == [("apart", 8)]
    (tmp_path / "other.py").write_text(own)
    assert found_in(tmp_path, "print()\n", NOT_LAUNCHED) == []
    assert found_in(tmp_path, "import other\n", NOT_LAUNCHED) == [("apart", 8)]
    for text in (
        "class Trainer:\n    pass\n\n\nTrainer().train()\n",
        "from ray.train.torch import TorchTrainer\n\nTorchTrainer(loop).fit()\n",
        "from transformers import AutoModel\n\nAutoModel.from_pretrained(folder)\n",
    ):
        assert found_in(tmp_path, text, NOT_LAUNCHED) == []


def test_another_files_trainer_is_not_held_to_the_jobs_processes(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("import lightning\n\nlightning.Trainer(devices=1)\n")
    assert found_in(tmp_path, "print()\n", HOSTS) == []
    assert found_in(tmp_path, "import other\n", HOSTS) == [("lightning-processes", 3)]


@pytest.mark.parametrize(
    ("said", "job", "end"),
    [
        ("devices=1", HOSTS, "trains a model of its own"),
        ("accelerator='gpu'", HOSTS, "trains a model of its own"),
        ("devices=1, num_nodes=1", HOSTS, "trains a model of its own"),
        ("devices='auto'", HOSTS, "trains a model of its own"),
        ("devices=1, strategy='ddp'", HOSTS, "ValueError"),
        ("devices=8", GPU_HOSTS, "ValueError"),
        ("", GPU_HOSTS, "Trainer(devices=8, num_nodes=2)"),
        ("devices=4, num_nodes=2", GPU_HOSTS, "ValueError"),
        ("devices=1", TORCHRUN, "trains a model of its own"),
        ("devices=1, num_nodes=2", HOSTS, ""),
        ("num_nodes=2", GPU_HOSTS, ""),
        ("devices=-1", GPU_HOSTS, ""),
        ("devices=8, num_nodes=nodes", GPU_HOSTS, ""),
        ("devices=8, **options", GPU_HOSTS, ""),
        ("devices=2", TORCHRUN, ""),
        ("devices=1", replace(HOSTS, processes_per_host=None), ""),
        ("devices=1", ONE, ""),
    ],
)
def test_lightning_is_held_to_as_many_processes_as_torchrun_starts(
    said: str, job: Job, end: str, tmp_path: Path
) -> None:
    for module, name in (("lightning", "Trainer"), ("pytorch_lightning", "Trainer"), ("lightning.fabric", "Fabric")):
        (tmp_path / "train.py").write_text(f"from {module} import {name}\n\n{name}({said})\n")
        found = [one.reason for one in lint_folder(tmp_path, job) if one.rule == "lightning-processes"]
        assert [end in reason for reason in found] == [True] * bool(end)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("text", "launched", "processes"),
    [(OF_LIGHTNING, True, 2), (ONE_NODE, True, 1), (ONE_NODE, False, 1)],
    ids=["two nodes", "one node", "no launcher"],
)
def test_lightning_trains_one_model_or_one_on_each_host(
    text: str, launched: bool, processes: int, tmp_path: Path, programs_of: Callable[[Path], Path]
) -> None:
    (tmp_path / "train.py").write_text(text)
    python = str(programs_of(Path(__file__).with_name("requirements-lightning.txt")) / "python")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    of_torchrun = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1", f"--master_port={port}"]
    hosts = [
        subprocess.Popen(
            [python, *([*of_torchrun, f"--node_rank={host}"] if launched else []), "train.py", f"{host}.json"],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        for host in range(2)
    ]
    errors = [host.communicate()[1] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], errors
    found = [json.loads((tmp_path / f"{host}.json").read_text()) for host in range(2)]
    assert [one["processes"] for one in found] == [processes] * 2
    assert sorted(number for one in found for number in one["seen"]) == sorted([*range(32)] * (3 - processes))


@pytest.mark.parametrize(
    "change",
    [
        (
            "tf.nn.compute_average_loss(errors, global_batch_size=8)",
            "tf.reduce_mean(errors) / strategy.num_replicas_in_sync",
        ),
        (AVERAGED, "        loss = tf.reduce_mean(errors)\n        loss /= strategy.num_replicas_in_sync\n"),
        (AVERAGED, "        loss = loss_of(errors)\n"),
        (
            f"{AVERAGED}    gradients = tape.gradient(",
            "        loss = tf.reduce_mean(errors)\n    added = dict(aggregate_gradients=False)\n    gradients = tape.gradient(",
        ),
    ],
)
def test_a_mean_of_one_replica_may_be_divided_elsewhere(change: tuple[str, str], tmp_path: Path) -> None:
    assert found_in(tmp_path, changed(OF_REPLICAS, change), GPUS) == []


def test_a_mean_within_the_gradient_is_found_and_one_without_replicas_is_none(tmp_path: Path) -> None:
    mean = changed(OF_REPLICAS, (AVERAGED, ""), ("gradient(loss,", "gradient(tf.reduce_mean(errors),"))
    assert [rule for rule, _ in found_in(tmp_path, mean, GPUS)] == ["replica-mean"]
    assert found_in(tmp_path, mean, replace(GPUS, device="cpu")) == []
    assert found_in(tmp_path, mean, replace(GPUS, devices=1)) == []
    assert found_in(tmp_path, mean.replace("MirroredStrategy", "get_strategy"), GPUS) == []


@pytest.mark.soak
def test_replicas_with_a_mean_each_make_a_step_twice_too_long(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    right, wrong = WRAPPED_PLANTS["a mean of one replica's batch"].scripts()
    path = str(packages(pytestconfig, *TENSORFLOW))
    bias = []
    for text, replicas in ((right, 1), (right, 2), (wrong, 1), (wrong, 2)):
        variables = {**os.environ, "PYTHONPATH": path, "REPLICAS": str(replicas), "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(
            [sys.executable, "-c", text, "out.json"], cwd=tmp_path, env=variables, check=True, capture_output=True
        )
        bias.append(json.loads((tmp_path / "out.json").read_text())[1][0])
    assert bias == pytest.approx([0.2, 0.2, 0.2, 0.4])


@pytest.mark.soak
@pytest.mark.parametrize("how", ["launcher", "GPU"])
@pytest.mark.parametrize("name", RUN_LIBRARIES)
def test_a_library_without_a_launcher_or_not_told_of_cpus_reads_all_samples_on_each_host(
    name: str, how: str, outcomes: dict[str, Any]
) -> None:
    right, wrong = (
        sorted(number for one in ran for number in one["seen"]) for ran in outcomes[f"{name} without a {how}"].values()
    )
    assert (right, wrong) == ([*range(32)], sorted([*range(32)] * 2))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    return outcomes_of("run_wrapped_scripts.py")


RAN = {name: plant.rule for name, plant in WRAPPED_PLANTS.items() if plant.rule not in NOT_RUN}
OF_GRADIENTS = ("all-reduce-sum", "divided-twice", "accelerate-backward")


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, rule in RAN.items() if rule in OF_GRADIENTS])
def test_gradients_are_those_of_one_process_with_the_whole_batch_or_a_multiple(
    name: str, outcomes: dict[str, Any]
) -> None:
    whole, right, wrong = (one[0]["norms"][0] for one in (outcomes["whole"], *outcomes[name].values()))
    assert right == pytest.approx(whole)
    assert wrong / whole == pytest.approx(0.5 if RAN[name] == "divided-twice" else 2)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, rule in RAN.items() if rule in ("forward", "no-sync", "prepared")])
def test_processes_end_with_one_model_that_is_that_of_one_process_or_apart(name: str, outcomes: dict[str, Any]) -> None:
    [whole] = outcomes["whole"]
    for one in outcomes[name]["right"]:
        for found, expected in zip(one["parameters"], whole["parameters"], strict=True):
            assert found == pytest.approx(expected, abs=1e-5)
    first, second = outcomes[name]["wrong"]
    if name == "a loader that is not prepared":
        assert (first["seen"], sorted({*first["seen"]})) == (second["seen"], [*range(32)])
    else:
        assert first["parameters"] != second["parameters"]


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, rule in RAN.items() if rule == "one-rank-loads"])
def test_what_one_rank_loads_the_others_do_not_train_with(name: str, outcomes: dict[str, Any]) -> None:
    (first, second), (other, last) = outcomes[name].values()
    assert first["parameters"] == second["parameters"]
    if "sharded" in name:  # all have the same shards, of which those of rank 0 alone were loaded
        assert other["begin"] == last["begin"] != first["begin"]
        assert [one == two for one, two in zip(other["begin"][0], first["begin"][0], strict=True)].count(True) == 4
    else:
        assert other["parameters"] != last["parameters"]


@pytest.mark.soak
def test_the_second_host_does_not_have_what_the_first_downloads(outcomes: dict[str, Any]) -> None:
    right, wrong = outcomes["a download of one host"].values()
    assert not any("error" in one for one in right)
    assert "FileNotFoundError" in wrong[1]["error"]


@pytest.mark.soak
def test_a_model_that_is_compiled_for_nothing_traces_no_frame(outcomes: dict[str, Any]) -> None:
    right, wrong = outcomes["a model that is compiled for nothing"].values()
    assert right[0]["norms"][0] > 0 == wrong[0]["norms"][0]
