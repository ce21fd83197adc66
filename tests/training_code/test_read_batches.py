"""A user's script with read_batches in place of its DataLoader: the pages' own example, on hosts of a job and on a laptop."""

from __future__ import annotations

import difflib
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hosts_and_trainers import free_port
from preloaded import start

TRAINING_CODE = Path(__file__).parents[2] / "training_code"
PAGE = Path(__file__).parents[2] / "docs" / "data-service.md"
BEFORE, AFTER, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
PHOTOS = """
import os, torch
class Photos(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.made = os.environ.get("MADE")
    def __len__(self):
        return 300
    def __getitem__(self, index):
        if self.made:
            with open(self.made, "a") as file:
                print(index, file=file)
        random = torch.Generator().manual_seed(index)
        return torch.rand(64, generator=random), index % 10
"""
GROUPS = {name: {"instance_group_name": name, "hosts": ["localhost"]} for name in ("data_group", "dnn_group")}


class Script:
    """A script that runs, with standard output and error apart."""

    def __init__(self, file: Path, environment: dict[str, str]) -> None:
        self._errors = file.with_suffix(".txt")
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TRAINING_CODE), **environment}
        self._program = start([file], cwd=file.parent, env=variables, errors=self._errors, forkserver=True)
        self.stdout, self.close = self._program.stdout, self._program.close

    @property
    def returncode(self) -> int | None:
        return self._program.poll()

    def communicate(self) -> tuple[str, str]:
        return self._program.communicate()[0], self._errors.read_text()


Host = Callable[..., Script]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Starts a script as on a host of a group, or on a laptop where there is none."""
    (tmp_path / "photos.py").write_text(PHOTOS)
    port, started = free_port(), []

    def begin(script: str, group: str | None = None, **environment: str) -> Script:
        if group is not None:
            environment |= {"SM_CURRENT_HOST": "localhost", "SM_CURRENT_INSTANCE_GROUP": group}
            environment["SM_INSTANCE_GROUPS_DICT"] = json.dumps(GROUPS)
        file = tmp_path / f"script{len(started)}.py"
        file.write_text(script.replace("workers=8", f"workers=2, port={port}"))
        started.append(Script(file, environment))
        return started[-1]

    yield begin
    for running in started:
        running.close()


def test_at_most_five_lines_of_the_script_change() -> None:
    changed = [line for line in difflib.ndiff(BEFORE.splitlines(), AFTER.splitlines()) if line.startswith("+ ")]
    assert 0 < len(changed) <= 5


def test_a_script_whose_data_group_is_none_of_the_jobs_ends_with_an_error(host: Host) -> None:
    lost = host(AFTER.replace("workers=8", "data_group='reader', workers=8"), "data_group")
    assert "data_group must be a group of the job, of which each would train by itself" in lost.communicate()[1]
    assert lost.returncode == 1


@pytest.mark.soak  # trains twice; test_train.py trains on data hosts and without
def test_the_pages_script_trains_on_a_laptop_as_in_a_job(host: Host) -> None:
    serving, training, alone = host(AFTER, "data_group"), host(AFTER, "dnn_group"), host(AFTER)
    printed = training.communicate()[0]
    assert [line.split()[:2] for line in printed.splitlines()] == [["epoch", str(epoch)] for epoch in range(3)]
    assert alone.communicate()[0] == printed
    assert serving.communicate() == ("host localhost of data_group serves batches from 2 worker processes\n", "")
    assert (training.returncode, alone.returncode, serving.returncode) == (0, 0, 0)


@pytest.mark.soak  # test_service.py has a trainer that fails
def test_a_script_that_fails_ends_its_data_hosts_with_the_reason(host: Host) -> None:
    script = AFTER.replace("        loss.backward()\n", "        raise ArithmeticError('no gradient')\n")
    serving, training = host(script, "data_group"), host(script, "dnn_group")
    assert "ArithmeticError: no gradient" in training.communicate()[1]
    assert (
        serving.communicate()[1] == "Exception: TrainerFailed: training rank 0 failed: ArithmeticError: no gradient\n"
    )
    assert (training.returncode, serving.returncode) == (1, 1)


@pytest.mark.soak  # test_service.py has readers that disagree
def test_ranks_that_disagree_with_the_data_hosts_are_told_both_values(host: Host) -> None:
    host(AFTER, "data_group")
    training = host(AFTER.replace("batch_size=64", "batch_size=32"), "dnn_group")
    assert "it serves batch_size 64, not 32 of rank 0 on localhost" in training.communicate()[1]
    assert training.returncode == 1


def test_the_training_hosts_own_workers_begin_where_no_data_host_has_come(host: Host) -> None:
    """While it waits for that host, which fails the job only in the end: test_service_reasons.py."""
    training = host(AFTER.replace("workers=8", "local_workers=1, workers=8"), "dnn_group", PYTHONUNBUFFERED="1")
    printed = [training.stdout.readline().split()[:2] for _ in range(3)]
    assert printed == [["epoch", str(epoch)] for epoch in range(3)]


@pytest.mark.soak  # test_service_epochs.py has local workers that help
def test_the_training_hosts_own_workers_help_and_each_sample_comes_once(host: Host, tmp_path: Path) -> None:
    script = AFTER.replace("workers=8", "local_workers=1, epochs=3, workers=8")
    (tmp_path / "there").touch()  # which stays empty where the data host comes after the end
    serving = host(script, "data_group", MADE=str(tmp_path / "there"))
    training = host(script, "dnn_group", MADE=str(tmp_path / "here"))
    alone = host(AFTER)
    assert training.communicate()[0] == alone.communicate()[0]
    serving.communicate()
    here, there = ((tmp_path / name).read_text().split() for name in ("here", "there"))
    assert len(here) + len(there) == 3 * 300
    assert here


def test_a_host_that_prepares_batches_needs_the_dataset(host: Host) -> None:
    """A host that trains beside data hosts does not: heterogeneous/images, in test_images.py."""
    error = host(AFTER.replace("read_batches(dataset", "read_batches(None")).communicate()[1]
    assert "dataset must not be None on a host that prepares batches, got None on localhost" in error


def test_a_script_that_defines_its_dataset_must_say_that_it_is_the_main_one(host: Host) -> None:
    ended = host(PHOTOS + AFTER.replace("from photos import Photos\n", ""))
    assert "must be called under `if __name__ == '__main__':`" in ended.communicate()[1]
    assert ended.returncode == 1


@pytest.mark.soak  # starts a data host of its own script
def test_what_a_script_with_its_own_dataset_imports_is_loaded_once_for_all_workers(host: Host, tmp_path: Path) -> None:
    (tmp_path / "costly.py").write_text("import os; print('imported', flush=True)")
    body = AFTER.replace("from photos import Photos\n", "").replace("workers=8", "workers=3, epochs=3")
    script = f"import costly\n{PHOTOS}\nif __name__ == '__main__':\n" + textwrap.indent(body, "    ")
    printed, errors = host(script).communicate()
    assert printed.count("epoch") == 3, errors
    assert printed.count("imported") == 2  # by the script, and before the workers are forked
