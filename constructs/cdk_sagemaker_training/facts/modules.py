"""The modules in AWS's containers, which a script may import without a requirements.txt.

They are those of the distributions that the containers install (aws/deep-learning-containers, e0ecede, `uv.lock` below
`docker/pytorch` and `docker/tensorflow`, with the extra "sagemaker"), of the devices of a version together, and of the two that
`docker/pytorch/Dockerfile.cuda` installs beside them. Older containers have no such list. `release/container_modules.py` writes
the table anew.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


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
