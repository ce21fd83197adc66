"""A training's log: its lines, TensorBoard's event files, and a profile on demand."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "training_code"))

from common.job import Job
from common.training_log import TrainingLog, profile

FLOPS = Path(__file__).parents[2] / "training_code" / "model_parallel" / "flops.py"
CPU = torch.device("cpu")
JOB = Job.here({})


def test_the_first_rank_prints_a_line_with_the_values_and_the_rate(capsys: pytest.CaptureFixture[str]) -> None:
    log = TrainingLog(JOB, CPU)
    log.count(128)
    log.count(128)
    log.write(10, loss=1.25)
    assert re.fullmatch(r"step 10 loss 1\.250000 tokens/s \d+\n", capsys.readouterr().out)


def test_the_rate_has_no_part_of_the_first_step_which_compiles_the_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = TrainingLog(JOB, CPU)
    log.count(128)
    log.write(1, loss=1.25)
    assert capsys.readouterr().out == "step 1 loss 1.250000 tokens/s unknown\n"


def test_the_rate_counts_no_evaluation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 2.0, 102.0, 102.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    log = TrainingLog(JOB, CPU)
    log.count(128)
    log.count(128)
    with log.paused():
        pass
    log.write(2, loss=1.25)
    assert capsys.readouterr().out == "step 2 loss 1.250000 tokens/s 64\n"


def test_other_ranks_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    TrainingLog(dataclasses.replace(JOB, rank=1), CPU).write(10, loss=1.25)
    assert capsys.readouterr().out == ""


def test_tensorboard_reads_the_values_of_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it finds training_code/heterogeneous/tensorflow by that name, if another test has put its parent on the path.
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = TrainingLog(JOB, CPU, events=tmp_path)
    for step, loss in ((1, 4.0), (2, 3.0)):
        log.write(step, loss=loss)
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(1, 4.0), (2, 3.0)]


def test_a_profile_has_the_steps_that_were_asked_for_and_no_others(tmp_path: Path) -> None:
    with profile(dataclasses.replace(JOB, output=tmp_path), first=2, steps=1) as profiler:
        for size in (2, 3, 4):
            torch.ones(size, size) @ torch.ones(size, size)
            profiler.step()
    events = json.loads((tmp_path / "trace-0.json").read_text())["traceEvents"]
    assert len([event for event in events if event.get("name") == "aten::mm"]) == 1


def test_operations_count_matrices_and_attention_and_no_look_ups() -> None:
    flops_per_token = runpy.run_path(str(FLOPS))["flops_per_token"]
    model = nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 16, bias=False))
    assert flops_per_token(model, layers=2, width=8, context=4) == 6 * 8 * 16 + 6 * 2 * 8 * 4


def test_a_gpus_line_has_its_peak_memory_and_the_share_of_its_peak_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * 2**29)
    log = TrainingLog(dataclasses.replace(JOB, ranks=2), torch.device("cuda", 0), flops=989e12)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    log.count(1000)
    log.count(1000)
    log.write(1, loss=1.0)
    line = r"step 1 loss 1\.0+ memory_gib 1\.5000+ mfu ([\d.]+) tokens/s (\d+)\n"
    found = re.fullmatch(line, capsys.readouterr().out)
    assert found is not None
    # A token has the operations of a second, of two GPUs.
    assert float(found[1]) == pytest.approx(int(found[2]) / 2, abs=1)
