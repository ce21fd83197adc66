"""The process that evaluates JSONata expressions, started by `jsonata.py`, which it does not import.

Reads requests ``{"expression": ..., "bindings": {...}}`` from its standard input, one a line, and writes for each a line with one
member: ``value``, ``undefined``, ``unsupported`` (a function) or ``error``. A request that takes too much processor time ends
the process (SIGPROF).

AWS's dialect is JSONata 2.0.6 without `$eval`, and with `$partition`, `$range`, `$hash`, `$random(seed)`, `$uuid` and `$parse`
("Transforming data with JSONata in Step Functions"). `?:` and `??` came with JSONata 2.1.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import signal
import sys
import uuid
from typing import Any

from jsonata import Functions, JException, Jsonata, Tokenizer, Utils

# Limits of one expression; AWS documents none.
CPU_SECONDS = 5.0
MEMORY_BYTES = 1 << 30

_ALGORITHMS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


class DialectError(ValueError):
    """An argument that a function of AWS's does not take."""


def evaluate(expression: str, bindings: dict[str, Any]) -> dict[str, Any]:
    """Evaluates an expression of AWS's dialect.

    Args:
        expression: the text between the signs of percent.
        bindings: the values of the variables, by names without the dollar sign.

    Returns:
        A response.
    """
    try:
        program = Jsonata(expression)
        program.set_output_convert_nulls(False)
        for name, function in _FUNCTIONS.items():
            program.register_lambda(name, function)
        value = program.evaluate(None, {name: _with_nulls(value) for name, value in bindings.items()})
        if value is None:
            return {"undefined": True}
        if Utils.is_function(value) or Functions.is_lambda(value):
            return {"unsupported": True}
        return {"value": _plain(value)}
    except JException as error:
        return {"error": f"{error.get_error()}: {error}"}
    except DialectError as error:
        return {"error": str(error)}
    except RecursionError:
        return {"error": "D1011: Stack overflow"}
    except MemoryError:
        return {"error": f"the expression needs more than {MEMORY_BYTES >> 20} MiB of memory"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _with_nulls(value: Any) -> Any:
    """JSON's null as the library's; its None is JSONata's "nothing"."""
    if value is None:
        return Utils.NULL_VALUE
    if isinstance(value, list):
        return [_with_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_nulls(item) for name, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    if value is Utils.NULL_VALUE or Utils.is_function(value) or Functions.is_lambda(value):
        return None
    if isinstance(value, Utils.RangeList):
        return [value[index] for index in range(len(value))]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    return value


def _partition(array: Any = None, size: Any = None) -> Any:
    if array is None:
        return None
    items = array if isinstance(array, list) else [array]
    if not Utils.is_numeric(size) or int(size) < 1:
        raise DialectError(f"$partition takes an array and the positive size of a chunk, got {size!r}")
    return [items[at : at + int(size)] for at in range(0, len(items), int(size))]


def _range(first: Any = None, last: Any = None, step: Any = None) -> Any:
    if not all(Utils.is_numeric(number) for number in (first, last, step)) or step == 0:
        raise DialectError(f"$range takes three numbers, of which the step is not 0, got {(first, last, step)!r}")
    count = int((last - first) // step) + 1
    return Utils.create_sequence_from_iter(first + at * step for at in range(max(count, 0)))


def _hash(data: Any = None, algorithm: Any = None) -> Any:
    if algorithm not in _ALGORITHMS:
        raise DialectError(f"$hash takes a value and one of {', '.join(_ALGORITHMS)}, got {algorithm!r}")
    text = data if isinstance(data, str) else json.dumps(_plain(data), separators=(",", ":"))
    return hashlib.new(_ALGORITHMS[algorithm], text.encode()).hexdigest()


def _parse(text: Any = None) -> Any:
    if text is None:
        return None
    try:
        return _with_nulls(json.loads(text))
    except (TypeError, ValueError) as error:
        raise DialectError(f"$parse takes JSON: {error}") from None


_FUNCTIONS = {
    "partition": _partition,
    "range": _range,
    "hash": _hash,
    "random": lambda seed=None: random.Random(seed).random(),
    "uuid": lambda: str(uuid.uuid4()),
    "parse": _parse,
}


def use_dialect() -> None:
    """Removes what AWS's dialect lacks from the library."""
    Jsonata.static_frame.bindings.pop("eval", None)
    scan = Tokenizer.create

    def create(self: Any, kind: Any, value: Any) -> Any:
        if kind == "operator" and value in ("?:", "??"):
            raise JException("S0204", self.position, value)
        return scan(self, kind, value)

    Tokenizer.create = create


def main() -> None:
    """Answers requests until the end of the standard input."""
    use_dialect()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    responses, sys.stdout = sys.stdout, sys.stderr  # the library prints
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        request = json.loads(line)
        response = json.dumps(evaluate(request["expression"], request["bindings"]))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(response, file=responses, flush=True)


if __name__ == "__main__":
    main()
