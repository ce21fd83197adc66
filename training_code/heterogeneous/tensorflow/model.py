"""The workload: scikit-learn's handwritten digits, enlarged and distorted at some cost, and a small convolutional network."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIDE = 28  # pixels of an enlarged digit
HELD_OUT_EVERY = 5  # every fifth digit is held out
MOST_DEGREES = 15
NOISE = 0.1


def training_digits(folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The digits to train on: images, float32 [n, 8, 8] of 0 to 1, and labels, int64 [n].

    ``folder`` holds ``digits.npz``; without one the digits are scikit-learn's own copy.
    """
    images, labels = _read(folder)
    kept = np.arange(len(labels)) % HELD_OUT_EVERY != 0
    return images[kept], labels[kept]


def held_out(folder: Path | None = None) -> tuple[tf.Tensor, np.ndarray]:
    """Images [n, 28, 28, 1], not distorted, and labels [n] of the held-out digits."""
    images, labels = _read(folder)
    kept = np.arange(len(labels)) % HELD_OUT_EVERY == 0
    return blurred(enlarged(tf.constant(images[kept]), tf.zeros([kept.sum()]))), labels[kept]


def distorted(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Images [n, 8, 8] as [n, 28, 28, 1]: turned by up to 15 degrees, noisy, and blurred; a function of ``seed``, int64 [2].

    Of TensorFlow's stateless operations only: a worker of tf.data service runs it from its graph, without this file.
    """
    most = math.radians(MOST_DEGREES)
    count = tf.shape(images)[0]
    angles = tf.random.stateless_uniform([count], seed, -most, most)
    noise = NOISE * tf.random.stateless_normal([count, SIDE, SIDE, 1], seed + 1)
    return blurred(enlarged(images, angles) + noise)


def enlarged(images: tf.Tensor, angles: tf.Tensor) -> tf.Tensor:
    """Images [n, 8, 8], each turned by its angle in radians, as [n, 28, 28, 1]."""
    scale = 8 / SIDE
    cosine, sine, zero = scale * tf.cos(angles), scale * tf.sin(angles), tf.zeros_like(angles)
    centre, half = 3.5, (SIDE - 1) / 2
    # Where each pixel of the enlarged image comes from: a rotation about the centres of both.
    across = centre - half * (cosine - sine)
    down = centre - half * (sine + cosine)
    turns = tf.stack([cosine, -sine, across, sine, cosine, down, zero, zero], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images[..., None],
        transforms=turns,
        output_shape=[SIDE, SIDE],
        fill_value=0.0,
        interpolation="BILINEAR",
    )


def blurred(images: tf.Tensor) -> tf.Tensor:
    """Images [n, 28, 28, 1] under an 11 x 11 Gaussian of 1.5 pixels."""
    row = np.exp(-((np.arange(11.0) - 5) ** 2) / (2 * 1.5**2))
    kernel = np.outer(row, row) / row.sum() ** 2
    return tf.nn.conv2d(images, kernel[..., None, None].astype(np.float32), strides=1, padding="SAME")


def network() -> keras.Model:
    """Images [n, 28, 28, 1] to the logits of ten digits [n, 10]."""
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


def accuracy(model: keras.Model, images: tf.Tensor, labels: np.ndarray) -> float:
    """The accuracy of the model."""
    return float(np.mean(np.argmax(model(images), axis=1) == labels))


@functools.cache
def _read(folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if folder is not None:
        with np.load(folder / "digits.npz") as file:
            images, labels = file["images"], file["labels"]
    else:
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = digits.images, digits.target
    return (images / 16).astype(np.float32), labels.astype(np.int64)
