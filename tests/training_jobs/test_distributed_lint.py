"""Scripts that train apart, with wrong gradients, or wait for ever on several processes; PyTorch itself says which do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed_scripts import (
    DDP,
    JOINED,
    NOT_RUN,
    SCRIPT,
    STEP,
    TORCHRUN,
    WITHOUT,
    changed,
)
from distributed_scripts import PLANTS as OF_PROCESSES
from pages import part
from planted import found_in, line_of, outcomes_of
from replica_scripts import REPLICA_PLANTS
from replica_scripts import SCRIPT as OF_REPLICAS
from share_scripts import NOT_DEALT, OF_LIBRARIES, REPLICATED, RUN_LIBRARIES, SHARDED, SHARE_PLANTS
from strategy_scripts import STRATEGY_PLANTS
from trainer_scripts import TRAINER_PLANTS
from typer.testing import CliRunner
from wrapped_scripts import APART, WRAPPED_PLANTS
from wrapped_scripts import NOT_RUN as WITHOUT_GPU

from training_jobs.cli.main import app
from training_jobs.lint import Job, lint_folder
from training_jobs.lint.distributed import DISTRIBUTED
from training_jobs.lint.hosts import HOSTS
from training_jobs.lint.replicas import REPLICAS
from training_jobs.lint.scales import SCALES
from training_jobs.lint.shares import SHARES
from training_jobs.lint.strategies import STRATEGIES
from training_jobs.lint.trainers import TRAINERS
from training_jobs.lint.wrapped import WRAPPED

PLANTS = {**OF_PROCESSES, **REPLICA_PLANTS}
PAGE = Path(__file__).parents[2] / "docs" / "lint.md"
ENDS = ("agree", "collective", "launcher", "uneven-shares", "one-host-prepares", "override")  # others succeed


@pytest.mark.parametrize("name", {**PLANTS, **SHARE_PLANTS})
def test_a_mistake_is_found_on_its_line_and_the_right_script_has_none(name: str, tmp_path: Path) -> None:
    plant = {**PLANTS, **SHARE_PLANTS}[name]
    right, wrong = plant.scripts()
    assert found_in(tmp_path, right, plant.job) == []
    assert found_in(tmp_path, wrong, plant.job) == [(plant.rule, line_of(wrong))]


def of_shares(folder: Path, text: str, job: Job) -> list[str]:
    return [rule for rule, _ in found_in(folder, text, job) if rule in SHARES]


SAMPLED = "loader = DataLoader(images, sampler=DistributedSampler(images))\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('images = Images(os.environ["SM_CHANNEL_TRAIN"])\n', True),
        ('images = Images("/opt/ml/input/data/train/part")\n', True),
        ('images = Images(os.environ["SM_CHANNEL_VALIDATION"])\n', False),
        ("images = Images(folder)\n", False),  # of any channel
        (
            'parser.add_argument("--data-dir", default=os.environ["SM_CHANNEL_TRAIN"])\nimages = Images(args.data_dir)\n',
            True,
        ),
        (
            'parser.add_argument("--data-dir", default=os.environ["SM_CHANNEL_VALIDATION"])\nimages = Images(args.data_dir)\n',
            False,
        ),
        ('class Config:\n    folder: str = os.environ["SM_CHANNEL_TRAIN"]\nimages = Images(Config().folder)\n', True),
        ('def built(folder):\n    images = Images(folder)\n    @@\nbuilt(os.environ["SM_CHANNEL_TRAIN"])\n', True),
        (
            'def built(folder):\n    images = Images(folder)\n    @@\nbuilt(folder=os.environ["SM_CHANNEL_TRAIN"])\n',
            True,
        ),
        (
            'def built(size, folder):\n    images = Images(folder)\n    @@\nbuilt(os.environ["SM_CHANNEL_TRAIN"], other)\n',
            False,
        ),
        ('def evaluate():\n    images = Images(os.environ["SM_CHANNEL_TRAIN"])\n    @@\n', False),
        ('images = Images(os.environ["SM_CHANNEL_TRAIN"])\nval_sampler = DistributedSampler(images)\n#', False),
    ],
)
def test_the_channel_of_a_sampler_is_followed_to_where_its_samples_are_read(
    text: str, found: bool, tmp_path: Path
) -> None:
    whole = text.replace("@@\n", SAMPLED) if "@@" in text else text + SAMPLED
    assert of_shares(tmp_path, whole, SHARDED) == ["shares"] * found


def test_what_is_read_where_all_channels_are_shared_is_a_share(tmp_path: Path) -> None:
    text = f"images = Images(folder)\n{SAMPLED}"
    assert of_shares(tmp_path, text, replace(SHARDED, channels=("train",))) == ["shares"]


@pytest.mark.parametrize(
    ("number", "job", "rules"),
    [
        ("torch.cuda.device_count() * len(hosts)", REPLICATED, []),
        ("torch.cuda.device_count() * len(hosts)", SHARDED, ["shares"]),
        ("torch.cuda.device_count()", REPLICATED, ["sampler-of-host"]),
        ("torch.cuda.device_count()", replace(REPLICATED, hosts=1), []),
        ("hvd.local_size()", REPLICATED, ["sampler-of-host"]),
        ("hvd.size()", SHARDED, ["shares"]),
        ("number", SHARDED, []),
        ("number", REPLICATED, []),
    ],
)
def test_among_whom_samples_are_dealt_out_is_by_the_number_of_replicas(
    number: str, job: Job, rules: list[str], tmp_path: Path
) -> None:
    for given in (number, "replicas"):
        call = f"DistributedSampler(images, num_replicas={given}, rank=rank)"
        text = f'replicas = {number}\nimages = Images(os.environ["SM_CHANNEL_TRAIN"])\nsampler = {call}\n'
        assert of_shares(tmp_path, text, job) == rules


def test_shares_of_one_host_are_all_samples(tmp_path: Path) -> None:
    for job, told in (
        (SHARDED, "of the host's share of the channel 'train'"),
        (replace(SHARDED, hosts=1), "has all samples"),
    ):
        (tmp_path / "train.py").write_text(SHARE_PLANTS["a share without a sampler"].scripts()[1])
        [found] = lint_folder(tmp_path, job)
        assert (told in found.reason, "LOCAL_WORLD_SIZE" in found.reason) == (True, job is SHARDED)


def test_replicas_of_shares_are_told_of_samplers_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(REPLICA_PLANTS["replicas without a sampler"].scripts()[1])
    job = replace(SHARDED, channels=("train",))
    [found] = [one for one in lint_folder(tmp_path, job) if one.rule == "xla-samples"]
    assert "num_replicas=int(os.environ['LOCAL_WORLD_SIZE'])" in found.reason


@pytest.mark.parametrize(
    "change",
    [
        ("in loader:  # HERE", "in itertools.islice(loader, 8):"),
        ("in loader:  # HERE", "in zip(range(8), loader):"),
        ("            seen +=", "            if len(seen) > 8:\n                break\n            seen +="),
    ],
)
def test_loops_that_end_elsewhere_are_not_said_to_differ(change: tuple[str, str], tmp_path: Path) -> None:
    wrong = SHARE_PLANTS["as many steps as a share has"].scripts()[1]
    assert found_in(tmp_path, changed(wrong, change), SHARDED) == []


@pytest.mark.parametrize(
    "changes",
    [
        (("loss.backward()", "loss /= accumulate\n            loss.backward()"),),
        (("loss.backward()", "backward(loss, accumulate)"),),  # of another file
        (("% accumulate == 0", "% 2 == 0"),),
        (("            if (step + 1) % accumulate == 0:\n", "            if step:\n"),),
        (("import json\n", "import json\nimport accelerate\n"),),
    ],
)
def test_gradients_that_may_be_divided_or_that_each_step_has_are_not_reported(
    changes: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    wrong = PLANTS["a sum of gradients"].scripts()[1]
    assert [rule for rule, _ in found_in(tmp_path, wrong, TORCHRUN)] == ["accumulates"]
    assert [rule for rule, _ in found_in(tmp_path, changed(wrong, *changes), TORCHRUN) if rule == "accumulates"] == []
    says = changed(wrong, ("    accumulate = 2\n", "    accumulate = 2\n    print(accumulate, range(accumulate))\n"))
    assert [rule for rule, _ in found_in(tmp_path, says, TORCHRUN)] == ["accumulates"]


@pytest.mark.parametrize("name", ["an end by the clock of one process", "as many steps as a share has"])
def test_processes_agree_by_the_join_of_a_model_and_not_by_that_of_a_path(name: str, tmp_path: Path) -> None:
    plant = {**PLANTS, **SHARE_PLANTS}[name]
    wrong = changed(plant.scripts()[1], ("    begin =", '    folder = os.path.join("a", "b")\n    begin ='))
    assert [rule for rule, _ in found_in(tmp_path, wrong, plant.job)] == [plant.rule]
    joins = changed(wrong, ('os.path.join("a", "b")', "0\n    with model.join():\n        pass"))
    assert found_in(tmp_path, joins, plant.job) == []


FILES = """from torch.utils.data import DataLoader, IterableDataset
class Files(IterableDataset):
    def __iter__(self):
        for line in open(self.path):
            yield line
"""


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("loader = DataLoader(Files(), num_workers=3)", 3),
        ("files = Files()\nloader = DataLoader(dataset=files, num_workers=3)", 3),
        (
            'parser.add_argument("--workers", type=int, default=4)\nloader = DataLoader(Files(), num_workers=args.workers)',
            4,
        ),
        ("class Config:\n    workers: int = 4\nloader = DataLoader(Files(), num_workers=config.workers)", 4),
        ("loader = DataLoader(Files(), num_workers=1)", 0),
        ("loader = DataLoader(Files())", 0),
        ("loader = DataLoader(Files(), num_workers=workers)", 0),  # of any number
        ("loader = DataLoader(Files(), num_workers=3, worker_init_fn=divide)", 0),
        ("loader = DataLoader(Others(), num_workers=3)", 0),
    ],
)
def test_workers_repeat_what_an_iterable_data_set_does_not_divide(text: str, times: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FILES + text)
    told = [one.reason for one in lint_folder(tmp_path, Job()) if one.rule == "workers-repeat"]
    assert [f"an epoch has each sample {times} times" in reason for reason in told] == [True] * bool(times)
    for old, new in (
        ("open(self.path)", "islice(open(self.path), worker.id, None)"),
        ("open(self.path)", "self.drawn()"),
    ):
        assert of_shares(tmp_path, (FILES + text).replace(old, new), Job()) == []
    assert of_shares(tmp_path, (FILES + text).replace("torch.utils.data", "datasets"), Job()) == []


def test_the_command_takes_the_channels_of_which_hosts_have_shares(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHARE_PLANTS["a share dealt out among all hosts"].scripts()[1])
    words = ["lint", str(tmp_path), "--hosts", "2", "--processes-per-host", "2"]
    assert CliRunner().invoke(app, words).output == ""
    assert "[shares]" in CliRunner().invoke(app, [*words, "--sharded", "train"]).output


@pytest.mark.parametrize("name", OF_LIBRARIES)
def test_a_library_that_deals_samples_out_deals_out_shares_again(name: str, tmp_path: Path) -> None:
    text = OF_LIBRARIES[name]
    assert found_in(tmp_path, text, SHARDED) == [("shares", line_of(text))]
    assert of_shares(tmp_path, text, replace(SHARDED, hosts=1)) == of_shares(tmp_path, text, REPLICATED) == []
    if name in NOT_DEALT:
        assert found_in(tmp_path, changed(text, NOT_DEALT[name]), SHARDED) == []


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("a barrier of rank 0", "rank 0 alone"),
        ("a barrier after the others return", "rank 0 alone"),
        ("others", "all ranks but 0"),
    ],
)
def test_the_warning_of_a_collective_says_which_ranks_reach_it(name: str, ranks: str, tmp_path: Path) -> None:
    of_zero = PLANTS["a barrier of rank 0"].scripts()[1]
    text = of_zero.replace("if rank == 0:", "if rank > 0:") if name == "others" else PLANTS[name].scripts()[1]
    (tmp_path / "train.py").write_text(text)
    [found] = lint_folder(tmp_path, TORCHRUN)
    assert found.reason.startswith(f"dist.barrier() on {ranks}: ")


def test_the_page_has_each_rule_what_is_planted_of_it_how_it_ends_and_its_source() -> None:
    rows = ["| rule | a mistake | which in PyTorch | source |", "|---|---|---|---|"]
    planted_of = {**PLANTS, **SHARE_PLANTS, **WRAPPED_PLANTS, **TRAINER_PLANTS, **STRATEGY_PLANTS}
    for rule, check in {
        **DISTRIBUTED,
        **REPLICAS,
        **SHARES,
        **WRAPPED,
        **SCALES,
        **HOSTS,
        **TRAINERS,
        **STRATEGIES,
    }.items():
        planted = [name for name, plant in planted_of.items() if plant.rule == rule]
        planted += [f"{name}, on shares" for name in OF_LIBRARIES if rule == "shares"]
        planted += [f"{name} without a launcher" for name in APART if rule == "apart"]
        planted += [f"{name} that is not told of CPUs" for name in RUN_LIBRARIES if rule == "use-cpu"]
        planted += ["Lightning for one device"] if rule == "lightning-processes" else []
        ends = (
            "was not run"
            if rule in NOT_RUN + WITHOUT_GPU
            else "ends with an error"
            if rule in ENDS
            else "succeeds, and is wrong"
        )
        source = " ".join((check.__doc__ or "").split())
        rows.append(f"| `{rule}` | {'; '.join(planted)} | {ends} | {source} |")
    assert part(PAGE, "mistakes", "\n".join(rows)) == "\n".join(rows)


AVERAGES = """        for one in model.parameters():
            dist.all_reduce(one.grad)
            one.grad /= dist.get_world_size()
"""
RIGHT: dict[str, tuple[Job, tuple[tuple[str, str], ...]]] = {
    "gradients that it averages itself": (
        TORCHRUN,
        (
            (DDP, ""),
            ("            optimizer.step()\n", "            average(model)\n            optimizer.step()\n"),
            ("\n\nif __name", "\n\ndef average(model):\n    if dist.is_initialized():\n" + AVERAGES + "\n\nif __name"),
        ),
    ),
    "parameters that it averages itself": (
        TORCHRUN,
        (
            (DDP, ""),
            (
                "        last = {",
                "        for one in model.parameters():\n            dist.all_reduce(one.data)\n        last = {",
            ),
        ),
    ),
    "a wrapper of another module": (TORCHRUN, ((DDP, "    model = wrap_ddp(model)\n"),)),
    "a wrapper of another package": (
        TORCHRUN,
        (
            ("import sys\n", "import sys\nimport plugins\n"),
            (DDP, "    model, images = plugins.boosted(model, images)\n"),
        ),
    ),
    "horovod": (TORCHRUN, (("import sys\n", "import sys\nimport horovod.torch as hvd\n"), (DDP, ""))),
    "accelerate": (TORCHRUN, (("import sys\n", "import sys\nfrom accelerate import Accelerator\n"), (DDP, ""))),
    "a Trainer": (TORCHRUN, (("import sys\n", "import sys\nfrom transformers import Seq2SeqTrainer\n"), (DDP, ""))),
    "a batch sampler": (TORCHRUN, (("batch_size=4, sampler=sampler", "batch_sampler=OfRank(sampler)"),)),
    "samplers by a condition": (
        TORCHRUN,
        (
            (
                "sampler = DistributedSampler(images, shuffle=False)",
                "sampler = DistributedSampler(images) if rank >= 0 else None",
            ),
        ),
    ),
    "options of a loader": (
        TORCHRUN,
        (
            ("    loader = DataLoader(", '    more = {"sampler": sampler}\n    loader = DataLoader('),
            (", sampler=sampler", ", **more"),
        ),
    ),
    "samples that the rank selects": (
        TORCHRUN,
        (
            (
                "    sampler = Dist",
                "    images = torch.utils.data.Subset(images, range(rank, 32, 2))\n    sampler = Dist",
            ),
            (", sampler=sampler", ""),
        ),
    ),
    "a data set that knows its rank": (
        TORCHRUN,
        (
            ("TensorDataset(torch", "OfRank(torch"),
            (", sampler=sampler", ""),
            (
                "def main",
                "class OfRank(TensorDataset):\n    def __len__(self):\n        return 32 // dist.get_world_size()\n\n\ndef main",
            ),
        ),
    ),
    "a loader of validation": (
        TORCHRUN,
        (("    begin =", "    valid_loader = DataLoader(images)\n    begin ="),),
    ),
    "a seed of each rank": (
        TORCHRUN,
        ((", sampler=sampler", ", shuffle=True"), ("manual_seed(7)", "manual_seed(7 + rank)")),
    ),
    "a save that rank 0 calls": (
        TORCHRUN,
        (
            ('            torch.save(last, "last.pt")\n', "            keep(last)\n"),
            ("def main", 'def keep(last):\n    torch.save(last, "last.pt")\n\n\ndef main'),
        ),
    ),
    "a save after the others return": (
        TORCHRUN,
        (
            ('        if rank == 0:\n            torch.save(last, "last.pt")\n', "        keep(last, rank)\n"),
            (
                "def main",
                'def keep(last, rank):\n    if rank != 0:\n        return\n    torch.save(last, "last.pt")\n\n\ndef main',
            ),
        ),
    ),
    "a flag of rank 0": (
        TORCHRUN,
        (
            ("        if rank == 0:\n", "        if writes:\n"),
            ("    begin =", "    writes = rank == 0\n    begin ="),
        ),
    ),
    "a file of each rank": (
        TORCHRUN,
        (
            (
                '        if rank == 0:\n            torch.save(last, "last.pt")',
                '        torch.save(last, f"last-{rank}.pt")',
            ),
        ),
    ),
    "the barriers around what rank 0 does first": (
        TORCHRUN,
        (
            (
                "    model = torch.nn.Linear(4, 1)\n",
                "    if rank != 0:\n        dist.barrier()\n    model = torch.nn.Linear(4, 1)\n"
                "    if rank == 0:\n        dist.barrier()\n",
            ),
        ),
    ),
    "a broadcast on both sides": (
        TORCHRUN,
        (
            (
                "    begin =",
                "    if rank == 0:\n        dist.broadcast(torch.ones(1), 0)\n    else:\n"
                "        dist.broadcast(torch.zeros(1), 0)\n    begin =",
            ),
        ),
    ),
    "a barrier of a smaller group": (
        TORCHRUN,
        (("    begin =", "    if rank == 0:\n        dist.barrier(group=of_nodes)\n    begin ="),),
    ),
    "a function that is given on a condition": (
        TORCHRUN,
        (
            (
                "    begin =",
                "    hooks = []\n    if rank == 0:\n        hooks.append(lambda: dist.barrier())\n    begin =",
            ),
        ),
    ),
    "a limit before a loss is scaled": (
        TORCHRUN,
        (
            ("    begin =", '    scaler = torch.amp.GradScaler("cpu")\n    begin ='),
            (
                STEP,
                "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "            scaler.scale(loss).backward()\n            scaler.step(optimizer)\n",
            ),
        ),
    ),
    "a limit of another package": (
        TORCHRUN,
        (
            ("import sys\n", "import sys\nimport plugins\n"),
            ("    begin =", '    scaler = torch.amp.GradScaler("cpu")\n    begin ='),
            (
                STEP,
                "            scaler.scale(loss).backward()\n            plugins.clip_grad_norm_(model, scaler)\n"
                "            scaler.step(optimizer)\n",
            ),
        ),
    ),
    "a scaled loss before another": (
        TORCHRUN,
        (
            ("    begin =", '    scaler = torch.amp.GradScaler("cpu")\n    begin ='),
            (
                STEP,
                "            scaler.scale(loss).backward(retain_graph=True)\n            scaler.step(optimizer)\n"
                "            loss.backward()\n            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                "            optimizer.step()\n",
            ),
        ),
    ),
    "a point-to-point send": (
        TORCHRUN,
        (("    begin =", "    if rank == 0:\n        dist.send(torch.ones(1), 1)\n    begin ="),),
    ),
    "gradients set to None": (
        TORCHRUN,
        (
            (
                "            optimizer.zero_grad()\n",
                "            for one in model.parameters():\n                one.grad = None\n",
            ),
        ),
    ),
    "a limit beside GradScaler in another branch": (
        TORCHRUN,
        (
            ("    begin =", '    scaler = torch.amp.GradScaler("cpu")\n    begin ='),
            (
                STEP,
                "            if rank > 8:\n                scaler.scale(loss).backward()\n"
                "                scaler.step(optimizer)\n"
                "            else:\n                loss.backward()\n"
                "                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n                optimizer.step()\n",
            ),
        ),
    ),
    "an optimizer of another model": (
        TORCHRUN,
        (
            ("    begin =", "    fully_shard(other)\n    begin ="),
            ("def main", "other = torch.nn.Linear(4, 4)\n\n\ndef main"),
        ),
    ),
    "variables that it sets": (WITHOUT, (("def main():\n", 'def main():\n    os.environ["RANK"] = "0"\n'),)),
    "a group by a condition": (
        WITHOUT,
        (
            (
                JOINED,
                f'    if os.environ.get("WORLD_SIZE"):\n    {JOINED.splitlines()[0]}\n    rank = dist.get_rank()\n',
            ),
        ),
    ),
    "processes that it starts": (
        WITHOUT,
        (('":\n    main()\n', '":\n    torch.multiprocessing.spawn(main, nprocs=2)\n'),),
    ),
}


XLA_STEP = "            xm.optimizer_step(optimizer)\n"
SEEDED = "    torch.manual_seed(7)\n"
DEALT = (
    "    sampler = DistributedSampler(images, num_replicas=xr.world_size(), rank=xr.global_ordinal(), shuffle=False)\n"
)
RIGHT_OF_REPLICAS: dict[str, tuple[tuple[str, str], ...]] = {
    "gradients that are averaged before the optimizer's own step": (
        (XLA_STEP, "            xm.reduce_gradients(optimizer)\n            optimizer.step()\n"),
    ),
    "gradients that it averages itself": (
        (
            XLA_STEP,
            "            xm.all_reduce('sum', xm._fetch_gradients(optimizer), scale=1 / xr.world_size())\n"
            "            optimizer.step()\n",
        ),
    ),
    "DistributedDataParallel": (
        (SEEDED, ""),
        ("    optimizer =", "    model = torch.nn.parallel.DistributedDataParallel(model)\n    optimizer ="),
        (XLA_STEP, "            optimizer.step()\n"),
    ),
    "parameters of the first": (
        (SEEDED, ""),
        ("    optimizer =", "    xm.broadcast_master_param(model)\n    optimizer ="),
    ),
    "parameters of a file": (
        (SEEDED, ""),
        ("    optimizer =", '    model.load_state_dict(torch.load("a.pt"))\n    optimizer ='),
    ),
    "an optimizer that averages shards": (
        ("torch.optim.Adam(", "zero.ZeroRedundancyOptimizer("),
        (XLA_STEP, "            optimizer.step()\n"),
        ("import sys\n", "import sys\nimport torch_xla.distributed.zero_redundancy_optimizer as zero\n"),
    ),
    "samples that the ordinal selects": (
        (DEALT, "    images = torch.utils.data.Subset(images, range(xr.global_ordinal(), 32, 2))\n"),
        (", sampler=sampler", ""),
        ("        sampler.set_epoch(epoch)\n", ""),
    ),
    "a file of samples that the ordinal selects": (
        (DEALT, ""),
        (
            "    loader = DataLoader(images, batch_size=4, sampler=sampler)\n",
            "    loader = opened(files[xr.global_ordinal()])\n",
        ),
        ("        sampler.set_epoch(epoch)\n", ""),
        ("def main", "def opened(file):\n    return DataLoader(Lines(file), batch_size=4)\n\n\ndef main"),
    ),
    "one program on all devices": (
        ("    seen, norms", "    xr.use_spmd()\n    seen, norms"),
        (XLA_STEP, "            optimizer.step()\n"),
        (SEEDED, ""),
    ),
    "a library that trains": (
        ("import sys\n", "import sys\nimport neuronx_distributed\n"),
        (XLA_STEP, "            optimizer.step()\n"),
        (SEEDED, ""),
    ),
    "a step on a condition, and another otherwise": (
        (
            XLA_STEP,
            f"            if xr.world_size() > 1:\n    {XLA_STEP}            else:\n                optimizer.step()\n",
        ),
    ),
    "a limit after an average, which the step repeats": (
        (
            XLA_STEP,
            "            xm.reduce_gradients(optimizer)\n"
            f"            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n{XLA_STEP}",
        ),
    ),
    "a limit of the model's own": ((XLA_STEP, f"            model.clip_grad_norm_(1.0)\n{XLA_STEP}"),),
    "a limit after the average": (
        (
            XLA_STEP,
            "            xm.reduce_gradients(optimizer)\n"
            "            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n            optimizer.step()\n",
        ),
    ),
}


@pytest.mark.parametrize("name", RIGHT_OF_REPLICAS)
def test_replicas_that_are_right_in_another_way_are_not_reported(name: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, changed(OF_REPLICAS, *RIGHT_OF_REPLICAS[name]), TORCHRUN) == []


def test_the_sampler_that_is_named_is_of_the_calls_that_the_version_has(tmp_path: Path) -> None:
    wrong = REPLICA_PLANTS["replicas without a sampler"].scripts()[1]
    old = wrong.replace("        xm.save(", "        print(xm.get_ordinal())\n        xm.save(")
    of_1_13 = replace(TORCHRUN, versions={"torch": "1.13.1"})
    for text, job, number in ((wrong, TORCHRUN, "xr.global"), (old, TORCHRUN, "xm.get"), (wrong, of_1_13, "xm.get")):
        (tmp_path / "train.py").write_text(text)
        [found] = lint_folder(tmp_path, job)
        assert f"rank={number}_ordinal())" in found.reason


def test_one_replica_alone_has_nothing_to_average(tmp_path: Path) -> None:
    wrong = REPLICA_PLANTS["optimizer.step()"].scripts()[1]
    counted, launched = "nprocs=None", wrong.replace("    main()\n", "    torch_xla.launch(main, nprocs=None)\n")
    alone = Job(hosts=1, processes_per_host=1)
    assert found_in(tmp_path, wrong, alone) == []
    assert [rule for rule, _ in found_in(tmp_path, launched, alone)] == ["xla-gradients"]
    assert found_in(tmp_path, launched.replace(counted, "nprocs=1"), alone) == []
    assert [rule for rule, _ in found_in(tmp_path, wrong, Job())] == ["xla-gradients"]  # it asks for its ordinal


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_in_another_way_is_not_reported(name: str, tmp_path: Path) -> None:
    job, changes = RIGHT[name]
    assert found_in(tmp_path, changed(SCRIPT, *changes), job) == []


def test_modules_that_the_entry_point_imports_are_one_program_and_others_are_of_others(tmp_path: Path) -> None:
    train = SCRIPT.replace(DDP, "    model = parallel.wrapped(model)\n").replace(
        "import sys\n", "import sys\n\nfrom lib import parallel\n", 1
    )
    (tmp_path / "lib").mkdir()
    (tmp_path / "other.py").write_text(SCRIPT)
    (tmp_path / "lib" / "parallel.py").write_text("def wrapped(model):\n    return model\n")
    [(rule, _)] = found_in(tmp_path, train, TORCHRUN)
    assert rule == "gradients"
    wraps = (
        "from torch.nn.parallel import DistributedDataParallel as DDP\n\n\ndef wrapped(model):\n    return DDP(model)\n"
    )
    (tmp_path / "lib" / "parallel.py").write_text(wraps)
    assert found_in(tmp_path, train, TORCHRUN) == []


def test_what_imports_the_loop_may_wrap_the_model(tmp_path: Path) -> None:
    loop = (
        SCRIPT.replace(DDP, "")
        .replace("def main():", "def main(wrap):")
        .replace("    optimizer = ", "    wrap(model)\n    optimizer = ")
    )
    (tmp_path / "loop.py").write_text(loop.replace("    main()\n", "    main(print)\n"))
    wraps = "import torch\n\nimport loop\n\nloop.main(torch.nn.parallel.DistributedDataParallel)\n"
    assert found_in(tmp_path, wraps, TORCHRUN) == []
    [(rule, _)] = found_in(tmp_path, wraps.replace("DistributedDataParallel", "DataParallel"), TORCHRUN)
    assert rule == "gradients"


def test_a_module_that_nothing_of_the_folder_starts_is_of_others(tmp_path: Path) -> None:
    module = SCRIPT.replace(DDP, "").partition("if __name__")[0]
    assert found_in(tmp_path, module, Job()) == []
    assert [rule for rule, _ in found_in(tmp_path, f"{module}main()\n", Job())] == ["gradients"]


def test_how_many_processes_there_are_is_of_the_job(tmp_path: Path) -> None:
    alone = PLANTS["no process group"].scripts()[1]
    for hosts, each, warns in ((1, 1, False), (2, 1, True), (1, 8, True), (None, 1, False), (2, None, False)):
        found = found_in(tmp_path, alone, Job(hosts=hosts, processes_per_host=each))
        assert [rule for rule, _ in found] == ["process-group"] * warns


@pytest.mark.parametrize("name", [name for name, plant in PLANTS.items() if plant.job is TORCHRUN])
def test_one_process_has_its_own_mistakes_alone_and_those_that_it_starts_have_all(name: str, tmp_path: Path) -> None:
    wrong, rule = PLANTS[name].scripts()[1], PLANTS[name].rule
    one = Job(hosts=1, processes_per_host=1)
    of_one = rule in (
        "unscale",
        "zero-grad",
        "sharded-later",
        "xla-step-twice",
        "accumulates",
        "xla-optimizer",
        "xla-tied",
    )
    assert [rule for rule, _ in found_in(tmp_path, wrong, one)] == [rule] * of_one
    spawns = wrong.replace("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n")
    of_others = rule not in ("rank-of-host", "one-device", "writes")  # these are of torchrun's processes
    assert [rule for rule, _ in found_in(tmp_path, spawns, one)] == [rule] * of_others


def test_machines_with_one_process_each_write_files_of_their_own(tmp_path: Path) -> None:
    wrong = PLANTS["a file of all"].scripts()[1]
    for each, warns in ((1, False), (2, True), (None, True)):
        found = found_in(tmp_path, wrong, Job(hosts=2, processes_per_host=each))
        assert [rule for rule, _ in found] == ["writes"] * warns


def test_the_command_takes_processes_and_whether_there_is_a_launcher(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLANTS["a group without a launcher"].scripts()[1])
    assert CliRunner().invoke(app, ["lint", str(tmp_path)]).output == ""
    alone = CliRunner().invoke(app, ["lint", str(tmp_path), "--hosts", "1"])
    assert alone.output.rstrip().endswith("[launcher]")
    (tmp_path / "train.py").write_text(PLANTS["the first GPU"].scripts()[1])
    assert (
        CliRunner()
        .invoke(app, ["lint", str(tmp_path), "--processes-per-host", "8"])
        .output.startswith("train.py:29: all 8 processes of a host use its first GPU")
    )


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    return outcomes_of("run_distributed_scripts.py")


def values(outcome: dict[str, Any]) -> list[float]:
    return [value for one in outcome["parameters"] for value in one]


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, plant in PLANTS.items() if plant.rule not in NOT_RUN])
def test_pytorch_runs_the_right_script_as_one_process_with_the_whole_batch_does_and_the_wrong_one_otherwise(
    name: str, outcomes: dict[str, Any]
) -> None:
    right, wrong = outcomes[name]["right"], outcomes[name]["wrong"]
    rule = PLANTS[name].rule
    assert not any("error" in one for one in right)
    clips, of_replicas = rule == "xla-clip", "whole of replicas" if name in REPLICA_PLANTS else "whole"
    [whole] = [pytest.approx(values(one), abs=1e-5) for one in outcomes["whole, clipped" if clips else of_replicas]]
    # The right ones train as one process does with all samples of a step, but for those of one process, and those that clip.
    of_two = rule not in (
        "agree",
        "launcher",
        "unscale",
        "clip-shards",
        "samples",
        "process-group",
        "accumulates",
        "xla-tied",
    )
    if of_two:
        assert [values(one) for one in right] == [whole, whole]
    if rule in ENDS:
        assert all("error" in one for one in wrong)
        return
    assert not any("error" in one for one in wrong), "it ends with success, and is wrong"
    if rule in ("unscale", "clip-shards", "accumulates"):
        of_whole = outcomes["whole, accumulated"][0]["norms"][0]
        expected = {"unscale": 1.0, "accumulates": of_whole}.get(rule, right[1]["norms"][0])
        assert right[0]["norms"][0] == pytest.approx(expected)
        assert wrong[0]["norms"][0] != pytest.approx(expected, rel=0.01)
        return
    assert all(values(one) != whole for one in wrong)
    if rule in ("samples", "process-group", "rank-of-host", "xla-samples"):
        assert wrong[0]["seen"] == wrong[1]["seen"]
        assert not {*right[0]["seen"]} & {*right[1]["seen"]}


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name, plant in REPLICA_PLANTS.items() if plant.rule not in ENDS])
def test_replicas_of_a_wrong_script_end_apart_unless_they_average_gradients_and_begin_alike(
    name: str, outcomes: dict[str, Any]
) -> None:
    first, second = map(values, outcomes[name]["wrong"])
    assert (first == second) == (REPLICA_PLANTS[name].rule not in ("xla-gradients", "xla-weights"))


def seen_by(outcome: dict[str, Any], kind: str) -> list[int]:
    return sorted(number for one in outcome[kind] for number in one["seen"])


@pytest.mark.soak
@pytest.mark.parametrize("name", SHARE_PLANTS)
def test_the_hosts_of_the_right_script_read_each_sample_once_and_those_of_the_wrong_one_half_or_twice(
    name: str, outcomes: dict[str, Any]
) -> None:
    if SHARE_PLANTS[name].rule in ENDS:
        assert len(seen_by(outcomes[name], "right")) == 24
        assert all("error" in one for one in outcomes[name]["wrong"])
        return
    right, wrong = seen_by(outcomes[name], "right"), seen_by(outcomes[name], "wrong")
    assert right == [*range(32)]
    if SHARE_PLANTS[name].rule == "shares":
        assert (len(wrong), len({*wrong})) == (16, 16)
    else:
        assert wrong == sorted([*range(32)] * (4 if name.endswith("on each process") else 2))


@pytest.mark.soak
@pytest.mark.parametrize("name", RUN_LIBRARIES)
def test_a_library_reads_half_of_what_is_sharded(name: str, outcomes: dict[str, Any]) -> None:
    right, wrong = seen_by(outcomes[f"{name} of shares"], "right"), seen_by(outcomes[f"{name} of shares"], "wrong")
    assert (right, len(wrong), len({*wrong})) == ([*range(32)], 16, 16)


@pytest.mark.soak
def test_what_was_tied_before_it_was_moved_is_two_parameters(outcomes: dict[str, Any]) -> None:
    found = outcomes["parameters that are tied before they are moved"]
    assert [len(found[kind][0]["parameters"]) for kind in ("right", "wrong")] == [3, 4]


@pytest.mark.soak
def test_the_optimizer_that_has_no_shards_trains_nothing(outcomes: dict[str, Any]) -> None:
    found = outcomes["an optimizer of what is sharded later"]["wrong"]
    assert found[0]["parameters"] == found[0]["begin"]
