"""The command ``diagnose``: what bounds a job, with the evidence and the change."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from training_jobs.cli.context import AsJson, Target, connect, find_job
from training_jobs.cli.output import print_json

if TYPE_CHECKING:
    from training_jobs.client.account import Account
    from training_jobs.client.jobs import Job
    from training_jobs.planning.diagnosis import Finding
    from training_jobs.planning.evidence import Evidence
    from training_jobs.planning.step_time import Configuration

DATA_GROUP = "data_group"
_BATCH_SIZES = ("batch-size", "batch_size", "per_device_train_batch_size")


def diagnose(
    context: typer.Context,
    name: Target = None,
    svg: Annotated[Path | None, typer.Option(help="Write the chart of the hosts' utilization there.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find what bounds a job: data, network, accelerators, compilation, a slow host, checkpoints, start-up; and what to change.

    It reads the utilization of the hosts in CloudWatch, the report of SageMaker's profiler where the job has its rules, and lines
    of the packaged training code and of neuron-monitor where a log has them.
    """
    from training_jobs.planning.diagnosis import diagnose as found_in
    from training_jobs.planning.picture import utilization_picture

    account = connect(context)
    job = find_job(account, name)
    described = job.describe()
    evidence = evidence_of(account, job, described)
    groups, configuration = configuration_of(described, evidence.data_group)
    findings = found_in(evidence, configuration)
    if svg is not None:
        svg.write_text(utilization_picture(evidence))
    if as_json:
        changes = [change_text(it, configuration, groups, described) for it in findings]
        shown = [
            {"bound": it.bound, "evidence": it.evidence, "advice": it.advice, "change": change or None}
            for it, change in zip(findings, changes, strict=True)
        ]
        print_json({"job": job.name, "findings": shown, "evidence": asdict(evidence)})
        return
    typer.echo(f"job       {job.name}")
    for host in evidence.hosts:
        used = {
            "vCPUs": host.cpu,
            "GPUs": host.gpu,
            "GPU memory": host.gpu_memory,
            "memory": host.memory,
            "disk": host.disk,
        }
        text = ", ".join(f"{what} {value:.0%}" for what, value in used.items() if value is not None)
        typer.echo(f"{host.host:<9} {host.group or ''} {host.instance_type}: {text or 'no utilization in CloudWatch'}")
    if not findings:
        typer.echo(
            "bound     nothing stands out" if _known(evidence) else "bound     unknown: neither utilization nor lines"
        )
    for number, finding in enumerate(findings):
        typer.echo(
            f"\n{'bound' if number == 0 else 'also':<9} {finding.bound}: {finding.evidence}\nadvice    {finding.advice}"
        )
        if change := change_text(finding, configuration, groups, described):
            typer.echo(change)
    if svg is not None:
        typer.echo(f"\nchart     {svg}")


def evidence_of(account: Account, job: Job, described: Mapping[str, Any]) -> Evidence:
    """Return what is known of a job.

    Args:
        account: Its account.
        job: The job.
        described: The response of DescribeTrainingJob.
    """
    from training_jobs.client.utilization import shares, utilization
    from training_jobs.planning.evidence import Evidence, HostUse, read_log
    from training_jobs.planning.profiler_report import ProfilerReport, read_profiler_report

    hosts = job.hosts()
    used = utilization(account.client("cloudwatch"), described, [it.name for it in hosts])
    watched = bool(described.get("ProfilerRuleConfigurations"))
    profiler = read_profiler_report(account.client("s3"), described) if watched else ProfilerReport()
    uses = []
    for host in hosts:
        known = {
            **{name: of[host.name] for name, of in (("cpu", profiler.cpu), ("gpu", profiler.gpu)) if host.name in of},
            **shares(host.instance_type, used.get(host.name, {})),
        }
        uses.append(HostUse(host.name, host.group, host.instance_type, **known))
    created, start = described["CreationTime"], described.get("TrainingStartTime")
    end = described.get("TrainingEndTime") or datetime.now(UTC)
    lines = [(line.time.timestamp(), line.message) for line in job.log_reader().read()]
    began = _training_began(described)
    return Evidence(
        uses,
        data_group_of(described),
        startup_seconds=(began - created).total_seconds() if began else 0.0,
        training_seconds=max((end - began).total_seconds(), 0.0) if began and start else 0.0,
        log=read_log(lines),
        profiler=profiler,
    )


def data_group_of(described: Mapping[str, Any]) -> str | None:
    """Return the name of the group that prepares data: ``data_group``, or the only one without accelerators beside others.

    Args:
        described: The response of DescribeTrainingJob.
    """
    from training_jobs.facts.instance_facts import instance_facts

    groups = described["ResourceConfig"].get("InstanceGroups") or []
    names = [group["InstanceGroupName"] for group in groups]
    if len(groups) > 1 and DATA_GROUP in names:
        return DATA_GROUP
    facts = [instance_facts(group["InstanceType"]) for group in groups]
    without = [name for name, it in zip(names, facts, strict=True) if it is not None and it.kind is None]
    return without[0] if len(without) == 1 and len(groups) > 1 else None


def configuration_of(
    described: Mapping[str, Any], data_group: str | None
) -> tuple[dict[str, str], Configuration | None]:
    """Return the names of the groups, and the machines; None where they are other than one type that trains, with data hosts.

    Args:
        described: The response of DescribeTrainingJob.
        data_group: Name of the group that prepares data.
    """
    from training_jobs.planning.step_time import Configuration, Machines

    resources = described["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [{"InstanceGroupName": "", **resources}]
    training = [it for it in groups if data_group is None or it["InstanceGroupName"] != data_group]
    data = [it for it in groups if it not in training]
    if len(training) != 1 or "InstanceType" not in training[0]:
        return {}, None
    names = {"train_group": training[0]["InstanceGroupName"]} if data else {}
    names |= {"data_group": data_group} if data_group else {}
    spot = bool(described.get("EnableManagedSpotTraining"))
    try:
        machines = [Machines(it["InstanceType"], it["InstanceCount"]) for it in (*training, *data)]
    except ValueError:  # a type that EC2's data lacks
        return names, None
    return names, Configuration(machines[0], machines[1] if data else None, spot)


def change_text(
    finding: Finding,
    configuration: Configuration | None,
    groups: Mapping[str, str],
    described: Mapping[str, Any],
) -> str:
    """Return a finding's change as a diff of the construct call; empty without one.

    Args:
        finding: The finding.
        configuration: The job's machines.
        groups: Names of its groups.
        described: The response of DescribeTrainingJob.
    """
    from training_jobs.planning.construct_call import construct_call

    if finding.change is not None and configuration is not None:
        return _diff(construct_call(configuration, **groups), construct_call(finding.change, **groups))
    if finding.bound == "small_batch":
        parameters = described.get("HyperParameters", {})
        known = {name: parameters[name].strip('"') for name in _BATCH_SIZES if name in parameters}
        for name, value in known.items():
            if value.isdigit():
                return _diff(*(f'hyperparameters={{"{name}": {number}}},' for number in (int(value), 2 * int(value))))
    return ""


def _diff(now: str, instead: str) -> str:
    lines: Sequence[str] = list(
        difflib.unified_diff(now.splitlines(), instead.splitlines(), "now", "instead", lineterm="")
    )
    return "\n".join(lines)


def _training_began(described: Mapping[str, Any]) -> datetime | None:
    """When the script started: the last transition to Training, where the job got that far."""
    changes = described.get("SecondaryStatusTransitions") or []
    found = [it["StartTime"] for it in changes if it["Status"] == "Training"]
    return found[-1] if found else described.get("TrainingStartTime")


def _known(evidence: Evidence) -> bool:
    return any(it.cpu is not None or it.gpu is not None for it in evidence.hosts) or evidence.log.wait_share is not None
