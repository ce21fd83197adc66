"""Keras on several replicas of tf.distribute: what is found of it, and what TensorFlow and its table of versions say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from distributed_scripts import changed
from packages import TENSORFLOW, packages
from pages import by_ranges, part
from planted import found_in, line_of
from strategy_scripts import (
    BY_HAND,
    COMPILED,
    FIT,
    METHODS,
    OF_FIT,
    OLDER,
    REPLICAS,
    SEVERAL,
    STEPS,
    STRATEGY_PLANTS,
    TWO,
    WAYS_OF_LOSS,
    WORKERS,
    with_method,
)
from typer.testing import CliRunner

from training_jobs.cli.main import app
from training_jobs.facts.replicas import Strategy, results, right_since, versions_of
from training_jobs.lint import Job, lint_folder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lint.md"


SQUARES = "def squares(labels, predicted):\n    return tf.reduce_mean(tf.square(predicted - labels), axis=-1)"


def of_keras(job: Job, version: str) -> Job:
    return replace(job, versions={"keras": version})


@pytest.mark.parametrize("name", STRATEGY_PLANTS)
def test_a_mistake_is_found_on_its_line_and_the_right_script_has_none(name: str, tmp_path: Path) -> None:
    plant = STRATEGY_PLANTS[name]
    right, wrong = plant.scripts()
    assert found_in(tmp_path, right, plant.job) == []
    assert found_in(tmp_path, wrong, plant.job) == [(plant.rule, line_of(wrong))]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (
            of_keras(TWO, "3.4.1"),
            "with Keras 3.4.1, each replica trains with the gradient of its own part of the batch alone: ",
        ),
        (
            of_keras(TWO, "3.7.0"),
            "with Keras 3.7.0, gradients of replicas are added, not averaged, so that a step is as many ",
        ),
        (
            of_keras(TWO, "3"),
            "with Keras before 3.8, which may be the container's, each replica trains with the gradient of its own ",
        ),
        (of_keras(TWO, "3.8"), ""),
        (of_keras(TWO, "3.8 or newer"), ""),
        (of_keras(TWO, "2.15"), ""),
        (of_keras(TWO, "4.0"), ""),
        (replace(TWO, versions={}), ""),
        (replace(OLDER, devices=1), ""),
        (replace(OLDER, devices=None), ""),
        (replace(OLDER, devices=0), ""),
    ],
)
def test_fit_on_the_devices_of_a_machine_is_right_since_keras_3_8(job: Job, says: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OF_FIT)
    reasons = [one.reason for one in lint_folder(tmp_path, job)]
    assert [reason.startswith(says) for reason in reasons] == [True] * bool(says)
    assert all(reason.endswith(": keras>=3.8 in a requirements.txt") for reason in reasons)


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("3.0", "with Keras 3.0, each replica trains with the gradient of its own part of the batch alone: a step by "),
        (
            "3.15",
            "with Keras 3.15, fit ends with an error in MultiWorkerMirroredStrategy (keras-team/keras#20585): a step by ",
        ),
        ("3", "with Keras 3, each replica trains with the gradient of its own part of the batch alone or fit ends "),
        ("2.15", ""),
    ],
)
def test_fit_on_several_machines_ends_with_keras_3_or_each_trains_alone(
    version: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(changed(OF_FIT, *SEVERAL))
    reasons = [one.reason for one in lint_folder(tmp_path, of_keras(WORKERS, version))]
    assert [reason.startswith(says) for reason in reasons] == [True] * bool(says)
    for other in (replace(WORKERS, hosts=1), replace(WORKERS, hosts=None)):
        assert lint_folder(tmp_path, of_keras(other, version)) == []


@pytest.mark.parametrize(("version", "step"), [("2.15", "in"), ("3.15", "by strategy.run() of")])
def test_machines_that_train_apart_are_told_of_a_step_that_their_keras_has(
    version: str, step: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        changed(OF_FIT, ("tf.distribute.MirroredStrategy()", "tf.distribute.get_strategy()"))
    )
    [found] = lint_folder(tmp_path, of_keras(WORKERS, version))
    assert f": train {step} tf.distribute.MultiWorkerMirroredStrategy(), with launcher=" in found.reason


def test_the_command_takes_the_version_of_keras_and_the_number_of_devices(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OF_FIT)
    arguments = ["lint", str(tmp_path), "--package", "keras==3.7.0", "--devices"]
    command = CliRunner().invoke(app, [*arguments, "4"])
    assert command.exit_code == 1
    assert command.output.startswith("train.py:32: with Keras 3.7.0, gradients of replicas are added, not averaged, ")
    assert command.output.rstrip().endswith(": keras>=3.8 in a requirements.txt [strategy-fit]")
    assert CliRunner().invoke(app, [*arguments, "1"]).exit_code == 0


def test_gradients_that_are_accumulated_on_several_machines_are_named_once_with_their_fit(tmp_path: Path) -> None:
    text = changed(OF_FIT, *SEVERAL, ("SGD(0.05)", "SGD(0.05, gradient_accumulation_steps=2)"))
    assert [rule for rule, _ in found_in(tmp_path, text, WORKERS)] == ["strategy-fit"]


def test_a_function_within_that_makes_a_loss_is_read_only_where_it_is_returned(tmp_path: Path) -> None:
    inner = "def mean(labels):\n        return tf.reduce_mean(labels)"
    loss = "def loss(labels, predicted):\n        return tf.square(labels - predicted) / mean(labels)"
    made = f"def squares(weight):\n    {inner}\n\n    {loss}\n\n    return loss"
    text = changed(OF_FIT, (SQUARES, made), (COMPILED, COMPILED.replace('"mse"', "squares(2)")))
    assert found_in(tmp_path, text, TWO) == []


def test_a_script_that_has_a_step_by_hand_too_may_choose_by_the_number_of_machines(tmp_path: Path) -> None:
    both = changed(OF_FIT, *SEVERAL, (FIT, f"if alone:\n    {FIT}else:\n    pass\n{BY_HAND}"))
    assert found_in(tmp_path, both, WORKERS) == []


@pytest.mark.parametrize(("version", "rules"), [("3.4", ["strategy-fit"]), ("3.5", []), ("3", ["strategy-fit"])])
def test_a_step_by_hand_has_the_gradients_of_all_replicas_since_keras_3_5(
    version: str, rules: list[str], tmp_path: Path
) -> None:
    by_hand = changed(OF_FIT, (FIT, BY_HAND))
    assert [rule for rule, _ in found_in(tmp_path, by_hand, of_keras(TWO, version))] == rules


@pytest.mark.parametrize("name", WAYS_OF_LOSS)
def test_a_loss_that_is_a_mean_is_named_where_fit_itself_is_right_and_the_version_leaves_it(
    name: str, tmp_path: Path
) -> None:
    plant = STRATEGY_PLANTS[name]
    text = plant.scripts()[1]
    scales = name in ("a compiled loss that is a mean", "a Loss that is a mean")
    for version, rules in (
        ("2.15", [] if scales else ["strategy-mean"]),
        ("3.7", ["strategy-fit"]),
        ("3", ["strategy-fit"]),
    ):
        assert [rule for rule, _ in found_in(tmp_path, text, of_keras(TWO, version))] == rules
    assert found_in(tmp_path, text, replace(TWO, devices=1)) == []


@pytest.mark.parametrize(
    "change",
    [
        ("strategy = tf.distribute.MirroredStrategy()", "strategy = tf.distribute.MirroredStrategy(['GPU:0'])"),
        ("strategy = tf.distribute.MirroredStrategy()", "strategy = tf.distribute.MirroredStrategy(devices=wanted)"),
        ("strategy = tf.distribute.MirroredStrategy()", "strategy = tf.distribute.get_strategy()"),
        ("import numpy\n", "import os\n\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\nimport numpy\n"),
        ("import numpy\n", "import tf_keras\nimport numpy\n"),
        (FIT, "scaler.fit(images)\n"),
        ("import numpy\n", "import numpy\nimport subprocess\n\nsubprocess.run(['pip', 'install', 'keras'])\n"),
    ],
)
def test_what_has_one_replica_or_keras_2_or_is_no_model_is_left(change: tuple[str, str], tmp_path: Path) -> None:
    assert found_in(tmp_path, changed(OF_FIT, change), OLDER) == []


@pytest.mark.parametrize(
    "change",
    [
        ("MirroredStrategy()", "MirroredStrategy(['GPU:0', 'GPU:1'])"),
        (FIT, "trained.fit(images, labels, epochs=3)\n"),
        (FIT, "trained.fit(images, labels, validation_split=0.1)\n"),
    ],
)
def test_two_devices_and_a_model_of_any_name_are_found(change: tuple[str, str], tmp_path: Path) -> None:
    assert [rule for rule, _ in found_in(tmp_path, changed(OF_FIT, change), OLDER)] == ["strategy-fit"]


def test_a_step_without_replicas_and_a_function_that_is_no_method_are_left(tmp_path: Path) -> None:
    alone = changed(OF_FIT, (FIT, BY_HAND.replace("strategy.run(step, args=batch)", "step(*batch)")))
    assert found_in(tmp_path, alone, of_keras(TWO, "3.4")) == []
    mean = STEPS.format("loss")
    function = textwrap.dedent(mean)
    divided = mean.replace(
        "        self.opt", f"        gradients = [one / {REPLICAS} for one in gradients]\n        self.opt"
    )
    for change in ((METHODS, METHODS.replace("strategy", f"{function}\nstrategy")), *with_method(divided)):
        assert found_in(tmp_path, changed(OF_FIT, change), TWO) == []
    assert [rule for rule, _ in found_in(tmp_path, changed(OF_FIT, *with_method(mean)), TWO)] == ["strategy-mean"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("def squares(labels, predicted):\n    return tf.reduce_mean(tf.square(predicted - labels), axis=-1)", ""),
        ("def squares(labels, predicted):\n    return tf.reduce_sum(tf.square(predicted - labels))", ""),
        ("def squares(labels, predicted):\n    return tf.reduce_mean(tf.abs(predicted - labels), -1)", ""),
        (
            "def squares(labels, predicted):\n    return tf.reduce_mean(tf.abs(predicted)) / strategy.num_replicas_in_sync",
            "",
        ),
        (
            "def squares(labels, predicted):\n    n = strategy.num_replicas_in_sync\n    return tf.reduce_mean(predicted / n)",
            "",
        ),
        ("def squares(labels, predicted):\n    print(labels)", ""),
        ("class squares:\n    def call(self, labels, predicted):\n        return tf.reduce_mean(predicted)", ""),
        ("def squares(labels, predicted):\n    return tf.math.reduce_mean(tf.abs(predicted - labels))", "return"),
        (
            "def squares(labels, predicted):\n    return tf.keras.backend.mean(labels) + 0.1 * tf.reduce_mean(predicted)",
            "return",
        ),
        (
            "def squares(labels, predicted):\n    return tf.keras.backend.mean(labels) + tf.reduce_mean(predicted, -1)",
            "",
        ),
        (
            "def squares(labels, predicted):\n    loss = tf.reduce_mean(labels)\n    loss += tf.reduce_mean(1)\n    return loss",
            "loss",
        ),
        (
            "def squares(labels, predicted):\n    loss = tf.reduce_mean(labels)\n    loss += other(labels)\n    return loss",
            "",
        ),
    ],
)
def test_the_mean_of_a_loss_is_of_all_samples(change: str, line: str, tmp_path: Path) -> None:
    text = changed(OF_FIT, (SQUARES, change), (COMPILED, COMPILED.replace('"mse"', "squares")))
    assert [rule for rule, _ in found_in(tmp_path, text, TWO)] == ["strategy-mean"] * bool(line)


def test_a_function_that_makes_a_loss_and_an_attribute_that_is_one_are_read_too(tmp_path: Path) -> None:
    inner = "def loss(labels, predicted):\n        return weight.value * tf.reduce_mean(labels)"
    made = f"def squares(weight):\n    {inner}\n\n    return loss"
    for given, before in (("squares(2)", ""), ("chosen", "chosen = squares(2)\n")):
        text = changed(
            OF_FIT,
            (SQUARES, made),
            (COMPILED, COMPILED.replace('"mse"', given)),
            ("strategy = tf", f"{before}strategy = tf"),
        )
        assert [rule for rule, _ in found_in(tmp_path, text, TWO)] == ["strategy-mean"]


@pytest.mark.parametrize(
    ("given", "rules"),
    [
        ("clipvalue=0.5", ["strategy-clip"]),
        ("global_clipnorm=1.0", ["strategy-clip"]),
        ("clipnorm=None", []),
        ("clipnorm=limit", []),
        ("clipnorm=1.0 / strategy.num_replicas_in_sync", []),
    ],
)
def test_a_limit_of_gradients_is_named_where_it_is_a_number(given: str, rules: list[str], tmp_path: Path) -> None:
    text = changed(OF_FIT, ("SGD(0.05)", f"SGD(0.05, {given})"))
    assert [rule for rule, _ in found_in(tmp_path, text, TWO)] == rules
    assert found_in(tmp_path, text, of_keras(TWO, "2.15")) == []


def test_a_text_is_of_all_versions_that_it_may_be() -> None:
    assert versions_of("3.10.0") == versions_of("3.10") == ["3.10"]
    assert versions_of("3.8 or newer")[:3] == ["3.8", "3.9", "3.10"]
    assert versions_of("3")[0] == "3.0"
    assert versions_of("3.99") == versions_of("1") == []
    assert results("MirroredStrategy", "fit", "3.6 or newer") == {"too long", "right"}
    assert right_since("MirroredStrategy", "fit") == "3.8"
    assert right_since("MultiWorkerMirroredStrategy", "fit") == ""


WAYS = {
    "fit": "`fit`",
    "fit, loss function": "`fit`, a loss function of one's own that returns the batch's mean",
    "fit, compute_loss": "`fit`, such a `compute_loss`",
    "fit, train_step, mean": "`fit`, such a `train_step`",
    "fit, clipnorm": "`fit`, `clipnorm`",
    "run, compute_average_loss": "`strategy.run`, `tf.nn.compute_average_loss`",
}
STRATEGIES: Mapping[Strategy, str] = {
    "MirroredStrategy": "of one machine,",
    "MultiWorkerMirroredStrategy": "of several,",
}
SIGNS = {"right": "right", "too long": "N times", "each alone": "alone"}


def test_the_page_has_how_the_replicas_of_each_version_train() -> None:
    every = json.loads(files("training_jobs.facts").joinpath("replicas.json").read_text())["versions"]
    rows = [(strategy, way) for strategy in STRATEGIES for way in WAYS]

    def cell(strategy: Strategy, way: str, version: str) -> str:
        [fits] = results(strategy, "fit", version)
        [result] = results(strategy, way, version)
        # Both halves of the batch are alike where gradients are limited, so that replicas which are apart are not seen.
        return SIGNS.get(fits if "clip" in way and fits == "each alone" else result, "error")

    ranges, columns = by_ranges(every, lambda version: [cell(strategy, way, version) for strategy, way in rows])
    lines = [f"| replicas | the step | {' | '.join(ranges)} |", "|---" * (2 + len(columns)) + "|"]
    for number, (strategy, way) in enumerate(rows):
        lines.append(
            f"| {STRATEGIES[strategy]} `{strategy}` | {WAYS[way]} | {' | '.join(one[number] for one in columns)} |"
        )
    assert part(PAGE, "replicas", "\n".join(lines)) == "\n".join(lines)


@pytest.fixture(scope="module")
def variables(pytestconfig: pytest.Config) -> Mapping[str, str]:
    """TensorFlow is of an environment of its own."""
    path = os.pathsep.join([str(packages(pytestconfig, *TENSORFLOW)), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.soak
def test_planted_scripts_make_the_step_of_one_device_or_one_twice_as_long(variables: Mapping[str, str]) -> None:
    one, two = (
        json.loads(
            subprocess.run(
                [sys.executable, "run_strategy_scripts.py", replicas],
                cwd=Path(__file__).parent,
                env=variables,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
            ).stdout.splitlines()[-1]
        )
        for replicas in ("1", "2")
    )
    assert one.keys() >= {*WAYS_OF_LOSS}
    accumulated = [ran.pop("gradients that Keras accumulates") for ran in (one, two)]
    assert [ran["wrong"] for ran in accumulated] == ["RuntimeError"] * 2
    assert accumulated[0]["right"] == pytest.approx(accumulated[1]["right"])
    for name, ran in two.items():
        lengths = {kind: np.linalg.norm(ran[kind]) / np.linalg.norm(one[name][kind]) for kind in ran}
        if STRATEGY_PLANTS[name].rule == "strategy-clip":  # by how far the two gradients are from parallel
            assert lengths["right"] < 1 < lengths["wrong"] < 2
        else:
            assert lengths == {"right": pytest.approx(1), "wrong": pytest.approx(2, rel=1e-3)}, name


@pytest.mark.soak
@pytest.mark.parametrize("of", ["the container", "requirements-keras.txt"])
def test_the_table_has_what_the_version_of_the_container_and_one_that_trains_wrong_do(
    of: str, variables: Mapping[str, str], programs_of: Callable[[Path], Path]
) -> None:
    of_container = of == "the container"
    python = sys.executable if of_container else str(programs_of(Path(__file__).with_name(of)) / "python")
    environment = variables if of_container else {**variables, "PYTHONPATH": ""}
    asked = ["-c", "import keras; print(keras.__version__)"], [str(ROOT / "release" / "measure_replicas.py")]
    version, printed = (
        subprocess.run(
            [python, *one], env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()[-1]
        for one in asked
    )
    measured = json.loads(printed)
    assert {*measured} == {"MirroredStrategy", "MultiWorkerMirroredStrategy"}
    assert measured["MirroredStrategy"]["fit"] == ("right" if of_container else "too long")
    for strategy, ways in measured.items():
        assert {way: {result} for way, result in ways.items()} == {way: results(strategy, way, version) for way in ways}
