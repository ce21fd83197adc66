"""The pages of docs/ that are lists of what the code has."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.loaders import Loader
from botocore.model import ListShape, ServiceModel
from typer.testing import CliRunner

from sagemaker_local_account.aws.sagemaker.unsupported_fields import INERT, REFUSED
from sagemaker_local_account.cli import app
from sagemaker_local_account.core import fidelity
from sagemaker_local_account.docs_generator import pages

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", pages())
def test_a_page_is_what_make_docs_writes(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name]


@pytest.mark.parametrize("path", [*REFUSED, *INERT])
def test_a_member_that_is_refused_or_inert_is_one_of_create_training_job(path: str) -> None:
    model = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
    shape = model.operation_model("CreateTrainingJob").input_shape
    for name in path.split("."):
        if isinstance(shape, ListShape):
            shape = shape.member
        assert name in shape.members  # type: ignore[union-attr]
        shape = shape.members[name]  # type: ignore[union-attr]


def test_each_row_of_fidelity_is_recorded_documented_or_assumed() -> None:
    rows = [row for rows in fidelity.services().values() for row in rows]
    assert {row.kind for row in rows} == {"recorded", "documented", "assumed"}
    assert {row.kind for row in rows if row.id} == {"assumed"}
    for wrong in (
        {"recorded": "a", "assumed": "b", "answers": 1},
        {"recorded": "a"},
        {"recorded": "a", "answers": 1, "equal": 2},
        {},
    ):
        with pytest.raises(ValueError, match="both: "):
            fidelity.Row("both", **wrong)  # type: ignore[arg-type]


def test_the_command_prints_each_row_of_fidelity_in_80_columns() -> None:
    printed = CliRunner().invoke(app, ["fidelity"]).output
    assert max(len(line) for line in printed.splitlines()) <= 80
    words = printed.split()
    for service, rows in fidelity.services().items():
        for text in (service, *(f"{row.kind} {row.feature} {row.basis}" for row in rows)):
            assert " ".join(text.split()) in " ".join(words)
