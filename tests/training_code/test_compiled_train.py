"""compiled/train.py from its command line: what its compiled step learns, keeps, and refuses."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from compiled_program import FOLDER, TRAINING_CODE, Ended, channel, module, run, running
from dockerfile_parse import DockerfileParser
from preloaded import start

sys.path.insert(0, str(TRAINING_CODE))

from common.order import Order

STEPS = ("--steps=50", "--checkpoint-every=20")
ENDLESS = "--steps=1000000"  # of a run that is stopped: it takes 8 ms for a step, and may be far beyond what was read
ELEVEN = ("--steps=11",)
REST = ("--clip=0.5", "--weight-decay=0.1", "--warm-up=4", "--learning-rate=0.003")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One inductor cache for all, as one job's checkpoints hold it."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return run(tmp_path_factory.mktemp("eager"), *STEPS)


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def compiled(compiled_folder: Path, cache: dict[str, str]) -> Ended:
    """As the constructs say it: by the job's environment, not by an argument."""
    return run(compiled_folder, *STEPS, TRAINING_COMPILER="inductor", **cache)


@pytest.fixture(scope="module")
def long_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of which every sample is as long as the sequence, so that nothing is padded."""
    file = tmp_path_factory.mktemp("channel") / "lines.txt"
    file.write_bytes(b"\n\n".join(bytes([65 + n % 26]) * 7 + bytes([97 + n // 26]) * 25 for n in range(26 * 20)))
    return file


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


def first_of(ended: Ended, steps: int) -> dict[int, float]:
    return {step: ended.losses[step] for step in range(1, steps + 1)}


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


def test_an_evaluation_neither_fails_a_compiled_job_nor_is_part_of_its_training(
    tmp_path: Path, cache: dict[str, str]
) -> None:
    arguments = ("--steps=4", "--evaluate-every=2")
    ended = run(tmp_path, *arguments, "--compiler=inductor", **cache)
    assert ended.code == 0, ended.output
    held_out = dict(re.findall(r"^step (\d) loss on held-out text ([\d.]+)$", ended.output, re.M))
    assert list(held_out) == ["2", "4"]
    assert float(held_out["4"]) < float(held_out["2"])


def test_a_held_out_loss_is_of_all_ranks_and_in_the_format_of_the_training(tmp_path: Path, short_text: Path) -> None:
    def held_out(*arguments: str, processes: int = 1) -> float:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        still = ("--steps=1", "--evaluate-every=1", "--learning-rate=0")
        output = run(folder, *still, *arguments, processes=processes, **channel(short_text)).output
        return float(re.findall(r"loss on held-out text ([\d.]+)", output)[0])

    whole = held_out("--batch-size=2")  # of three texts, of which the second batch has one
    assert held_out("--batch-size=1", processes=2) == pytest.approx(whole, abs=1e-5)
    half = held_out("--batch-size=2", "--precision=bfloat16")
    assert half != whole
    assert half == pytest.approx(whole, abs=0.02)


@pytest.mark.soak  # test_precision.py has the scaler
@pytest.mark.parametrize("compiler", ["none", "inductor"])
def test_fp16_trains_nearly_as_fp32(tmp_path: Path, eager: Ended, cache: dict[str, str], compiler: str) -> None:
    """In one of the 50 steps, the ninth, a gradient overflows: the scaler leaves it out, and what follows is a step behind."""
    # No true gradient has a norm of 100, and each scaled one has.
    ended = run(tmp_path, *STEPS, "--precision=float16", "--clip=100", f"--compiler={compiler}", **cache)
    assert ended.code == 0, ended.output
    assert ended.losses != eager.losses
    assert ended.losses == pytest.approx(eager.losses, abs=0.06)
    first, of_fp32 = (list(one.losses.values())[:8] for one in (ended, eager))
    assert first == pytest.approx(of_fp32, abs=1e-3)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, short_text: Path) -> Ended:
    return run(tmp_path_factory.mktemp("alone"), "--steps=16", "--batch-size=8", *REST, **channel(short_text))


@pytest.fixture(scope="module")
def two_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two_ranks(two_folder: Path, short_text: Path) -> Ended:
    return run(two_folder, *ELEVEN, *REST, processes=2, **channel(short_text))


def test_two_ranks_train_as_one_with_the_double_batch(alone: Ended, two_ranks: Ended) -> None:
    """Of texts of uneven length: a mean of the ranks' means would give each text another weight."""
    assert len(two_ranks.losses) == 11, two_ranks.output
    assert two_ranks.losses == pytest.approx(first_of(alone, 11), abs=1e-5)


def test_microbatches_on_two_ranks_train_as_one_batch(tmp_path: Path, short_text: Path, alone: Ended) -> None:
    parts = run(tmp_path, *ELEVEN, *REST, "--microbatches=4", processes=2, **channel(short_text))
    assert parts.losses == pytest.approx(first_of(alone, 11), abs=1e-5), parts.output


def test_another_number_of_ranks_goes_on_at_the_sample(
    tmp_path: Path, short_text: Path, two_folder: Path, two_ranks: Ended, alone: Ended
) -> None:
    assert two_ranks.code == 0, two_ranks.output
    shutil.copytree(two_folder / "output", tmp_path / "output")
    rest = run(tmp_path, "--steps=16", "--batch-size=8", *REST, **channel(short_text))
    assert "resumes at step 11, sample 82, ranks 2 -> 1, batch_size 4 -> 8" in rest.output  # of epochs of 8, 8 and 6
    assert list(rest.losses) == [12, 13, 14, 15, 16]
    assert rest.losses == pytest.approx({step: alone.losses[step] for step in rest.losses}, abs=1e-5)


def test_a_resumed_job_of_other_data_is_refused(
    tmp_path: Path, long_lines: Path, two_folder: Path, two_ranks: Ended
) -> None:
    assert two_ranks.code == 0, two_ranks.output
    shutil.copytree(two_folder / "output", tmp_path / "output")
    assert "samples must be 22 as in " in run(tmp_path, "--steps=16", **channel(long_lines)).output


def test_a_steps_loss_is_the_mean_of_all_targets_of_its_texts(short_text: Path, alone: Ended) -> None:
    """As the texts have it one by one, without padding."""
    model, text = module("model"), module("text")
    texts = text.Text(short_text, 32)
    plain = model.build(Namespace(seed=0, sequence=32, width=32, layers=1, heads=2))
    first = [torch.tensor([list(texts[int(number)])]) for number in Order(len(texts), 8, seed=0).at(0)]
    targets = [one.shape[1] - 1 for one in first]
    assert len({*targets}) > 4
    losses = [plain(one[:, :-1], one[:, 1:], torch.tensor(n)).item() * n for one, n in zip(first, targets, strict=True)]
    assert alone.losses[1] == pytest.approx(sum(losses) / sum(targets), abs=1e-5)


@pytest.mark.soak  # two ranks compile; each part is tested alone
def test_two_compiled_ranks_train_as_two_uncompiled_ones(
    tmp_path: Path, short_text: Path, compiled: Ended, two_ranks: Ended, cache: dict[str, str]
) -> None:
    assert compiled.code == 0, compiled.output
    arguments = (*ELEVEN, *REST, "--compiler=inductor")
    both = run(tmp_path, *arguments, processes=2, **channel(short_text), **cache)
    assert len(both.losses) == 11, both.output
    assert both.losses == pytest.approx(two_ranks.losses, abs=1e-4)
    assert "compilations 1, 2 graphs from the cache" in both.output  # those of one rank


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch-size=auto"], "argument --batch-size: must be one whole number for the whole run, from 1 on"),
        (["--batch-size=0"], "like 32, got '0'"),
        (["--sequence=-1"], "argument --sequence: must be one whole number for the whole run, from 1 on"),
        (["--sequence=longest"], "like 32, got 'longest'"),
        (["--compiler=xla"], "argument --compiler: must be none or inductor, or xla/train.py be started, got 'xla'"),
        (["--batch-size=1000000"], "batch_size times ranks must be from 1 to the number of samples"),
        (["--microbatches=3"], "batch_size must be a multiple of microbatches, 3, like 24, got 4"),
        (["--sequence=1"], "sequence must be at least 2, an input and a target, like 128, got 1"),
        (["--heads=5"], "width must be a multiple of heads, 5, like 80, got 32"),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    ended = run(tmp_path, *arguments)
    assert ended.code != 0
    assert said in ended.output


def test_an_unknown_compiler_of_the_environment_is_refused(tmp_path: Path) -> None:
    assert "got 'tvm'" in run(tmp_path, TRAINING_COMPILER="tvm").output


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


@pytest.mark.parametrize(("xla_world", "ranks"), [(1, 2), (4, 2), (2, 1), (2, 2)])
def test_a_world_that_xla_sees_otherwise_is_refused(tmp_path: Path, no_xla: str, xla_world: int, ranks: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"from train import check_world\ncheck_world({xla_world}, {ranks})")
    paths = ":".join([no_xla, str(FOLDER / "xla"), str(FOLDER), str(TRAINING_CODE)])
    with start([program], cwd=tmp_path, env={"PYTHONPATH": paths}) as process:
        output, code = process.communicate()[0], process.wait()
    assert code == (xla_world != ranks), output
    if code:
        assert output.startswith(f"XLA's world size must be WORLD_SIZE, like {ranks}, got {xla_world}: ")
