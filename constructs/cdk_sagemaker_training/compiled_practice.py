"""AWS's advice on compiled jobs as functions: the learning rate of a larger batch, and batch sizes that AWS tested."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from cdk_sagemaker_training.prop_types import checked

Rule = Literal["linear", "square-root"]


@dataclass(frozen=True)
class SuggestedBatchSize:
    """The largest batch that AWS saw fit into one device's memory, without a compiler and with the Training Compiler.

    ``sequence_length``, ``precision``, ``dataset`` and ``native`` are None where AWS's table does not say. ``compiled`` is
    smaller than ``native`` in 57 of the 235 rows: never assume that a compiler makes room.
    """

    framework: str
    model: str
    dataset: str | None
    instance_type: str
    precision: str | None
    sequence_length: int | None
    native: int | None
    compiled: int


@checked
def suggested_batch_sizes(
    model: str, *, instance_type: str | None = None, sequence_length: int | None = None
) -> list[SuggestedBatchSize]:
    """What AWS tested of a model like ``"gpt2"``, narrowed to a type and a length: where to start the search, and no promise.

    From "Tested Models" of the Training Compiler's guide (``tested_batch_sizes.json``); empty where AWS tested nothing that fits.
    """
    return [
        row
        for row in _rows()
        if row.model == model
        and instance_type in (None, row.instance_type)
        and sequence_length in (None, row.sequence_length)
    ]


@checked
def rescaled_learning_rate(
    learning_rate: float, *, batch_size: int, new_batch_size: int, rule: Rule = "linear"
) -> float:
    """The learning rate for another global batch: times k, or times the square root of k, where the batch is times k.

    The global batch is that of one process times the number of processes. The rules are those of AWS's "SageMaker Training
    Compiler Best Practices and Considerations"; which of the two trains better is to be tried. Works for smaller batches too.
    """
    for prop, value in (("batch_size", batch_size), ("new_batch_size", new_batch_size)):
        if value < 1:
            raise ValueError(f"{prop} must be a whole number of at least 1, like 64, got {value!r}")
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be a number above 0, like 0.0001, got {learning_rate!r}")
    times = new_batch_size / batch_size
    return learning_rate * (times if rule == "linear" else math.sqrt(times))


@cache
def _rows() -> tuple[SuggestedBatchSize, ...]:
    content = json.loads((Path(__file__).parent / "tested_batch_sizes.json").read_text())
    return tuple(SuggestedBatchSize(*row) for row in content["rows"])
