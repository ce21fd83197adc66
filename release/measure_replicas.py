"""Prints how Keras trains on two replicas of tf.distribute beside one device with the same batch, as JSON.

    python release/measure_replicas.py

By strategy (MirroredStrategy: two devices of one process; MultiWorkerMirroredStrategy: two processes), and by way: who makes the
step, and what the loss is of. Each is "right", "each alone" (a replica has its own gradient alone), "too long" (a step is as many
times too long as there are replicas), or "ends: " and the error. `replica_table.py` runs it with each version.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}

import numpy as np
import tensorflow as tf

keras = tf.keras
_RATE, _BATCH = 0.05, 8
_random = np.random.RandomState(0)
_INPUTS = _random.randn(_BATCH, 3).astype("float32")
_OUTPUTS = _INPUTS.sum(1, keepdims=True) + 1
# Both halves alike, so that what limits a gradient limits those of both replicas to the same one.
_TWICE = np.tile(_INPUTS[: _BATCH // 2], (2, 1)), np.tile(_OUTPUTS[: _BATCH // 2], (2, 1))


def squares(labels: Any, predicted: Any) -> Any:
    return tf.reduce_mean(tf.square(labels - predicted))


class Mean(keras.losses.Loss):
    def call(self, labels: Any, predicted: Any) -> Any:
        return squares(labels, predicted)


class Adds(keras.layers.Layer):
    def call(self, values: Any) -> Any:
        self.add_loss(tf.reduce_mean(tf.square(values)))
        return values


def dense(**more: Any) -> Any:
    return keras.layers.Dense(1, kernel_initializer="zeros", **more)


class Computes(keras.Model):
    """A model whose ``compute_loss`` is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.logged = dense(), keras.metrics.Mean(name="loss")

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.dense(inputs)

    @property
    def metrics(self) -> list[Any]:
        return [self.logged]

    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, *more: Any, **others: Any) -> Any:
        loss = squares(y, y_pred)
        self.logged.update_state(loss)
        return loss


class Steps(keras.Model):
    """A model whose ``train_step`` is its own, with a loss of a kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.dense, self.kind, self.own = dense(), kind, keras.losses.MeanSquaredError()

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = loss_of(self, self.kind, inputs, labels)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


def loss_of(model: Any, kind: str, inputs: Any, labels: Any) -> Any:
    predicted = model(inputs, training=True)
    if kind == "Loss":
        return model.own(labels, predicted)
    if kind == "compute_loss":
        return model.compute_loss(x=inputs, y=labels, y_pred=predicted)
    if kind == "average":
        by_sample = tf.reduce_mean(tf.square(labels - predicted), -1)
        return tf.nn.compute_average_loss(by_sample, global_batch_size=_BATCH)
    return squares(labels, predicted)


def model_of(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((3,)), *(layers or [dense()])])


def regularized() -> Any:
    return model_of(dense(bias_regularizer=keras.regularizers.L2(0.5), bias_initializer="ones"))


# By way: the model, the loss that is compiled with it, and what the optimizer is given.
FITS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any], Mapping[str, Any]]] = {
    "fit": (model_of, lambda: "mse", {}),
    "fit, regularizer": (regularized, lambda: "mse", {}),
    "fit, add_loss": (lambda: model_of(dense(bias_initializer="ones"), Adds()), lambda: "mse", {}),
    "fit, loss function": (model_of, lambda: squares, {}),
    "fit, Loss": (model_of, Mean, {}),
    "fit, compute_loss": (Computes, lambda: "mse", {}),
    "fit, train_step, compute_loss": (lambda: Steps("compute_loss"), lambda: "mse", {}),
    "fit, train_step, keras.losses": (lambda: Steps("Loss"), lambda: "mse", {}),
    "fit, train_step, mean": (lambda: Steps("mean"), lambda: "mse", {}),
    "fit, clipnorm": (model_of, lambda: "mse", {"clipnorm": 0.1}),
    "fit, clipvalue": (model_of, lambda: "mse", {"clipvalue": 0.1}),
    "fit, global_clipnorm": (model_of, lambda: "mse", {"global_clipnorm": 0.1}),
    "fit, gradient_accumulation_steps": (model_of, lambda: "mse", {"gradient_accumulation_steps": 2}),
}
RUNS = {"run, compute_average_loss": "average", "run, keras.losses": "Loss", "run, mean": "mean"}
WAYS = (*FITS, *RUNS)


def fitted(strategy: Any, way: str) -> list[np.ndarray]:
    """What one batch adds to the weights, by replica of this process."""
    made, loss, options = FITS[way]
    with strategy.scope():
        model = made()
        model(_INPUTS[:1])
        model.compile(optimizer=keras.optimizers.SGD(_RATE, **options), loss=loss())
    before = copies(strategy, model)
    inputs, outputs = _TWICE if "clip" in way else (_INPUTS, _OUTPUTS)
    data = tf.data.Dataset.from_tensor_slices((inputs, outputs)).batch(_BATCH)
    if "accumulation" in way:
        data = data.repeat(2)
    model.fit(data, epochs=1, verbose=0)
    return [after - first for after, first in zip(copies(strategy, model), before, strict=True)]


def ran(strategy: Any, way: str) -> list[np.ndarray]:
    """The same of a loop that is written by hand."""
    with strategy.scope():
        model, optimizer = model_of(), keras.optimizers.SGD(_RATE)
        model.own = keras.losses.MeanSquaredError()
        if hasattr(optimizer, "build"):
            optimizer.build(model.trainable_variables)

    def on_replica(inputs: Any, labels: Any) -> None:
        with tf.GradientTape() as tape:
            loss = loss_of(model, RUNS[way], inputs, labels)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )

    step = tf.function(lambda batch: strategy.run(on_replica, args=batch))
    data = tf.data.Dataset.from_tensor_slices((_INPUTS, _OUTPUTS)).batch(_BATCH)
    for batch in strategy.experimental_distribute_dataset(data):
        step(batch)
    return copies(strategy, model)


def copies(strategy: Any, model: Any) -> list[np.ndarray]:
    """The weights of each replica of this process, in a row."""
    by_weight = [
        strategy.experimental_local_results(getattr(weight, "_value", weight)) for weight in model.trainable_variables
    ]
    return [np.concatenate([one.numpy().ravel() for one in of_replica]) for of_replica in zip(*by_weight, strict=True)]


def measured(strategy: Any) -> Iterator[tuple[str, list[np.ndarray] | str]]:
    for way in WAYS:
        try:
            yield way, (ran if way in RUNS else fitted)(strategy, way)
        except Exception as error:  # whatever it is that ends a job
            yield way, f"ends: {type(error).__name__}"


def result(alone: list[np.ndarray] | str, several: list[np.ndarray] | str) -> str:
    """How two replicas train beside one device; "" for what one cannot do either."""
    if isinstance(alone, str) or isinstance(several, str):
        return several if isinstance(several, str) and not isinstance(alone, str) else ""
    [expected] = alone
    if not all(np.allclose(one, several[0], rtol=1e-4) for one in several):
        return "each alone"
    for text, times in (("right", 1), ("too long", len(several))):
        if np.allclose(several[0], times * expected, rtol=1e-3):
            return text
    raise SystemExit(f"two replicas make {several[0]}, one makes {expected}")


def of_workers() -> dict[str, list[np.ndarray] | str]:
    """The same of two processes."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    hosts = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    tasks = [{"cluster": {"worker": hosts}, "task": {"type": "worker", "index": number}} for number in range(2)]
    started = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "TF_CONFIG": json.dumps(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for task in tasks
    ]
    first, second = (json.loads(one.communicate()[0].splitlines()[-1]) for one in started)
    return {
        way: first[way] if isinstance(first[way], str) else [np.array(one[way][0]) for one in (first, second)]
        for way in WAYS
    }


def main() -> None:
    if "TF_CONFIG" in os.environ:
        of_process = measured(tf.distribute.MultiWorkerMirroredStrategy())
        print(json.dumps({way: one if isinstance(one, str) else [one[0].tolist()] for way, one in of_process}))
        return
    devices = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    alone = dict(measured(tf.distribute.get_strategy()))
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    by_strategy = {"MirroredStrategy": dict(measured(mirrored)), "MultiWorkerMirroredStrategy": of_workers()}
    results = {
        strategy: {way: text for way in WAYS if (text := result(alone[way], several[way]))}
        for strategy, several in by_strategy.items()
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
