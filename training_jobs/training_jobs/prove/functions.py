"""What this library's functions, which state machines invoke, may answer, and what a Distributed Map reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from training_jobs.prove.templates import machine_of, request_of, tasks

_ROWS = ("one", "two")  # of a sweep: their keys
_TABLE = "s3://bucket/table.csv"


class Answer(NamedTuple):
    """A payload that a function may answer: in words, itself, and whether it tells to stop a job."""

    text: str
    payload: Any
    tells: bool = False


def is_known(payload: Mapping[str, Any]) -> bool:
    """Whether a request's payload is for a function of this library: of ``stop_when``, or of a sweep."""
    return "Rules" in payload or {"Rows", "Results", "Operation"} <= payload.keys()


def answers(payload: Mapping[str, Any]) -> Iterator[Answer]:
    """All that the function may answer, the least first."""
    if "Rules" in payload:
        yield Answer("says that no rule is broken", {"Because": "", "State": {}})
        because = "no host has logged a line for 3600 seconds"
        yield Answer("says that a rule is broken", {"Because": because, "State": {}}, tells=True)
    elif payload["Operation"] == "plan":
        counted = {"Rows": len(_ROWS), "Key": "runs/plan.json"}
        yield Answer("finds that no row is left", {**counted, "Left": 0})
        yield Answer(f"finds {len(_ROWS)} rows that are left", {**counted, "Left": len(_ROWS)})
    else:
        table = {"Rows": len(_ROWS), "Completed": 0, "Failed": 0, "NotRun": 0, "Table": _TABLE, "Best": None}
        yield Answer("writes the table", table)


def rows(machine: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Two rows that a sweep reads, each of values that its fields allow; None where the definition does not say them."""
    for _, state in tasks(machine):
        fields = request_of(state).get("Payload", {}).get("Fields")
        if fields is not None:
            row = {name: _value(field) for name, field in fields.items()}
            return None if None in row.values() else [{"Key": key, "Row": row} for key in _ROWS]
    return None


def input_of(name: str, machines: Mapping[str, Mapping[str, Any]]) -> Any:
    """The input of an execution of a state machine: a row, where a sweep starts it; else ``{}``."""
    for machine in machines.values():
        started = [machine_of(request_of(state).get("StateMachineArn")) for _, state in tasks(machine)]
        found = rows(machine) if name in started else None
        if found:
            return found[0]["Row"]
    return {}


def _value(field: Mapping[str, Any]) -> Any:
    """A value that a field's limits allow; None where they are a pattern."""
    values: Sequence[Any] = field.get("values", ())
    known = (field.get("default"), *values[:1], field.get("minimum"), field.get("maximum"))
    found = next((one for one in known if one is not None), None)
    return 1 if found is None and "pattern" not in field else found
