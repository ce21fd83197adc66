"""The trainings of TensorFlow's scripts in one process, which shares with them the models and what prepares a digit, and no more.

The whole batch is one tensor without padding, its loss the mean of what counts, and the optimizer Adam in double precision.

    python oracle_tensorflow.py WHAT.json    # prints the losses, and how far the last checkpoint's tensors are off
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

WARM_UP, LEAST, BASE = 3, 0.1, 8  # as the test's arguments, with the rule square-root
TRAINING_CODE = Path(__file__).parents[2] / "training_code"


def module(kind: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TRAINING_CODE / kind / "tensorflow" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Points:
    """Of points.csv, with one loss for each epoch."""

    def __init__(self, folder: Path) -> None:
        rows = np.loadtxt(folder / "points.csv", delimiter=",", skiprows=1)
        self.inputs, self.labels = rows[:, :2].astype(np.float32), rows[:, 2].astype(int)
        self.length, self.build = len(rows), module("data_parallel", "train").build

    def losses(self, model: Any, chosen: np.ndarray, place: int, size: int) -> tf.Tensor:
        return cross_entropies(model(self.inputs[chosen]), self.labels[chosen])


class Digits:
    """Of digits.npz, of which every fifth is held out; a device's digits are distorted by their place in the order."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "digits.npz") as file:
            kept = np.arange(len(file["labels"])) % 5 != 0
            self.images, self.labels = (file["images"][kept] / 16).astype(np.float32), file["labels"][kept]
        sys.path.insert(0, str(TRAINING_CODE / "heterogeneous" / "tensorflow"))
        self.length, self.build = len(self.labels), module("heterogeneous", "train").build

    def losses(self, model: Any, chosen: np.ndarray, place: int, size: int) -> tf.Tensor:
        from model import distorted

        parts = [
            distorted(tf.constant(self.images[chosen[at : at + size]]), tf.constant([0, place + at], tf.int64))
            for at in range(0, len(chosen), size)
        ]
        return cross_entropies(model(tf.concat(parts, 0)), self.labels[chosen])


class Text:
    """Of text.txt, whose paragraphs are shorter than a sequence: each target is a byte of text, and none is padding."""

    def __init__(self, folder: Path) -> None:
        self.paragraphs = (folder / "text.txt").read_bytes().split(b"\n\n")
        sys.path.insert(0, str(TRAINING_CODE / "compiled" / "tensorflow"))
        self.length, self.build = len(self.paragraphs), module("compiled", "train").build

    def losses(self, model: Any, chosen: np.ndarray, place: int, size: int) -> tf.Tensor:
        parts = []
        for number in chosen:
            tokens = np.frombuffer(self.paragraphs[number], np.uint8).astype(np.int32)
            parts.append(cross_entropies(model(tokens[None, :-1])[0], tokens[1:]))
        return tf.concat(parts, 0)


def cross_entropies(logits: tf.Tensor, labels: np.ndarray) -> tf.Tensor:
    return -tf.gather(tf.nn.log_softmax(logits), labels.astype(np.int64), axis=1, batch_dims=1)


def share_of_the_peak(at: float, total: float) -> float:
    if at <= WARM_UP:
        return at / WARM_UP
    return LEAST + (1 - LEAST) * (1 + math.cos(math.pi * min(1, (at - WARM_UP) / (total - WARM_UP)))) / 2


def main() -> None:
    what: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    kind = what["kind"]
    data = {"data_parallel": Points, "heterogeneous": Digits, "compiled": Text}[kind](Path(what["folder"]))
    model, _ = data.build(argparse.Namespace(seed=0, learning_rate=0.0, sequence=16, width=16, layers=1, heads=2))
    variables = model.trainable_variables
    weights = [variable.numpy().astype(np.float64) for variable in variables]
    means, squares = ([np.zeros_like(weight) for weight in weights] for _ in range(2))
    samples = step = 0
    printed: dict[str, float] = {}
    of_the_epoch: list[float] = []
    read: list[int] = []
    for phase in what["phases"]:
        batch = phase["hosts"] * phase["devices"] * phase["batch"]
        steps_of_an_epoch = -(-data.length // batch)
        while samples < phase["until"]:
            epoch, first = divmod(samples, data.length)
            chosen = np.random.default_rng([0, epoch]).permutation(data.length)[first : first + batch]
            with tf.GradientTape() as tape:
                losses = data.losses(model, chosen, samples, phase["batch"])
                loss = tf.reduce_mean(losses)
            gradients = [
                tf.convert_to_tensor(part).numpy().astype(np.float64) for part in tape.gradient(loss, variables)
            ]
            step, samples = step + 1, samples + len(chosen)
            at, total = epoch * steps_of_an_epoch + first / batch + 1, phase["length"] * steps_of_an_epoch
            if kind == "compiled":  # whose schedule counts steps
                at, total = step, phase["length"]
            rate = what["peak"] * math.sqrt(batch / BASE) * share_of_the_peak(at, total)
            for number, gradient in enumerate(gradients):
                means[number] = 0.9 * means[number] + 0.1 * gradient
                squares[number] = 0.999 * squares[number] + 0.001 * gradient**2
                mean, square = means[number] / (1 - 0.9**step), squares[number] / (1 - 0.999**step)
                # Keras adds epsilon before the correction of the bias.
                weights[number] -= rate * mean / (np.sqrt(square) + 1e-7 / math.sqrt(1 - 0.999**step))
                variables[number].assign(weights[number])
            printed[f"step {step}"] = float(loss)
            of_the_epoch += losses.numpy().tolist()
            read += chosen.tolist()
            if samples % data.length == 0:
                assert sorted(read) == [*range(data.length)]
                printed[f"epoch {epoch + (kind == 'data_parallel')}"] = float(np.mean(of_the_epoch))
                of_the_epoch, read = [], []
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(what["checkpoints"]))
    record = json.loads(reader.get_tensor("progress/.ATTRIBUTES/py_state"))
    off = {"weights": 0.0, "means of gradients": 0.0, "of convolutions": 0.0}
    for number, variable in enumerate(variables):
        if "key/bias" in variable.path:  # whose gradient is 0 but for rounding, since softmax does not change by it
            continue
        weight = reader.get_tensor(f"optimizer/_trainable_variables/{number}/.ATTRIBUTES/VARIABLE_VALUE")
        mean = reader.get_tensor(f"optimizer/_variables/{2 + 2 * number}/.ATTRIBUTES/VARIABLE_VALUE")
        # Which of a pool's values is the largest can be a matter of rounding, and moves a gradient of the convolution before it.
        if "conv2d" in variable.path:
            off["of convolutions"] = max(off["of convolutions"], float(np.abs(mean - means[number]).max()))
            continue
        off["weights"] = max(off["weights"], float(np.abs(weight - weights[number]).max()))
        off["means of gradients"] = max(off["means of gradients"], float(np.abs(mean - means[number]).max()))
    print(
        json.dumps(
            {"losses": printed, "off": off, "steps": [step, record["steps"]], "samples": [samples, record["samples"]]}
        )
    )


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main()
