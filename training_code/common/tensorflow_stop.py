"""SIGTERM to a training script of TensorFlow's, on which all hosts stop after the same step.

SageMaker sends it when a job is stopped and when its spot machines are taken back, to each host at its own moment.
"""

from __future__ import annotations

import signal

import tensorflow as tf


class Stop:
    """Whether any host got SIGTERM. To be made after the strategy, whose services take the signal.

    ``every``: in each step of which number the hosts compare.
    """

    def __init__(self, strategy: tf.distribute.Strategy, hosts: int, every: int) -> None:
        self._strategy, self._every = strategy, every
        self._alone, self._told = hosts == 1, False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def agreed(self, step: int) -> bool:
        """After each step, on every host: whether any was told to stop. They are asked in each ``every``-th step."""
        if self._alone:
            return self._told
        if step % self._every:
            return False
        told = self._strategy.experimental_distribute_values_from_function(lambda _: tf.constant(float(self._told)))
        return float(self._strategy.reduce(tf.distribute.ReduceOp.SUM, told, axis=None)) > 0
