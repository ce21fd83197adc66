"""What the pages show, read as the account's root; jobs come from the job store, since ListTrainingJobs is throttled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sagemaker_local_account.core import fidelity
from sagemaker_local_account.web.charts import HEIGHT, WIDTH, curves, phases
from sagemaker_local_account.web.graph import entered, graph_of, states_of

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_EXECUTIONS, _JOBS, _LINES, _EVENTS, _OBJECTS = 25, 100, 200, 1000, 1000
_LAST = 30  # lines of a host that are shown at first


class NotThere(LookupError):
    """There is no such page."""


class Content:
    """The pages of an account by name, each the variables of the template with its name.

    Args:
        regions: the account's.
        client: returns boto3's client of a service in a region, of the root.
        jobs: the training jobs by region.
    """

    def __init__(self, regions: Sequence[str], client: Callable[[str, str], Any], jobs: Mapping[str, Any]) -> None:
        self._regions = regions
        self._client = client
        self._jobs = jobs
        # With the number of names that each takes.
        self._pages: dict[str, tuple[Callable[..., dict[str, Any]], int]] = {
            "account": (self._account, 0),
            "stack": (self._stack, 2),
            "execution": (self._execution, 1),
            "job": (self._job, 2),
            "bucket": (self._bucket, 1),
            "fidelity": (lambda query: {"services": fidelity.services()}, 0),
        }

    def page(self, name: str, names: Sequence[str], query: Mapping[str, str]) -> dict[str, Any]:
        """Returns the variables of a page.

        Args:
            name: of the page.
            names: what it shows, such as a region and a job's name.
            query: of the address.

        Raises:
            NotThere: there is no such page, or nothing of that name.
        """
        shown, count = self._pages.get(name, (self._account, -1))
        if len(names) != count:
            raise NotThere(f"there is no page {'/'.join([name, *names])!r}")
        return shown(query, *names)

    def _account(self, query: Mapping[str, str]) -> dict[str, Any]:
        stacks, executions, jobs = [], [], []
        for region in self._regions:
            for stack in self._client("cloudformation", region).describe_stacks()["Stacks"]:
                stacks.append({"region": region, **stack})
            states = self._client("stepfunctions", region)
            # An EXPRESS machine's executions are in its log alone (API, ListExecutions: "StateMachineTypeNotSupported").
            standard = (it for it in states.list_state_machines()["stateMachines"] if it["type"] == "STANDARD")
            for machine in standard:
                found = states.list_executions(stateMachineArn=machine["stateMachineArn"], maxResults=_EXECUTIONS)
                executions += [{"region": region, "machine": machine["name"], **it} for it in found["executions"]]
            listed = self._jobs[region].list({"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": _JOBS})
            jobs += [{"region": region, **it} for it in listed["TrainingJobSummaries"]]
        executions.sort(key=lambda it: it["startDate"], reverse=True)
        buckets = self._client("s3", self._regions[0]).list_buckets()["Buckets"]
        return {
            "several": len(self._regions) > 1,
            "stacks": stacks,
            "executions": executions[:_EXECUTIONS],
            "jobs": jobs[:_JOBS],
            "buckets": buckets,
        }

    def _stack(self, query: Mapping[str, str], region: str, name: str) -> dict[str, Any]:
        cloudformation = self._client("cloudformation", self._known(region))
        [stack] = cloudformation.describe_stacks(StackName=name)["Stacks"]
        resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        return {"stack": stack, "resources": resources}

    def _execution(self, query: Mapping[str, str], arn: str) -> dict[str, Any]:
        region = arn.split(":")[3] if arn.count(":") >= 7 else ""
        states = self._client("stepfunctions", self._known(region))
        execution = states.describe_execution(executionArn=arn)
        machine = states.describe_state_machine(stateMachineArn=execution["stateMachineArn"])
        events = states.get_execution_history(executionArn=arn, maxResults=_EVENTS)["events"]
        visited = states_of(events, execution["status"])
        definition = json.loads(machine["definition"])
        whole, so_far = graph_of(definition, visited), graph_of(entered(definition, visited), visited)
        return {
            "execution": execution,
            "graph": so_far,
            "whole": whole if len(whole.nodes) > len(so_far.nodes) else None,
            "texts": {key: _pretty(execution.get(key)) for key in ("input", "output", "error", "cause")},
            "jobs": self._jobs_of(region, arn),
            "region": region,
        }

    def _job(self, query: Mapping[str, str], region: str, name: str) -> dict[str, Any]:
        described = self._jobs[self._known(region)].describe(name)
        logs = self._client("logs", region)
        found = []
        try:
            streams = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
        except logs.exceptions.ResourceNotFoundException:  # before the first line of the first job
            streams = []
        for stream in streams:
            lines = logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], limit=_LINES, startFromHead=False
            )["events"]
            host = stream["logStreamName"].rpartition("/")[2].rpartition("-")[0]
            messages = [it["message"] for it in lines if it["message"].strip()]
            found.append({"host": host, "lines": messages[-_LAST:], "before": messages[:-_LAST]})
        resources = described["ResourceConfig"]
        groups = resources.get("InstanceGroups") or [{"InstanceGroupName": "", **resources}]
        return {
            "job": described,
            "groups": groups,
            "hosts": found,
            "region": region,
            "phases": phases(described),
            "curves": curves(self._jobs[region].metric_series(name), described["CreationTime"]),
            "size": (WIDTH, HEIGHT),
        }

    def _bucket(self, query: Mapping[str, str], name: str) -> dict[str, Any]:
        prefix = query.get("prefix", "")
        listed = self._client("s3", self._regions[0]).list_objects_v2(
            Bucket=name, Prefix=prefix, Delimiter="/", MaxKeys=_OBJECTS
        )
        return {
            "bucket": name,
            "prefix": prefix,
            "folders": [it["Prefix"] for it in listed.get("CommonPrefixes", [])],
            "objects": listed.get("Contents", []),
            "truncated": listed["IsTruncated"],
        }

    def _jobs_of(self, region: str, arn: str) -> list[str]:
        """The jobs whose tags have the execution's ARN."""
        jobs = self._jobs[region]
        listed = jobs.list({"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": _JOBS})
        return [
            it["TrainingJobName"]
            for it in listed["TrainingJobSummaries"]
            if arn in {tag["Value"] for tag in jobs.list_tags(it["TrainingJobArn"])["Tags"]}
        ]

    def _known(self, region: str) -> str:
        if region not in self._regions:
            raise NotThere(f"the account has the regions {', '.join(self._regions)}, got {region!r}")
        return region


def time_text(value: Any) -> str:
    """Returns a time as text in UTC, also of one in seconds since 1970; empty for None.

    Args:
        value: the time.
    """
    if value is None:
        return ""
    moment = value if isinstance(value, datetime) else datetime.fromtimestamp(float(value), UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _pretty(text: str | None) -> str | None:
    try:
        return text if text is None else json.dumps(json.loads(text), indent=2)
    except ValueError:
        return text
