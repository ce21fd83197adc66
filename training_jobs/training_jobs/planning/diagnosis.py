"""What bounds a job, by rules over its evidence, in the order of AWS's article on heterogeneous clusters.

The article's order, "When to use heterogeneous clusters, and other alternatives": a CPU bottleneck is first met by a larger type
of the same family, then by preprocessing on the GPU (DALI), then by data hosts. Shares are means over the training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from training_jobs.facts.instance_facts import instance_facts, next_with_more_vcpus
from training_jobs.planning.evidence import Evidence, HostUse, mean
from training_jobs.planning.prices import snapshot_price
from training_jobs.planning.profiler_report import ADVICE
from training_jobs.planning.step_time import Configuration, Machines

WAITS = 0.05  # of the time: from which waiting for batches counts
BUSY, GPU_BUSY, GPU_IDLE = 0.80, 0.90, 0.60  # AWS's example has its vCPUs "close to 80%" busy with GPUs at 74 %
FULL = 0.95  # of the accelerators' memory; of vCPUs beside accelerators that are not busy
MINUTE = 60.0
LOST = 0.10  # of the training: compilations, checkpoints
SLOWER = 0.25  # of its group's median: a host whose utilization differs by more
DATA_TYPE = "ml.c5.18xlarge"  # of data hosts where there are none yet, as in AWS's example


@dataclass(frozen=True)
class Finding:
    """One thing that bounds the job or costs money.

    Attributes:
        bound: ``data_cpu``, ``network``, ``input``, ``accelerator``, ``accelerator_memory``, ``compilation``, ``slow_host``,
            ``checkpoints``, ``start_up``, ``idle_data_group``, ``small_batch`` or ``profiler``.
        evidence: What shows it.
        advice: What to do, in order.
        change: The machines to take instead; None where they are not the matter.
    """

    bound: str
    evidence: str
    advice: str
    change: Configuration | None = None


def diagnose(evidence: Evidence, configuration: Configuration | None = None) -> list[Finding]:
    """Return what stands out, the most important first; empty where nothing does.

    Args:
        evidence: Of the job.
        configuration: Its machines, for the change; None where the job's are others than one type that trains, with data hosts.
    """
    found = [rule(evidence, configuration) for rule in _RULES]
    return [one for one in found if one is not None]


def _start_up(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    whole = evidence.startup_seconds + evidence.training_seconds
    if evidence.startup_seconds < MINUTE or evidence.startup_seconds <= evidence.training_seconds:
        return None
    return Finding(
        "start_up",
        f"{evidence.startup_seconds:.0f} of {whole:.0f} s passed before the training began",
        'a warm pool for jobs that follow each other, a smaller image, or input_mode="FastFile" in place of a download',
    )


def _compilation(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    log = evidence.log
    share = (log.compile_seconds or 0) / evidence.training_seconds if evidence.training_seconds else 0.0
    if share < LOST and not log.recompiled:
        return None
    counted = "" if log.compilations is None else f"{log.compilations} compilations; "
    again = f"{log.recompiled} lines say that a function is compiled again; " if log.recompiled else ""
    return Finding(
        "compilation",
        f"{counted}{again}{share:.0%} of the training was compilation",
        "batches of one shape (drop_last=True, padding to few lengths), or TorchCompile(dynamic=True); TORCH_LOGS=recompiles "
        "says why",
    )


def _checkpoints(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    log, seconds = evidence.log, evidence.log.checkpoint_seconds or 0.0
    if evidence.training_seconds and seconds / evidence.training_seconds >= LOST:
        seen = f"checkpoints held up the training for {seconds:.0f} of {evidence.training_seconds:.0f} s"
    elif (log.stall_share or 0.0) >= LOST and (log.wait_share or 0.0) < WAITS:
        seen = f"{log.stall_share:.0%} of the time a few steps took more than twice as long as most, and not for data"
    else:
        return None
    return Finding(
        "checkpoints",
        seen,
        "write them in the background (torch.distributed.checkpoint.async_save), or less often",
    )


def _slow_host(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    for hosts in (evidence.training, evidence.preparing):
        member = "cpu" if mean(hosts, "gpu") is None else "gpu"
        one = _outlier(hosts, member)
        if one is not None:
            value, others = getattr(one, member), [it for it in hosts if it is not one]
            return Finding(
                "slow_host",
                f"{one.host} ({one.instance_type}) uses {value:.0%} of its {_NAMES[member]}, its group's others "
                f"{mean(others, member):.0%}",
                f"look at its lines (`training-jobs logs --host {one.host}`): in each step all hosts wait for a slow one; stop "
                "the job, so that it goes on from its checkpoint on other machines",
            )
    return None


def _accelerator_memory(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    used = mean(evidence.training, "gpu_memory")
    if used is None or used < FULL:
        return None
    return Finding(
        "accelerator_memory",
        f"{used:.0%} of the accelerators' memory is used",
        "activation checkpointing, FSDP2 or a type with more memory before a larger batch: `training-jobs fits` predicts each",
    )


def _data(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    """Steps wait for batches: because of vCPUs, the network, or storage and too few workers.

    Without lines that say so, accelerators that are below 60 % busy wait where vCPUs are at 80 %, and such below 90 % where vCPUs
    are full: the article's PyTorch example has its vCPUs at 98 to 100 % and its GPU half idle.
    """
    log, busy_cores, cores = evidence.log, mean(evidence.training, "gpu"), "GPUs"
    if busy_cores is None and _on_neuron(evidence):
        busy_cores, cores = log.neuron, "NeuronCores"
    here, there = mean(evidence.training, "cpu"), mean(evidence.preparing, "cpu")
    busy = log.hosts_busy if log.hosts_busy is not None else there
    waiting = log.wait_share is not None and log.wait_share >= WAITS
    prepares = (busy or 0.0) if evidence.preparing else (here or 0.0)
    starved = busy_cores is not None and busy_cores < GPU_IDLE and max(busy or 0.0, prepares) >= BUSY
    half_starved = busy_cores is not None and busy_cores < GPU_BUSY and not evidence.preparing and prepares >= FULL
    unseen = busy_cores is None and _on_neuron(evidence) and not evidence.preparing and prepares >= FULL
    if not waiting and (log.wait_share is not None or not (starved or half_starved or unseen)):
        return None
    seen = [f"steps wait for batches {log.wait_share:.0%} of the time"] if log.wait_share is not None else []
    seen += [f"{cores} are {busy_cores:.0%} busy"] if busy_cores is not None else []
    if evidence.preparing:
        return _data_hosts(evidence, configuration, seen, busy, busy_cores)
    seen += [f"vCPUs {here:.0%}"] if here is not None else []
    seen += ["NeuronCores unknown, since CloudWatch does not have them: log `neuron-monitor`"] if unseen else []
    local = log.local_busy if log.local_busy is not None else here
    if local is not None and local < BUSY:
        return Finding(
            "input",
            ", ".join(seen),
            'more worker processes (num_workers), or faster input: input_mode="FastFile", FsxLustreChannel, larger files',
        )
    if _on_neuron(evidence):
        ahead = "prepare ahead of the training (tokens or decoded samples in S3), more workers behind a device loader"
        return Finding("data_cpu", ", ".join(seen), f"{ahead} (MpDeviceLoader), then more vCPUs for each NeuronCore")
    change = _scaled_up(configuration) or _with_data_hosts(configuration, busy_cores, log.wait_share)
    return Finding("data_cpu", ", ".join(seen), _cpu_advice(configuration), change)


def _data_hosts(
    evidence: Evidence, configuration: Configuration | None, seen: list[str], busy: float | None, gpu: float | None
) -> Finding:
    log = evidence.log
    if busy is None:
        return Finding(
            "input",
            ", ".join(seen),
            "whether the data hosts' vCPUs or the network are the limit was not measured: look at their CPUUtilization, or "
            "let an epoch take longer",
        )
    seen += [f"data hosts' workers {busy:.0%}"]
    if busy < BUSY:
        seen += [f"a rank receives {log.network_mb_per_second:.0f} MB/s"] if log.network_mb_per_second else []
        return Finding(
            "network",
            ", ".join(seen),
            "data hosts of a type with more network, smaller samples (uint8 in place of float32, decoded on the GPU), or a "
            "higher look_ahead",
            _with_network(configuration),
        )
    more = "more data hosts, after faster preprocessing (DALI on the GPU where it is not the limit)"
    return Finding("data_cpu", ", ".join(seen), more, _with_data_hosts(configuration, gpu, log.wait_share))


def _cpu_advice(configuration: Configuration | None) -> str:
    """The article's order, with the family's larger member and what each costs an hour, where that is known."""
    dali = "then preprocessing on the GPU (NVIDIA DALI: decoding and augmentation)"
    hosts = f"then data hosts ({DATA_TYPE}{_price(DATA_TYPE)})"
    larger = _scaled_up(configuration)
    if configuration is None:
        return f"first a larger type of the family with as many accelerators, {dali}, {hosts}"
    own = configuration.train
    if larger is None:
        return (
            f"no type of the family has more vCPUs for as many accelerators as {own.instance_type}: {dali[5:]}, {hosts}"
        )
    kind = larger.train.instance_type
    vcpus = f"{larger.train.facts.vcpus} vCPUs in place of {own.facts.vcpus}"
    beside = f"{kind}, {vcpus}{_price(kind)}{_price(own.instance_type, ' in place of')}"
    return f"first the family's larger type with as many accelerators ({beside}), {dali}, {hosts}"


def _price(instance_type: str, before: str = ",") -> str:
    dollars = snapshot_price(instance_type)
    return "" if dollars is None else f"{before} ${dollars:g} an hour"


def _on_neuron(evidence: Evidence) -> bool:
    facts = [instance_facts(host.instance_type) for host in evidence.training]
    return bool(facts) and all(one is not None and one.kind == "neuron" for one in facts)


def _profiler(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    """What the rules of SageMaker's profiler found beside what others found here."""
    found = {name: counts for name, counts in evidence.profiler.triggered.items() if name in ADVICE}
    if not found:
        return None
    seen = (f"{name} {count} times" + (f" of {points}" if points else "") for name, (count, points) in found.items())
    return Finding(
        "profiler", f"SageMaker's profiler reports {', '.join(seen)}", "; ".join(ADVICE[name] for name in found)
    )


def _idle_data_group(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    log = evidence.log
    busy = log.hosts_busy if log.hosts_busy is not None else mean(evidence.preparing, "cpu")
    count = len(evidence.preparing)
    if not count or busy is None or (log.wait_share or 0.0) >= WAITS:
        return None
    needed = max(1, math.ceil(count * busy / BUSY))
    if needed >= count and busy > 0.3:
        return None
    change = None
    if configuration is not None and configuration.data is not None:
        fewer = Machines(configuration.data.instance_type, needed) if needed < count else None
        change = Configuration(configuration.train, fewer, configuration.spot)
    return Finding(
        "idle_data_group",
        f"the data hosts are {busy:.0%} busy, and steps do not wait for them",
        f"{needed} of {count} data hosts would do" if needed < count else "a smaller type of data host, or none",
        change,
    )


def _small_batch(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    gpu, memory = mean(evidence.training, "gpu"), mean(evidence.training, "gpu_memory")
    if gpu is None or gpu >= GPU_IDLE or memory is None or memory >= 0.5 or (evidence.log.wait_share or 0.0) >= WAITS:
        return None
    return Finding(
        "small_batch",
        f"GPUs are {gpu:.0%} busy with {memory:.0%} of their memory used, and steps do not wait for data",
        "a larger batch with a learning rate raised as much, TorchCompile(), or a smaller type",
    )


def _accelerator(evidence: Evidence, configuration: Configuration | None) -> Finding | None:
    gpu, cores = mean(evidence.training, "gpu"), "GPUs"
    if gpu is None and _on_neuron(evidence):
        gpu, cores = evidence.log.neuron, "NeuronCores"
    if gpu is None or gpu < GPU_BUSY:
        return None
    return Finding(
        "accelerator",
        f"{cores} are {gpu:.0%} busy: the machines are used for what they cost",
        "to be faster: bf16, TorchCompile(), a newer accelerator, then more of them (one machine before several)",
    )


# The first that is found names the bound. What a job loses before and beside its steps goes first, then what starves steps.
_RULES: Sequence[Callable[[Evidence, Configuration | None], Finding | None]] = (
    _start_up,
    _compilation,
    _checkpoints,
    _slow_host,
    _data,
    _accelerator_memory,
    _idle_data_group,
    _small_batch,
    _profiler,
    _accelerator,
)
_NAMES = {"gpu": "GPUs", "cpu": "vCPUs"}


def _outlier(hosts: Sequence[HostUse], member: str) -> HostUse | None:
    """The host whose utilization differs most from all others', which are alike; None where none does."""
    known = [it for it in hosts if getattr(it, member) is not None]
    if len(known) < 3:
        return None
    values = {it.host: getattr(it, member) for it in known}
    middle = sorted(values.values())[len(values) // 2]
    far = [it for it in known if abs(values[it.host] - middle) > SLOWER]
    return far[0] if len(far) == 1 else None


def _scaled_up(configuration: Configuration | None) -> Configuration | None:
    """The next larger type of the family with as many accelerators."""
    if configuration is None:
        return None
    larger = next_with_more_vcpus(configuration.train.instance_type)
    if larger is None:
        return None
    return Configuration(Machines(larger, configuration.train.count), configuration.data, configuration.spot)


def _with_data_hosts(
    configuration: Configuration | None, gpu: float | None, wait_share: float | None
) -> Configuration | None:
    """As many data hosts as GPUs that are not to wait take, of those that there are or of ``DATA_TYPE``."""
    if configuration is None:
        return None
    busy = 1 - wait_share if wait_share is not None else gpu
    if busy is None:
        return None
    data = configuration.data
    kind = data.instance_type if data is not None else DATA_TYPE
    vcpus = configuration.train.vcpus if data is None else data.vcpus
    facts = instance_facts(kind)
    assert facts is not None
    assert facts.vcpus
    more = max(1, math.ceil(vcpus * (1 / max(busy, 0.1) - 1) / facts.vcpus))
    count = more + (0 if data is None else data.count)
    return Configuration(configuration.train, Machines(kind, count), configuration.spot)


def _with_network(configuration: Configuration | None) -> Configuration | None:
    """Data hosts of the family's network type, like c5n for c5, where there is one."""
    if configuration is None or configuration.data is None:
        return None
    family, _, size = configuration.data.instance_type.rpartition(".")
    kind = f"{family}n.{size}"
    facts = instance_facts(kind)
    if facts is None or not facts.network_gbps or facts.network_gbps <= (configuration.data.facts.network_gbps or 0):
        return None
    return Configuration(configuration.train, Machines(kind, configuration.data.count), configuration.spot)
