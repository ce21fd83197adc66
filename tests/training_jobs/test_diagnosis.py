"""What `training-jobs diagnose` says of recorded evidence."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from diagnosed_jobs import C5, CASES, P4D, Case, gpu

from training_jobs import LogLine
from training_jobs.cli import diagnose as command
from training_jobs.cli.main import main
from training_jobs.client.hosts import Host
from training_jobs.client.utilization import NAMESPACE
from training_jobs.facts.instance_facts import instance_facts, next_with_more_vcpus
from training_jobs.planning.diagnosis import diagnose
from training_jobs.planning.evidence import Evidence, HostUse, read_log
from training_jobs.planning.picture import utilization_picture
from training_jobs.planning.prices import snapshot_price

BEGAN = datetime(2026, 1, 31, 10, tzinfo=UTC)


class RecordedJob:
    """A job as the command reads it, with the answers of CloudWatch that a case has."""

    def __init__(self, case: Case) -> None:
        self.case, self.name = case, "job"

    def describe(self) -> dict[str, Any]:
        groups = [
            {"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": count}
            for name, (kind, count) in self.case.groups.items()
        ]
        one = {name: value for name, value in groups[0].items() if name != "InstanceGroupName"}
        return {
            "TrainingJobName": "job",
            "CreationTime": BEGAN - timedelta(minutes=5),
            "TrainingStartTime": BEGAN,
            "TrainingEndTime": BEGAN + timedelta(hours=1),
            "SecondaryStatusTransitions": [{"Status": "Training", "StartTime": BEGAN}],
            "ResourceConfig": {"InstanceGroups": groups} if len(groups) > 1 else one,
            "HyperParameters": dict(self.case.hyperparameters),
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/models/"},
            "ProfilerRuleConfigurations": [{"RuleConfigurationName": "ProfilerReport"}] if self.case.reports else [],
        }

    def hosts(self) -> list[Host]:
        return [Host(name, group or None, kind) for name, group, kind in self.case.hosts]

    def log_reader(self) -> Any:
        times = itertools.accumulate(pause for pause, _ in self.case.lines)
        lines = [
            LogLine(BEGAN + timedelta(seconds=time), "algo-1", text)
            for time, (_, text) in zip(times, self.case.lines, strict=True)
        ]
        return SimpleNamespace(read=lambda: lines)

    def client(self, service: str) -> Any:
        if service == "s3":
            pages = SimpleNamespace(paginate=self._objects)
            return SimpleNamespace(get_paginator=lambda name: pages, get_object=self._object)
        assert service == "cloudwatch"
        return SimpleNamespace(get_paginator=lambda name: SimpleNamespace(paginate=self._metric_data))

    def _objects(self, Bucket: str, Prefix: str) -> Iterator[Any]:
        """The keys as AWS's notebooks list them."""
        folder = f"{Prefix}/ProfilerReport/profiler-output"
        reports = [f"{folder}/profiler-reports/{rule}.json" for rule in self.case.reports]
        yield {"Contents": [{"Key": key} for key in (f"{folder}/profiler-report.html", *reports)]}
        yield {}

    def _object(self, Bucket: str, Key: str) -> Any:
        assert (Bucket, Key.partition("/ProfilerReport/")[0]) == ("bucket", "models/job/rule-output")
        report = self.case.reports[Key.rpartition("/")[2].removesuffix(".json")]
        return {"Body": io.BytesIO(json.dumps(report).encode())}

    def _metric_data(self, MetricDataQueries: list[Any], **times: datetime) -> Iterator[Any]:
        published = self.case.published()
        results = []
        for query in MetricDataQueries:
            metric = query["MetricStat"]["Metric"]
            assert metric["Namespace"] == NAMESPACE
            ((name, host),) = [(it["Name"], it["Value"]) for it in metric["Dimensions"]]
            assert (name, host.partition("/")[0]) == ("Host", "job")
            value = published[host.partition("/")[2]].get(metric["MetricName"])
            results.append({"Id": query["Id"], "Values": [] if value is None else [value - 1, value + 1]})
        yield {"MetricDataResults": results}


def said(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[str, RecordedJob]:
    job = RecordedJob(case)
    monkeypatch.setattr(command, "connect", lambda context: job)
    monkeypatch.setattr(command, "find_job", lambda account, name: account)
    monkeypatch.setattr(sys, "argv", ["training-jobs", "diagnose", "job", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out, job


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_bounds_a_job_is_named_with_the_change(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, _ = said(case, monkeypatch, capsys, "--json")
    findings = json.loads(printed)["findings"]
    assert (findings[0]["bound"] if findings else None) == case.bound
    assert case.advice in (findings[0]["advice"] if findings else "")
    if case.change:
        assert case.change in findings[0]["change"].splitlines()


def test_the_command_prints_hosts_bound_advice_change_and_chart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    printed, _ = said(CASES[0], monkeypatch, capsys, "--svg", str(tmp_path / "chart.svg"))
    assert "algo-1     ml.p4d.24xlarge: vCPUs 98%, GPUs 45%, GPU memory 70%" in printed
    assert "bound     data_cpu: GPUs are 45% busy, vCPUs 98%" in printed
    assert (
        '\n-job=DataParallelJob(InstanceGroup("ml.p4d.24xlarge"), launcher=Torchrun()),\n+job=HeterogeneousJob('
        in printed
    )
    ElementTree.parse(tmp_path / "chart.svg")
    printed, _ = said(CASES[-1], monkeypatch, capsys)
    assert "bound     nothing stands out" in printed


def test_what_is_found_by_the_profiler_and_here_is_said_of_both(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [case] = [case for case in CASES if case.name == "the profiler's report alone"]
    printed, _ = said(case, monkeypatch, capsys)
    assert "bound     data_cpu: GPUs are 30% busy, vCPUs 99%" in printed
    assert "also      profiler: SageMaker's profiler reports CPUBottleneck 4 times of 90" in printed


def test_the_article_prices_its_data_host_and_a_type_without_a_price_has_none() -> None:
    assert (snapshot_price("ml.c5.18xlarge"), snapshot_price("ml.p6-b200.48xlarge")) == (3.672, None)


def test_a_job_of_which_nothing_is_known_is_not_called_fine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, _ = said(Case("unknown", None, {"": (P4D, 1)}, [{}]), monkeypatch, capsys)
    assert "bound     unknown: neither utilization nor lines" in printed


def test_data_hosts_whose_work_was_not_measured_are_neither_busy_nor_idle() -> None:
    """The finding "the wrong advice": what was not measured was 0 %, and the advice more network."""
    said = "data_service epoch=1 epoch_seconds=1 wait_seconds={wait} hosts=2 hosts_busy_percent={busy} "
    hosts = [HostUse("algo-1", "dnn_group", P4D), HostUse("algo-2", "data_group", C5)]

    def findings(wait: float, busy: str) -> list[str]:
        log = read_log(
            [(0.0, said.format(wait=wait, busy=busy) + "local_busy_percent=unknown network_mb_per_second=3: words")]
        )
        return [one.bound for one in diagnose(Evidence(hosts, "data_group", log=log))]

    assert findings(0.9, "unknown") == ["input"]
    assert findings(0.9, "95") == ["data_cpu"]
    assert findings(0.9, "10") == ["network"]
    assert findings(0.0, "unknown") == []


def test_a_start_of_more_than_the_training_and_a_minute_stands_out() -> None:
    hosts = [HostUse("algo-1", None, P4D, gpu=0.8, cpu=0.5)]
    slow = diagnose(Evidence(hosts, startup_seconds=600, training_seconds=500))
    assert [it.bound for it in slow] == ["start_up"]
    assert diagnose(Evidence(hosts, startup_seconds=50, training_seconds=5)) == []


def test_data_hosts_are_found_by_name_or_by_having_no_accelerators() -> None:
    def job(*groups: tuple[str, str]) -> dict[str, Any]:
        members = [{"InstanceGroupName": name, "InstanceType": kind, "InstanceCount": 1} for name, kind in groups]
        return {"ResourceConfig": {"InstanceGroups": members}}

    assert command.data_group_of(job(("workers", C5), ("train", P4D))) == "workers"
    assert command.data_group_of(job(("data_group", "ml.c5.xlarge"), ("train", "ml.m5.xlarge"))) == "data_group"
    assert command.data_group_of(job(("one", "ml.c5.xlarge"), ("two", "ml.m5.xlarge"))) is None
    assert command.data_group_of({"ResourceConfig": {"InstanceType": P4D, "InstanceCount": 2}}) is None


def test_a_log_gives_pace_and_stalls() -> None:
    lines = [(float(number), f"noise step {number} loss 1.0 tokens/s 5") for number in range(10)]
    log = read_log(
        [
            *lines,
            (19.0, "step 10 loss 1.0 tokens/s 5"),
            (19.5, "step 3 loss of another run"),
            (20.0, "checkpoint took 2.5 s"),
        ]
    )
    assert (log.steps, log.step_seconds, log.checkpoint_seconds) == (11, 1.0, 2.5)
    assert log.stall_share == pytest.approx((10 - 2) / 19)
    assert read_log([]).step_seconds is None


def test_the_next_type_has_as_many_accelerators_and_more_vcpus() -> None:
    assert next_with_more_vcpus("ml.g5.xlarge") == "ml.g5.2xlarge"
    assert next_with_more_vcpus("ml.g5.12xlarge") == "ml.g5.24xlarge"
    assert next_with_more_vcpus("ml.p4d.24xlarge") is None
    assert instance_facts("ml.g5.24xlarge").devices == 4  # type: ignore[union-attr]


def test_the_chart_has_a_bar_for_each_known_share() -> None:
    hosts = [HostUse("algo-1", None, P4D, **gpu(0.5, 0.9)), HostUse("algo-2", "data", C5)]  # type: ignore[arg-type]
    root = ElementTree.fromstring(utilization_picture(Evidence(hosts)))
    widths = [it.get("width") for it in root.findall("{http://www.w3.org/2000/svg}rect")]
    assert widths == ["640", "400", "360.0", "400", "200.0", "400", "280.0"]
