"""The steps of Keras's ``fit`` for ``trace_steps.py``; those of loops that are written by hand are not seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from trace_steps import Steps, digest

ROUNDED = {"": None, "float16": np.float16}


class Batches(keras.callbacks.Callback):  # type: ignore[misc]
    """Tells of each step; of several that are one execution as of one."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self.steps = steps

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """What a step begins with."""
        model, weights = self.model, self.model.trainable_weights
        if (number := self.steps.number(model)) is None:
            names = [getattr(one, "path", one.name) for one in weights]
            number = self.steps.add(model, model.optimizer, names, lambda: digests(model.trainable_weights))
        self.steps.begins(
            {
                "optimizer": number,
                "parameters": {name: digests(weights, kind) for name, kind in ROUNDED.items()},
                "state": [state_of(model.optimizer)] * len(weights),
                "gradient": "",
                "groups": [{"lr": float(array(model.optimizer.learning_rate))}],
                "batch": "",
            }
        )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """What follows a step."""
        self.steps.ends()


def watch(steps: Steps) -> None:
    """Have each ``fit`` tell of its steps."""
    original = keras.Model.fit

    def fit(self: Any, *arguments: Any, callbacks: Any = None, **more: Any) -> Any:
        given = list(callbacks) if isinstance(callbacks, list | tuple) else [] if callbacks is None else [callbacks]
        return original(self, *arguments, callbacks=[*given, Batches(steps)], **more)

    keras.Model.fit = fit


def digests(weights: list[Any], rounded: Any = None) -> list[str]:
    """A digest of each weight."""
    return [digest(_bytes(one, rounded)) for one in weights]


def _bytes(weight: Any, rounded: Any) -> Iterator[bytes]:
    values = array(weight)
    yield str(values.shape).encode() + (values if rounded is None else values.astype(rounded)).tobytes()


def array(value: Any) -> Any:
    """A variable's value."""
    return value.numpy() if hasattr(value, "numpy") else np.asarray(keras.ops.convert_to_numpy(value))


def state_of(optimizer: Any) -> str:
    """A digest of an optimizer's variables but the learning rate; "" before its first step."""
    if not int(array(optimizer.iterations)):
        return ""
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    rate = getattr(optimizer, "_learning_rate", None)
    return digest(part for one in variables if one is not rate for part in _bytes(one, None))
