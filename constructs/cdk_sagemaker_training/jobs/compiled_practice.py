"""AWS's recommendations for compiled jobs: learning rates of larger batches, and batch sizes that AWS tested."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from cdk_sagemaker_training.core.checks import at_least
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.props.prop import Prop
from cdk_sagemaker_training.props.prop_types import Value, checked

_BatchSize = Annotated[int, Prop(rule=at_least(1), example="64")]


@dataclass(frozen=True)
class SuggestedBatchSize(Value):
    """The largest batch that fit into the memory of one device in AWS's tests, with and without the Training Compiler.

    ``compiled`` is smaller than ``native`` in 57 of the 235 rows: a compiler does not always reduce memory.

    Attributes:
        framework: The framework.
        model: The model, like ``"gpt2"``.
        dataset: The data set; None if AWS's table has none.
        instance_type: The type of the machine.
        precision: The precision; None if AWS's table has none.
        sequence_length: Length of the sequences in tokens; None if AWS's table has none.
        native: Batch size of one device without the compiler, in samples; None if AWS's table has none.
        compiled: Batch size of one device with the compiler, in samples.
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
    """Return the batch sizes that AWS tested for a model: a start for your own search, without guarantee.

    From "Tested Models" in the Training Compiler's guide (``tested_batch_sizes.json``).

    Args:
        model: The model, like ``"gpt2"``.
        instance_type: Only tests on this type; None for all.
        sequence_length: Only tests with this length, in tokens; None for all.

    Returns:
        The matching tests; empty if there are none.
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
    learning_rate: float,
    *,
    batch_size: _BatchSize,
    new_batch_size: _BatchSize,
    rule: Literal["linear", "square-root"] = "linear",
) -> float:
    """Rescale a learning rate for another global batch size.

    The rules are those of AWS's "SageMaker Training Compiler Best Practices and Considerations", which recommends trying both.
    They apply to smaller batches too.

    Args:
        learning_rate: The learning rate with ``batch_size``, above 0.
        batch_size: Global batch size: that of one process times the number of processes.
        new_batch_size: The new global batch size.
        rule: ``"linear"`` multiplies by ``new_batch_size / batch_size``, ``"square-root"`` by its square root.

    Returns:
        The learning rate with ``new_batch_size``.

    Raises:
        ValueError: A batch size is below 1, or the learning rate is not above 0.
    """
    if not learning_rate > 0:
        raise must("learning_rate", "be a number above 0", "0.0001", repr(learning_rate))
    times = new_batch_size / batch_size
    return learning_rate * (times if rule == "linear" else math.sqrt(times))


@cache
def _rows() -> tuple[SuggestedBatchSize, ...]:
    content = json.loads((Path(__file__).parents[1] / "facts" / "tested_batch_sizes.json").read_text())
    return tuple(SuggestedBatchSize(*row) for row in content["rows"])
