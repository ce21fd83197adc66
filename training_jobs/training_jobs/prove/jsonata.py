"""Expressions in JSONata, by the process that the local account has for them: AWS's dialect, with time and memory bounded."""

from __future__ import annotations

import atexit
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from training_jobs.prove.values import StateError, UnsupportedError

_WORKER = "sagemaker_local_account.aws.stepfunctions.jsonata_worker"


def is_expression(value: Any) -> bool:
    """Whether a value of a definition is an expression, like ``{% $states.input.rate %}``."""
    return isinstance(value, str) and value.startswith("{%") and value.endswith("%}")


def filled(template: Any, bindings: Mapping[str, Any]) -> Any:
    """A value of a definition with its expressions evaluated; raises ``StateError`` "States.QueryEvaluationError".

    Args:
        template: The value.
        bindings: ``states`` and the variables, by their names without the dollar sign.
    """
    if isinstance(template, dict):
        return {name: filled(value, bindings) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(item, bindings) for item in template]
    if not is_expression(template):
        return template
    answer = _asked(json.dumps({"expression": template[2:-2].strip(), "bindings": bindings}))
    if "value" not in answer:
        why = answer.get("error", "it has no value")
        raise StateError("States.QueryEvaluationError", f"the JSONata expression {template!r}: {why}")
    return answer["value"]


@cache
def _asked(request: str) -> Mapping[str, Any]:
    worker = _worker()
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{request}\n")
    worker.stdin.flush()
    line = worker.stdout.readline()
    if not line:
        _worker.cache_clear()
        return {"error": "it takes too long"}
    return dict(json.loads(line))


@cache
def _worker() -> subprocess.Popen[str]:
    if importlib.util.find_spec(_WORKER.partition(".")[0]) is None:
        raise UnsupportedError(
            "a definition in JSONata must be evaluated by the local account, which is not installed: "
            "pip install 'training-jobs[local]'"
        )
    worker = subprocess.Popen([sys.executable, "-m", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(worker.kill)
    return worker
