"""Train a small network to tell the points of two spirals apart with TensorFlow, the same model on each GPU of each host.

On a laptop:      PYTHONPATH=training_code python training_code/data_parallel/tensorflow/train.py
On SageMaker:     a DataParallelJob with launcher=MultiWorkerMirrored()

The launcher starts this file once on each host, with the hosts in TF_CONFIG, which MultiWorkerMirroredStrategy reads.

It resumes from its last checkpoint, also on other hosts or with another batch; on a laptop, remove ``./output`` to start over.
SIGTERM ends it with a checkpoint, after the same step on all hosts.
"""

# ran: `data_parallel/tensorflow/train.py` | test_oracle_tensorflow (soak) | test_tensorflow_launchers (soak) | no | no

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from common.job import Job
from common.order import Order, share
from common.schedule import add_schedule, positive, scheduled_rate
from common.tensorflow_checkpoints import Checkpointer
from common.tensorflow_loss import IGNORED, token_loss
from common.tensorflow_strategy import Stop, check_same_step, strategy_of

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add("--epochs", type=positive, default=20)
    add("--batch-size", type=positive, default=64, help="points of a step, on each device")
    add_schedule(arguments, peak=0.01)
    add("--seed", type=int, default=0)
    # SageMaker kills a job two minutes after SIGTERM.
    add("--stop-check-every", type=positive, default=5, help="steps between collective checks for SIGTERM")
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def points(folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Points, float32 [n, 2], and their spirals, int64 [n]: of a CSV file ``x,y,spiral``, or without one of the formula."""
    if folder is None:
        angles = np.linspace(0, 3 * np.pi, 500)
        spiral = np.stack([np.cos(angles), np.sin(angles)], 1) * angles[:, None] * 2 / angles[-1]
        return np.concatenate([spiral, -spiral]).astype(np.float32), np.arange(2).repeat(500)
    [file] = folder.glob("*.csv")
    with file.open() as lines:
        rows = [(float(row["x"]), float(row["y"]), int(row["spiral"])) for row in csv.DictReader(lines)]
    return np.array([row[:2] for row in rows], np.float32), np.array([row[2] for row in rows])


# -- Model ------------------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace) -> tuple[keras.Model, keras.Optimizer]:
    keras.utils.set_random_seed(options.seed)
    hidden = [keras.layers.Dense(64, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((2,)), *hidden, keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam(options.learning_rate)
    optimizer.build(model.trainable_variables)
    return model, optimizer


# -- Step -------------------------------------------------------------------------------------------------------------


def step_of(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.Optimizer,
    data: tuple[np.ndarray, np.ndarray],
) -> Callable[..., tf.Tensor]:
    """The step on the points of each device's rows, ``count`` over all devices, which returns their mean loss."""
    variables = model.trainable_variables
    # Behind the points is the row that does not count, with which a device's share of an epoch's last step is filled.
    inputs, labels = np.append(data[0], np.zeros((1, 2), np.float32), 0), np.append(data[1], IGNORED)

    def on_a_device(rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = token_loss(model(tf.gather(inputs, rows)), tf.gather(labels, rows), count)
        optimizer.apply(tape.gradient(loss, variables), variables)  # of the gradients' sum over devices and hosts
        return loss

    @tf.function
    def step(rows: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(on_a_device, args=(rows, count)), axis=None)

    return step


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace) -> None:
    strategy = strategy_of(job)
    stop = Stop(strategy, len(job.group_hosts), options.stop_check_every)
    with strategy.scope():
        model, optimizer = build(options)
    data, devices = points(job.channels.get("points")), strategy.num_replicas_in_sync
    order = Order(len(data[1]), options.batch_size * devices, options.seed)
    fixed = {"seed": options.seed, "points": order.length}
    free = {"batch_size": options.batch_size, "devices": devices}
    checkpointer = Checkpointer(job, model, optimizer, fixed=fixed, free=free)
    progress = checkpointer.restore()
    check_same_step(strategy, progress.steps)
    step = step_of(strategy, model, optimizer, data)

    def share_of(context: tf.distribute.ValueContext) -> tf.Tensor:
        """The rows of a device, of one shape in all steps."""
        return tf.constant(share(numbers, context.replica_id_in_sync_group, devices, options.batch_size, order.length))

    while progress.samples < options.epochs * order.length:
        at, total = order.steps(progress.samples) + 1, options.epochs * order.steps_of_an_epoch
        optimizer.learning_rate = rate = scheduled_rate(options, at, total, order.batch)
        numbers = order.at(progress.samples)
        rows, count = strategy.experimental_distribute_values_from_function(share_of), len(numbers)
        progress.add(step(rows, tf.constant(count)), count)
        progress.samples += count
        epoch, left = divmod(progress.samples, order.length)
        if not left:
            loss = progress.epoch_loss()
            if checkpointer.chief:
                print(f"epoch {epoch} loss {loss:.6f} learning_rate {rate:.6g}", flush=True)
        stopping = stop.agreed(progress.steps)
        if stopping or not left:
            checkpointer.save()
        if stopping:
            print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
            return
    if checkpointer.chief:
        job.model.mkdir(parents=True, exist_ok=True)
        model.save(job.model / "model.keras")


if __name__ == "__main__":
    train(Job.here(), config())
