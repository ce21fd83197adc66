"""Handles SIGTERM in a TensorFlow training script, as stopping.py does in others: all hosts stop after the same step."""

from __future__ import annotations

import signal

import tensorflow as tf


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
        if step % self._every:
            return False
        stopping = self._strategy.experimental_distribute_values_from_function(
            lambda _: tf.constant(float(len(self._received)))
        )
        return float(self._strategy.reduce(tf.distribute.ReduceOp.SUM, stopping, axis=None)) > 0
