"""AWS CDK constructs for SageMaker training jobs: heterogeneous, compiled and model-parallel."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

# Each name is imported on first use (PEP 562), as aws_cdk does with its own modules: it takes a second to import all of aws_cdk,
# and a stack without a network does without aws_ec2.
_MODULE_OF = {
    name.name: statement.module or ""
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(statement, ast.ImportFrom)
    for name in statement.names
}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
