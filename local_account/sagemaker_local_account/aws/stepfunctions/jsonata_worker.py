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
import math
import random
import re
import resource
import signal
import sys
import uuid
from decimal import Decimal
from typing import Any

from jsonata import Functions, JException, Jsonata, Tokenizer, Utils
from jsonata.regex_engine import default_regex_engine

# Limits of one expression; AWS documents none.
CPU_SECONDS = 5.0
MEMORY_BYTES = 1 << 30

# What `$number` and `$toMillis` take (functions.js and datetime.js of JSONata 2.0.6).
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?([Ee][-+]?[0-9]+)?")
_BASED = re.compile(r"0[xX][0-9A-Fa-f]+|0[oO][0-7]+|0[bB][01]+")
_TIMESTAMP = re.compile(
    r"\d{4}(-[01]\d)*(-[0-3]\d)*(T[0-2]\d:[0-5]\d:[0-5]\d)*(\.\d+)?([+-][0-2]\d:?[0-5]\d|Z)?", re.ASCII
)
_library_number = Functions.number
_library_to_millis = Functions.datetime_to_millis
_library_string = Functions._string

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
        program = Jsonata(expression, _regex)
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
    """Removes what AWS's dialect lacks from the library, and corrects where it differs from JSONata's own suite of tests."""
    natives = Jsonata.static_frame.bindings
    natives.pop("eval", None)
    natives["number"].method = _number
    natives["toMillis"].method = _to_millis
    Tokenizer.create = _token
    Functions.Comparator.compare = _compare
    Functions.to_jsonata_match = staticmethod(_match)
    Functions._string = staticmethod(_string)


_scanned = Tokenizer.create


def _token(self: Any, kind: Any, value: Any) -> Any:
    """Takes `?:` and `??` apart, which are no operators: `?:` is in signatures such as `<s?:s>` too."""
    if kind == "operator" and value in ("?:", "??"):
        self.position -= 1
        value = "?"
    return _scanned(self, kind, value)


def _regex(pattern: str, flags: Any) -> Any:
    """A pattern of JavaScript's, whose named groups have no P."""
    return default_regex_engine(re.sub(r"\(\?<(?![=!])", "(?P<", pattern), flags)


def _compare(self: Any, left: Any, right: Any) -> int:
    """Sorts stably: a user's comparator returns whether the right one comes first, that of `^` an order."""
    order = Functions.func_apply(self._comparator, [left, right])
    if isinstance(order, int) and not isinstance(order, bool):
        return order
    return -1 if Functions.func_apply(self._comparator, [right, left]) is True else 1


def _match(found: re.Match[str]) -> dict[str, Any]:
    """What a function of `$replace` gets."""
    return {"match": found.group(), "index": found.start(), "groups": [*found.groups()]}


def _number(value: Any) -> Any:
    if isinstance(value, str):
        if _BASED.fullmatch(value):
            return int(value, 0)
        number = float(value) if _DECIMAL.fullmatch(value) else math.nan
        if not math.isfinite(number):
            raise JException("D3030", -1, value)
        return int(number) if number.is_integer() else number
    return _library_number(value)


def _to_millis(timestamp: Any, picture: Any) -> Any:
    if isinstance(timestamp, str) and picture is None and not _TIMESTAMP.fullmatch(timestamp):
        raise JException("D3110", -1, timestamp)
    return _library_to_millis(timestamp, picture)


def _string(value: Any, prettify: bool) -> str:
    """Numbers have 15 digits, and an exponent from 1e21 on, also those of arrays and objects."""
    if isinstance(value, dict | list) or value is Utils.NULL_VALUE or isinstance(value, bool):
        return _library_string(_rounded(value), prettify)
    if isinstance(value, int | float):
        number = Decimal(repr(_rounded(value)))
        if number == 0 or 1e-6 <= abs(number) < 1e21:
            return f"{number:f}"
        return str(number.normalize()).lower()
    return _library_string(value, prettify)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    number = float(f"{value:.15g}")
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


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
