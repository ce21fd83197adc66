"""Train the small network of train.py with TensorFlow's parameter servers: workers update the variables that these hold.

On SageMaker:     a DataParallelJob on two hosts or more with launcher=ParameterServer(), in an image with
                  SAGEMAKER_PROGRAM=parameter_server.py

The launcher starts a parameter server and this file on each host, with all of them in TF_CONFIG. On the first host this is the
coordinator, which hands out the steps; on the others it is a worker, until the coordinator ends.

It resumes from its last checkpoint. SIGTERM ends it with a checkpoint after the steps that are under way, which have one learning
rate. One worker has the losses of train.py; several do not wait for each other's updates, so that no two trainings are alike.
"""

# ran: `data_parallel/tensorflow/parameter_server.py` | test_interruptions (soak) | test_tensorflow_launchers (soak) | no | no

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time

import tensorflow as tf
from common.job import Job
from common.order import Order, share
from common.schedule import scheduled_rate
from common.tensorflow_checkpoints import Checkpointer
from train import build, config, points, step_of

JOIN_SECONDS = 900  # until the coordinator must have started; the toolkit waits as long for the hosts' names
# The coordinator writes and reads checkpoints; by default each server does with its own variables, on its host's disk.
HERE = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/device:CPU:0")
CONNECT_SECONDS, LOOK_SECONDS = 10.0, 1.0

# -- Config, Data, Model and Step are those of train.py -------------------------------------------------------------


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


# -- Run --------------------------------------------------------------------------------------------------------------


def coordinate(job: Job, options: argparse.Namespace, cluster: tf.train.ClusterSpec) -> None:
    """Train, on the first host."""
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    kind = tf.distribute.cluster_resolver.SimpleClusterResolver
    resolver = kind(cluster, task_type="chief", task_id=0, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    workers = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = build(options)
    data = points(job.channels.get("points"))
    order = Order(len(data[1]), options.batch_size, options.seed)
    fixed, free = {"seed": options.seed, "points": order.length}, {"batch_size": options.batch_size}
    checkpointer = Checkpointer(job, model, optimizer, fixed=fixed, free=free, options=HERE)
    progress = checkpointer.restore()
    step = step_of(strategy, model, optimizer, data)
    together = options.stop_check_every * len(cluster.job_tasks("worker"))
    while progress.samples < options.epochs * order.length:
        at, total = order.steps(progress.samples) + 1, options.epochs * order.steps_of_an_epoch
        optimizer.learning_rate = rate = scheduled_rate(options, at, total, order.batch)
        losses, left = [], 1
        while len(losses) < together and left:
            numbers = order.at(progress.samples)
            rows, count = share(numbers, 0, 1, order.batch, order.length), len(numbers)
            losses.append((workers.schedule(step, args=(tf.constant(rows), tf.constant(count))), count))
            progress.samples += count
            epoch, left = divmod(progress.samples, order.length)
        workers.join()  # raises a worker's error; the steps of a worker that is lost are another's
        for loss, count in losses:
            progress.add(loss.fetch(), count)
        if not left:
            print(f"epoch {epoch} loss {progress.epoch_loss():.6f} learning_rate {rate:.6g}", flush=True)
        stopping = bool(received)
        if not left or stopping:
            checkpointer.save()
        if stopping:
            print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
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
