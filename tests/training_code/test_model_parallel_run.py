"""model_parallel/train.py as a job runs it: what it refuses, how it stops, how a lost rank ends it, and what the ranks hold."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from preloaded import Program, agents_store, start

ROOT = Path(__file__).parents[2]
TRAINING_CODE = ROOT / "training_code"
TRAIN = TRAINING_CODE / "model_parallel" / "train.py"
SECONDS = 200  # until a process that would hang fails
SIZES = "--layers 2 --width 32 --heads 8 --hidden 64 --context 16"
SMALL = f"{SIZES} --batch-size 8 --text-bytes 200000 --log-every 1".split()
ENDLESS = [*SMALL, "--steps", "1000000", "--checkpoint-every", "0", "--heartbeat-timeout", "5"]
REFUSED = {
    "--data-shard 4 --tensor 2": (
        "the degrees need 8 ranks (pipeline 1 x data_replicate 1 x data_shard 4 x tensor 2), "
        "but 1 were found (hosts 1 x ranks of each 1)"
    ),
    "--tensor 0": "tensor must be at least 1, like 2, got 0",
    "--pipeline -2": "pipeline must be at least 1, like 2, got -2",
    "--microbatches 0": "microbatches must be at least 1, like 2, got 0",
    "--batch-size 6 --microbatches 4": (
        "batch_size must be divisible by 4 (data_replicate 1 x data_shard 1 x microbatches 4), got 6"
    ),
    "--schedule Zebra": "schedule must be one of GPipe, 1F1B, Interleaved1F1B, got 'Zebra'",
    "--precision fp8": "precision must be one of fp32, bf16, fp16, got 'fp8'",
    "--heads 3": "width must be divisible by 2 x heads, got width 32 and heads 3",
    "--layers 0": "layers must be at least 1, got 0",
    "--cut 1": "cut must be 0 rising layers between 1 and 1, one before each stage but the first, got 1",
}
# What only several ranks could meet, asked of the degrees themselves.
UNFIT = {
    "tensor=3": "heads must be divisible by tensor, got 8 and 3",
    "pipeline=3, microbatches=4": (
        "layers must be at least the stages of the pipeline, got 2 layers and 3 stages (pipeline 3 x 1F1B's 1 of each rank)"
    ),
    "pipeline=2, microbatches=2, schedule='interleaved'": (
        "layers must be at least the stages of the pipeline, got 2 layers and 4 stages "
        "(pipeline 2 x Interleaved1F1B's 2 of each rank)"
    ),
    "pipeline=2, microbatches=1": "microbatches must be at least pipeline with 1F1B, got 1 and 2",
    "data_shard=2, data_replicate=2, microbatches=4": (
        "batch_size must be divisible by 16 (data_replicate 2 x data_shard 2 x microbatches 4), got 8"
    ),
}


def environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join(map(str, (TRAINING_CODE, TRAIN.parent, Path(__file__).parent)))
    return {"PATH": os.environ["PATH"], "PYTHONPATH": paths, **more}


def run(code: str, *arguments: object, **variables: str) -> str:
    """What a program prints that has the training code's modules."""
    with tempfile.TemporaryDirectory() as name:
        program, errors = Path(name) / "program.py", Path(name) / "errors"
        program.write_text(code)
        with start([program, *arguments], cwd=Path(name), env=environment(**variables), errors=errors) as process:
            printed, _ = process.communicate()
            assert process.wait() == 0, errors.read_text()
            return printed


@pytest.fixture(scope="module")
def refusals() -> dict[str, str]:
    code = (
        "import json, sys, torch, train\n"
        "from common.job import Job; from common.process_group import process_group\n"
        "job, found = Job.here({}), {}\n"
        "with process_group(job) as device:\n"
        "    for wrong in json.loads(sys.argv[1]):\n"
        "        try:\n"
        "            options = train.config([*json.loads(sys.argv[2]), *wrong.split()])\n"
        "            train.Training(options, train.degrees_of(options, job), device)\n"
        "            found[wrong] = 'nothing'\n"
        "        except ValueError as error:\n"
        "            found[wrong] = str(error)\n"
        "print(json.dumps(found))"
    )
    return dict(json.loads(run(code, json.dumps(list(REFUSED)), json.dumps(SMALL))))


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_does_not_fit_is_refused(refusals: dict[str, str], arguments: str) -> None:
    assert refusals[arguments] == REFUSED[arguments]


@pytest.fixture(scope="module")
def misfits() -> dict[str, str]:
    code = (
        "import json, sys; from degrees import Degrees\n"
        "found, sizes = {}, {'heads': 8, 'hidden': 66, 'context': 18, 'vocabulary': 256}\n"
        "for wrong in json.loads(sys.argv[1]):\n"
        "    try:\n"
        "        eval(f'Degrees({wrong})').check_model(2, sizes, 8)\n"
        "        found[wrong] = 'nothing'\n"
        "    except ValueError as error:\n"
        "        found[wrong] = str(error)\n"
        "print(json.dumps(found))"
    )
    return dict(json.loads(run(code, json.dumps(list(UNFIT)))))


@pytest.mark.parametrize("degrees", UNFIT)
def test_degrees_that_the_model_or_the_batch_does_not_allow_are_refused(misfits: dict[str, str], degrees: str) -> None:
    assert misfits[degrees] == UNFIT[degrees]


def test_the_degrees_are_those_of_the_job_where_no_argument_says_otherwise() -> None:
    code = "import train; print(*vars(train.config(['--tensor', '4'])).items(), sep='\\n')"
    given = {"data_shard": 2, "tensor": 2, "pipeline": 2, "schedule": "GPipe", "activation_checkpointing": True}
    printed = run(code, TRAINING_PARALLELISM=json.dumps(given))
    for name, value in {**given, "tensor": 4, "cpu_offload": False}.items():
        assert f"('{name}', {value!r})" in printed.splitlines()


def test_matrices_decay_and_vectors_do_not_where_a_decay_is_given(tmp_path: Path) -> None:
    code = (
        "import sys, torch, train\n"
        "from common.job import Job; from common.process_group import process_group\n"
        "job = Job.here({})\n"
        "with process_group(job) as device:\n"
        "    for more in ([], ['--weight-decay', '0.1']):\n"
        "        options = train.config([*sys.argv[1:], *more])\n"
        "        [optimizer] = train.Training(options, train.degrees_of(options, job), device).optimizers\n"
        "        for group in optimizer.param_groups:\n"
        "            print(group['weight_decay'], *sorted({parameter.ndim for parameter in group['params']}))"
    )
    assert run(code, *SMALL).splitlines() == ["0.01 1 2", "0.1 2", "0.0 1"]


# Trains two steps of four sequences, and goes on with steps of eight, another decay and rate; then other settings are refused.
RESUMING = """
import json, loop, sys, torch, train
from dataclasses import replace
from pathlib import Path
from common.job import Job
from common.process_group import process_group
from model import Windows

read, seeded, found = [], [], {}
of_windows, seed_step, step = Windows.batch, loop.seed_step, train.step
Windows.batch = lambda self, first, size: (read.append([first, size]), of_windows(self, first, size))[1]
loop.seed_step = lambda *numbers: (seeded.append(numbers), seed_step(*numbers))[1]
train.step = lambda training, *batch: (found.update(groups=training.optimizers[0].param_groups), step(training, *batch))[1]

class NoStop:
    start_stop_check = lambda self, step: lambda: False

folder = Path(sys.argv[1])
job = replace(Job.here({}), checkpoints=folder / "checkpoints", model=folder)
sizes = "--layers 1 --width 16 --heads 2 --hidden 16 --context 16 --text-bytes 20000 --seed 3 --checkpoint-every 0".split()
with process_group(job) as device:
    def run(*arguments):
        options = train.config([*sizes, *arguments])
        try: train.train(job, options, device, NoStop())
        except ValueError as error: found.setdefault("refused", []).append(str(error).split(", which this run")[0])
    run("--batch-size", "4", "--steps", "2")
    run("--batch-size", "8", "--steps", "4", "--weight-decay", "0.25", "--learning-rate", "0.5")
    found |= {"groups": [[group["lr"], group["weight_decay"]] for group in found["groups"]]}
    for other in ("--seed 4", "--context 8", "--hidden 32", "--text-bytes 10000", "--batch-size 2000", "--vocabulary 99"):
        run("--steps", "5", *other.split())
found |= {"read": read, "seeded": seeded, "kept": sorted(path.name for path in job.checkpoints.iterdir())}
print("\\n" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(json.loads(run(RESUMING, tmp_path_factory.mktemp("resumed")).splitlines()[-1]))


@pytest.mark.soak  # long
def test_another_batch_size_goes_on_at_the_sequence_where_the_data_was(resumed: dict[str, Any]) -> None:
    assert resumed["read"] == [[0, 4], [4, 4], [8, 8], [16, 8]]


@pytest.mark.soak  # long
def test_a_steps_random_numbers_follow_from_seed_sequences_read_data_rank_and_stage(
    resumed: dict[str, Any],
) -> None:
    assert resumed["seeded"] == [[3, 0, 0, 0], [3, 4, 0, 0], [3, 8, 0, 0], [3, 16, 0, 0]]


def test_a_resumed_training_has_the_rate_and_decay_of_its_own_arguments(resumed: dict[str, Any]) -> None:
    assert resumed["groups"] == [[0.5, 0.25], [0.5, 0.0]]


def test_the_last_step_has_a_checkpoint(resumed: dict[str, Any]) -> None:
    assert "step-00000004" in resumed["kept"]


def test_what_alters_a_checkpoints_meaning_and_a_batch_beyond_the_text_are_refused(
    resumed: dict[str, Any],
) -> None:
    beginnings = ["seed must be 3 as in", "sequences must be 1249 as in", "hidden must be 16 as in"]
    beginnings += ["sequences must be 1249 as in", "batch_size must be at most the sequences of an epoch, 1249"]
    beginnings += ["vocabulary must be more than the text's largest byte, "]
    assert len(resumed["refused"]) == len(beginnings)
    for error, beginning in zip(resumed["refused"], beginnings, strict=True):
        assert error.startswith(beginning)


def test_each_sequence_is_read_once_in_an_epoch_whose_order_is_its_own_and_the_seeds() -> None:
    code = (
        "import torch; from model import Windows\n"
        "corpus = Windows(torch.arange(33, dtype=torch.uint8), 4, 0)\n"
        "def read(corpus, firsts, size): return torch.cat([corpus.batch(first, size)[0][:, 0] for first in firsts]).tolist()\n"
        "first, second = read(corpus, range(0, 8, 2), 2), read(corpus, [8, 13], 5)[:8]\n"
        "print(len(corpus), sorted(first) == sorted(second) == list(range(0, 32, 4)), first != second)\n"
        "print(first != read(Windows(torch.arange(33, dtype=torch.uint8), 4, 1), [0], 8))\n"
        "print(*(part.tolist() for part in corpus.batch(first.index(28), 1)))"
    )
    assert run(code).splitlines() == ["8 True True", "True", "[[28, 29, 30, 31]] [[29, 30, 31, 32]]"]


def test_initial_weights_are_a_function_of_name_and_seed() -> None:
    code = (
        "from model import Config, initial\n"
        "def of(*where): return initial(where[0], (2, 2), Config(), where[1]).tolist()\n"
        "print(of('a', 0) == of('a', 0), of('a', 0) == of('b', 0), of('a', 0) == of('a', 1))"
    )
    assert run(code) == "True False False\n"


def test_a_text_without_an_end_to_evaluate_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_bytes(b"a" * 1000)
    code = (
        "import sys, train; from types import SimpleNamespace; from pathlib import Path\n"
        "job = SimpleNamespace(channels={'text': Path(sys.argv[1])})\n"
        "try: train.held_out_corpus(job, train.config(['--text-bytes', '990', '--context', '10']))\n"
        "except ValueError as error: print(error)"
    )
    assert run(code, tmp_path) == (
        "text_bytes must leave more than context, 10 bytes, to evaluate on, like 900000 of a million, got 990, "
        "which leaves 10\n"
    )


def test_an_automatic_cut_makes_the_dearest_stage_as_cheap_as_can_be() -> None:
    assert run("from parallelize import balanced; print(balanced([5, 1, 1, 1, 5, 1], 3))") == (
        "[range(0, 1), range(1, 4), range(4, 6)]\n"
    )


def test_a_checkpoint_is_of_the_step_that_it_is_named_after_though_training_goes_on_meanwhile(
    tmp_path: Path,
) -> None:
    """And the two before it are kept until it is complete."""
    code = (
        "import sys, torch; from dataclasses import replace; from pathlib import Path\n"
        "from common.checkpoints import Checkpointer, Progress\n"
        "from common.job import Job; from common.process_group import process_group\n"
        "def train(folder):\n"
        "    module = torch.nn.Linear(500, 500); optimizer = torch.optim.SGD(module.parameters(), lr=0.1)\n"
        "    checkpointer = Checkpointer(replace(Job.here({}), checkpoints=folder), [module], [optimizer], fixed={})\n"
        "    for step in (1, 2, 3):\n"
        "        torch.nn.init.constant_(module.weight, step)\n"
        "        checkpointer.save(Progress(step))\n"
        "        torch.nn.init.constant_(module.weight, -1)\n"
        "    print(all((folder / f'step-0000000{step}').is_dir() for step in (1, 2)))\n"
        "    checkpointer.wait()\n"
        "    print(*sorted(path.name for path in folder.iterdir()))\n"
        "    print(checkpointer.restore().steps, *module.weight.unique().tolist())\n"
        "with process_group(Job.here({})): train(Path(sys.argv[1]))"
    )
    assert run(code, tmp_path).splitlines() == [
        "True",
        "step-00000002 step-00000003",
        "resumes at step 3, sample 0",
        "3 3.0",
    ]


def test_all_ranks_resume_from_a_checkpoint_that_each_host_has(tmp_path: Path) -> None:
    code = (
        "import sys, torch; from dataclasses import replace; from pathlib import Path\n"
        "from common import checkpoints; from common.job import Job\n"
        "from common.process_group import process_group\n"
        "def train(folder):\n"
        "    module = torch.nn.Linear(2, 2); optimizer = torch.optim.SGD(module.parameters(), lr=0.1)\n"
        "    job = replace(Job.here({}), checkpoints=folder)\n"
        "    checkpointer = checkpoints.Checkpointer(job, [module], [optimizer], fixed={})\n"
        "    for step in (1, 2):\n"
        "        checkpointer.save(checkpoints.Progress(step)); checkpointer.wait()\n"
        "    class OfTwoHosts:\n"  # of which the other lacks the second
        "        get_world_size = lambda self: 2\n"
        "        __getattr__ = lambda self, name: getattr(torch.distributed, name)\n"
        "        def all_gather_object(self, found, mine): found[:] = [mine, {'step-00000001': None}]\n"
        "    checkpoints.dist = OfTwoHosts()\n"
        "    print(checkpointer.restore().steps)\n"
        "with process_group(Job.here({})): train(Path(sys.argv[1]))"
    )
    lines = run(code, tmp_path).splitlines()
    assert lines == [
        "resumes from step-00000001, not from what is not complete: {'step-00000002': 'rank 1 lacks it'}",
        "resumes at step 1, sample 0",
        "1",
    ]


def test_a_checkpoint_is_removed_once_s3_has_a_newer_one(tmp_path: Path) -> None:
    """By the markers that aws/sagemaker-xgboost-container describes, in tests/unit/test_checkpointing.py: beside a file
    FILE.sagemaker-uploading, and FILE.sagemaker-uploaded in its place once the upload is complete."""
    code = (
        "import sys, torch; from dataclasses import replace; from pathlib import Path\n"
        "from common.checkpoints import Checkpointer, Progress\n"
        "from common.job import Job; from common.process_group import process_group\n"
        "def train(folder):\n"
        "    module = torch.nn.Linear(2, 2); optimizer = torch.optim.SGD(module.parameters(), lr=0.1)\n"
        "    checkpointer = Checkpointer(replace(Job.here({}), checkpoints=folder), [module], [optimizer], fixed={})\n"
        "    def save(step):\n"
        "        checkpointer.save(Progress(step)); checkpointer.wait()\n"
        "        print(*(int(path.name[-8:]) for path in sorted(folder.iterdir())))\n"
        "    def mark(step, how):\n"
        "        for file in (folder / f'step-{step:08d}').iterdir():\n"
        "            (file.parent / (file.name.partition('.sagemaker')[0] + how)).touch()\n"
        "    save(1); save(2); mark(1, '.sagemaker-uploaded'); mark(2, '.sagemaker-uploading')\n"
        "    save(3); mark(2, '.sagemaker-uploaded'); mark(3, '.sagemaker-uploading')\n"
        "    save(4); mark(3, '.sagemaker-uploaded')\n"
        "    save(5); mark(4, '.sagemaker-uploaded')\n"
        "    save(6); print(checkpointer.restore().steps)\n"
        "with process_group(Job.here({})): train(Path(sys.argv[1]))"
    )
    lines = run(code, tmp_path).splitlines()
    assert lines == ["1", "1 2", "1 2 3", "2 3 4", "3 4 5", "4 5 6", "resumes at step 6, sample 0", "6"]


@dataclass
class Host:
    """A host of a job: two ranks, in a folder like /opt/ml."""

    folder: Path
    program: Program

    def until(self, beginning: str) -> str:
        """The rest of the first line that begins so."""
        seen = []
        for line in self.program.stdout:
            seen.append(line)
            if line.startswith(beginning):
                return line.removeprefix(beginning)
        raise AssertionError("".join(seen))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Two hosts of two ranks each, that train without end."""
    store = agents_store()
    with contextlib.ExitStack() as stack:
        started = []
        for number, name in enumerate(("algo-1", "algo-2")):
            folder = tmp_path / name
            folder.mkdir()
            variables = {
                "SM_CURRENT_HOST": name,
                "SM_HOSTS": '["algo-1", "algo-2"]',
                "SM_MODEL_DIR": str(folder / "model"),
            }
            program = start(
                [TRAIN, *ENDLESS],
                cwd=folder,
                env=environment(**variables),
                ranks=2,
                world=4,
                first=2 * number,
                store=store,
            )
            started.append(Host(folder, stack.enter_context(program)))
            watchdog = threading.Timer(SECONDS, program.kill)
            watchdog.start()
            stack.callback(watchdog.cancel)
        yield started


def test_a_killed_rank_ends_every_host_and_is_named(hosts: list[Host]) -> None:
    """All other ranks end within the heartbeat timeout, and each host reports which was lost."""
    hosts[0].until("step 2 ")
    hosts[1].program.processes[1].send_signal(signal.SIGKILL)
    printed = [host.program.communicate()[0] for host in hosts]
    codes = [process.wait() for host in hosts for process in host.program.processes]
    assert codes == [1, 1, 1, -signal.SIGKILL], printed
    said = [(host.folder / "output" / "failure").read_text() for host in hosts]
    assert said == ["rank 3 on algo-2 was lost: no heartbeat for 5 s"] * 2


def test_a_stop_keeps_a_checkpoint_of_the_same_step_on_every_host(hosts: list[Host]) -> None:
    hosts[0].until("step 2 ")
    for host in hosts:  # as SageMaker does
        host.program.terminate()
    stops = hosts[0].until("rank 0 on algo-1 stops after step ")
    step = int(re.match(r"\d+", stops)[0])  # type: ignore[index]
    for host in hosts:
        host.program.communicate()
        assert [path.name for path in (host.folder / "checkpoints").iterdir()] == [f"step-{step:08d}"]


MEMORY = ROOT / "benchmarks" / "memory.py"
Rows = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def memory() -> Rows:
    """Rows of the table of docs/memory-by-layout.md, measured anew."""
    command = [sys.executable, MEMORY, "--json"]
    measured = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS).stdout)
    return {row["layout"]: row for row in measured}


@pytest.mark.soak  # measures every layout of the table
def test_each_rank_holds_its_share_of_parameters_and_optimizer_state(memory: Rows) -> None:
    for row in memory.values():
        assert row["parameters"] == pytest.approx(row["parameters_ideal"], rel=0.1), row
        assert row["optimizer"] == pytest.approx(row["optimizer_ideal"], rel=0.1), row


@pytest.mark.soak
def test_checkpointing_keeps_at_most_half_of_the_activations_of_12_layers(memory: Rows) -> None:
    assert memory["FSDP, checkpointed"]["activations"] <= memory["FSDP"]["activations"] / 2


def test_the_table_in_the_docs_has_the_layouts_that_are_measured() -> None:
    table = (ROOT / "docs" / "memory-by-layout.md").read_text()
    assert re.findall(r"^\| ([^|]+) \| [\d]", table, re.M) == list(runpy.run_path(str(MEMORY))["LAYOUTS"])


@pytest.mark.soak  # draws all of them
def test_the_pictures_in_the_docs_are_what_their_command_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "benchmarks" / "pictures.py", tmp_path], check=True)
    for name in ("mesh.svg", "pipeline.svg"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text()


def test_smp_refuses_a_pytorch_without_the_transformers_norm(tmp_path: Path) -> None:
    """Of the library's containers those before PyTorch 2.4."""
    script, errors = Path(__file__).parent / "smp_stand_in.py", tmp_path / "errors"
    settings = environment() | {"WITHOUT_RMS_NORM": "1"}
    with start([script], cwd=tmp_path, env=settings, store=agents_store(), errors=errors) as program:
        program.communicate()
        assert program.wait() == 1
    assert "PyTorch must be 2.4 or later, like SmpV2.image(region, pytorch_version='2.5.1')" in errors.read_text()


def test_smp_trains_with_a_stand_in_for_its_library_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """With a stand-in, since the library is in AWS's containers alone: the file runs, and initialises before it transforms."""
    arguments = [*SMALL, "--precision", "fp32", "--checkpoint-every", "2", "--mp_parameters", "{}", "--warm-up", "2"]
    arguments += ["--base-batch-size", "2", "--rate-rule", "square-root"]
    script = Path(__file__).parent / "smp_stand_in.py"
    errors = tmp_path / "errors"
    runs: list[list[str]] = []
    for steps in ("3", "4"):
        command = [script, *arguments, "--steps", steps]
        # PyTorch joins its ranks also where there is one.
        with start(command, cwd=tmp_path, env=environment(), store=agents_store(), errors=errors) as program:
            runs.append(program.communicate()[0].splitlines())
        of_the_end = tmp_path / "output" / "checkpoints" / "step-00000003"
        shutil.rmtree(of_the_end, ignore_errors=True)
    first, again = runs
    said = [[line.split(" loss ")[0] for line in lines] for lines in runs]
    resumed = ["resumes at step 2, sample 16", "step 3", "step 4"]
    began = ["init", "transform"]
    assert said == [[*began, "step 1", "step 2", "step 3"], [*began, *resumed]], errors.read_text()
    assert again[3] == first[4]
    assert [float(line.rpartition(" learning_rate ")[2]) for line in first[2:]] == [0.003, 0.006, 0.006]
    run("import sys; from exported_model import load; load(sys.argv[1])", tmp_path / "output" / "model" / "model.pt")
