"""compiled/train.py from its command line: what its compiled step learns, keeps, and refuses."""

from __future__ import annotations

import io
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from compiled_program import FOLDER, TRAINING_CODE, Ended, channel, run, running
from dockerfile_parse import DockerfileParser
from preloaded import start

STEPS = ("--steps=50", "--checkpoint-every=20")
ENDLESS = "--steps=1000000"  # of a run that is stopped: it takes 8 ms for a step, and may be far beyond what was read
TWO = ("--steps=12",)


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


def test_a_second_start_finds_all_that_the_first_compiled(
    tmp_path: Path, compiled: Ended, cache: dict[str, str]
) -> None:
    def written() -> dict[Path, int]:
        """Graphs, their backward, and machine code."""
        files = Path(cache["TORCHINDUCTOR_CACHE_DIR"]).rglob("*")
        kept = [file for file in files if {"fxgraph", "aotautograd"} & {*file.parts} or file.suffix == ".so"]
        return {file: file.stat().st_mtime_ns for file in kept}

    before = written()
    assert before
    again = run(tmp_path, "--steps=3", TRAINING_COMPILER="inductor", **cache)
    assert list(again.losses.values()) == list(compiled.losses.values())[:3], again.output
    assert written() == before


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
        program.until("step 41 ")
        program.process.kill()
        first = program.end()
    last = max(first.losses)
    second = run(tmp_path, f"--steps={max(50, last + 20)}", *STEPS[1:])
    # The checkpoint of the last step that was printed may be there or not.
    assert min(second.losses) - 1 in (last - last % 20, last - 1 - (last - 1) % 20)
    assert max(second.losses) == max(50, last + 20)
    expected = {**first.losses, **eager.losses}
    again = second.losses.keys() & expected.keys()
    assert {step: second.losses[step] for step in again} == {step: expected[step] for step in again}


@pytest.mark.soak  # it compiles twice; test_compiled_guard.py names shapes that change
def test_padding_to_the_longest_is_caught_and_the_shapes_are_named(
    tmp_path: Path, compiled: Ended, uneven_lines: Path, cache: dict[str, str]
) -> None:
    # The first batch's graph is that of the compiled run, and comes from its cache.
    ended = run(tmp_path, "--pad=longest", "--compiler=inductor", **channel(uneven_lines), **cache)
    assert ended.code == 1, ended.output
    [said] = [line for line in ended.output.splitlines() if line.startswith("guard.CompiledAgain: ")]
    assert re.search(
        r"step 2 compiled again, 2 graphs after 1: tokens was \[4, 32\] int64 and is \[4, \d+\] int64;", said
    )
    assert "tensor 'tokens' size mismatch at index 1. expected " in said


@pytest.mark.soak  # it compiles twice; test_compiled_guard.py has the warning
def test_compiling_again_only_warns_when_told_so(tmp_path: Path, uneven_lines: Path, cache: dict[str, str]) -> None:
    arguments = ("--steps=2", "--pad=longest", "--compiler=inductor", "--on-recompile=warn")
    ended = run(tmp_path, *arguments, **channel(uneven_lines), **cache)
    assert ended.code == 0, ended.output
    assert "compiled again, 2 graphs after 1" in ended.output


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


@pytest.mark.soak  # test_precision.py has the scaler
@pytest.mark.parametrize("compiler", ["none", "inductor"])
def test_fp16_trains_nearly_as_fp32(tmp_path: Path, eager: Ended, cache: dict[str, str], compiler: str) -> None:
    """In one of the 50 steps, the ninth, a gradient overflows: the scaler leaves it out, and what follows is a step behind."""
    ended = run(tmp_path, *STEPS, "--precision=float16", f"--compiler={compiler}", **cache)
    assert ended.code == 0, ended.output
    assert ended.losses != eager.losses
    assert ended.losses == pytest.approx(eager.losses, abs=0.06)
    first, of_fp32 = (list(one.losses.values())[:8] for one in (ended, eager))
    assert first == pytest.approx(of_fp32, abs=1e-3)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, long_lines: Path) -> Ended:
    return run(tmp_path_factory.mktemp("two"), *TWO, processes=2, **channel(long_lines))


def test_two_ranks_train_as_one_with_the_double_batch(tmp_path: Path, long_lines: Path, two_ranks: Ended) -> None:
    one = run(tmp_path, *TWO, "--batch-size=8", **channel(long_lines))
    assert len(one.losses) == 12, one.output
    assert two_ranks.losses == pytest.approx(one.losses, abs=1e-4)


@pytest.mark.soak  # two ranks compile; each part is tested alone
def test_two_compiled_ranks_train_as_two_uncompiled_ones(
    tmp_path: Path, long_lines: Path, two_ranks: Ended, cache: dict[str, str]
) -> None:
    compiled = run(tmp_path, *TWO, "--compiler=inductor", processes=2, **channel(long_lines), **cache)
    assert len(compiled.losses) == 12, compiled.output
    assert compiled.losses == pytest.approx(two_ranks.losses, abs=1e-4)
    assert compiled.measure("compilations") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch-size=auto"], "argument --batch-size: must be one whole number for the whole run, from 1 on"),
        (["--batch-size=0"], "like 32, got '0'"),
        (["--sequence=-1"], "argument --sequence: must be one whole number for the whole run, from 1 on"),
        (["--sequence=longest"], "like 32, got 'longest'"),
        (["--compiler=jit"], "argument --compiler: must be one of none, inductor, xla, got 'jit'"),
        (["--compiler=xla"], "--compiler xla needs torch_xla, which this Python does not have"),
        (["--compiler=xla", "--precision=float16"], "precision must be float32 or bfloat16 with --compiler xla"),
        (["--batch-size=1000000"], "batch-size times ranks must be at most the number of samples"),
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


def test_the_images_files_are_all_that_it_needs(tmp_path: Path) -> None:
    dockerfile = DockerfileParser(fileobj=io.BytesIO((FOLDER / "Dockerfile").read_bytes()))
    copies = [line["value"].split() for line in dockerfile.structure if line["instruction"] == "COPY"]
    for *sources, target in copies:
        for source in (TRAINING_CODE / source for source in sources):
            to = tmp_path / target.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, to)
    script = tmp_path / "opt" / "ml" / "code" / "train.py"
    with start([script, "--help"], cwd=tmp_path, env={}) as helped:
        assert "--on-recompile" in helped.communicate()[0]
