"""The commands ``list``, ``describe``, ``logs``, ``cost`` and ``open``."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer

from training_jobs.cli.context import AsJson, Target, connect, find_job, local_page
from training_jobs.cli.output import clock, duration, figures, print_json, print_table

if TYPE_CHECKING:
    from training_jobs.client.jobs import Job

# The values of StatusEquals in the service model of ListTrainingJobs.
Status = Literal["InProgress", "Completed", "Failed", "Stopping", "Stopped", "Deleting"]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def list_jobs(
    context: typer.Context,
    contains: Annotated[str | None, typer.Argument(metavar="TEXT", help="Only jobs with this in their names.")] = None,
    status: Annotated[Status | None, typer.Option(help="Only jobs of this status.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most jobs, the newest first.")] = 50,
    workflows: Annotated[bool, typer.Option("--workflows", help="List workflows instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List training jobs, the newest first, or workflows."""
    account = connect(context)
    if workflows:
        found = account.workflows()
        if as_json:
            print_json([{"path": it.path, "stack": it.stack, "arn": it.arn, "input": it.input_paths()} for it in found])
        else:
            rows = [[it.path, ", ".join(it.input_paths()) or "-"] for it in found]
            print_table(["WORKFLOW", "INPUT"], rows, cut="INPUT")
        return
    jobs = list(account.jobs(name_contains=contains, status=status, limit=limit))
    if as_json:
        print_json([asdict(job) for job in jobs])
        return
    now = datetime.now(UTC)
    rows = [[it.name, it.status, _local(it.created), duration((it.ended or now) - it.created)] for it in jobs]
    print_table(["JOB", "STATUS", "CREATED", "TOOK"], rows, cut="JOB")


def describe(context: typer.Context, name: Target = None, as_json: AsJson = False) -> None:
    """Describe a job: its status and why, hosts, phases, metrics, model and checkpoints."""
    job = find_job(connect(context), name)
    described = job.describe()
    if as_json:
        print_json(described)
        return
    from training_jobs.cli.cost_text import cost_line
    from training_jobs.client.cost import machine_times

    lines: list[tuple[str, Any]] = [
        ("job", described["TrainingJobName"]),
        ("status", f"{described['TrainingJobStatus']} ({described['SecondaryStatus']})"),
        ("why", described.get("FailureReason")),
        ("created", _local(described["CreationTime"])),
        ("machines", cost_line(machine_times(described), {})),
        *(
            ("hosts", f"{it.name or 'all'} ({it.instance_type}): {', '.join(it.hosts) or it.count}")
            for it in job.host_groups()
        ),
        *(("phase", _phase(it)) for it in described.get("SecondaryStatusTransitions", [])),
        *(
            ("metric", f"{it['MetricName']} {figures(it['Value'], 6)}")
            for it in described.get("FinalMetricDataList", [])
        ),
        *(("parameter", f"{key} {value}") for key, value in sorted(described.get("HyperParameters", {}).items())),
        ("model", _model(job, described)),
        ("checkpoints", described.get("CheckpointConfig", {}).get("S3Uri")),
    ]
    for key, value in lines:
        if value:
            typer.echo(f"{key:<12}{value}")


def _model(job: Job, described: dict[str, Any]) -> str | None:
    """Where the model is, or why there is none: a description has the place of a model that does not exist, too."""
    from training_jobs.client.jobs import OVER

    uri: str | None = described.get("ModelArtifacts", {}).get("S3ModelArtifacts")
    if uri is None or described["TrainingJobStatus"] not in OVER or job.has_model() is not False:
        return uri
    return "none: nothing was uploaded from /opt/ml/model"


def logs(
    context: typer.Context,
    name: Target = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the job is over.")] = False,
    host: Annotated[str | None, typer.Option(help="One host, like algo-1.")] = None,
    group: Annotated[str | None, typer.Option(help="An instance group of the job.")] = None,
    since: Annotated[str | None, typer.Option(help="Lines since a time, like 10m, 2h, or 2026-01-31T12:00:00.")] = None,
    grep: Annotated[str | None, typer.Option(help="A regular expression that lines must contain.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the log lines of all hosts of a job, by time."""
    if grep is not None:
        try:
            re.compile(grep)
        except re.error as error:
            raise typer.BadParameter(f"{grep!r} is no regular expression: {error}", param_hint="--grep") from error
    start = None if since is None else _time(since)
    job = find_job(connect(context), name)
    colors = _Colors({it.name: it.group for it in job.hosts()})
    read = job.follow if follow else job.logs
    try:
        for line in read(host=host, group=group, since=start, grep=grep):
            if as_json:
                print_json(asdict(line))
            else:
                typer.echo(f"{colors.styled(line.host)}  {line.message}")
    except KeyboardInterrupt:
        from training_jobs.cli.watch import come_back

        come_back(job.name)


def cost(
    context: typer.Context,
    name: Target = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=DOLLARS", help="Dollars an hour of a machine, of AWS's page of prices."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what a job has used of machines so far, and at most; in dollars where --price says what they cost."""
    from training_jobs.cli.cost_text import cost_json, cost_line, prices_of

    prices = prices_of(price)
    times = find_job(connect(context), name).machine_times()
    if as_json:
        print_json(cost_json(times, prices))
    else:
        typer.echo(cost_line(times, prices))


def open_links(
    context: typer.Context,
    name: Target = None,
    browser: Annotated[bool, typer.Option("--browser", help="Open them in a browser as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the links of AWS's console to a job and its execution, or those of the local account's web page."""
    from training_jobs.client.errors import TrainingError
    from training_jobs.client.jobs import Job
    from training_jobs.client.names import find

    account = connect(context)
    page = None
    if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://localhost"):
        page = local_page()
        if page is None:
            raise TrainingError("the local account has no web page; use `training-jobs watch`, `describe` and `logs`")
    found = find(account, name)
    job, arn = (found, found.execution_arn()) if isinstance(found, Job) else (found.job(), found.arn)
    where = (account.region, job.name, arn)
    links = console_links(*where) if page is None else page_links(page, *where)
    if as_json:
        print_json(links)
    for what, link in links.items():
        if not as_json:
            typer.echo(f"{what:<12}{link}")
        if browser:
            typer.launch(link)


def console_links(region: str, job: str, execution: str | None) -> dict[str, str]:
    """Return the links of AWS's console, as AWS's own SDK writes them.

    That is aws-step-functions-data-science-sdk-python, workflow/widgets/utils.py.

    Args:
        region: The region.
        job: The job's name.
        execution: The execution's ARN; None for a job of no workflow.
    """
    console = "https://console.aws.amazon.com"
    links = {"job": f"{console}/sagemaker/home?region={region}#/jobs/{job}"}
    if execution is not None:
        links["execution"] = f"{console}/states/home?region={region}#/executions/details/{execution}"
    return links


def page_links(page: str, region: str, job: str, execution: str | None) -> dict[str, str]:
    """Return the links of a local account's web page.

    Args:
        page: The page's address, with its token.
        region: The region.
        job: The job's name.
        execution: The execution's ARN; None for a job of no workflow.
    """
    links = {"job": f"{page}job/{region}/{job}"}
    if execution is not None:
        links["execution"] = f"{page}execution/{quote(execution, safe='')}"
    return links


class _Colors:
    """A colour for each group's hosts, or for each host of a job without groups."""

    _NAMES = ("cyan", "yellow", "green", "magenta", "blue", "red")

    def __init__(self, groups: dict[str, str | None]) -> None:
        keys = list(dict.fromkeys(group or host for host, group in groups.items()))
        self._colors = {
            host: self._NAMES[keys.index(group or host) % len(self._NAMES)] for host, group in groups.items()
        }
        self._width = max(map(len, groups), default=0)

    def styled(self, host: str) -> str:
        return typer.style(host.ljust(self._width), fg=self._colors.get(host))


def _time(text: str) -> datetime:
    relative = re.fullmatch(r"(\d+)([smhd])", text)
    if relative:
        return datetime.now(UTC) - timedelta(seconds=int(relative[1]) * _UNITS[relative[2]])
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise typer.BadParameter(
            f"must be a time like 10m, 2h or 2026-01-31T12:00:00, got {text!r}", param_hint="--since"
        ) from None


def _local(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _phase(transition: dict[str, Any]) -> str:
    end = transition.get("EndTime")
    took = f" {duration(end - transition['StartTime'])}" if end else ""
    message = transition.get("StatusMessage") or ""
    return f"{clock(transition['StartTime'])} {transition['Status']}{took}{f': {message}' if message else ''}"
