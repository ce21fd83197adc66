"""Checks a running training job against the rules of `stop_when`.

The code of the Lambda function that a workflow's poller calls, with `JobName`, `Rules` (as the classes of `stop_when` render
them), `State` (what the call before returned, at first `{}`) and `Seconds` (the time since that call). It returns `Because`, what
the job should be stopped for or an empty text, and the next `State`. It imports only what Lambda's runtime contains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

# Where jobs log, and where SageMaker puts the metrics that it reads from the log (guide, "Monitor and analyze training jobs using
# Amazon CloudWatch metrics", "Amazon SageMaker AI metrics in Amazon CloudWatch").
LOG_GROUP = NAMESPACE = "/aws/sagemaker/TrainingJobs"
# CloudWatch takes periods of 300 seconds of what is up to 63 days old, and averages the readings in each (GetMetricData).
PERIOD = 300
WINDOW = timedelta(days=1)
# The next poll is at most two minutes away.
CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 2})


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Handle a call of the poller."""
    job, rules = event["JobName"], event["Rules"]
    silence = any(rule["Kind"] == "Silence" for rule in rules)
    names = sorted({rule["Metric"] for rule in rules if "Metric" in rule})
    times = known(lambda: ingestion_times(job)) if silence else None
    metrics = known(lambda: readings(job, names)) if names else None
    because, state = decide(rules, times, metrics or {}, event["State"], event["Seconds"])
    return {"Because": because, "State": state}


def decide(
    rules: Iterable[Mapping[str, Any]],
    times: Sequence[int] | None,
    metrics: Mapping[str, Sequence[float]],
    state: Mapping[str, Any],
    seconds: int,
) -> tuple[str, dict[str, Any]]:
    """Return what a job should be stopped for, by the first rule that says so, or an empty text; and the next state.

    Args:
        rules: The rules.
        times: When a line of each host was last ingested; None if that is not known.
        metrics: The readings of each metric of the rules, the newest first, without those that are not known.
        state: What was returned before; for each rule, by its place, what it has ``Seen`` and the ``Seconds`` since that changed.
        seconds: The time since then.
    """
    because, following = "", {}
    for place, rule in enumerate(rules):
        before = state.get(str(place), {})
        found = times if rule["Kind"] == "Silence" else metrics.get(rule["Metric"])
        # Not to know is no reason to stop a job.
        broken, after = (False, before) if found is None else check(rule, found, before, seconds)
        following[str(place)] = after
        because = because or (rule["Because"] if broken else "")
    return because, following


def check(
    rule: Mapping[str, Any], found: Sequence[float], before: Mapping[str, Any], seconds: int
) -> tuple[bool, Mapping[str, Any]]:
    """Return whether a job should be stopped by one rule, and the rule's next state."""
    if rule["Kind"] == "MetricLimit":
        newest = found[: rule["Readings"]]
        return len(newest) == rule["Readings"] and all(is_out(rule, reading) for reading in newest), {}
    seen = before.get("Seen")
    if rule["Kind"] == "Silence":
        progress: list[Any] = [found] if found != seen else []
    else:
        sign = 1 if rule["Mode"] == "min" else -1
        progress = [reading for reading in found[:1] if seen is None or sign * (seen - reading) > rule["MinDelta"]]
    if progress:
        return False, {"Seen": progress[0], "Seconds": 0}
    waited = before.get("Seconds", 0) + seconds
    return waited >= rule["Seconds"], {"Seen": seen, "Seconds": waited}


def is_out(rule: Mapping[str, Any], value: float) -> bool:
    """Return whether a reading is out of a rule's bounds."""
    return ("Above" in rule and value > rule["Above"]) or ("Below" in rule and value < rule["Below"])


def known(call: Callable[[], Any]) -> Any:
    """Return what a call returns, None if it fails."""
    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        print(f"{type(error).__name__}: {error}")
        return None


def ingestion_times(job: str) -> list[int]:
    """Return when a line of each of the first 50 hosts of a job was last ingested."""
    logs = boto3.client("logs", config=CONFIG)
    streams = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job}/")["logStreams"]
    return [stream.get("lastIngestionTime", 0) for stream in streams]


def readings(job: str, names: Sequence[str]) -> dict[str, list[float]]:
    """Return the readings of a job's metrics in the last day, the newest first, without metrics that could not be read."""
    end = datetime.now(UTC)
    of_job = [{"Name": "TrainingJobName", "Value": job}]
    metrics = [{"Namespace": NAMESPACE, "MetricName": name, "Dimensions": of_job} for name in names]
    stats = [{"Metric": metric, "Period": PERIOD, "Stat": "Average"} for metric in metrics]
    answer = boto3.client("cloudwatch", config=CONFIG).get_metric_data(
        MetricDataQueries=[{"Id": f"m{place}", "MetricStat": stat} for place, stat in enumerate(stats)],
        StartTime=datetime.fromtimestamp(end.timestamp() // PERIOD * PERIOD, UTC) - WINDOW,
        EndTime=end,
        ScanBy="TimestampDescending",
    )
    results = [result for result in answer["MetricDataResults"] if result["StatusCode"] in ("Complete", "PartialData")]
    return {names[int(result["Id"][1:])]: result["Values"] for result in results}
