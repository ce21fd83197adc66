"""The parameters of version 1 of SageMaker's model parallelism library (SMP)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def smp_v1_parameters() -> Mapping[str, Mapping[str, Any]]:
    """Return the rows of ``smp_v1_parameters.json``, which names its sources, by the parameters' names.

    Returns:
        Of each: ``type`` (``"whole"``, ``"number"``, ``"switch"`` or ``"choice"``), ``least`` and ``most`` of a number,
        ``choices``, the library's ``default``, ``docs``, and where AWS names it the library's version with which it came, as
        ``since``.
    """
    content = json.loads((Path(__file__).parent / "smp_v1_parameters.json").read_text())
    return {row["name"]: row for row in content["parameters"]}
