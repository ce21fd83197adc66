"""The loss rule of loss.py for TensorFlow: the sum over all targets that count, divided by their number over all devices."""

from __future__ import annotations

import tensorflow as tf

IGNORED = -100  # a target that does not count, as in loss.py


def token_loss(logits: tf.Tensor, targets: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """This device's part of the mean cross-entropy of ``count`` targets over all devices, which is the sum of their parts.

    A Keras optimizer sums the gradients over devices and hosts, and so has that of the mean. Where nothing counts, it is 0.
    """
    counts = targets != IGNORED
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(counts, targets, 0), tf.cast(logits, tf.float32))
    return tf.reduce_sum(tf.where(counts, losses, 0.0)) / tf.cast(tf.maximum(count, 1), tf.float32)
