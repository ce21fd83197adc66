"""Reads the rows of a sweep and writes its table: the code of the Lambda function behind ``TrainingSweep``.

Step Functions compares no numbers across the items of a Map, and reads the cells of a CSV file as text, so that the best row, and
the types of cells, take a function. It imports only what Lambda's runtime contains; the checks of rows run at synthesis too.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

Row = dict[str, Any]
AT_ONCE = 32
COMPLETED, FAILED = "completed.json", "failed.json"


class InvalidInput(Exception):
    """A row of a file is not allowed; its name is the error of the execution."""


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Plan a sweep, or write its table: ``event["Operation"]``."""
    sweep = Sweep(event)
    return sweep.plan(event["Execution"]) if event["Operation"] == "plan" else sweep.table()


class Sweep:
    """The rows of a sweep and their results in S3."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        """Create the client, and read the rows; raises InvalidInput for one that is not allowed."""
        import boto3
        from botocore.config import Config

        self.s3 = boto3.client("s3", config=Config(max_pool_connections=AT_ONCE))
        self.bucket, self.prefix = event["Results"]["Bucket"], event["Results"]["Prefix"]
        self.fields, self.objective = event["Fields"], event.get("Objective")
        place = event["Rows"]
        body = self.s3.get_object(Bucket=place["Bucket"], Key=place["Key"])["Body"].read().decode("utf-8-sig")
        self.rows = by_key(parsed(body, place["Key"], self.fields), self.fields, json.dumps(event["Version"]))

    def plan(self, execution: str) -> dict[str, Any]:
        """Write the rows without a completed result, and return how many there are and where."""
        results = self.results()
        left = [{"Key": key, "Row": row} for key, row in self.rows.items() if COMPLETED not in results.get(key, ())]
        key = f"{self.prefix}runs/{execution}.json"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(left).encode())
        return {"Rows": len(self.rows), "Left": len(left), "Key": key}

    def results(self) -> dict[str, set[str]]:
        """Return which results each row has, by its key."""
        found: dict[str, set[str]] = {}
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}rows/")
        for page in pages:
            for item in page.get("Contents", ()):
                _, key, name = item["Key"].rsplit("/", 2)
                found.setdefault(key, set()).add(name)
        return found

    def table(self) -> dict[str, Any]:
        """Write the table, and return the counts by status, where the table is, and the best row."""
        results = self.results()
        with ThreadPoolExecutor(AT_ONCE) as readers:
            lines = list(readers.map(lambda key: self.line(key, results.get(key, set())), self.rows))
        columns = list(dict.fromkeys(column for line in lines for column in line))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(lines)
        self.s3.put_object(Bucket=self.bucket, Key=f"{self.prefix}table.csv", Body=text.getvalue().encode())
        counts = {
            status: sum(line["Status"] == status for line in lines) for status in ("Completed", "Failed", "NotRun")
        }
        return {
            "Rows": len(lines),
            **counts,
            "Table": f"s3://{self.bucket}/{self.prefix}table.csv",
            "Best": best(lines, self.objective),
        }

    def line(self, key: str, results: set[str]) -> Row:
        """Return a row of the table."""
        row = self.rows[key]
        if COMPLETED in results:
            job = self.result(key, COMPLETED)["Job"]
            metrics = {
                f"Metrics.{metric['MetricName']}": metric["Value"] for metric in job.get("FinalMetricDataList", ())
            }
            return {
                **row,
                "Status": "Completed",
                **metrics,
                "TrainingJobName": job["TrainingJobName"],
                "BillableTimeInSeconds": job.get("BillableTimeInSeconds"),
                "S3ModelArtifacts": job.get("ModelArtifacts", {}).get("S3ModelArtifacts"),
            }
        if FAILED in results:
            return {**row, "Status": "Failed", "Reason": reason(self.result(key, FAILED)["Failure"])}
        return {**row, "Status": "NotRun"}

    def result(self, key: str, name: str) -> dict[str, Any]:
        """Return a result of a row."""
        body = self.s3.get_object(Bucket=self.bucket, Key=f"{self.prefix}rows/{key}/{name}")["Body"]
        return dict(json.loads(body.read()))


def parsed(text: str, name: str, fields: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the rows of a file, CSV with a header by its name, else JSON lines; cells of fields with numbers become numbers."""
    if name.endswith(".csv"):
        for cells in csv.DictReader(io.StringIO(text)):
            yield {str(field): as_field(cell, fields.get(field, {})) for field, cell in cells.items()}
        return
    for number, line in enumerate(text.split("\n"), 1):  # not at the other ends of lines that JSON's texts may have
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise InvalidInput(f'line {number} must be a JSON object, like {{"learning_rate": 0.1}}, got {line[:80]}')
        yield row


def as_field(cell: Any, field: Mapping[str, Any]) -> Any:
    """Return a cell as a number, where the field has numbers and the cell is one."""
    values = field.get("values", [] if "pattern" in field else [0])
    if isinstance(cell, str) and cell not in values and any(not isinstance(value, str) for value in values):
        try:
            return json.loads(cell)
        except ValueError:
            return cell
    return cell


def by_key(
    rows: Iterator[Row] | Sequence[Row], fields: Mapping[str, Mapping[str, Any]], version: str = ""
) -> dict[str, Row]:
    """Return rows by the names of their folders; raises InvalidInput for the first that is not allowed."""
    found: dict[str, Row] = {}
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    for number, row in enumerate(({**defaults, **row} for row in rows), 1):
        if (why := problem_of(row, fields)) is not None:
            raise InvalidInput(f"row {number}: {why}")
        key = key_of(row, version)
        if key in found:
            raise InvalidInput(f"row {number}: must differ from those before, got {json.dumps(row)} again")
        found[key] = row
    if not found:
        raise InvalidInput('there must be at least one row, like {"learning_rate": 0.1}, got none')
    return found


def key_of(row: Row, version: str = "") -> str:
    """Return the name of a row's folder, which its values and the version make; 1 and 1.0 are the same value."""
    values = {
        name: int(value) if isinstance(value, float) and value == int(value) else value for name, value in row.items()
    }
    return hashlib.sha256(f"{version}{json.dumps(values, sort_keys=True)}".encode()).hexdigest()[:32]


def problem_of(row: Row, fields: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return why a row is not allowed: its field, what is allowed and what came; None where it is."""
    for name in row:
        if name not in fields:
            return (
                f"{name} must be one of the workflow's input_fields, {', '.join(fields)}, got {json.dumps(row[name])}"
            )
    for name, field in fields.items():
        if name not in row:
            return f"{name} must be {field['rule']}, got nothing"
        if not allows(field, row[name]):
            return f"{name} must be {field['rule']}, got {json.dumps(row[name])}"
    return None


def allows(field: Mapping[str, Any], value: Any) -> bool:
    """Return whether a field allows a value; the state machine's own check is the same."""
    if "values" in field:
        return not isinstance(value, bool) and value in field["values"]
    if "pattern" in field:
        pattern = ".*".join(map(re.escape, field["pattern"].split("*")))
        return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if field.get("whole") and not isinstance(value, int):
        return False
    return bool(field.get("minimum", value) <= value <= field.get("maximum", value))


def best(lines: Sequence[Row], objective: Mapping[str, str] | None) -> Row | None:
    """Return the completed row with the best metric; None without an objective, or where no row has the metric."""
    if objective is None:
        return None
    column = f"Metrics.{objective['MetricName']}"
    measured = [line for line in lines if isinstance(line.get(column), int | float) and math.isfinite(line[column])]
    choose = min if objective["Type"] == "Minimize" else max
    return choose(measured, key=lambda line: float(line[column])) if measured else None


def reason(failure: Mapping[str, Any]) -> str:
    """Return why a row failed; the cause of an execution that failed is its description, as JSON."""
    error, cause = failure.get("Error", ""), failure.get("Cause", "")
    try:
        described = json.loads(cause)
        error, cause = described.get("Error", error), described.get("Cause", cause)
    except ValueError:
        pass
    return f"{error}: {cause}"
