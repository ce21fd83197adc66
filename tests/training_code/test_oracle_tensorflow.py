"""TensorFlow's scripts beside one process of plain TensorFlow and NumPy: one host and two, uneven batches, a resume between."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import TRAINING_CODE, Ended, Program, free_port, losses_of
from test_interruptions import KINDS, packages_of, quiet_tensorflow

# They install TensorFlow, which each host imports.
pytestmark = pytest.mark.soak
__all__ = ["packages_of"]
ORACLE = Path(__file__).with_name("oracle_tensorflow.py")
SCHEDULE = "--warm-up 3 --least-rate 0.1 --base-batch-size 8 --rate-rule square-root"
SMALL = "--sequence 16 --width 16 --layers 1 --heads 2 --log-every 1 --checkpoint-every 100"
ARGUMENTS = {"data_parallel": SCHEDULE, "heterogeneous": SCHEDULE, "compiled": f"{SCHEDULE} {SMALL}"}
# Small where a pool's maximum differs by rounding, which Adam would make a step of the rate.
PEAKS = {"data_parallel": 1e-3, "heterogeneous": 1e-5, "compiled": 1e-3}
LOSSES, WEIGHTS, GRADIENTS, CONVOLUTIONS = 1e-5, 5e-6, 1e-6, 5e-4
# The script, which is stopped after a step as by SIGTERM, or not, and on several devices that are parts of the CPU.
SCRIPT = """
import pathlib, runpy, sys
import tensorflow as tf
from common import tensorflow_strategy
_, script, stop, devices, *arguments = sys.argv
if int(stop):
    tensorflow_strategy.Stop.agreed = lambda self, step: step == int(stop)
if int(devices) > 1:
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(int(devices))]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    names = [f"CPU:{number}" for number in range(len(parts))]
    tensorflow_strategy.strategy_of = lambda job: tf.distribute.MirroredStrategy(names)
sys.argv, sys.path[0] = [script, *arguments], str(pathlib.Path(script).parent)
runpy.run_path(script, run_name="__main__")
"""


@dataclasses.dataclass(frozen=True)
class Phase:
    """A run of a script, before whose end ``until`` samples are read."""

    hosts: int
    batch: int
    arguments: str
    until: int
    stop: int = 0  # the step after which it is stopped
    devices: int = 1  # of a host


def points(folder: Path) -> str:
    numbers = np.random.default_rng(0)
    rows = np.append(numbers.normal(size=(50, 2)).round(6), numbers.integers(0, 2, (50, 1)), 1).tolist()
    (folder / "points.csv").write_text("\n".join(["x,y,spiral", *(f"{x},{y},{spiral:.0f}" for x, y, spiral in rows)]))
    return "points"


def digits(folder: Path) -> str:
    numbers = np.random.default_rng(0)
    np.savez(folder / "digits.npz", images=numbers.integers(0, 17, (60, 8, 8)), labels=numbers.integers(0, 10, 60))
    return "digits"


def text(folder: Path) -> str:
    chosen = random.Random(0)
    paragraphs = ["".join(chosen.choices("abc def", k=chosen.choice((2, 3, 17)))) for _ in range(23)]
    (folder / "text.txt").write_text("\n\n".join(paragraphs))
    return "text"


CHANNELS = {"data_parallel": points, "heterogeneous": digits, "compiled": text}
CASES = {
    # Epochs of 50 points: 16, 16, 16 and 2, of which the second host has none; then 12, 6 of the second epoch, 12, 12, 12, 12, 2.
    "data_parallel": [Phase(2, 8, "--epochs 9", 82, stop=6), Phase(1, 12, "--epochs 3", 150)],
    # 48 digits: 8, ... on two devices; then 10, 6 of the second epoch on two hosts, 10, 10, 10, 10, 8.
    "heterogeneous": [Phase(1, 4, "--epochs 9", 80, stop=10, devices=2), Phase(2, 5, "--epochs 3", 144)],
    # 23 paragraphs of 2 to 17 bytes: 5, 5, 5, 5, 3, 5, 5; then 4, 4, 4, 1 of the second epoch on two hosts, 4, ...
    "compiled": [Phase(1, 5, "--steps 7", 33), Phase(2, 2, "--steps 16", 66)],
    # 6, 6, 6, 5, 6, 6 on two hosts; then 4, 4, 3 of the second epoch on two devices, 4, ...
    "compiled by XLA": [
        Phase(2, 3, "--steps 6 --compiler xla", 35),
        Phase(1, 2, "--steps 12 --compiler xla", 58, devices=2),
    ],
}


class Training:
    """The runs of a kind's script on one folder of data."""

    def __init__(self, kind: str, folder: Path, packages: Path | None) -> None:
        self.kind, self.folder, self._packages = kind, folder, packages
        self.data = folder / "data"
        self.data.mkdir()
        self._channel = CHANNELS[kind](self.data)

    def run(self, phase: Phase, more: str = "", folders: Sequence[Path] = ()) -> list[Ended]:
        """Its hosts in ``folders``, by default in one, and so with the same checkpoints."""
        workers = {"worker": [f"localhost:{free_port()}" for _ in range(phase.hosts)]}
        names, hosts = [f"algo-{number + 1}" for number in range(phase.hosts)], []
        script = TRAINING_CODE / self.kind / "tensorflow" / "train.py"
        arguments = f"--batch-size {phase.batch} --learning-rate {PEAKS[self.kind]} {ARGUMENTS[self.kind]}".split()
        arguments += f"{phase.arguments} {more}".split()
        for index, name in enumerate(names):
            variables = {"SM_HOSTS": json.dumps(names), "SM_CURRENT_HOST": name, **quiet_tensorflow(self.folder)}
            variables |= {
                "SM_CHANNELS": json.dumps([self._channel]),
                f"SM_CHANNEL_{self._channel.upper()}": str(self.data),
            }
            if phase.hosts > 1:
                variables["TF_CONFIG"] = json.dumps({"cluster": workers, "task": {"type": "worker", "index": index}})
            where = folders[index] if folders else self.folder
            command = (SCRIPT, script, phase.stop, phase.devices, *arguments)
            hosts.append(Program("-c", where, *command, packages=self._packages, **variables))
        found = [host.end() for host in hosts]
        for host in hosts:
            host.close()
        return found

    def completed(self, phase: Phase) -> list[str]:
        """What the first host printed."""
        found = self.run(phase)
        assert all(host.code == 0 for host in found), found
        return found[0].lines

    def oracle(self, phases: Sequence[Phase]) -> dict[str, Any]:
        described = [{**dataclasses.asdict(phase), "length": int(phase.arguments.split()[1])} for phase in phases]
        what = {"kind": self.kind, "peak": PEAKS[self.kind], "folder": str(self.data), "phases": described}
        what["checkpoints"] = str(self.folder / "output" / "checkpoints")
        (self.folder / "what.json").write_text(json.dumps(what))
        variables = quiet_tensorflow(self.folder)
        program = Program(ORACLE, self.folder, self.folder / "what.json", packages=self._packages, **variables)
        plain = program.end()
        program.close()
        assert plain.code == 0, plain
        return dict(json.loads(plain.lines[-1]))


@pytest.mark.parametrize("case", CASES)
def test_losses_weights_and_gradients_are_those_of_one_process_over_hosts_batches_and_a_resume(
    packages_of: Callable[..., Path | None], case: str, tmp_path: Path
) -> None:
    first, second = CASES[case]
    training = Training(case.split()[0], tmp_path, packages_of(KINDS["tensorflow compiled"]))
    losses = losses_of(training.completed(first))
    lines = training.completed(second)
    assert f"batch_size {first.batch} -> {second.batch}" in "\n".join(lines)
    losses |= losses_of(lines)
    expected = training.oracle([first, second])
    print(case, expected["off"])
    assert losses
    of_the_oracle = {name: expected["losses"][name] for name in losses}
    assert {name: float(loss) for name, loss in losses.items()} == pytest.approx(of_the_oracle, abs=LOSSES)
    assert expected["steps"][0] == expected["steps"][1]
    assert expected["samples"] == [second.until] * 2
    assert expected["off"]["means of gradients"] < GRADIENTS
    assert expected["off"]["weights"] < WEIGHTS
    assert expected["off"]["of convolutions"] < CONVOLUTIONS


@pytest.mark.parametrize("kind", CHANNELS)
def test_a_run_that_cannot_train_or_go_on_ends_before_its_first_step_by_the_name_of_the_setting(
    packages_of: Callable[..., Path | None], kind: str, tmp_path: Path
) -> None:
    training = Training(kind, tmp_path, packages_of(KINDS["tensorflow compiled"]))
    one = Phase(1, 5, "--steps 2" if kind == "compiled" else "--epochs 1", 0)
    [large] = training.run(dataclasses.replace(one, batch=2000))
    assert large.code != 0
    assert "batch_size times ranks must be from 1 to the number of samples" in large.lines[-1]
    assert large.lines[-1].endswith("got 2000")
    training.completed(one)
    [seeded] = training.run(one, "--seed 2")
    assert seeded.code != 0
    assert "seed must be 0 as in" in seeded.lines[-1]
    assert not losses_of([*large.lines, *seeded.lines])


def test_no_host_trains_where_one_lacks_a_checkpoint(packages_of: Callable[..., Path | None], tmp_path: Path) -> None:
    training = Training("data_parallel", tmp_path, packages_of(KINDS["tensorflow data parallel"]))
    training.completed(Phase(1, 8, "--epochs 1", 50))
    (tmp_path / "lacks").mkdir()
    hosts = training.run(Phase(2, 8, "--epochs 2", 100), folders=[tmp_path, tmp_path / "lacks"])
    shutil.rmtree(tmp_path / "lacks")
    assert all(host.code != 0 for host in hosts)
    assert not losses_of(line for host in hosts for line in host.lines)
    message = "all hosts must resume from the same step, like {} of this one, got 3.5 on average"
    assert [
        any(message.format(step) in line for line in host.lines) for step, host in zip((7, 0), hosts, strict=True)
    ] == [True, True], hosts
