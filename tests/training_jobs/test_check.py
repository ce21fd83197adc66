"""Scripts that are interrupted and do not go on where they were: the runs of `check` say which, and `lint` says why."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checked_scripts import (
    ACCELERATE,
    BY_HAND,
    KERAS,
    LIGHTNING,
    NUMBERED,
    OPTIONS,
    PLANTS,
    SPOT,
    TRAIN,
    TRAINER,
)
from distributed_scripts import PLANTS as DISTRIBUTED_PLANTS
from distributed_scripts import changed
from packages import TENSORFLOW, packages
from pages import part
from typer.testing import CliRunner

from training_jobs.check import runs
from training_jobs.check.interruption import compare, merged, step_to_interrupt, trains
from training_jobs.check.processes import compare_processes
from training_jobs.check.runs import Check, Script, check_script
from training_jobs.check.trace import Step, Trace, read_trace
from training_jobs.cli.main import app
from training_jobs.client.errors import TrainingError
from training_jobs.lint import lint_folder
from training_jobs.lint.resume import RESUME
from training_jobs.training_code import SCRIPTS

PAGE = Path(__file__).parents[2] / "docs" / "lint.md"
TRAINING_CODE = Path(__file__).parents[2] / "training_code"
LINTED = [name for name, plant in PLANTS.items() if plant.rule]
RUN = [name for name, plant in PLANTS.items() if plant.says is not None]


@pytest.fixture
def installed(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the scripts of Keras find TensorFlow, which the tests' environment lacks."""

    def has(text: str) -> None:
        if "import keras" in text:
            path = str(packages(pytestconfig, *TENSORFLOW))
            monkeypatch.setenv("PYTHONPATH", path, prepend=os.pathsep)

    return has


RIGHT = {text: name for name, text in ((name, PLANTS[name].scripts()[0]) for name in RUN)}


def found_in(folder: Path, text: str) -> list[tuple[str, int]]:
    (folder / "train.py").write_text(text)
    return [(one.rule, one.line) for one in lint_folder(folder, SPOT)]


def checked(folder: Path, text: str, *, processes: int = 1, interrupt: bool = True) -> Check:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(text)
    checkpoints = folder / "checkpoints"
    argument = str(checkpoints if interrupt else folder / "out.json")
    script = Script(folder / "src" / "train.py", [argument], checkpoints, processes)
    return check_script(script, lambda _: None, interrupt=interrupt)


@pytest.mark.parametrize("name", LINTED)
def test_a_mistake_is_found_on_its_line_and_the_right_script_has_none(name: str, tmp_path: Path) -> None:
    right, wrong = PLANTS[name].scripts()
    [line] = [number for number, text in enumerate(wrong.splitlines(), start=1) if "# HERE" in text]
    assert found_in(tmp_path, right) == []
    assert found_in(tmp_path, wrong) == [(PLANTS[name].rule, line)]


@pytest.mark.soak
@pytest.mark.parametrize("name", RUN)
def test_a_script_that_goes_on_wrong_is_told_of_by_what_it_goes_on_with(
    name: str, tmp_path: Path, installed: Callable[[str], None]
) -> None:
    plant = PLANTS[name]
    installed(plant.script)
    try:
        found = {
            one.subject: one.text for one in checked(tmp_path, plant.scripts()[1]).results if one.verdict == "wrong"
        }
    except TrainingError as error:  # without an interruption
        found = {"script": str(error)}
    assert plant.says is not None
    assert found.keys() == plant.says.keys(), found
    assert all(text in found[subject] for subject, text in plant.says.items()), found


@pytest.mark.soak
@pytest.mark.parametrize("text", list(RIGHT), ids=list(RIGHT.values()))
def test_a_right_script_ends_with_the_same_model_bit_for_bit(
    text: str, tmp_path: Path, installed: Callable[[str], None]
) -> None:
    installed(text)
    found = {one.subject: one.verdict for one in checked(tmp_path, text).results}
    samples = "unknown" if "import keras" in text else "ok"
    assert found == {
        **dict.fromkeys(("parameters", "optimizer", "schedule", "steps", "model"), "ok"),
        "samples": samples,
    }


@pytest.mark.soak
def test_each_process_of_torchrun_is_compared(tmp_path: Path) -> None:
    text = changed(
        BY_HAND,
        ("import os\n", "import os\n\nimport torch.distributed as dist\n"),
        ("    torch.manual_seed(7)\n", '    dist.init_process_group("gloo")\n    torch.manual_seed(7)\n'),
        ("    optimizer = ", "    model = torch.nn.parallel.DistributedDataParallel(model)\n    optimizer = "),
        (
            '        torch.save(last, folder / "new.pt")\n',
            "        if dist.get_rank():\n            continue\n" + SAVED,
        ),
        ('        optimizer.load_state_dict(last["optimizer"])\n', OF_RANK_0),
    )
    found = {one.subject: one for one in checked(tmp_path, text, processes=2).results}
    assert found["parameters"].verdict == "ok"
    assert found["optimizer"].text == "Adam begins without its state: save and load that too (rank 1)"


@pytest.mark.soak
def test_the_data_parallel_training_code_ends_with_the_same_model_bit_for_bit_on_two_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves by torch.distributed.checkpoint beside its steps, which makes a step of its own where it loads."""
    monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path / "model"))
    monkeypatch.setenv("PYTHONPATH", str(TRAINING_CODE), prepend=os.pathsep)
    file = TRAINING_CODE / "data_parallel" / "train.py"
    found = check_script(Script(file, ["--epochs", "5"], tmp_path / "checkpoints", 2), lambda _: None)
    assert {one.subject: one.verdict for one in found.results} == {
        **dict.fromkeys(("processes", "parameters", "optimizer", "schedule", "steps", "model"), "ok"),
        "samples": "unknown",
        "shares": "unknown",
    }


@pytest.mark.soak
def test_the_exception_of_a_rank_is_said_in_place_of_the_report_of_torchrun(tmp_path: Path) -> None:
    text = changed(
        BY_HAND, ("    torch.manual_seed(7)\n", '    torch.manual_seed(7)\n    raise ValueError("no labels")\n')
    )
    with pytest.raises(TrainingError, match=r"exit code 1:\n(.*\n)+.*ValueError: no labels$"):
        checked(tmp_path, text, processes=2)


SAVED = '        torch.save(last, folder / "new.pt")\n'
OF_RANK_0 = '        if dist.get_rank() == 0:\n            optimizer.load_state_dict(last["optimizer"])\n'


def test_a_script_is_run_whole_and_interrupted_by_the_command(tmp_path: Path) -> None:
    right, wrong = PLANTS["no scheduler"].scripts()
    assert right != wrong
    own = ("folder, epochs =", "assert Path(__file__).is_absolute()\nfolder, epochs =")
    (tmp_path / "train.py").write_text(changed(wrong, own))
    command = [
        "check",
        "--checkpoints",
        str(tmp_path / "kept"),
        str(tmp_path / "train.py"),
        str(tmp_path / "kept"),
    ]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 1, ran.output
    lines = [line.split(maxsplit=2) for line in ran.stdout.splitlines()]
    assert ran.stdout.startswith("12 steps, checkpoints after 2, 4, 6, 8, 10, 12\ninterrupted after step 7")
    assert [(line[0], line[1]) for line in lines[-6:]] == [
        ("parameters", "ok"),
        ("optimizer", "ok"),
        ("schedule", "wrong"),
        ("steps", "ok"),
        ("samples", "ok"),
        ("model", "unknown"),
    ]
    assert "runs until step 7" in ran.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "must be a file, like train.py, got 'nowhere.py'"),
        (["--processes", "0", "train.py"], "must be at least 1, like 1, got '0'"),
        (
            ["--checkpoints", ".", "train.py"],
            "must be a folder that is new or empty, like ./checkpoints, got '.' with 'train.py'",
        ),
        (["--checkpoints", "train.py/kept", "train.py"], "must be a folder that can be written"),
        (
            ["--checkpoints", "train.py", "train.py"],
            "must be a folder that can be written, like ./checkpoints, got 'train.py'",
        ),
    ],
)
def test_what_cannot_be_checked_is_an_error_that_says_what_must_be(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    ran = CliRunner().invoke(app, ["check", *arguments])
    assert ran.exit_code != 0
    assert words in " ".join((ran.output + str(ran.exception)).replace("│", " ").split())
    assert [one.name for one in tmp_path.iterdir()] == ["train.py"]


def test_a_folder_that_is_too_large_is_refused_without_its_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "of_tests").mkdir()
    (tmp_path / "of_tests" / "pyvenv.cfg").write_text(" " * 100)
    monkeypatch.setattr(runs, "_LARGEST", 99)
    script = Script(tmp_path / "train.py", [], tmp_path / "checkpoints")
    with pytest.raises(TrainingError, match="makes no step of an optimizer"):
        check_script(script, lambda _: None)
    (tmp_path / "data.bin").write_text(" " * 100)
    with pytest.raises(
        TrainingError, match=r"must have at most 2 GiB, since it is copied for each run, got 0.0 GiB in"
    ):
        check_script(script, lambda _: None)


@pytest.mark.parametrize(
    ("installed", "texts", "found"),
    [
        ("torch keras", ["import torch\n"], ["trace_torch"]),
        ("torch keras", ["import json\n"], ["trace_torch"]),
        ("torch keras", ["import keras\n"], ["trace_keras"]),
        ("torch keras", ["    from tensorflow import keras\n"], ["trace_keras"]),
        (
            "torch keras",
            ["from transformers import Trainer\n", "import tensorflow as tf\n"],
            ["trace_keras", "trace_torch"],
        ),
        ("torch", ["import keras\n"], ["trace_torch"]),
        ("keras", ["import keras\nimport torch\n"], ["trace_keras"]),
    ],
)
def test_a_script_is_traced_by_the_frameworks_that_it_and_those_beside_it_import(
    installed: str, texts: list[str], found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.py").write_text(text)
    monkeypatch.syspath_prepend(SCRIPTS)
    traced = importlib.import_module("trace_steps").traced
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in installed.split() else None)
    assert traced(tmp_path / "0.py") == found


def step(value: int, *, saved: bool = False, state: str = "", rate: float = 0.1, batch: str = "", **more: Any) -> Step:
    digests = {name: [f"{name}{value}", f"{name}{value} too"] for name in ("", "bfloat16", "float16")}
    return Step(0, digests, [state, state], "", [{"lr": rate}], batch, saved, **more)


def trace(*steps: Step, ends: bool = True, saved_last: bool = False) -> Trace:
    names = [("Adam", ["weight", "bias"])] * 2
    return Trace(steps, names, [[]] if ends else None, saved_last)


WHOLE = trace(*(step(at, saved=at in (2, 4), state=f"{at}" if at else "") for at in range(6)))
FIRST = trace(*WHOLE.steps[:5], ends=False)


def results_of(second: Trace, whole: Trace = WHOLE, first: Trace = FIRST) -> dict[str, str]:
    return {one.subject: f"{one.verdict}: {one.text}" for one in compare(whole, first, second)}


def test_a_run_that_goes_on_after_the_last_checkpoint_is_right() -> None:
    found = results_of(trace(*WHOLE.steps[4:]))
    assert found["parameters"] == "ok: those after step 4, the last that was saved"
    assert found["optimizer"] == "ok: the state of Adam"
    assert found["steps"] == "ok: 2 after step 4, as without the interruption"


def test_an_older_checkpoint_is_told_of() -> None:
    found = results_of(trace(*WHOLE.steps[2:]))
    assert found["parameters"] == "wrong: those after step 2, though step 4 was saved after it"
    assert found["steps"] == "ok: 4 after step 2, as without the interruption"


def test_a_checkpoint_that_is_written_beside_the_steps_is_of_an_earlier_one() -> None:
    steps = [step(at, saved=at in (3, 4, 5, 9, 10)) for at in range(14)]
    whole = trace(*steps)
    assert whole.checkpoints == [(3, 5), (9, 10)]
    assert step_to_interrupt(whole) == 12
    first = trace(*steps[:12], ends=False)
    assert (
        results_of(trace(*steps[8:]), whole, first)["parameters"] == "ok: those after step 8, the last that was saved"
    )
    assert results_of(trace(*steps[2:]), whole, first)["parameters"].startswith("wrong: those after step 2, though")


def test_checkpoints_of_each_step_are_each_its_own() -> None:
    assert trace(*(step(at, saved=at > 0) for at in range(4)), saved_last=True).checkpoints == [
        (1, 1),
        (2, 2),
        (3, 3),
        (4, 4),
    ]


@pytest.mark.parametrize(
    ("saved", "steps", "interrupted"),
    [
        ((), 6, None),
        ((0,), 6, None),
        ((6,), 6, None),
        ((2, 4), 6, 5),
        ((2,), 6, 4),
        ((5,), 6, 6),
        (tuple(range(2, 42, 2)), 42, 23),
    ],
)
def test_a_script_is_interrupted_between_two_checkpoints(
    saved: tuple[int, ...], steps: int, interrupted: int | None
) -> None:
    whole = trace(*(step(at, saved=at in saved) for at in range(steps)), saved_last=steps in saved)
    assert step_to_interrupt(whole) == interrupted


def test_parameters_that_are_equal_after_several_steps_are_those_that_were_saved() -> None:
    """The first step of a warm-up, of rate 0, changes nothing."""
    steps = [step(max(at, 1), saved=at == 3) for at in range(4)]
    found = results_of(trace(*steps[1:]), trace(*steps), trace(*steps, ends=False))
    assert found["parameters"].startswith("wrong: those at the begin")


def test_what_is_rounded_or_in_part_another_is_told_of() -> None:
    digests = {"": ["x", "y"], "bfloat16": ["bfloat164", "bfloat164 too"], "float16": ["x", "y"]}
    begin = Step(0, digests, ["4", "4"], "", [{"lr": 0.1}], "", False)
    assert results_of(trace(begin, WHOLE.steps[5]))["parameters"] == "wrong: those after step 4, rounded to bfloat16"
    digests = {name: [f"{name}4", "x"] for name in digests}
    begin = Step(0, digests, ["4", "4"], "", [{"lr": 0.1}], "", False)
    assert results_of(trace(begin, WHOLE.steps[5]))["parameters"] == "wrong: those after step 4, but for bias"
    digests = {name: ["x", "y"] for name in digests}
    begin = Step(0, digests, ["4", "4"], "", [{"lr": 0.1}], "", False)
    found = results_of(trace(begin, WHOLE.steps[5]))
    assert found == {
        "parameters": "wrong: those of no step before: the checkpoint of step 4 is not loaded",
        "steps": "ok: 2 after step 4, as without the interruption",
    }


def test_a_state_of_another_step_or_of_none_is_told_of() -> None:
    later = WHOLE.steps[5]
    assert results_of(trace(step(4, state="5"), later))["optimizer"].startswith(
        "wrong: Adam has another state than after step 4"
    )
    assert results_of(trace(step(4), later))["optimizer"].startswith("wrong: Adam begins without its state")


def test_rates_are_compared_at_each_step_and_within_their_rounding() -> None:
    close, other = step(5, state="5", rate=0.1 * (1 + 1e-9)), step(5, state="5", rate=0.2)
    assert results_of(trace(WHOLE.steps[4], close))["schedule"] == "ok: learning rates from 0.1 to 0.1"
    assert results_of(trace(WHOLE.steps[4], other))["schedule"].startswith(
        "wrong: lr is 0.2 at step 6, and 0.1 without the interruption"
    )


def test_samples_that_begin_again_are_not_known_to_be_wrong() -> None:
    steps = [step(at, saved=at == 2, batch=f"{at}") for at in range(4)]
    whole, first = trace(*steps), trace(*steps[:3], ends=False)
    for batch, found in (
        ("2", "ok: the batch"),
        ("0", "unknown: the batch of step 1 again"),
        ("x", "unknown: another batch"),
    ):
        assert results_of(trace(step(2, batch=batch), steps[3]), whole, first)["samples"].startswith(found)


def test_the_worst_process_speaks_for_all() -> None:
    right, wrong = compare(WHOLE, FIRST, trace(*WHOLE.steps[4:])), compare(WHOLE, FIRST, trace(*WHOLE.steps[2:]))
    parameters = next(iter(merged(iter((right, wrong)))))
    assert (parameters.verdict, parameters.text[-8:]) == ("wrong", "(rank 1)")
    assert merged(iter((right, right))) == right


def ranks(*values: int, **more: Any) -> Trace:
    """A process whose steps begin with these parameters, of which each has a row of its own."""
    rows = more.pop("rows", ())
    found = [step(value, rows=[rows[at]] if rows else (), **more) for at, value in enumerate(values)]
    return replace(trace(*found), last=[[f"{values[-1]}"]])


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (ranks(1, 2), ranks(1, 2), "ok: the same parameters on all 2 at each step"),
        (ranks(1, 2), ranks(1, 2, 3), "wrong: rank 1 makes 3 steps, and rank 0 2"),
        (
            ranks(1, 2),
            ranks(9, 2),
            "unknown: rank 1 has other parameters than rank 0 at step 1, and the same at the end",
        ),
        (ranks(1, 2), ranks(9, 8), "wrong: rank 1 has other parameters than rank 0 at step 1: they begin with others"),
        (
            ranks(1, 2),
            ranks(1, 3),
            "wrong: rank 1 has other parameters than rank 0 at step 2: their gradients are not averaged",
        ),
        (
            ranks(1, 2),
            replace(ranks(1, 2), last=[["3"]]),
            "wrong: they end with other parameters: their gradients are not averaged",
        ),
        (ranks(1, 2), ranks(1, 2, rate=0.2), "wrong: rank 1 has other learning rates than rank 0 at step 1"),
        (ranks(1, 2), ranks(9, 8, sharded=True), "unknown: each has shards of the parameters"),
        (
            ranks(1, 2),
            replace(ranks(9, 8), optimizers=[]),
            "unknown: each has other parameters, as stages of a pipeline have",
        ),
    ],
)
def test_processes_are_held_to_the_same_parameters_at_each_step(one: Trace, other: Trace, found: str) -> None:
    [result, *_] = compare_processes([one, other])
    assert (result.subject, f"{result.verdict}: {result.text}") == ("processes", found)


@pytest.mark.parametrize(
    ("rows", "others", "found"),
    [
        ("abab", "cdcd", "ok: each has 2 samples of its own in 2 steps"),
        ("abab", "cddc", "ok: each has 2 samples of its own in 2 steps"),
        ("abab", "cbcb", "ok: each has 2 samples of its own in 2 steps"),
        ("abcdef", "abcdxy", "wrong: 4 of the 6 samples of rank 1 are rank 0's too: DistributedSampler deals them out"),
        ("abcd", "efab", "ok: each has 4 samples of its own in 4 steps"),
    ],
)
def test_each_process_has_samples_of_its_own_in_the_first_epoch(rows: str, others: str, found: str) -> None:
    traces = [ranks(*range(len(rows)), rows=rows), ranks(*range(len(rows)), rows=others)]
    assert [f"{one.verdict}: {one.text}" for one in compare_processes(traces) if one.subject == "shares"] == [found]


def test_ranks_that_share_a_layer_may_have_the_same_samples() -> None:
    traces = [ranks(1, 2, rows="ab", sharded=True)] * 2
    assert [one.verdict for one in compare_processes(traces)] == ["unknown", "unknown"]
    assert [*compare_processes(traces[:1])] == []


def test_an_optimizer_whose_steps_change_nothing_is_told_of() -> None:
    steps = [step(1), step(1)]
    still, names = replace(trace(*steps), last=[list(steps[0].parameters[""])]), trace().optimizers[:1]
    [found] = trains(replace(still, optimizers=names))
    assert found.text == "none of the 2 steps of Adam changes its parameters: it may have others than the model"
    assert [*trains(replace(still, optimizers=names, last=[["2", "2"]]))] == []
    assert [*trains(replace(still, optimizers=names, steps=[step(1, rate=0.0)] * 2))] == []
    assert [*trains(replace(still, optimizers=names, last=None, steps=[step(1), step(2)]))] == []


TOGETHER = {
    "no wrapper": {"processes": "their gradients are not averaged"},
    "a loss that is averaged": {"processes": "their gradients are not averaged"},
    "no process group": {"shares": "32 of the 32 samples"},
    "no sampler": {"shares": "32 of the 32 samples"},
    "a sampler of all": {"shares": "32 of the 32 samples"},
    "as many ranks as hosts": {"shares": "32 of the 32 samples"},
    "an optimizer of what is sharded later": {"training": "none of the 8 steps"},
}


@pytest.mark.soak
@pytest.mark.parametrize("name", [*TOGETHER, "a norm of shards"])
def test_processes_that_train_apart_are_told_of_and_those_that_train_together_are_not(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPOCHS", "2")
    for text, says in zip(DISTRIBUTED_PLANTS[name].scripts(), ({}, TOGETHER.get(name, {})), strict=True):
        results = checked(tmp_path, text, processes=2, interrupt=False).results
        found = {one.subject: one.text for one in results if one.verdict == "wrong"}
        assert found.keys() == says.keys(), found
        assert all(text in found[subject] for subject, text in says.items()), found


def test_half_of_a_line_of_a_process_that_was_ended_is_left_out(tmp_path: Path) -> None:
    whole = {"optimizer": 0, "kind": "Adam", "names": ["weight"]}
    (tmp_path / "rank-0.jsonl").write_text(json.dumps(whole) + '\n{"step": 0, "par')
    assert read_trace(tmp_path / "rank-0.jsonl") == Trace([], [("Adam", ["weight"])], None, False)


LAST_OF = "def last_of(file):\n    return states[file]\n\n\n"
GOES_ON: dict[str, str] = {
    "a loop of steps": changed(BY_HAND, ("for epoch in range(first, epochs):", "while first < epochs:")),
    "epochs that are skipped": changed(
        BY_HAND, ("range(first, epochs):\n", "range(epochs):\n        if epoch < first:\n            continue\n")
    ),
    "epochs that are left": changed(BY_HAND, ("range(first, epochs)", "range(epochs - first)")),
    "a state of another optimizer, of no file": changed(
        BY_HAND,
        ("range(first, epochs)", "range(epochs)"),
        ("torch.load", "last_of"),
        ("def main():\n", LAST_OF + "def main():\n"),
    ),
    "a rate that goes on by itself": changed(BY_HAND, ('        scheduler.load_state_dict(last["scheduler"])\n', "")),
    "a scheduler of an epoch": changed(
        BY_HAND,
        ("ExponentialLR(optimizer, 0.9)", "StepLR(optimizer, 4)"),
        ('        scheduler.load_state_dict(last["scheduler"])\n', ""),
        ("scheduler.step()", "scheduler.step(epoch)"),
    ),
    "states of all in a loop": changed(
        BY_HAND,
        ("ExponentialLR(optimizer, 0.9)", "StepLR(optimizer, 4)"),
        (
            '        scheduler.load_state_dict(last["scheduler"])\n',
            "        for it in extra:\n            it.load_state_dict(last)\n",
        ),
    ),
    "a scheduler that accelerate is told of": changed(
        ACCELERATE,
        (
            "loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",
            "loader = accelerator.prepare(model, optimizer, loader)",
        ),
        ("    first = 0\n", "    accelerator.register_for_checkpointing(scheduler)\n    first = 0\n"),
    ),
    "saved by a function that the loop calls": changed(
        BY_HAND,
        (
            '        torch.save(last, folder / "new.pt")\n        os.replace(folder / "new.pt", folder / "last.pt")\n',
            "        keep(last)\n",
        ),
        ("def main():\n", 'def keep(last):\n    torch.save(last, folder / "last.pt")\n\n\ndef main():\n'),
    ),
    "saved by a function that a function of the loop calls": changed(
        BY_HAND,
        (
            '        torch.save(last, folder / "new.pt")\n        os.replace(folder / "new.pt", folder / "last.pt")\n',
            "        keep(last)\n",
        ),
        (
            "def main():\n",
            "def keep(last):\n    write(last)\n\n\ndef write(last):\n"
            '    torch.save(last, folder / "last.pt")\n\n\ndef main():\n',
        ),
    ),
    "numbers that are padded": changed(
        changed(BY_HAND, *NUMBERED),
        ('f"epoch-{epoch}.pt"', 'f"epoch-{epoch:04}.pt"'),
        (
            '        last = torch.load(folder / f"epoch-{number}.pt")\n',
            "        last = torch.load(sorted(folder.iterdir())[-1])\n",
        ),
    ),
    "numbers that are compared": changed(
        changed(BY_HAND, *NUMBERED),
        (
            '        last = torch.load(folder / f"epoch-{number}.pt")\n',
            "        last = torch.load(sorted(folder.iterdir(), key=by_number)[-1])\n",
        ),
    ),
    "a Trainer that resumes by a condition": changed(
        TRAINER,
        (
            TRAIN,
            "    if get_last_checkpoint(sys.argv[1]):\n        trainer.train(resume_from_checkpoint=True)\n"
            "    else:\n        trainer.train()\n",
        ),
    ),
    "SGD, which has no moments": changed(PLANTS["no optimizer"].scripts()[1], ("Adam(", "SGD(")),
    "a Trainer that resumes by a positional": changed(TRAINER, ("train(resume_from_checkpoint=", "train(")),
    "Keras's BackupAndRestore": changed(KERAS, ("initial_epoch=epoch, ", ""), ("ModelCheckpoint", "BackupAndRestore")),
    "Keras from a model of others": changed(
        KERAS,
        ("initial_epoch=epoch, ", ""),
        ("    model = keras.models.load_model(file)", "    model = load_model(pretrained)"),
    ),
    "Lightning with resume_from_checkpoint": LIGHTNING.replace(', ckpt_path="last"', "").replace(
        "max_epochs=9,", "max_epochs=9, resume_from_checkpoint=last,"
    ),
    "options without overwrite_output_dir": OPTIONS,
}


@pytest.mark.parametrize("name", GOES_ON)
def test_what_goes_on_by_other_means_has_no_warning(name: str, tmp_path: Path) -> None:
    assert found_in(tmp_path, GOES_ON[name]) == []


@pytest.mark.parametrize(
    ("option", "rule", "line"), [("overwrite_output_dir", "overwrites", 9), ("save_only_model", "save-only-model", 7)]
)
def test_a_hyperparameter_at_which_no_checkpoint_is_resumed_is_found(
    option: str, rule: str, line: int, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(OPTIONS)
    for value in ("True", "true", '"true"', "1"):
        [found] = lint_folder(tmp_path, replace(SPOT, arguments={option: value}))
        assert (found.rule, found.line) == (rule, line)
    for value in ("False", "0", "", None):
        assert lint_folder(tmp_path, replace(SPOT, arguments={option: value})) == []
    assert lint_folder(tmp_path, replace(SPOT, spot=False, arguments={option: "True"})) == []
    assert lint_folder(tmp_path, replace(SPOT, spot=False, checkpoints=True, arguments={option: "True"})) != []


def test_a_job_that_keeps_no_checkpoints_is_not_warned(tmp_path: Path) -> None:
    for name, plant in PLANTS.items():
        (tmp_path / "train.py").write_text(plant.scripts()[1])
        expected = ["no-checkpoint-yet"] if name == "a first start that resumes" else []
        assert [one.rule for one in lint_folder(tmp_path, replace(SPOT, spot=False))] == expected


def test_a_model_to_begin_with_is_no_checkpoint(tmp_path: Path) -> None:
    text = changed(
        TRAINER,
        (TRAIN, "    trainer.train()\n"),
        (
            "BertForSequenceClassification(BertConfig(vocab_size=8, **sizes))",
            "BertForSequenceClassification.from_pretrained(sys.argv[2])",
        ),
    )
    assert [rule for rule, _ in found_in(tmp_path, text)] == ["checkpoint"]
    assert found_in(tmp_path, text.replace("sys.argv[2]", "last_checkpoint")) == []


def test_the_page_has_each_rule_what_is_planted_of_it_what_the_runs_say_and_its_source() -> None:
    rows = ["| rule | a mistake | what `check` says is wrong | source |", "|---|---|---|---|"]
    for rule, check in RESUME.items():
        planted = {name: plant.says for name, plant in PLANTS.items() if plant.rule == rule}
        says = dict.fromkeys(word for says in planted.values() for word in says or ["was not run"]) or ["was not run"]
        source = " ".join((check.__doc__ or "").split())
        rows.append(
            f"| `{rule}` | {'; '.join(planted) or 'an option of transformers before 5'} | {', '.join(says)} | {source} |"
        )
    assert part(PAGE, "resume", "\n".join(rows)) == "\n".join(rows)
