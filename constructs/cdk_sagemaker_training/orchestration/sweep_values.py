"""What a sweep runs: rows of values for a workflow's input fields, and the metric by which the best is chosen."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cdk_sagemaker_training.core.checks import not_empty
from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.features.input_fields import InputField
from cdk_sagemaker_training.handlers import sweep as sweep_handler
from cdk_sagemaker_training.props.prop import GRANTED, LITERAL, Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

if TYPE_CHECKING:
    from aws_cdk.aws_s3 import IBucket

Scalar = str | float


_ROWS = Known("synth", "since the rows are checked and uploaded")


@kind("Grid({'learning_rate': [0.1, 0.01]})")
@dataclass(frozen=True)
class Grid(Value):
    """All combinations of values, such as ``Grid({"learning_rate": [0.1, 0.01], "batch_size": [32]})``.

    Args:
        values: The values of each input field of the workflow; a field that is not swept has one.

    Raises:
        ValueError: There is no field, or a field without values.
    """

    values: Annotated[Mapping[str, Sequence[Scalar]], Prop(known=_ROWS, example="{'learning_rate': [0.1, 0.01]}")]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.values or not all(self.values.values()):
            raise must(
                "values", "be at least one for each field", "{'learning_rate': [0.1, 0.01]}", repr(dict(self.values))
            )

    def rows(self) -> list[dict[str, Any]]:
        """The rows, of which the last field's values change fastest."""
        return [dict(zip(self.values, row, strict=True)) for row in itertools.product(*self.values.values())]


@kind("Rows([{'learning_rate': 0.1}])")
@dataclass(frozen=True)
class Rows(Value):
    """Rows that are listed, such as ``Rows([{"learning_rate": 0.1}, {"learning_rate": 0.01}])``.

    Args:
        values: Rows, each with a value for each input field of the workflow.

    Raises:
        ValueError: There are no rows.
    """

    values: Annotated[Sequence[Mapping[str, Scalar]], Prop(known=_ROWS, example="[{'learning_rate': 0.1}]")]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.values:
            raise must("values", "be at least one row", "[{'learning_rate': 0.1}]", repr(self.values))

    def rows(self) -> list[dict[str, Any]]:
        """The rows."""
        return [dict(row) for row in self.values]


@kind("RowsFile(bucket, 'rows.csv')")
@dataclass(frozen=True)
class RowsFile(Value):
    """Rows in an object in S3, which each execution reads and checks before it starts a job.

    Args:
        bucket: The bucket.
        key: The object's key: ``.csv`` with a header, or ``.jsonl`` with a JSON object in each line. Of a CSV file, cells of
            fields that are numbers become numbers.

    Raises:
        ValueError: The key ends otherwise.
    """

    bucket: IBucket
    key: Annotated[str, Prop(known=GRANTED, example="'sweeps/rows.csv'")]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.key.endswith((".csv", ".jsonl")):
            raise must("key", "end with .csv or .jsonl", "'sweeps/rows.csv'", repr(self.key))


@kind("Objective('loss', 'Minimize')")
@dataclass(frozen=True)
class Objective(Value):
    """The metric by which the best row is chosen, such as ``Objective("validation:loss", "Minimize")``.

    Args:
        metric: A name in the workflow's ``metric_definitions``. Its last value counts: FinalMetricDataList of
            DescribeTrainingJob.
        goal: ``"Minimize"`` or ``"Maximize"``, as in SageMaker's HyperParameterTuningJobObjective.

    Raises:
        ValueError: The name is empty.
    """

    metric: Annotated[str, Prop(known=LITERAL, rule=not_empty, example="'validation:loss'")]
    goal: Annotated[Literal["Minimize", "Maximize"], LITERAL]

    def __post_init__(self) -> None:
        check_fields(self)


def rules_of(fields: Mapping[str, InputField]) -> dict[str, dict[str, Any]]:
    """Return input fields as the sweep's function takes them."""
    return {
        name: {**field.limits(), "rule": field.rule, **({} if field.default is None else {"default": field.default})}
        for name, field in fields.items()
    }


def checked_rows(over: Grid | Rows, fields: Mapping[str, InputField]) -> str:
    """Check rows against a workflow's input fields, and return them as JSON lines.

    Raises:
        ValueError: For the first row that is not allowed.
    """
    try:
        rows = sweep_handler.by_key(over.rows(), rules_of(fields)).values()
    except sweep_handler.InvalidInput as error:
        raise must(
            "over", "be rows of the workflow's input_fields", "Grid({'learning_rate': [0.1, 0.01]})", f"{error}"
        ) from None
    return "".join(f"{json.dumps(row)}\n" for row in rows)
