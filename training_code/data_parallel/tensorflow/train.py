"""Train a small network to tell the points of two spirals apart with TensorFlow, the same model on each GPU of each host.

On a laptop:      PYTHONPATH=training_code python training_code/data_parallel/tensorflow/train.py
On SageMaker:     a DataParallelJob with launcher=MultiWorkerMirrored()

The launcher starts this file once on each host, with the hosts in TF_CONFIG, which MultiWorkerMirroredStrategy reads.

It resumes from its last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint, after the
same step on all hosts.
"""

# ran: `data_parallel/tensorflow/train.py` | test_interruptions (soak) | test_tensorflow_launchers (soak) | no | no

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from common.job import Job
from common.tensorflow_stop import Stop

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--batch-size", type=int, default=64, help="points of a step, on each device")
    arguments.add_argument("--learning-rate", type=float, default=0.01)
    arguments.add_argument("--seed", type=int, default=0)
    # SageMaker kills a job two minutes after SIGTERM.
    arguments.add_argument(
        "--stop-check-every", type=int, default=5, help="steps between collective checks for SIGTERM"
    )
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


def batches(
    strategy: tf.distribute.Strategy, job: Job, options: argparse.Namespace, first: int
) -> tuple[Iterator[tuple[tf.Tensor, tf.Tensor]], int]:
    """The batches of each step after ``first`` ones, for each device of this host, and the number of steps of an epoch."""
    inputs, labels = points(job.channels.get("points"))
    devices = strategy.num_replicas_in_sync
    per_epoch = len(labels) // (options.batch_size * devices)  # the last, shorter batches are dropped

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        here = devices // context.num_input_pipelines
        orders = [
            np.random.default_rng([options.seed, epoch]).permutation(len(labels)) for epoch in range(options.epochs)
        ]
        steps = [order[: per_epoch * devices * options.batch_size].reshape(per_epoch, devices, -1) for order in orders]
        mine = np.concatenate(steps)[first:, context.input_pipeline_id * here : (context.input_pipeline_id + 1) * here]
        rows = mine.reshape(-1, options.batch_size)
        return tf.data.Dataset.from_tensor_slices(rows).map(
            lambda row: (tf.gather(inputs, row), tf.gather(labels, row))
        )

    return iter(strategy.distribute_datasets_from_function(pipeline)), per_epoch


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
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.Optimizer
) -> Callable[..., tf.Tensor]:
    """The step on one batch of each device, which returns the mean loss."""
    variables = model.trainable_variables

    def on_a_device(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(inputs), from_logits=True)
            loss = tf.reduce_mean(losses)
        # The optimizer sums over devices and hosts.
        gradients = [part / strategy.num_replicas_in_sync for part in tape.gradient(loss, variables)]
        optimizer.apply(gradients, variables)
        return loss

    @tf.function
    def step(inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(on_a_device, args=(inputs, labels)), axis=None)

    return step


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    stop = Stop(strategy, len(job.group_hosts), options.stop_check_every)
    with strategy.scope():
        model, optimizer = build(options)
    chief = job.host == job.group_hosts[0]
    taken = tf.Variable(0, dtype=tf.int64, trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, taken=taken)
    keeper = tf.train.CheckpointManager(checkpoint, str(job.checkpoints), max_to_keep=2)
    if keeper.latest_checkpoint:
        checkpoint.restore(keeper.latest_checkpoint).assert_consumed()
        optimizer.learning_rate = options.learning_rate  # the checkpoint has the one before
    first = int(taken.numpy())
    step = step_of(strategy, model, optimizer)
    data, per_epoch = batches(strategy, job, options, first)
    # Counted, since an iterator over several hosts ends with an empty batch.
    for steps, batch in zip(range(first + 1, options.epochs * per_epoch + 1), data, strict=False):
        loss = step(*batch)
        epoch_ends = steps % per_epoch == 0
        if epoch_ends and chief:
            print(f"epoch {steps // per_epoch} loss {float(loss):.4f}", flush=True)
        stopping = stop.agreed(steps)
        if stopping or epoch_ends:
            taken.assign(steps)
            if chief:
                keeper.save(checkpoint_number=steps)
        if stopping:
            print(f"stopped by SIGTERM with the checkpoint of step {steps}", flush=True)
            return
    if chief:
        job.model.mkdir(parents=True, exist_ok=True)
        model.save(job.model / "model.keras")


if __name__ == "__main__":
    train(Job.here(), config())
