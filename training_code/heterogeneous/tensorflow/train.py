"""Train a small network on handwritten digits with TensorFlow; tf.data service prepares them on other machines, if any.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/heterogeneous/tensorflow/train.py
On SageMaker:                    a HeterogeneousJob whose group that trains has no launcher (docs/data-service.md)

Every host of a job starts this file once. Hosts of the group ``--data-group`` run tf.data service until the training has ended;
hosts of the other group train with TensorFlow's own strategies. In a job without that group the training hosts prepare their own
batches. A batch's content is a function of seed, epoch and its number; with the service, batches arrive in the order in which
they are ready.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint, after the
same step on all hosts. It goes on with the batch after that one, or, where other machines prepare the batches, with these weights
at the beginning of the epoch: tf.data service does not know which batches were read.
"""

# ran: `heterogeneous/tensorflow/train.py` | its parts: test_heterogeneous_tensorflow | test_heterogeneous_tensorflow | no | no

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from common.job import Job, use_the_jobs_network
from common.tensorflow_stop import Stop
from end import DataServiceError
from model import accuracy, distorted, held_out, network, training_digits
from service import Cluster, reporting, serve
from tensorflow.data.experimental.service import ShardingPolicy, distribute

# -- Config -----------------------------------------------------------------------------------------------------------

PORT = 6000  # of each data host, the first of three, in the job's own network
STRATEGY_PORT = 8890  # of each training host, the same as SageMaker's toolkit uses for this purpose


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--batch-size", type=int, default=64, help="of each device that trains")
    arguments.add_argument("--learning-rate", type=float, default=3e-3)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--data-group", default="data_group", help="the instance group that runs tf.data service")
    arguments.add_argument(
        "--train-workers", type=_true, nargs="?", const=True, default=True, help="the hosts that train prepare as well"
    )
    arguments.add_argument(
        "--heartbeat-timeout",
        type=float,
        default=300.0,
        help="seconds without a heartbeat of a trainer after which a data host ends",
    )
    arguments.add_argument("--port", type=int, default=PORT)
    # SageMaker kills a job two minutes after SIGTERM.
    arguments.add_argument(
        "--stop-check-every", type=int, default=5, help="steps between collective checks for SIGTERM"
    )
    options = arguments.parse_args()
    for name in ("epochs", "batch_size", "stop_check_every"):
        if getattr(options, name) < 1:
            arguments.error(f"--{name.replace('_', '-')} must be at least 1, like 8, got {getattr(options, name)}")
    return options


def _true(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return text.lower() == "true"


def strategy_of(job: Job) -> tf.distribute.Strategy:
    """The strategy over the devices of all training hosts, or of this one; to be called before TensorFlow is initialized."""
    if len(job.group_hosts) > 1:
        workers = [f"{host}:{STRATEGY_PORT}" for host in job.group_hosts]
        task = {"type": "worker", "index": job.group_hosts.index(job.host)}
        # Not the toolkit's, whose cluster has all hosts of the job.
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        return tf.distribute.MultiWorkerMirroredStrategy()
    if len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


# -- Data -------------------------------------------------------------------------------------------------------------


def batches_of(
    epoch: int,
    first: int,
    strategy: tf.distribute.Strategy,
    job: Job,
    cluster: Cluster | None,
    options: argparse.Namespace,
) -> tuple[Any, int]:
    """An epoch's batches for each device of this host, after ``first`` steps, and its samples.

    A batch is images, float32 [n, 28, 28, 1], and labels, int64 [n].
    """
    images, labels = training_digits(job.channels.get("digits"))
    order = np.random.default_rng([options.seed, epoch]).permutation(len(labels))
    count = -(-len(labels) // options.batch_size)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        shuffled, pixels, digits = tf.constant(order), tf.constant(images), tf.constant(labels)

        def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            chosen = shuffled[number * options.batch_size : (number + 1) * options.batch_size]
            seed = tf.stack([tf.constant(2 * options.seed, tf.int64), epoch * count + number])
            return distorted(tf.gather(pixels, chosen), seed), tf.gather(digits, chosen)

        # Splits are numbers of batches, not samples: batches are complete, and a split is one small call.
        numbers = tf.data.Dataset.range(count)
        if cluster is None:
            numbers = numbers.shard(context.num_input_pipelines, context.input_pipeline_id)
            numbers = numbers.skip(first * strategy.num_replicas_in_sync // context.num_input_pipelines)
        prepared = numbers.map(batch, num_parallel_calls=tf.data.AUTOTUNE)
        if cluster is not None:
            prepared = prepared.apply(
                distribute(
                    processing_mode=ShardingPolicy.DYNAMIC,  # each batch is assigned to one worker, once
                    service=cluster.dispatcher,
                    job_name=f"epoch-{epoch}",  # shared by all training hosts
                    compression=None,  # noise does not compress
                )
            )
        return prepared.prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(pipeline), len(labels)


# -- Model ------------------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace) -> tuple[keras.Model, keras.Optimizer]:
    keras.utils.set_random_seed(options.seed)
    model = network()
    optimizer = keras.optimizers.Adam(options.learning_rate)
    optimizer.build(model.trainable_variables)
    return model, optimizer


# -- Step -------------------------------------------------------------------------------------------------------------


def step_of(
    strategy: tf.distribute.Strategy, model: keras.Model, optimizer: keras.Optimizer, batch: Any
) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """The step on one batch of each device, some of which may be empty: the mean loss over all samples, and how many they are.

    ``batch`` is the specification of the batches. With it the step is traced once, as hosts that add up together must.
    """
    variables = model.trainable_variables

    @tf.function(input_signature=batch)
    def step(images: Any, labels: Any) -> tuple[tf.Tensor, tf.Tensor]:
        def on_a_device(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            count = tf.shape(labels)[0]
            # A sample with weight 0 in an empty batch, on which TensorFlow's fused convolutions fail.
            lacking = tf.maximum(1 - count, 0)
            images, labels = tf.pad(images, [[0, lacking], [0, 0], [0, 0], [0, 0]]), tf.pad(labels, [[0, lacking]])
            with tf.GradientTape() as tape:
                losses = keras.losses.sparse_categorical_crossentropy(labels, model(images), from_logits=True)
                loss = tf.reduce_sum(losses[:count]) / tf.cast(samples, losses.dtype)
            # The optimizer sums over devices and hosts.
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        samples = strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(tf.size, args=(labels,)), axis=None)
        loss = strategy.run(on_a_device, args=(images, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, loss, axis=None), samples

    return step


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, cluster: Cluster | None, options: argparse.Namespace) -> None:
    strategy = strategy_of(job)
    stop = Stop(strategy, len(job.group_hosts), options.stop_check_every)
    with strategy.scope():
        model, optimizer = build(options)
    chief = job.host == job.group_hosts[0]
    epochs, steps, taken = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(3))
    # Of the epoch that is under way: steps, and the sums of the samples' losses and of the samples.
    sums = tf.Variable([0, 0], dtype=tf.float64, trainable=False)
    about = {"epochs": epochs, "steps": steps, "taken": taken, "sums": sums}
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, **about)
    keeper = tf.train.CheckpointManager(checkpoint, str(job.checkpoints), max_to_keep=2)
    if keeper.latest_checkpoint:
        checkpoint.restore(keeper.latest_checkpoint).assert_consumed()
        optimizer.learning_rate = options.learning_rate  # the checkpoint has the one before
    devices, hosts, first = strategy.num_replicas_in_sync, len(job.group_hosts), int(epochs)
    print(
        f"host {job.host} of {job.group} trains on {devices} devices of {hosts} hosts, from epoch {first}", flush=True
    )
    step = None
    for epoch in range(first, options.epochs):
        if cluster is not None:
            taken.assign(0)
            sums.assign([0, 0])
        batches, expected = batches_of(epoch, int(taken), strategy, job, cluster, options)
        step = step or step_of(strategy, model, optimizer, batches.element_spec)
        losses, counts, stopped = run_epoch(step, until_all_end(batches), steps, chief, stop)
        total = [loss * tf.cast(n, loss.dtype) for loss, n in zip(losses, counts, strict=True)]
        sums.assign_add([tf.cast(tf.add_n(total), tf.float64), tf.cast(tf.add_n(counts), tf.float64)])
        epochs.assign(epoch if stopped else epoch + 1)
        loss, samples = float(sums[0] / sums[1]), int(sums[1])
        taken.assign(int(taken) + len(losses) if stopped else 0)
        sums.assign(sums if stopped else [0, 0])
        if chief:
            keeper.save(checkpoint_number=steps)
        if stopped:
            print(f"stopped by SIGTERM with the checkpoint of step {int(steps)}", flush=True)
            return
        if chief:
            right = accuracy(model, *held_out(job.channels.get("digits")))
            print(
                f"epoch {epoch} loss {loss:.6f} accuracy on held-out digits {right:.4f}, "
                f"{samples} of {expected} samples",
                flush=True,
            )
    if chief:
        job.model.mkdir(parents=True, exist_ok=True)
        model.save(job.model / "model.keras")
        print(f"accuracy {accuracy(model, *held_out(job.channels.get('digits'))):.4f}", flush=True)


def until_all_end(batches: Any) -> Iterator[Any]:
    """Batches until no device of any host has one; devices without get empty batches."""
    iterator = iter(batches)
    while (batch := iterator.get_next_as_optional()).has_value():
        yield batch.get_value()
    # Closing tf.data service's client can take seconds, so it is done on a thread.
    held = [iterator]
    del iterator
    threading.Thread(target=held.clear).start()


def run_epoch(
    step: Callable[..., Any], batches: Iterator[Any], steps: tf.Variable, chief: bool, stop: Stop
) -> tuple[list[tf.Tensor], list[tf.Tensor], bool]:
    """One pass over an epoch's batches, or until ``stop``. Returns the mean loss and the samples of each step, on all devices
    together, and whether it was stopped."""
    losses, counts = [], []
    stopped = False
    began = time.perf_counter()
    for batch in batches:
        loss, samples = step(*batch)
        losses.append(loss)
        counts.append(samples)
        steps.assign_add(1)
        if chief and int(steps) % 10 == 0:
            rate = int(tf.add_n(counts)) / (time.perf_counter() - began)
            print(f"step {int(steps)} loss {float(loss):.6f} samples/s {rate:.0f}", flush=True)
        if stopped := stop.agreed(int(steps)):
            break
    return losses, counts, stopped


def main() -> None:
    options = config()
    job = Job.here()
    use_the_jobs_network()
    try:
        cluster = Cluster.of(job, data_group=options.data_group, port=options.port)
        if cluster is not None and job.host in cluster.serving:
            print(f"host {job.host} of {job.group} runs tf.data service", flush=True)
            serve(cluster, job, heartbeat_timeout=options.heartbeat_timeout)
            return
        with reporting(cluster, job, worker=options.train_workers) if cluster else contextlib.nullcontext():
            train(job, cluster, options)
    except DataServiceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
