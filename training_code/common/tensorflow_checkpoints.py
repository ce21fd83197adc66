"""Checkpoints of TensorFlow's scripts: weights, the optimizer's state, and the run's record, as in checkpoints.py."""

from __future__ import annotations

import json
from collections.abc import Mapping

import keras
import tensorflow as tf
from common.job import Job


class Progress(tf.train.experimental.PythonState):
    """How far a training is: ``samples`` are those that all devices have read in its ``steps``.

    ``losses`` are those of the epoch that is under way: their sum over its samples, and the samples.
    """

    def __init__(self, fixed: Mapping[str, object], free: Mapping[str, object]) -> None:
        self.steps, self.samples, self.losses = 0, 0, tf.zeros(2, tf.float64)
        self._fixed, self._free = dict(fixed), dict(free)
        self.settings: dict[str, dict[str, object]] = {}  # those of the checkpoint

    def add(self, loss: tf.Tensor, samples: tf.Tensor | int) -> None:
        """Count a step's mean loss; only what reads ``losses`` waits for the device."""
        self.steps += 1
        number = tf.cast(samples, tf.float64)
        self.losses += tf.stack([tf.cast(loss, tf.float64) * number, number])

    def epoch_loss(self) -> float:
        """The mean loss of the samples since the last call."""
        total, samples = self.losses.numpy()
        self.losses = tf.zeros(2, tf.float64)
        return float(total / samples)

    def serialize(self) -> str:
        settings = {"fixed": self._fixed, "free": self._free}
        progress = {"steps": self.steps, "samples": self.samples, "losses": self.losses.numpy().tolist()}
        return json.dumps({**progress, "settings": settings})

    def deserialize(self, text: str) -> None:
        record = json.loads(text)
        self.steps, self.samples, self.settings = record["steps"], record["samples"], record["settings"]
        self.losses = tf.constant(record["losses"], tf.float64)

    def check(self, source: str) -> list[str]:
        """What has changed since the checkpoint. Raises ValueError where that must be as it was."""
        if not self.settings:
            raise ValueError(f"{source} has no record of its run: another version of this script has written it")
        for name, was in self.settings["fixed"].items():
            if self._fixed.get(name) != was:
                raise ValueError(
                    f"{name} must be {was!r} as in {source}, which this run would resume, got {self._fixed.get(name)!r}: "
                    "resume with that value, or begin with an empty folder of checkpoints"
                )
        return [f"{n} {was} -> {self._free.get(n)}" for n, was in self.settings["free"].items() if self._free[n] != was]


class Checkpointer:
    """Writes a training's checkpoints on the group's first host, and restores the newest.

    Args:
        fixed: Settings that a resumed run must have too, such as the seed and the dataset's length, by name.
        free: Those that it may change, such as the batch's size, which are printed where it does.
        options: Of each write and read.
    """

    def __init__(
        self,
        job: Job,
        model: keras.Model,
        optimizer: keras.Optimizer,
        *,
        fixed: Mapping[str, object],
        free: Mapping[str, object],
        options: tf.train.CheckpointOptions | None = None,
    ) -> None:
        self.chief = job.host == job.group_hosts[0]
        self._progress, self._options = Progress(fixed, free), options
        self._checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, progress=self._progress)
        self._manager = tf.train.CheckpointManager(self._checkpoint, str(job.checkpoints), max_to_keep=2)

    def save(self) -> None:
        if self.chief:
            self._manager.save(checkpoint_number=self._progress.steps, options=self._options)

    def restore(self) -> Progress:
        """Without a checkpoint the training begins. Raises ValueError where the newest is not of this training."""
        if source := self._manager.latest_checkpoint:
            tf.train.Checkpoint(progress=self._progress).restore(source, self._options).expect_partial()
            changed = self._progress.check(source)
            self._checkpoint.restore(source, self._options).assert_consumed()
            if self.chief:
                progress = f"resumes at step {self._progress.steps}, sample {self._progress.samples}"
                print(progress, *changed, sep=", ", flush=True)
        return self._progress
