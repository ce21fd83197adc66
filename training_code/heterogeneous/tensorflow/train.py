"""Train a small network on handwritten digits with TensorFlow; tf.data service prepares them on other machines, if any.

On a laptop, in one process:     PYTHONPATH=training_code python training_code/heterogeneous/tensorflow/train.py
On SageMaker:                    a HeterogeneousJob whose group that trains has no launcher (docs/data-service.md)

Every host of a job starts this file once. Hosts of the group ``--data-group`` run tf.data service until the training has ended;
hosts of the other group train with TensorFlow's own strategies. In a job without that group the training hosts prepare their own
batches. A batch's content is a function of seed, size and the samples before it; with the service, batches arrive in the order in
which they are ready.

It resumes from the last checkpoint; on a laptop, remove ``./output`` to start over. SIGTERM ends it with a checkpoint, after the
same step on all hosts. It goes on with the next sample, also on other hosts or with another batch, or, where other machines
prepare the batches, with these weights at the beginning of the epoch: tf.data service does not know which batches were read.
"""

# ran: `heterogeneous/tensorflow/train.py` | test_oracle_tensorflow (soak) | test_heterogeneous_tensorflow | no | no

from __future__ import annotations

import argparse
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf
from common.job import Job, use_the_jobs_network
from common.order import Order, permutation
from common.schedule import add_schedule, positive, scheduled_rate, true
from common.tensorflow_checkpoints import Checkpointer
from common.tensorflow_loss import IGNORED, token_loss
from common.tensorflow_strategy import Stop, check_same_step, strategy_of
from end import DataServiceError
from model import accuracy, distorted, held_out, network, training_digits
from service import Cluster, reporting, serve
from tensorflow.data.experimental.service import ShardingPolicy, distribute

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add("--epochs", type=positive, default=8)
    add("--batch-size", type=positive, default=64, help="of each device that trains")
    add_schedule(arguments, peak=3e-3)
    add("--seed", type=int, default=0)
    add("--data-group", default="data_group", help="the instance group that runs tf.data service")
    add("--train-workers", type=true, nargs="?", const=True, default=True, help="the hosts that train prepare as well")
    add("--heartbeat-timeout", type=float, default=300.0, help="seconds without a trainer's until a data host ends")
    add("--port", type=int, default=6000, help="of each data host, the first of three, in the job's own network")
    # SageMaker kills a job two minutes after SIGTERM.
    add("--stop-check-every", type=positive, default=5, help="steps between collective checks for SIGTERM")
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def batches_of(
    samples: int,
    order: Order,
    strategy: tf.distribute.Strategy,
    job: Job,
    cluster: Cluster | None,
    options: argparse.Namespace,
) -> Any:
    """The batches of the rest of an epoch, after ``samples``, for each device of this host.

    A batch is images, float32 [n, 28, 28, 1], and labels, int64 [n].
    """
    images, labels = training_digits(job.channels.get("digits"))
    epoch, first = divmod(samples, order.length)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        shuffled = tf.constant(permutation(order.length, options.seed, epoch))
        pixels, digits = tf.constant(images), tf.constant(labels)

        def batch(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            chosen = shuffled[start : start + options.batch_size]
            seed = tf.stack([tf.constant(2 * options.seed, tf.int64), epoch * order.length + start])
            return distorted(tf.gather(pixels, chosen), seed), tf.gather(digits, chosen)

        # Splits are numbers of batches, not samples: batches are complete, and a split is one small call.
        starts = tf.data.Dataset.range(first, order.length, options.batch_size)
        if cluster is None:
            starts = starts.shard(context.num_input_pipelines, context.input_pipeline_id)
        prepared = starts.map(batch, num_parallel_calls=tf.data.AUTOTUNE)
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

    return strategy.distribute_datasets_from_function(pipeline)


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
            # A sample that does not count in an empty batch, on which TensorFlow's fused convolutions fail.
            lacking = tf.maximum(1 - tf.size(labels), 0)
            images = tf.pad(images, [[0, lacking], [0, 0], [0, 0], [0, 0]])
            labels = tf.pad(labels, [[0, lacking]], constant_values=IGNORED)
            with tf.GradientTape() as tape:
                loss = token_loss(model(images), labels, samples)
            optimizer.apply(tape.gradient(loss, variables), variables)  # of the gradients' sum over devices and hosts
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
    devices, digits = strategy.num_replicas_in_sync, len(training_digits(job.channels.get("digits"))[1])
    order = Order(digits, options.batch_size * devices, options.seed)
    fixed = {"seed": options.seed, "digits": order.length}
    free = {"batch_size": options.batch_size, "devices": devices}
    checkpointer = Checkpointer(job, model, optimizer, fixed=fixed, free=free)
    progress = checkpointer.restore()
    check_same_step(strategy, progress.steps)
    where = f"host {job.host} of {job.group} trains on {devices} devices of {len(job.group_hosts)} hosts"
    print(f"{where}, from epoch {progress.samples // order.length}", flush=True)
    step = None
    while (epoch := progress.samples // order.length) < options.epochs:
        begin, end, stopped = epoch * order.length, (epoch + 1) * order.length, False
        if cluster is not None:
            progress.samples, progress.losses = begin, tf.zeros_like(progress.losses)
        batches = batches_of(progress.samples, order, strategy, job, cluster, options)
        step = step or step_of(strategy, model, optimizer, batches.element_spec)
        at, total = order.steps(progress.samples) + 1, options.epochs * order.steps_of_an_epoch
        began, before = time.perf_counter(), progress.losses[1]
        for number, batch in enumerate(until_all_end(batches)):
            optimizer.learning_rate = rate = scheduled_rate(options, at + number, total, order.batch)
            loss, samples = step(*batch)
            progress.add(loss, samples)
            if checkpointer.chief and progress.steps % 10 == 0:
                speed = float(progress.losses[1] - before) / (time.perf_counter() - began)
                print(
                    f"step {progress.steps} loss {float(loss):.6f} learning_rate {rate:.6g} samples/s {speed:.0f}",
                    flush=True,
                )
            if stopped := stop.agreed(progress.steps):
                break
        seen = int(progress.losses[1])
        if not stopped:
            progress.samples = end
        elif cluster is None:
            progress.samples = begin + seen
        if progress.samples == end:
            loss = progress.epoch_loss()
            if checkpointer.chief:
                right = accuracy(model, *held_out(job.channels.get("digits")))
                found = f"loss {loss:.6f} accuracy on held-out digits {right:.4f}"
                print(f"epoch {epoch} {found}, {seen} of {order.length} samples", flush=True)
        checkpointer.save()
        if stopped:
            print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
            return
    if checkpointer.chief:
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
