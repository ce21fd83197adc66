"""The pages of docs/ that are lists of what the code has."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.loaders import Loader
from botocore.model import ListShape, ServiceModel

from sagemaker_local_account.docs_generator import pages
from sagemaker_local_account.sagemaker.unsupported_fields import INERT, REFUSED

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
