"""Jobs with a bottleneck made on purpose, and two that are fine: what CloudWatch and their logs have of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training_jobs.facts.instance_facts import instance_facts

Use = Mapping[str, float]  # shares from 0 to 1
P4D, G5, C5, TRN1 = "ml.p4d.24xlarge", "ml.g5.xlarge", "ml.c5.18xlarge", "ml.trn1.32xlarge"


@dataclass(frozen=True)
class Case:
    """One job: ``groups`` is type and count by name, ``use`` is each host's in their order, ``lines`` are pauses and lines."""

    name: str
    bound: str | None
    groups: Mapping[str, tuple[str, int]]
    use: Sequence[Use]
    lines: Sequence[tuple[float, str]] = ()
    hyperparameters: Mapping[str, str] = field(default_factory=dict)
    change: str = ""
    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    advice: str = ""

    @property
    def hosts(self) -> list[tuple[str, str, str]]:
        """Name, group and type of each."""
        members = [(group, kind) for group, (kind, count) in self.groups.items() for _ in range(count)]
        return [(f"algo-{number}", *member) for number, member in enumerate(members, 1)]

    def published(self) -> dict[str, dict[str, float]]:
        """As CloudWatch has it: percent, summed over a host's vCPUs and GPUs."""
        found = {}
        for (host, _, kind), use in zip(self.hosts, self.use, strict=True):
            facts = instance_facts(kind)
            assert facts is not None
            sums = {
                "CPUUtilization": ("cpu", facts.vcpus or 1),
                "GPUUtilization": ("gpu", facts.devices),
                "GPUMemoryUtilization": ("gpu_memory", facts.devices),
            }
            found[host] = {name: 100 * use[member] * count for name, (member, count) in sums.items() if member in use}
        return found


def line(wait: float, hosts: int, busy: float, local: float = 0.0, network: float = 0.0) -> tuple[float, str]:
    """A line of the data service, shares in percent."""
    return 0.0, (
        f"data_service epoch=3 batches=90 dropped_samples=0 epoch_seconds=100 wait_seconds={wait:g} hosts={hosts} "
        f"hosts_busy_percent={busy:g} local_busy_percent={local:g} network_mb_per_second={network:g}: words"
    )


def gpu(busy: float, cpu: float, memory: float = 0.7) -> Use:
    return {"gpu": busy, "cpu": cpu, "gpu_memory": memory}


def cores(*busy: float) -> tuple[float, str]:
    """A report of neuron-monitor, of cores' utilization in percent."""
    in_use = {str(number): {"neuroncore_utilization": value} for number, value in enumerate(busy)}
    counters = {"period": 1.0, "neuroncores_in_use": in_use, "error": ""}
    return 0.0, json.dumps({"neuron_runtime_data": [{"pid": 9, "report": {"neuroncore_counters": counters}}]})


BESIDE = {"dnn_group": (P4D, 1)}
STALLED = [(3.0 if number == 8 else 0.1, f"step {number} loss 0.5 tokens/s 9") for number in range(1, 16)]
RECOMPILES = (
    "[rank0]:V0101 torch/_dynamo/guards.py:2860 [0/1] [__recompiles] Recompiling function forward in train.py:9"
)

CASES = (
    Case(
        "slow preprocessing on one machine",
        "data_cpu",
        {"": (P4D, 1)},
        [gpu(0.45, 0.98)],
        change='+    groups={"data_group": InstanceGroup("ml.c5.18xlarge", 2)},',
    ),
    Case(
        "slow preprocessing on a small machine",
        "data_cpu",
        {"": (G5, 1)},
        [gpu(0.3, 0.95)],
        [line(60, 0, 0, 99)],
        change='+job=DataParallelJob(InstanceGroup("ml.g5.2xlarge")),',
    ),
    Case(
        "slow preprocessing on data hosts",
        "data_cpu",
        {**BESIDE, "data_group": (C5, 2)},
        [gpu(0.6, 0.4), {"cpu": 0.97}, {"cpu": 0.96}],
        [line(30, 2, 98)],
        change='+    groups={"data_group": InstanceGroup("ml.c5.18xlarge", 3)},',
    ),
    Case(
        "slow network",
        "network",
        {**BESIDE, "data_group": (C5, 2)},
        [gpu(0.5, 0.3), {"cpu": 0.3}, {"cpu": 0.3}],
        [line(40, 2, 28, 0, 3000)],
        change='+    groups={"data_group": InstanceGroup("ml.c5n.18xlarge", 2)},',
    ),
    Case(
        "slow host that trains",
        "slow_host",
        {"": (P4D, 4)},
        [gpu(0.97, 0.4), gpu(0.55, 0.4), gpu(0.56, 0.4), gpu(0.54, 0.4)],
    ),
    Case(
        "slow data host",
        "slow_host",
        {**BESIDE, "data_group": (C5, 3)},
        [gpu(0.5, 0.3), {"cpu": 0.6}, {"cpu": 0.99}, {"cpu": 0.58}],
        [line(25, 3, 72)],
    ),
    Case(
        "half-starved GPU: the article's example",
        "data_cpu",
        {"": ("ml.g5.xlarge", 1)},
        [gpu(0.7, 0.98)],
        change='+job=DataParallelJob(InstanceGroup("ml.g5.2xlarge")),',
        advice="ml.g5.2xlarge, 8 vCPUs in place of 4, $1.515 an hour in place of $1.4084 an hour), then preprocessing on the GPU "
        "(NVIDIA DALI: decoding and augmentation), then data hosts (ml.c5.18xlarge, $3.672 an hour)",
    ),
    Case(
        "no larger member of the family",
        "data_cpu",
        {"": ("ml.p3.2xlarge", 1)},
        [gpu(0.65, 0.99)],
        change='+    groups={"data_group": InstanceGroup("ml.c5.18xlarge")},',
        advice="no type of the family has more vCPUs for as many accelerators as ml.p3.2xlarge: preprocessing on the GPU",
    ),
    Case("vCPUs full beside busy GPUs", "accelerator", {"": (G5, 1)}, [gpu(0.95, 0.98)]),
    Case("vCPUs at 80 % beside GPUs at 74 %", None, {"": (P4D, 1)}, [gpu(0.74, 0.8)]),
    Case(
        "Trainium that waits for vCPUs",
        "data_cpu",
        {"": (TRN1, 1)},
        [{"cpu": 0.96}],
        [cores(40, 44, 0), cores(40, 44, 0)],
        advice="prepare ahead of the training",
    ),
    Case(
        "Trainium of which only vCPUs are known",
        "data_cpu",
        {"": (TRN1, 1)},
        [{"cpu": 0.97}],
        [(0.0, '{"neuroncores_in_use": cut off')],
        advice="more workers behind a device loader",
    ),
    Case("busy Trainium", "accelerator", {"": (TRN1, 1)}, [{"cpu": 0.5}], [cores(95, 93)]),
    Case("Trainium with free vCPUs", None, {"": (TRN1, 1)}, [{"cpu": 0.5}], [cores(70, 75)]),
    Case(
        "the profiler's report alone",
        "data_cpu",
        {"": (G5, 1)},
        [{}],
        change='+job=DataParallelJob(InstanceGroup("ml.g5.2xlarge")),',
        reports={
            "OverallSystemUsage": {"Details": {"CPU": {"algo-1": {"p50": 99.0}}, "GPU": {"algo-1": {"p50": 30.0}}}},
            "CPUBottleneck": {"RuleTriggered": 4, "Violations": 4, "Datapoints": 90, "Details": {}},
        },
    ),
    Case(
        "what the profiler's rules found",
        "profiler",
        {"": (G5, 1)},
        [gpu(0.75, 0.5)],
        reports={
            "IOBottleneck": {"RuleTriggered": 2, "Violations": 2, "Datapoints": 50, "Details": {}},
            "BatchSize": {"RuleTriggered": 0, "Violations": 0, "Datapoints": 50, "Details": {}},
        },
        advice="GPUs idle while vCPUs wait for input: input_mode='FastFile'",
    ),
    Case("busy GPUs", "accelerator", {"": (G5, 1)}, [gpu(0.97, 0.4)]),
    Case(
        "recompilation",
        "compilation",
        {"": (G5, 1)},
        [gpu(0.4, 0.3)],
        [(0.0, RECOMPILES), (0.0, "compilations 9, 0 graphs from the cache"), (0.0, "compile time 400.000 s")],
    ),
    Case("slow checkpoints", "checkpoints", {"": (G5, 1)}, [gpu(0.7, 0.3)], STALLED),
    Case(
        "idle data group",
        "idle_data_group",
        {**BESIDE, "data_group": (C5, 3)},
        [gpu(0.85, 0.3), {"cpu": 0.1}, {"cpu": 0.1}, {"cpu": 0.12}],
        [line(0.3, 3, 10)],
        change='+    groups={"data_group": InstanceGroup("ml.c5.18xlarge")},',
    ),
    Case(
        "small batch",
        "small_batch",
        {"": (G5, 1)},
        [gpu(0.3, 0.2, 0.15)],
        [line(0.2, 0, 0, 20)],
        {"batch-size": "16"},
        '+hyperparameters={"batch-size": 32},',
    ),
    Case("full memory", "accelerator_memory", {"": (G5, 1)}, [gpu(0.85, 0.3, 0.98)]),
    Case("slow storage", "input", {"": (G5, 1)}, [gpu(0.3, 0.1)], [line(55, 0, 0, 15)]),
    Case("fine on one machine", None, {"": (G5, 1)}, [gpu(0.83, 0.5)], [line(0.4, 0, 0, 60)]),
    Case(
        "fine with data hosts",
        None,
        {**BESIDE, "data_group": (C5, 2)},
        [gpu(0.8, 0.5), {"cpu": 0.75}, {"cpu": 0.74}],
        [line(0.9, 2, 76)],
    ),
)
