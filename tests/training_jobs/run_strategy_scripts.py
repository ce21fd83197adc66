"""Prints what each planted script of `strategy_scripts.py`, and the right one, adds to the weights, as JSON.

python run_strategy_scripts.py REPLICAS
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import tensorflow as tf
from strategy_scripts import STRATEGY_PLANTS, TWO

devices = [tf.config.LogicalDeviceConfiguration() for _ in range(int(sys.argv[1]))]
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
found: dict[str, Any] = {}
for name, plant in STRATEGY_PLANTS.items():
    if plant.job is not TWO:
        continue
    for text, kind in zip(plant.scripts(), ("right", "wrong"), strict=True):
        made: dict[str, Any] = {"__name__": "__main__"}
        try:
            with contextlib.redirect_stdout(sys.stderr):
                exec(text, made)  # the script of a plant
        except RuntimeError as error:
            found.setdefault(name, {})[kind] = type(error).__name__
            continue
        kernel, bias = (one.numpy().ravel() for one in made["model"].trainable_variables)
        found.setdefault(name, {})[kind] = [*(kernel - 1).tolist(), *bias.tolist()]
print(json.dumps(found))
