"""TensorFlow's strategy over the hosts of a training group, and what they agree on: to stop after the same step at SIGTERM."""

from __future__ import annotations

import json
import os
import signal

import tensorflow as tf
from common.job import Job

PORT = 8890  # of each host, the same as SageMaker's toolkit uses for this purpose


def strategy_of(job: Job) -> tf.distribute.Strategy:
    """The strategy over the devices of all hosts of the group, or of this one; to be called before TensorFlow is initialized."""
    if len(job.group_hosts) > 1:
        # The toolkit's variable, where its launcher has set one, has the hosts of all groups.
        if "TF_CONFIG" not in os.environ or len(job.groups) > 1:
            cluster = {"worker": [f"{host}:{PORT}" for host in job.group_hosts]}
            task = {"type": "worker", "index": job.group_hosts.index(job.host)}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        return tf.distribute.MultiWorkerMirroredStrategy()
    if len(tf.config.list_physical_devices("GPU")) > 1:
        return tf.distribute.MirroredStrategy()
    return tf.distribute.get_strategy()


def sum_of_devices(strategy: tf.distribute.Strategy, value: int) -> int:
    """The sum of each host's ``value`` over its devices and all hosts, each of which has to call it."""
    values = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(value, tf.int64))
    return int(strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None))


def check_same_step(strategy: tf.distribute.Strategy, steps: int) -> None:
    """Raise ValueError where the hosts would not go on from the same step, since one lacks a checkpoint."""
    if (found := sum_of_devices(strategy, steps)) != steps * strategy.num_replicas_in_sync:
        mean = found / strategy.num_replicas_in_sync
        raise ValueError(f"all hosts must resume from the same step, like {steps} of this one, got {mean:g} on average")


class Stop:
    """Whether any host got SIGTERM. To be constructed after the strategy, whose services install handlers."""

    def __init__(self, strategy: tf.distribute.Strategy, hosts: int, every: int) -> None:
        self._strategy, self._every = strategy, every
        self._alone, self._received = hosts == 1, list[int]()
        signal.signal(signal.SIGTERM, lambda number, _: self._received.append(number))

    def agreed(self, step: int) -> bool:
        """Whether any host got SIGTERM; to be called after each step on every host, checked in each ``every``-th step."""
        if self._alone:
            return bool(self._received)
        return step % self._every == 0 and sum_of_devices(self._strategy, len(self._received)) > 0
