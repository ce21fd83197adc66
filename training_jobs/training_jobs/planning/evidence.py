"""What is known of a job that ran: utilization by host, and what the training's own log lines say."""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from training_jobs.planning.profiler_report import ProfilerReport

# Lines of the packaged training code; a user's own script has them where it uses the same parts.
_DATA_SERVICE = re.compile(r"data_service (epoch=.*?):")
_PAIR = re.compile(r"(\w+)=([0-9.e+-]+)")
_STEP = re.compile(r"\bstep (\d+) .*?\b(?:loss|tokens/s|samples/s)\b")
_COMPILATIONS = re.compile(r"\bcompilations (\d+)")
_COMPILE_TIME = re.compile(r"\bcompile time ([0-9.]+) s")
_RECOMPILED = re.compile(r"Recompiling function|torch\._dynamo hit config\.(?:recompile_limit|cache_size_limit)")
_CHECKPOINT = re.compile(r"\bcheckpoint\b.*?\b(?:took|in) ([0-9.]+) s")
_LEAST_STEPS = 8  # between logged steps, to say of a pace that it is uneven


@dataclass(frozen=True)
class HostUse:
    """The mean utilization of a host while it trained, from 0 to 1; None where nothing was reported.

    Attributes:
        host: Such as ``"algo-1"``.
        group: Its instance group; None in a job without groups, and where the log does not name it.
        instance_type: Its type.
        cpu: Of its vCPUs.
        gpu: Of its GPUs.
        gpu_memory: Of their memory.
        memory: Of the host's memory.
        disk: Of the volume.
    """

    host: str
    group: str | None
    instance_type: str
    cpu: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None
    memory: float | None = None
    disk: float | None = None


@dataclass(frozen=True)
class FromLog:
    """What the lines say.

    Attributes:
        wait_share: Share of the data service's last epoch in which steps waited for batches; None without its lines.
        hosts_busy: Share of their time in which the data hosts' workers made batches.
        local_busy: The same of the training host's own workers.
        network_mb_per_second: What a rank received.
        compilations: Of graphs, as counted by the training; None if it does not count.
        compile_seconds: That they took.
        recompiled: Lines of torch.compile's that it compiles a function again, with TORCH_LOGS=recompiles.
        checkpoint_seconds: That checkpoints held up the training, where its lines say so.
        steps: Logged steps.
        step_seconds: Of a step, by the logged steps' median pace; None where fewer than two were logged.
        stall_share: Share of the time in which logged steps took more than twice their median; None where few were logged.
        neuron: The mean utilization of NeuronCores, by the lines of ``neuron-monitor``; None without them.
    """

    wait_share: float | None = None
    hosts_busy: float | None = None
    local_busy: float | None = None
    network_mb_per_second: float | None = None
    compilations: int | None = None
    compile_seconds: float | None = None
    recompiled: int = 0
    checkpoint_seconds: float | None = None
    steps: int = 0
    step_seconds: float | None = None
    stall_share: float | None = None
    neuron: float | None = None


@dataclass(frozen=True)
class Evidence:
    """All of a job.

    Attributes:
        hosts: Each host.
        data_group: Name of the group that prepares data; None without one.
        startup_seconds: Before the training began: machines, image, download.
        training_seconds: Of the training so far.
        log: What its lines say.
        profiler: What the rules of SageMaker's profiler found.
    """

    hosts: Sequence[HostUse]
    data_group: str | None = None
    startup_seconds: float = 0.0
    training_seconds: float = 0.0
    log: FromLog = FromLog()
    profiler: ProfilerReport = field(default_factory=ProfilerReport)

    @property
    def training(self) -> list[HostUse]:
        """The hosts that train: those of other groups than the data group."""
        return [it for it in self.hosts if self.data_group is None or it.group != self.data_group]

    @property
    def preparing(self) -> list[HostUse]:
        """The hosts of the data group."""
        return [it for it in self.hosts if self.data_group is not None and it.group == self.data_group]


def mean(hosts: Iterable[HostUse], member: str) -> float | None:
    """Return the mean of a member over hosts; None where none has it.

    Args:
        hosts: The hosts.
        member: Such as ``"cpu"``.
    """
    found = [value for it in hosts if (value := getattr(it, member)) is not None]
    return statistics.fmean(found) if found else None


def read_log(lines: Iterable[tuple[float, str]]) -> FromLog:
    """Return what lines say.

    Args:
        lines: Each with its time in seconds.
    """
    epochs: list[dict[str, float]] = []
    steps: list[tuple[float, int]] = []
    numbers: dict[str, float] = {}
    recompiled, checkpoints = 0, 0.0
    cores: list[float] = []
    for time, line in lines:
        if found := _DATA_SERVICE.search(line):
            epochs.append({name: float(value) for name, value in _PAIR.findall(found.group(1))})
        if (found := _STEP.search(line)) and (not steps or int(found.group(1)) > steps[-1][1]):
            steps.append((time, int(found.group(1))))
        for name, expression in (("compilations", _COMPILATIONS), ("compile_seconds", _COMPILE_TIME)):
            if found := expression.search(line):
                numbers[name] = float(found.group(1))
        recompiled += bool(_RECOMPILED.search(line))
        if found := _CHECKPOINT.search(line):
            checkpoints += float(found.group(1))
        if '"neuroncores_in_use"' in line:
            cores += _core_use(line)
    last = epochs[-1] if epochs else {}
    pairs = list(itertools.pairwise(steps))
    paces = [(after[0] - before[0]) / (after[1] - before[1]) for before, after in pairs]
    median = statistics.median(paces) if paces else None
    stalls = None
    if median and len(paces) >= _LEAST_STEPS:
        counts = [after[1] - before[1] for before, after in pairs]
        lost = sum(count * max(0.0, pace - 2 * median) for count, pace in zip(counts, paces, strict=True))
        stalls = lost / (steps[-1][0] - steps[0][0])

    def share(name: str) -> float | None:
        return last[name] / 100 if name in last else None

    return FromLog(
        wait_share=last["wait_seconds"] / last["epoch_seconds"] if last.get("epoch_seconds") else None,
        hosts_busy=share("hosts_busy_percent") if last.get("hosts") else None,
        local_busy=share("local_busy_percent"),
        network_mb_per_second=last.get("network_mb_per_second"),
        compilations=int(numbers["compilations"]) if "compilations" in numbers else None,
        compile_seconds=numbers.get("compile_seconds"),
        recompiled=recompiled,
        checkpoint_seconds=checkpoints or None,
        steps=len(steps),
        step_seconds=median,
        stall_share=stalls,
        neuron=statistics.fmean(cores) if cores else None,
    )


def _core_use(line: str) -> list[float]:
    """Each NeuronCore's utilization in a report of ``neuron-monitor``, one line of JSON (Neuron Monitor User Guide)."""
    try:
        report = json.loads(line[line.index("{") :])
        runtimes = [one["report"]["neuroncore_counters"]["neuroncores_in_use"] for one in report["neuron_runtime_data"]]
    except (KeyError, TypeError, ValueError):  # no report, or cut off by the log
        return []
    return [core["neuroncore_utilization"] / 100 for cores in runtimes for core in cores.values()]
