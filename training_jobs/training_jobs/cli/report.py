"""The command ``report``: one page of HTML with all of a job, or of two side by side."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_jobs.cli.charts import COLORS, Points, line_chart, timeline
from training_jobs.cli.context import AsJson, Target, connect, find_job
from training_jobs.cli.output import figures, print_json

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.executions import StateVisit
    from training_jobs.client.jobs import Job
    from training_jobs.client.logs import LogLine

_LAST_LINES = 100
_STYLE = """
:root { color-scheme: light dark; --text: #1c2733; --dim: #5b6b7b; --page: #fff; --box: #f5f7f9; --line: #d5dbe1; }
:root { --differs: #fefcbf }
@media (prefers-color-scheme: dark) {
:root { --text: #e2e8f0; --dim: #9fb0c2; --page: #131a22; --box: #1c2733; --line: #2c3a48; --differs: #5c4413 } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem }
body { color: var(--text); background: var(--page) }
h1, h2 { line-height: 1.25; overflow-wrap: anywhere } h1 { font-size: 1.4rem }
h2 { font-size: 1.15rem; border-bottom: 1px solid var(--line); margin-top: 2rem }
table { border-collapse: collapse; table-layout: fixed; width: 100% }
th { width: 26% } td, th { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; overflow-wrap: anywhere }
tr.differs td { background: var(--differs) } figure { margin: 1rem 0 } figcaption { overflow-wrap: anywhere }
svg { width: 100%; max-width: 48rem; height: auto; overflow: visible } svg text { font-size: 13px; fill: var(--dim) }
pre { overflow-x: auto; background: var(--box); padding: .5rem; font-size: 13px }
@media (max-width: 40rem) { svg text { font-size: 24px } tr { display: flex; flex-wrap: wrap }
th { flex: 0 0 100%; padding-bottom: 0 } td { flex: 1 1 40%; min-width: 0; padding-top: 0 } }
""" + "".join(f".color-{number} {{ color: {color} }}\n" for number, color in enumerate(COLORS))


@dataclass
class Shown:
    """What a page shows of one job.

    Attributes:
        job: The response of DescribeTrainingJob.
        metrics: The points of each metric, in seconds since the job was created.
        lines: The last log lines.
        states: The states of its execution.
    """

    job: dict[str, Any]
    metrics: dict[str, Points] = field(default_factory=dict)
    lines: list[LogLine] = field(default_factory=list)
    states: list[StateVisit] = field(default_factory=list)


def report(
    context: typer.Context,
    name: Target = None,
    compare: Annotated[str | None, typer.Option(help="Another job, an execution or a workflow, beside it.")] = None,
    to: Annotated[Path | None, typer.Option(help="The file; by default JOB.html.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file with a job's metrics, phases, cost, configuration and last log lines."""
    account = connect(context)
    jobs = [find_job(account, it) for it in ([name] if compare is None else [name, compare])]
    file = to or Path(f"{jobs[0].name}.html")
    page_text = page([_shown(account, job) for job in jobs])
    file.write_text(page_text)
    if as_json:
        print_json({"file": str(file), "jobs": [job.name for job in jobs]})
    else:
        typer.echo(file)


def page(shown: list[Shown]) -> str:
    """Return the page, which refers to nothing outside of itself.

    Args:
        shown: One job, or several to compare.
    """
    title = " and ".join(escape(it.job["TrainingJobName"]) for it in shown)
    names = list(dict.fromkeys(name for it in shown for name in it.metrics))
    several = len(shown) > 1
    charts = [
        line_chart(
            name,
            {it.job["TrainingJobName"]: it.metrics[name] for it in shown if name in it.metrics},
            named=several,
        )
        for name in names
    ]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Refuses what a job's own lines might smuggle in, besides that they are escaped.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{title}</title><style>{_STYLE}</style></head><body><h1>{title}</h1>",
        _table("Result", [_result(it) for it in shown]),
        "<h2>Metrics</h2>",
        *(charts or ["<p>None: the workflow has no metric_definitions, or no line matched them.</p>"]),
        *(part for it in shown for part in _phases(it, named=several)),
        _table("Configuration", [_configuration(it.job) for it in shown]),
        *(part for it in shown for part in _log(it, named=several)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _shown(account: Account, job: Job) -> Shown:
    from training_jobs.client.metrics import MetricParser

    described = job.describe()
    lines = job.log_reader().read()
    metrics: dict[str, list[tuple[float, float]]] = {}
    for point in MetricParser(described).parse(lines):
        seconds = (point.time - described["CreationTime"]).total_seconds()
        metrics.setdefault(point.name, []).append((max(seconds, 0.0), point.value))
    arn = job.execution_arn()
    states = [] if arn is None else account.execution(arn).states()
    return Shown(described, dict(metrics), lines[-_LAST_LINES:], states)


def _result(shown: Shown) -> dict[str, str]:
    from training_jobs.cli.cost_text import cost_line
    from training_jobs.client.cost import machine_times

    job = shown.job
    failures = [failure for state in shown.states for failure in state.failures]
    before = [failure for failure in failures if not failure.startswith(f"{job['TrainingJobName']} ")]
    retried = [f"{state.name}: {error}" for state in shown.states for error in state.errors]
    return {
        "status": f"{job['TrainingJobStatus']} ({job['SecondaryStatus']})",
        "why": job.get("FailureReason", ""),
        "created": job["CreationTime"].astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "machines": cost_line(machine_times(job), {}),
        "retried calls": "; ".join(retried),
        "jobs before": "; ".join(before),
        "model": job.get("ModelArtifacts", {}).get("S3ModelArtifacts", ""),
        "checkpoints": job.get("CheckpointConfig", {}).get("S3Uri", ""),
        **{name: figures(points[-1][1], 6) for name, points in shown.metrics.items()},
    }


def _configuration(job: dict[str, Any]) -> dict[str, str]:
    groups = job["ResourceConfig"].get("InstanceGroups") or [job["ResourceConfig"]]
    machines = (f"{it.get('InstanceGroupName', 'all')}: {it['InstanceCount']} x {it['InstanceType']}" for it in groups)
    return {
        "image": job.get("AlgorithmSpecification", {}).get("TrainingImage", ""),
        "groups": ", ".join(machines),
        "limits": json.dumps(job.get("StoppingCondition", {})),
        **{f"input {it['ChannelName']}": json.dumps(it["DataSource"]) for it in job.get("InputDataConfig") or []},
        **{f"hyperparameter {key}": value for key, value in sorted(job.get("HyperParameters", {}).items())},
        **{f"environment {key}": value for key, value in sorted(job.get("Environment", {}).items())},
    }


def _table(title: str, columns: list[dict[str, str]]) -> str:
    """A row for each name; rows whose columns differ are marked."""
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name, "") for column in columns]
        if any(values):
            differs = ' class="differs"' if len(set(values)) > 1 else ""
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
            rows.append(f"<tr{differs}><th>{escape(name)}</th>{cells}</tr>")
    return f"<h2>{title}</h2><table>{''.join(rows)}</table>"


def _heading(text: str, shown: Shown, *, named: bool) -> str:
    of_job = f" of {escape(shown.job['TrainingJobName'])}" if named else ""
    return f"<h2>{text}{of_job}</h2>"


def _phases(shown: Shown, *, named: bool) -> list[str]:
    start = shown.job["CreationTime"]
    phases = [
        (
            it["Status"],
            max((it["StartTime"] - start).total_seconds(), 0.0),
            max(((it.get("EndTime") or datetime.now(UTC)) - start).total_seconds(), 0.0),
        )
        for it in shown.job.get("SecondaryStatusTransitions", [])
        if it["Status"] != shown.job["TrainingJobStatus"]
    ]
    return [_heading("Phases", shown, named=named), timeline(phases)]


def _log(shown: Shown, *, named: bool) -> list[str]:
    lines = "\n".join(escape(f"{line.host}  {line.message}") for line in shown.lines)
    return [_heading("Last lines", shown, named=named), f"<pre>{lines}</pre>"]
