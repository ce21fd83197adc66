"""The utilization of a job's hosts, as SageMaker publishes it in CloudWatch."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from training_jobs.facts.instance_facts import instance_facts

NAMESPACE = "/aws/sagemaker/TrainingJobs"
# Percent. CPUUtilization and the GPUs' are sums over a host's vCPUs and GPUs: "if there are four CPUs, CPUUtilization can range
# from 0% to 400%" (guide, "SageMaker AI metrics in Amazon CloudWatch", job metrics; the dimension Host is JOB/algo-N there).
METRICS = ("CPUUtilization", "GPUUtilization", "GPUMemoryUtilization", "MemoryUtilization", "DiskUtilization")
_PERIOD = 60  # seconds: "metrics are available at a 1-minute frequency"
_QUERIES = 500  # of one call of GetMetricData (its API reference)


def utilization(
    cloudwatch: Any, job: Mapping[str, Any], hosts: Sequence[str], names: Sequence[str] = METRICS
) -> dict[str, dict[str, float]]:
    """Return the mean of each metric while the job trained, in percent as published; of hosts that have published.

    Args:
        cloudwatch: boto3's client of CloudWatch.
        job: The response of DescribeTrainingJob.
        hosts: Such as ``["algo-1"]``.
        names: Of the metrics.
    """
    start = job.get("TrainingStartTime")
    if start is None:
        return {}
    end = job.get("TrainingEndTime") or datetime.now(UTC)
    wanted = [(host, name) for host in hosts for name in names]
    found: dict[str, dict[str, list[float]]] = {}
    for first in range(0, len(wanted), _QUERIES):
        queries = [
            {
                "Id": f"q{number}",
                "MetricStat": {
                    "Metric": {
                        "Namespace": NAMESPACE,
                        "MetricName": name,
                        "Dimensions": [{"Name": "Host", "Value": f"{job['TrainingJobName']}/{host}"}],
                    },
                    "Period": _PERIOD,
                    "Stat": "Average",
                },
            }
            for number, (host, name) in enumerate(wanted[first : first + _QUERIES])
        ]
        # A point belongs to the minute in which it begins.
        times = {"StartTime": start - timedelta(seconds=_PERIOD), "EndTime": end + timedelta(seconds=_PERIOD)}
        for page in cloudwatch.get_paginator("get_metric_data").paginate(MetricDataQueries=queries, **times):
            for result in page["MetricDataResults"]:
                host, name = wanted[first + int(result["Id"][1:])]
                found.setdefault(host, {}).setdefault(name, []).extend(result["Values"])
    return {
        host: {name: statistics.fmean(values) for name, values in metrics.items() if values}
        for host, metrics in found.items()
    }


def shares(instance_type: str, percent: Mapping[str, float]) -> dict[str, float]:
    """Return what share of a host's vCPUs, GPUs, memory and disk is used: ``cpu``, ``gpu``, ``gpu_memory``, ``memory``, ``disk``.

    Args:
        instance_type: The host's.
        percent: Its metrics, from ``utilization``.
    """
    facts = instance_facts(instance_type)
    vcpus, devices = (facts.vcpus or 1, facts.devices or 1) if facts else (1, 1)
    counts = {"cpu": vcpus, "gpu": devices, "gpu_memory": devices, "memory": 1, "disk": 1}
    return {
        member: percent[name] / 100 / count
        for name, (member, count) in zip(METRICS, counts.items(), strict=True)
        if name in percent
    }
