"""The report of SageMaker's profiler rules, as the job's rule ``ProfilerReport`` writes it to S3.

Each built-in rule has a file ``RULE-OUTPUT/NAME/profiler-output/profiler-reports/RULE.json``, by default below
``S3OutputPath/JOB/rule-output`` (guide, "SageMaker Debugger Profiling Report"; the keys in the output of AWS's XGBoost
notebooks), with ``RuleTriggered``, ``Violations``, ``Datapoints`` and ``Details`` (``record_violations`` of smdebug_rules, which
the rules' container runs). The details of ``OverallSystemUsage`` are percentiles of CPU and GPU by host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_FOLDER = "/profiler-output/profiler-reports/"
# Of the guide's "List of Debugger built-in profiler rules", what each means and what helps.
ADVICE: Mapping[str, str] = {
    "CPUBottleneck": "GPUs idle while a vCPU is full: a larger type of the family, DALI, data hosts",
    "IOBottleneck": "GPUs idle while vCPUs wait for input: input_mode='FastFile', FsxLustreChannel, larger files",
    "LowGPUUtilization": "GPUs are idle or uneven: a larger batch, or a smaller type",
    "BatchSize": "GPUs, their memory and vCPUs are all little used: a larger batch, or a smaller type",
    "GPUMemoryIncrease": "a GPU's memory grows: activation checkpointing, FSDP2, and no tensors kept from step to step",
    "LoadBalancing": "GPUs have different loads: equal shares of the batch, one process for each GPU",
    "Dataloader": "the number of loader workers does not fit the vCPUs: num_workers",
    "StepOutlier": "steps take unequal time: checkpoints in the background, batches of one shape",
    "MaxInitializationTime": "the training begins late: a smaller image, FastFile, a warm pool",
}


@dataclass(frozen=True)
class ProfilerReport:
    """What the rules found.

    Attributes:
        triggered: How often each rule was violated, and of how many data points; rules that were not are left out.
        cpu: The median of each host's vCPUs, from 0 to 1.
        gpu: The median of each host's GPUs, from 0 to 1.
    """

    triggered: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    gpu: Mapping[str, float] = field(default_factory=dict)


def read_profiler_report(s3: Any, described: Mapping[str, Any]) -> ProfilerReport:
    """Return the report of a job's rules; empty where it has none, or none was written yet.

    Args:
        s3: boto3's client.
        described: The response of DescribeTrainingJob.
    """
    job, output = described["TrainingJobName"], described.get("OutputDataConfig", {}).get("S3OutputPath", "")
    rules = described.get("ProfilerRuleConfigurations") or []
    places = {rule.get("S3OutputPath") or f"{output.rstrip('/')}/{job}/rule-output" for rule in rules}
    triggered: dict[str, tuple[int, int]] = {}
    use: dict[str, dict[str, float]] = {"CPU": {}, "GPU": {}}
    for place in sorted(places):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for key in (one["Key"] for one in page.get("Contents", []) if _FOLDER in one["Key"]):
                report = json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
                name = key.rpartition("/")[2].removesuffix(".json")
                if count := int(report.get("Violations") or report.get("RuleTriggered") or 0):
                    triggered[name] = (count, int(report.get("Datapoints") or 0))
                if name == "OverallSystemUsage":
                    for kind, hosts in use.items():
                        found = (report.get("Details") or {}).get(kind) or {}
                        hosts |= {host: one["p50"] / 100 for host, one in found.items() if one.get("p50") is not None}
    return ProfilerReport(triggered, use["CPU"], use["GPU"])
