"""Train the small network of train.py with TensorFlow's parameter servers: workers update the variables that these hold.

On SageMaker:     a DataParallelJob on two hosts or more with launcher=ParameterServer(), in an image with
                  SAGEMAKER_PROGRAM=parameter_server.py

The launcher starts a parameter server and this file on each host, with all of them in TF_CONFIG. On the first host this is the
coordinator, which hands out the steps; on the others it is a worker, until the coordinator ends.

It resumes from its last checkpoint. SIGTERM ends it with a checkpoint after the steps that are under way. One worker
has the losses of train.py; several do not wait for each other's updates, so that no two trainings of theirs are alike.
"""

# ran: `data_parallel/tensorflow/parameter_server.py` | test_interruptions (soak) | test_tensorflow_launchers (soak) | no | no

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf
from common.job import Job
from train import build, config, points

JOIN_SECONDS = 900  # until the coordinator must have started; the toolkit waits as long for the hosts' names
# The coordinator writes and reads checkpoints; by default each server does with its own variables, on its host's disk.
HERE = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/device:CPU:0")
CONNECT_SECONDS, LOOK_SECONDS = 10.0, 1.0

# -- Config, Data and Model are those of train.py ------------------------------------------------------------------


def cluster_here() -> tuple[tf.train.ClusterSpec, str, int]:
    """The cluster of TF_CONFIG, and this process's task in it.

    The toolkit names the first host "master", as TensorFlow 1 did, and TensorFlow 2 "chief" (`_build_tf_config_for_ps` of
    aws/sagemaker-tensorflow-training-toolkit, training.py). It does so on two hosts or more.
    """
    if "TF_CONFIG" not in os.environ:
        raise SystemExit(
            "the job must have at least 2 hosts and launcher=ParameterServer(), like InstanceGroup('ml.c5.xlarge', 2), "
            "got no TF_CONFIG"
        )
    described = json.loads(os.environ["TF_CONFIG"])
    names = {"master": "chief"}
    jobs = {names.get(name, name): addresses for name, addresses in described["cluster"].items()}
    task = described["task"]
    return tf.train.ClusterSpec(jobs), names.get(task["type"], task["type"]), task["index"]


# -- Step -------------------------------------------------------------------------------------------------------------


def step_of(
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    optimizer: keras.Optimizer,
    data: tuple[np.ndarray, np.ndarray],
) -> Callable[[tf.Tensor], tf.Tensor]:
    """The step on the points of these rows, on a worker, which returns the loss."""
    variables = model.trainable_variables

    def on_the_worker(rows: tf.Tensor) -> tf.Tensor:
        inputs, labels = (tf.gather(tf.constant(part), rows) for part in data)
        with tf.GradientTape() as tape:
            losses = keras.losses.sparse_categorical_crossentropy(labels, model(inputs), from_logits=True)
            loss = tf.reduce_mean(losses)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    return tf.function(lambda rows: strategy.run(on_the_worker, args=(rows,)))


# -- Run --------------------------------------------------------------------------------------------------------------


def coordinate(job: Job, options: argparse.Namespace, cluster: tf.train.ClusterSpec) -> None:
    """Train, on the first host."""
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    workers = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = build(options)
        taken = tf.Variable(0, dtype=tf.int64, trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, taken=taken)
    keeper = tf.train.CheckpointManager(checkpoint, str(job.checkpoints), max_to_keep=2)
    if keeper.latest_checkpoint:
        checkpoint.restore(keeper.latest_checkpoint, options=HERE).assert_consumed()
        optimizer.learning_rate = options.learning_rate  # the checkpoint has the one before
    inputs, labels = points(job.channels.get("points"))
    per_epoch = len(labels) // options.batch_size
    step = step_of(strategy, model, optimizer, (inputs, labels))
    done, together = int(taken.numpy()), options.stop_check_every * len(cluster.job_tasks("worker"))
    while done < options.epochs * per_epoch:
        epoch, position = divmod(done, per_epoch)
        order = np.random.default_rng([options.seed, epoch]).permutation(len(labels))
        rows = order[: per_epoch * options.batch_size].reshape(per_epoch, -1)[position : position + together]
        losses = [workers.schedule(step, args=(tf.constant(row),)) for row in rows]
        workers.join()  # raises a worker's error; the steps of a worker that is lost are another's
        done += len(rows)
        if done % per_epoch == 0:
            print(f"epoch {epoch + 1} loss {float(losses[-1].fetch()):.4f}", flush=True)
        stopping = bool(received)
        if done % per_epoch == 0 or stopping:
            taken.assign(done)
            keeper.save(checkpoint_number=done, options=HERE)
        if stopping:
            print(f"stopped by SIGTERM with the checkpoint of step {done}", flush=True)
            return
    job.model.mkdir(parents=True, exist_ok=True)
    model.save(job.model / "model.keras")


def work(cluster: tf.train.ClusterSpec, index: int) -> None:
    """Take the coordinator's steps until it has ended. A TensorFlow server cannot be stopped, so it ends with the process."""
    server = tf.distribute.Server(cluster, job_name="worker", task_index=index, protocol="grpc")
    [address] = cluster.job_tasks("chief")
    host, _, port = address.rpartition(":")
    began, seen = time.monotonic(), False
    while time.monotonic() - began < JOIN_SECONDS or seen:
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
            seen = True
        except OSError as error:
            if seen:
                print(f"the coordinator on {host} has ended", flush=True)
                return
            missing = error
        time.sleep(LOOK_SECONDS)
    raise SystemExit(f"the coordinator on {host} did not start within {JOIN_SECONDS} s: {missing} ({server.target})")


def main() -> None:
    cluster, task, index = cluster_here()
    if task == "chief":
        coordinate(Job.here(), config(), cluster)
    else:
        work(cluster, index)


if __name__ == "__main__":
    main()
