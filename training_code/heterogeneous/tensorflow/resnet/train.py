"""Train ResNet-50 with TensorFlow and Horovod; tf.data service augments the images on other machines, if any.

On a laptop, in one process:     python examples/resnet-tensorflow/src/train.py --steps 20 --batch-size 16
Two processes, by Horovod:       horovodrun --gloo -np 2 python ...
On SageMaker:                    AWS's last container with Horovod, TensorFlow 2.12's: `training-jobs init resnet-tensorflow`

The workload of AWS's article on heterogeneous clusters: random images of 32 x 32 pixels, dilated, blurred, flipped, turned and
zoomed on CPUs. Here each has a tint of its class, so that the loss can fall. Hosts of the group ``--data-group`` run tf.data
service; mpirun starts a process for each GPU of the other group, whose gradients Horovod averages. Without the package
``horovod`` one process trains on one host. The schedule grows the rate with the batch (``--base-batch-size``).

It resumes from the last checkpoint with the next batches; SIGTERM ends it with a checkpoint, after the same step on all ranks.
"""

# ran: ResNet-50 with TensorFlow; by hand with Horovod, in two processes | no | test_example_apps (soak) | no | no

from __future__ import annotations

import argparse
import contextlib
import math
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from common.job import Job
from common.schedule import add_schedule, positive, scheduled_rate, true
from common.tensorflow_checkpoints import Checkpointer
from end import DataServiceError
from service import Cluster, reporting, serve

try:
    import horovod.tensorflow as hvd
except ImportError:
    hvd = None

SIDE, CLASSES = 32, 10
MOST_DEGREES, MOST_ZOOM, SIGMA = 20, 0.2, 0.8

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add("--steps", type=positive, default=5000)
    add("--batch-size", type=positive, default=128, help="of each process")
    add_schedule(arguments, peak=0.05)
    add("--seed", type=int, default=0)
    add("--data-group", default="data_group", help="the instance group that runs tf.data service")
    add("--train-workers", type=true, nargs="?", const=True, default=True, help="the hosts that train prepare as well")
    add("--heartbeat-timeout", type=float, default=300.0, help="seconds without a trainer's until a data host ends")
    add("--port", type=positive, default=6000, help="of each data host, the first of three")
    add("--log-every", type=positive, default=10)
    add("--checkpoint-every", type=positive, default=500)
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def batches_of(job: Job, cluster: Cluster | None, options: argparse.Namespace, first: int) -> tf.data.Dataset:
    """Endless batches: images, float32 [n, 32, 32, 3], and labels, int64 [n]. Each is a function of the seed and its number."""

    def batch(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        seed = tf.stack([tf.constant(options.seed, tf.int64), number])
        labels = tf.random.stateless_uniform([options.batch_size], seed, 0, CLASSES, tf.int64)
        tints = tf.random.stateless_uniform([CLASSES, 1, 1, 3], [options.seed, -1])
        noise = tf.random.stateless_uniform([options.batch_size, SIDE, SIDE, 3], seed + 1)
        return augmented(0.5 * noise + 0.5 * tf.gather(tints, labels), seed + 2), labels

    # Each rank's own numbers. With the service each rank reads what is ready, and a batch is read once.
    mine = 0 if cluster else job.rank
    numbers = tf.data.Dataset.range(first * job.ranks + mine, np.iinfo(np.int64).max, 1 if cluster else job.ranks)
    prepared = numbers.map(batch, num_parallel_calls=tf.data.AUTOTUNE)
    if cluster is not None:
        dynamic = tf.data.experimental.service.ShardingPolicy.DYNAMIC
        service = {"service": cluster.dispatcher, "job_name": f"from-{first}", "compression": None}
        prepared = prepared.apply(tf.data.experimental.service.distribute(processing_mode=dynamic, **service))
    return prepared.prefetch(tf.data.AUTOTUNE)


def augmented(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Dilated, blurred, flipped, turned and zoomed; a function of ``seed``, int64 [2], of TensorFlow's operations only."""
    images = tf.nn.dilation2d(images, tf.zeros([3, 3, 3]), [1] * 4, "SAME", "NHWC", [1] * 4)
    row = np.exp(-((np.arange(11.0) - 5) ** 2) / (2 * SIGMA**2))
    kernel = (np.outer(row, row) / row.sum() ** 2)[..., None, None].repeat(3, axis=2).astype(np.float32)
    images = tf.nn.depthwise_conv2d(images, kernel, [1] * 4, "SAME")
    count = tf.shape(images)[0]
    flipped = tf.random.stateless_uniform([count, 1, 1, 1], seed) < 0.5
    images = tf.where(flipped, images[:, :, ::-1], images)
    most = math.radians(MOST_DEGREES)
    angle = tf.random.stateless_uniform([count], seed + 1, -most, most)
    zoom = tf.random.stateless_uniform([count], seed + 2, 1 - MOST_ZOOM, 1 + MOST_ZOOM)
    cosine, sine, half, zero = zoom * tf.cos(angle), zoom * tf.sin(angle), (SIDE - 1) / 2, tf.zeros_like(angle)
    shift = [half - half * (cosine - sine), half - half * (sine + cosine)]  # the centre stays
    turns = tf.stack([cosine, -sine, shift[0], sine, cosine, shift[1], zero, zero], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images, transforms=turns, output_shape=[SIDE, SIDE], fill_value=0.0, interpolation="BILINEAR"
    )


# -- Model ------------------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace) -> tuple[tf.keras.Model, Any]:
    tf.keras.utils.set_random_seed(options.seed)
    model = tf.keras.applications.ResNet50(
        weights=None, input_shape=(SIDE, SIDE, 3), classes=CLASSES, classifier_activation=None
    )
    optimizer = tf.keras.optimizers.SGD(options.learning_rate, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return model, optimizer


# -- Step -------------------------------------------------------------------------------------------------------------


def step_of(model: tf.keras.Model, optimizer: Any) -> Any:
    """The step on a batch, as one graph: the mean loss over all ranks."""

    @tf.function(autograph=False)  # whose zip has no strict=
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        variables = model.trainable_variables
        if hvd:  # all batches have one size, so that the mean of the ranks' means is the mean
            tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return hvd.allreduce(loss) if hvd else loss

    return step


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, cluster: Cluster | None, options: argparse.Namespace) -> None:
    model, optimizer = build(options)
    fixed, free = {"seed": options.seed}, {"batch_size": options.batch_size, "ranks": job.ranks}
    checkpointer, stopped = Checkpointer(job, model, optimizer, fixed=fixed, free=free), list[int]()
    checkpointer.chief = job.rank == 0
    progress = checkpointer.restore()
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    if hvd:
        hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)
    print(f"rank {job.rank} of {job.ranks} on {job.host} trains {'with' if hvd else 'without'} Horovod", flush=True)
    step, batch = step_of(model, optimizer), options.batch_size * job.ranks
    began, logged, ends = time.perf_counter(), progress.steps, progress.steps >= options.steps
    batches = iter(batches_of(job, cluster, options, progress.steps))
    while not ends:
        optimizer.learning_rate = scheduled_rate(options, progress.steps + 1, options.steps, batch)
        loss = step(*next(batches))
        progress.add(loss, batch)
        progress.samples += batch
        ends = progress.steps == options.steps
        if progress.steps % options.log_every == 0:
            ends = ends or any_rank(bool(stopped))
            if job.rank == 0:
                pace = 1000 * (time.perf_counter() - began) / (progress.steps - logged)
                print(f"step {progress.steps} loss {float(loss):.6f} step_ms {pace:.1f}", flush=True)
            began, logged = time.perf_counter(), progress.steps
        if ends or progress.steps % options.checkpoint_every == 0:
            checkpointer.save()
    if job.rank == 0 and progress.steps < options.steps:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        model.save(job.model / "model.h5")


def any_rank(value: bool) -> bool:
    """Whether it is so on any rank; each has to call it after the same step."""
    return bool(hvd.allreduce(tf.constant(float(value)), op=hvd.Sum) > 0) if hvd else value


def on_this_rank(job: Job) -> Job:
    """The job with the ranks of mpirun, by which Horovod counts, each with one GPU of its own."""
    if hvd is None:
        if len(job.group_hosts) > 1:
            raise ValueError(
                f"group_hosts must be one without the package horovod, like ['algo-1'], got {job.group_hosts}"
            )
        return job
    hvd.init()
    if gpus := tf.config.list_physical_devices("GPU"):
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    ranks = {"rank": hvd.rank(), "ranks": hvd.size(), "local_rank": hvd.local_rank(), "local_ranks": hvd.local_size()}
    return replace(job, **ranks)


def main() -> None:
    options, job = config(), Job.here()
    try:
        cluster = Cluster.of(job, data_group=options.data_group, port=options.port)
        if cluster is not None and job.host in cluster.serving:
            print(f"host {job.host} of {job.group} runs tf.data service", flush=True)
            serve(cluster, job, heartbeat_timeout=options.heartbeat_timeout)
            return
        job = on_this_rank(job)
        one = cluster is not None and job.local_rank == 0  # of each host reports to the data hosts, and has a worker
        with reporting(cluster, job, worker=options.train_workers) if one else contextlib.nullcontext():
            train(job, cluster, options)
    except DataServiceError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
