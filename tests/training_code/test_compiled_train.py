"""compiled/train.py from its command line: what its compiled step learns, keeps, and refuses."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from compiled_program import FOLDER, SMALL, TRAINING_CODE, Ended, channel, run, running
from dockerfile_parse import DockerfileParser
from preloaded import start

sys.path.insert(0, str(TRAINING_CODE))


STEPS = ("--steps=50", "--checkpoint-every=20")
ENDLESS = "--steps=1000000"  # of a run that is stopped: it takes 8 ms for a step, and may be far beyond what was read


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One inductor cache for all, as one job's checkpoints hold it."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def eager_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("eager")


@pytest.fixture(scope="module")
def eager(eager_folder: Path) -> Ended:
    return run(eager_folder, *STEPS)


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def compiled(compiled_folder: Path, cache: dict[str, str]) -> Ended:
    """As the constructs say it: by the job's environment, not by an argument."""
    return run(compiled_folder, *STEPS, TRAINING_COMPILER="inductor", **cache)


@pytest.fixture(scope="module")
def short_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """22 samples of uneven length: with eight to a step, the last step of an epoch has six."""
    file = tmp_path_factory.mktemp("channel") / "lines.txt"
    file.write_bytes(b"\n\n".join(bytes(65 + (n * m) % 26 for m in range(2 + n * n % 31)) for n in range(22)))
    return file


@pytest.fixture(scope="module")
def uneven_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of samples of different lengths, of which one in the first batch fills the sequence, and none in the second."""
    lengths = [*range(8, 32)]
    lengths[torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0))[0]] = 32
    file = tmp_path_factory.mktemp("channel") / "lines.txt"
    file.write_bytes(b"\n\n".join(b"a" * length for length in lengths))
    return file


def test_a_compiled_run_ends_well(compiled: Ended) -> None:
    assert compiled.code == 0, compiled.output


def test_inductors_losses_are_those_of_the_uncompiled_run(compiled: Ended, eager: Ended) -> None:
    assert len(eager.losses) == 50, eager.output
    assert compiled.losses == pytest.approx(eager.losses, abs=1e-4)


def test_the_loss_falls(eager: Ended) -> None:
    assert sum(list(eager.losses.values())[-10:]) / 10 < 4.5 < eager.losses[1]


def test_the_model_is_one_graph_compiled_once(compiled: Ended) -> None:
    assert compiled.measure("compilations") == 1


def test_an_uncompiled_run_compiles_nothing(eager: Ended) -> None:
    assert eager.measure("compilations") == 0
    assert "compile time" not in eager.output


@pytest.mark.parametrize("measure", ["compile time", "steady step", "peak memory"])
def test_the_measures_of_a_compiled_job_are_printed(compiled: Ended, measure: str) -> None:
    assert compiled.measure(measure) > 0


def test_the_saved_model_has_the_names_of_the_plain_one(compiled: Ended, compiled_folder: Path) -> None:
    saved = torch.load(compiled_folder / "output" / "model" / "model.pt", weights_only=True)
    assert "blocks.0.attended.weight" in saved, compiled.output


@pytest.mark.soak
def test_the_demo_judges_the_saved_model_by_text_that_it_has_not_seen(compiled: Ended, compiled_folder: Path) -> None:
    # In a process of its own, since it imports the script's modules by their names.
    judge = "import demo, pathlib, sys; print(demo.judged_compiled(pathlib.Path(sys.argv[1]))[0])"
    command = [sys.executable, "-c", judge, str(compiled_folder / "output" / "model")]
    judged = subprocess.run(command, cwd=TRAINING_CODE.parent, capture_output=True, text=True)
    assert re.match(r"\d\.\d\d bits for a byte of ", judged.stdout), compiled.output + judged.stderr


def test_a_job_that_goes_on_elsewhere_finds_all_graphs_that_the_first_compiled_in_one_file(
    tmp_path: Path, compiled: Ended, compiled_folder: Path, cache: dict[str, str]
) -> None:
    """The other machine has what the C++ compiler made, so that it does not make it again for minutes, and no graph."""
    assert compiled.measure("compilations") == 1, compiled.output
    machine = tmp_path / "machine"
    without = shutil.ignore_patterns("fxgraph", "aotautograd")
    shutil.copytree(cache["TORCHINDUCTOR_CACHE_DIR"], machine, copy_function=os.link, ignore=without)
    kept = tmp_path / "output" / "checkpoints" / "compiler-cache"
    shutil.copytree(compiled_folder / "output" / "checkpoints" / "compiler-cache", kept)
    assert [file.name for file in kept.iterdir()] == ["0.bin"]
    again = run(tmp_path, "--steps=3", TRAINING_COMPILER="inductor", TORCHINDUCTOR_CACHE_DIR=str(machine))
    assert "compilations 1, 2 graphs from the cache" in again.output
    assert list(again.losses.values()) == list(compiled.losses.values())[:3], again.output


def test_a_run_told_to_end_goes_on_exactly_where_it_was(tmp_path: Path, compiled: Ended, cache: dict[str, str]) -> None:
    arguments = ("--checkpoint-every=1000", "--compiler=inductor")
    with running(tmp_path, ENDLESS, *arguments, **cache) as program:
        program.until("step 5 ")
        program.process.send_signal(signal.SIGTERM)
        first = program.end()
    assert first.code == 0, first.output
    last = max(first.losses)
    assert f"stopped by SIGTERM with the checkpoint of step {last}" in first.output
    second = run(tmp_path, f"--steps={max(50, last + 1)}", *arguments, **cache)
    assert [*first.losses, *second.losses] == [*range(1, max(50, last + 1) + 1)]
    assert {**second.losses, **first.losses}.items() >= compiled.losses.items()


def test_a_killed_run_repeats_no_step_that_was_checkpointed(tmp_path: Path, eager: Ended) -> None:
    with running(tmp_path, ENDLESS, *STEPS[1:]) as program:
        program.until("step 61 ")  # before which the checkpoint of step 40 is complete
        program.process.kill()
        first = program.end()
    last = max(first.losses)
    second = run(tmp_path, f"--steps={last + 20}", *STEPS[1:])
    # The last checkpoints may have been complete or not.
    assert min(second.losses) - 1 in range(40, last + 1, 20)
    assert max(second.losses) == last + 20
    expected = {**first.losses, **eager.losses}
    again = second.losses.keys() & expected.keys()
    assert {step: second.losses[step] for step in again} == {step: expected[step] for step in again}


@pytest.mark.soak  # it compiles; test_compiled_guard.py names shapes that change
def test_padding_to_the_longest_is_caught_before_the_second_step(
    tmp_path: Path, compiled: Ended, uneven_lines: Path, cache: dict[str, str]
) -> None:
    # The first batch's graph is that of the compiled run, and comes from its cache.
    ended = run(tmp_path, "--pad=longest", "--compiler=inductor", **channel(uneven_lines), **cache)
    assert ended.code == 1, ended.output
    assert list(ended.losses) == [1]
    assert "Detected recompile" in ended.output
    assert "size mismatch at index 1. expected " in ended.output
    assert "in step 2, which has not updated the weights" in ended.output


@pytest.mark.soak  # it compiles twice; test_compiled_guard.py has the warning
def test_compiling_again_may_be_a_warning(tmp_path: Path, uneven_lines: Path, cache: dict[str, str]) -> None:
    arguments = ("--steps=2", "--pad=longest", "--compiler=inductor", "--on-recompile=warn")
    ended = run(tmp_path, *arguments, **channel(uneven_lines), **cache)
    assert ended.code == 0, ended.output
    assert "step 2 compiled again: " in ended.output


def test_preprocessing_workers_change_no_loss(tmp_path: Path, eager: Ended) -> None:
    losses = run(tmp_path, "--steps=5", "--preprocessing-workers=2").losses
    assert losses == {step: eager.losses[step] for step in losses}
    assert len(losses) == 5


def test_an_evaluation_neither_fails_a_compiled_job_nor_trains_it(tmp_path: Path, cache: dict[str, str]) -> None:
    arguments = ("--steps=4", "--evaluate-every=2")
    ended = run(tmp_path, *arguments, "--compiler=inductor", **cache)
    assert ended.code == 0, ended.output
    held_out = dict(re.findall(r"^step (\d) loss on held-out text ([\d.]+)$", ended.output, re.M))
    assert list(held_out) == ["2", "4"]
    assert float(held_out["4"]) < float(held_out["2"])


def test_a_held_out_loss_is_in_the_format_of_the_training(tmp_path: Path, short_text: Path) -> None:
    """That it is of all ranks is the oracle's."""
    losses = []
    for precision in ("float32", "bfloat16"):
        (folder := tmp_path / precision).mkdir()
        arguments = (
            "--steps=1",
            "--evaluate-every=1",
            "--learning-rate=0",
            "--batch-size=2",
            f"--precision={precision}",
        )
        output = run(folder, *arguments, **channel(short_text)).output
        losses.append(float(re.findall(r"loss on held-out text ([\d.]+)", output)[0]))
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


def test_a_resume_of_other_data_is_refused(tmp_path: Path, short_text: Path, eager_folder: Path, eager: Ended) -> None:
    assert eager.code == 0, eager.output
    shutil.copytree(eager_folder / "output", tmp_path / "output")
    refused = run(tmp_path, "--steps=60", **channel(short_text)).output
    assert re.search(r"samples must be \d+ as in .*, got 22", refused), refused


@pytest.mark.soak  # two ranks compile; the oracle has their losses
def test_two_compiled_ranks_share_a_cache(tmp_path: Path, short_text: Path, cache: dict[str, str]) -> None:
    both = run(tmp_path, "--steps=3", "--compiler=inductor", processes=2, **channel(short_text), **cache)
    assert len(both.losses) == 3, both.output
    assert "compilations 1, 2 graphs from the cache" in both.output  # those of one rank


@pytest.mark.soak  # test_precision.py has the scaler
@pytest.mark.parametrize("compiler", ["none", "inductor"])
def test_fp16_trains_nearly_as_fp32(tmp_path: Path, eager: Ended, cache: dict[str, str], compiler: str) -> None:
    """In one of the 50 steps, the sixth, a gradient overflows: the scaler leaves it out, and what follows is a step behind."""
    # No true gradient has a norm of 100, and each scaled one has.
    ended = run(tmp_path, *STEPS, "--precision=float16", "--clip=100", f"--compiler={compiler}", **cache)
    assert ended.code == 0, ended.output
    assert ended.losses != eager.losses
    assert ended.losses == pytest.approx(eager.losses, abs=0.06)
    first, of_fp32 = (list(one.losses.values())[:6] for one in (ended, eager))
    assert first == pytest.approx(of_fp32, abs=1e-3)


REFUSED = {
    "--batch-size=auto": "argument --batch-size: must be a whole number from 1 on, like 256, got 'auto'",
    "--batch-size=0": "must be a whole number from 1 on, like 256, got '0'",
    "--sequence=longest": "argument --sequence: must be a whole number from 1 on, like 256, got 'longest'",
    "--compiler=xla": "argument --compiler: must be none or inductor, or xla/train.py be started, got 'xla'",
    "--batch-size=1000000": "batch_size times ranks must be from 1 to the number of samples",
    "--microbatches=3": "batch_size must be a multiple of microbatches, 3, like 24, got 4",
    "--sequence=1": "sequence must be at least 2, an input and a target, like 128, got 1",
    "--heads=5": "width must be a multiple of heads, 5, like 80, got 32",
    "TRAINING_COMPILER=tvm": "argument --compiler: must be none or inductor, or xla/train.py be started, got 'tvm'",
}
REFUSING = """
import contextlib, io, json, os, sys, train
found, small = {}, sys.argv[2:]
for argument in json.loads(sys.argv[1]):
    sys.argv[1:], printed = small, io.StringIO()
    if argument.startswith("-"): sys.argv.append(argument)
    else: os.environ |= [argument.split("=")]
    with contextlib.redirect_stderr(printed):
        try: train.main()
        except (SystemExit, ValueError) as error: printed.write(str(error))
    found[argument] = printed.getvalue()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the script says of each, in one process."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "refusing.py").write_text(REFUSING)
    paths = f"{FOLDER}:{TRAINING_CODE}"
    with start([folder / "refusing.py", json.dumps([*REFUSED]), *SMALL], cwd=folder, env={"PYTHONPATH": paths}) as told:
        return dict(json.loads(told.communicate()[0]))


@pytest.mark.parametrize("argument", REFUSED)
def test_bad_input_is_refused(refusals: dict[str, str], argument: str) -> None:
    assert REFUSED[argument] in refusals[argument]


def test_a_channel_without_text_is_refused(tmp_path: Path) -> None:
    assert "the channel text must have .py or .txt files" in run(tmp_path, **channel(tmp_path)).output


# PyTorch/XLA is in no environment of the tests: modules of its names, of which the command line uses nothing.
XLA = ("__init__", "runtime", "core/__init__", "core/xla_model", "debug/__init__", "debug/metrics")


@pytest.fixture
def no_xla(tmp_path: Path) -> str:
    for name in XLA:
        file = tmp_path / "stand-in" / "torch_xla" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return str(tmp_path / "stand-in")


@pytest.mark.parametrize("dockerfile", ["Dockerfile", "xla/Dockerfile"])
def test_the_images_files_are_all_that_it_needs(tmp_path: Path, no_xla: str, dockerfile: str) -> None:
    read = DockerfileParser(fileobj=io.BytesIO((FOLDER / dockerfile).read_bytes()))
    copies = [line["value"].split() for line in read.structure if line["instruction"] == "COPY"]
    for *sources, target in copies:
        for source in (TRAINING_CODE / source for source in sources):
            to = tmp_path / target.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)
    script = tmp_path / "opt" / "ml" / "code" / "train.py"
    with start([script, "--help"], cwd=tmp_path, env={"PYTHONPATH": no_xla}) as helped:
        assert "--checkpoint-every" in helped.communicate()[0]


def test_a_world_that_xla_sees_otherwise_is_refused(tmp_path: Path, no_xla: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from train import check_world\n"
        "for world, ranks in ((1, 2), (4, 2), (2, 1), (2, 2)):\n"
        "    try: check_world(world, ranks)\n"
        "    except SystemExit as error: print(error)"
    )
    paths = ":".join([no_xla, str(FOLDER / "xla"), str(FOLDER), str(TRAINING_CODE)])
    with start([program], cwd=tmp_path, env={"PYTHONPATH": paths}) as process:
        said = process.communicate()[0].splitlines()
    worlds = ((1, 2), (4, 2), (2, 1))
    assert [line.partition(":")[0] for line in said] == [
        f"XLA's world size must be WORLD_SIZE, like {ranks}, got {world}" for world, ranks in worlds
    ]
