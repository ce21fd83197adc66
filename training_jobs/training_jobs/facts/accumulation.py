"""How long gradients are that transformers' Trainer accumulates, by version: `release/accumulation_table.py` measured it.

The measure is one batch of the same samples. A version is known by its first two numbers: the last release of each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from training_jobs.facts.libraries import minor_of


@cache
def _table() -> Any:
    return json.loads(Path(__file__).with_name("accumulation.json").read_text())


def models_of(name: str) -> Sequence[str]:
    """Return the classes of models that were measured for a class.

    Args:
        name: One of them, like ``"BertForMaskedLM"``, or one that makes them, like ``"AutoModelForMaskedLM"``; "" for all.
    """
    heads = _table()["heads"]
    every = [model for models in heads.values() for model in models]
    return heads.get(name) or ([name] if name in every else [] if name else every)


def wrong_length(name: str, way: str, version: str) -> str:
    """Return how a gradient is wrong that is accumulated; "" where it is right, was not measured, or models of a class differ.

    Args:
        name: The class, as for `models_of`.
        way: Who computes the loss: ``"model"``; ``"label_smoothing_factor"``; ``"compute_loss"`` or ``"compute_loss_func"``, each
            the mean of a batch; or ``"num_items_in_batch"``, a function that divides the sum by that.
        version: Of transformers.

    Returns:
        ``"too long"``, ``"too short"``, each as many times as steps are accumulated, or ``""``.
    """
    table, minor = _table(), minor_of(version)
    if minor not in table["versions"]:
        return ""
    number = table["versions"].index
    by_model = {
        model: gradient.removeprefix("steps times ")
        for model, by, gradient, first, last in table["rows"]
        if by == way and number(first) <= number(minor) <= number(last)
    }
    # Losses of a script's own were not measured for models whose labels have other names; each other model has a row.
    measured = {model for model, by, *_ in table["rows"] if by == way}
    lengths = {by_model.get(model, "") for model in models_of(name) if name or model in measured}
    return lengths.pop() if len(lengths) == 1 else ""
