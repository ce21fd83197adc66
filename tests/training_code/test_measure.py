"""What `training-jobs measure` finds of a script that is not changed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from preloaded import start

ROOT = Path(__file__).parents[2]
CPUS = len(os.sched_getaffinity(0))
LOADER = """
import torch
from torch.utils.data import DataLoader, IterableDataset

class Noise({base}):
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return torch.full((3, 4), float(index)), index
    def __iter__(self):
        yield from (self[index] for index in range(20))

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("the script's own line")
for epoch in range(1000):
    for inputs, labels in DataLoader(Noise(), batch_size=8):
        model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
READER = """
import torch
from torch.utils.data import Dataset
from data_service import read_batches

class Rows(Dataset):
    def __len__(self):
        return 50
    def __getitem__(self, index):
        return {"row": torch.full((6,), float(index))}

if __name__ == "__main__":
    with read_batches(Rows(), batch_size=5, seed=1) as batches:
        assert len(batches) == 10
        assert batches.state_dict()["epoch"] == batches.samples_read == 0
        for number in range(1000):
            for batch in batches.epoch(number):
                pass
"""

FREEING = """
import resource
import torch
from torch.utils.data import DataLoader

for number, _ in enumerate(DataLoader(torch.zeros(1000, 1))):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(2**20) for _ in range(4)]  # 4,096 pages
    del blocks
    print("page faults of a step:", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def measured(folder: Path, text: str, *options: str) -> tuple[int, str, str]:
    """The exit code of measuring a script of this text, and what was printed to each stream."""
    script, errors = folder / "train.py", folder / "errors"
    script.write_text(text)
    settings = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "training_code")}
    program = ROOT / "training_jobs" / "training_jobs" / "torch_scripts" / "measure.py"
    command = [program, "--seconds", "0.1", "--steps", "2", *options, script]
    with start(command, cwd=folder, env=settings, errors=errors) as program:
        printed, _ = program.communicate()
        return program.wait(), printed, errors.read_text()


def found(folder: Path, text: str) -> dict[str, Any]:
    code, printed, errors = measured(folder, text, "--json")
    assert code == 0, errors
    return dict(json.loads(printed))


@pytest.mark.parametrize("base", ["torch.utils.data.Dataset", "IterableDataset"])
def test_batches_of_a_dataloader_are_measured_by_one_process_to_one_for_each_cpu(tmp_path: Path, base: str) -> None:
    result = found(tmp_path, LOADER.replace("{base}", base))
    assert (result["batch_size"], result["sample_bytes"]) == (8, 3 * 4 * 4 + 8)
    assert result["gradient_bytes"] == (4 * 2 + 2) * 4
    assert [int(workers) for workers in result["scaling"]] == sorted(
        {1, CPUS, *(2**n for n in range(CPUS.bit_length() - 1))}
    )
    assert result["preprocess_seconds"] == CPUS / result["scaling"][str(CPUS)]
    assert result["step_seconds"].keys() == {"cpu"}


def test_batches_of_the_data_service_are_measured(tmp_path: Path) -> None:
    result = found(tmp_path, READER)
    assert (result["batch_size"], result["sample_bytes"], result["gradient_bytes"]) == (5, 24, None)


def test_steps_reuse_the_memory_that_those_before_freed(tmp_path: Path) -> None:
    code, _, errors = measured(tmp_path, FREEING)
    assert code == 0, errors
    faults = [int(line.rpartition(" ")[2]) for line in errors.splitlines() if line.startswith("page faults")]
    assert faults[-1] < 1000


def test_what_plan_reads_goes_to_a_file(tmp_path: Path) -> None:
    from training_jobs.planning.measurement import read_measurement

    code, printed, errors = measured(tmp_path, LOADER.replace("{base}", "IterableDataset"), "--to", "measured.json")
    assert (code, printed.splitlines()[1]) == (0, "batch         8 samples of 56 bytes")
    assert "the script's own line" in errors
    assert read_measurement(tmp_path / "measured.json").batch_size == 8


def test_a_script_without_a_loop_over_batches_is_an_error(tmp_path: Path) -> None:
    code, _, errors = measured(tmp_path, "print('nothing to do')")
    assert code == 1
    assert "train.py ended before a loop over a DataLoader or read_batches was measured" in errors
