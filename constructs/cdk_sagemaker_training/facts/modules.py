"""The modules in AWS's containers, which a script may import without a requirements.txt.

They are those of the distributions that the containers install (aws/deep-learning-containers, e0ecede, `uv.lock` below
`docker/pytorch` and `docker/tensorflow`, with the extra "sagemaker"), of the devices of a version together, and of the two that
`docker/pytorch/Dockerfile.cuda` installs beside them. Older containers have no such list. `release/container_modules.py` writes
the table anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_TRANSFORMERS = re.compile(r"-transformers(\d+\.\d+\.\d+)-")


@cache
def _table() -> dict[tuple[str, str], frozenset[str]]:
    rows = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {(repository, version): frozenset(modules) for repository, versions, modules in rows for version in versions}


def modules_of(base: str) -> frozenset[str] | None:
    """Return the modules in one of AWS's containers beside Python's own; None where they are not known.

    Args:
        base: `repository:tag`, like ``"pytorch:2.13-cpu-amzn2023-sagemaker"``.
    """
    repository, _, tag = base.partition(":")
    version = ".".join(tag.partition("-")[0].split(".")[:2])
    return _table().get((repository, version)) if tag.endswith("-sagemaker") else None


def of_hugging_face(base: str) -> Mapping[str, str]:
    """Return the versions of Hugging Face's libraries in one of its containers, by name; only those that are known.

    Args:
        base: `repository:tag`, like ``"huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"``.
    """
    tag = _TRANSFORMERS.search(base)
    if tag is None:
        return {}
    table = _hugging_face()
    row = next((row for row in table["rows"] if row[0] == tag[1]), [tag[1]])
    return {name: version for name, version in zip(table["columns"], row, strict=False) if version}


@cache
def _hugging_face() -> dict[str, list[Any]]:
    return dict(json.loads(Path(__file__).with_name("huggingface.json").read_text()))
