"""The rules of scripts that are right on one machine: each host has devices, a disk, and maybe a training of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from training_jobs.lint.distributed import SETS
from training_jobs.lint.program import LIGHTNING, TRAINERS, Program, conditions, programs, side_of, started
from training_jobs.lint.script import Check, Found, Job, Script, constant, keyword, name_of
from training_jobs.lint.wrapped import DDP

_GLOBAL_RANK = re.compile(r"(?:dist|distributed)\.get_rank\(\)$|environ\W+(?:get\W+)?RANK\b[^%]*$")
_LIGHTNING = re.compile(rf"(?:{'|'.join(LIGHTNING)})\.(?:\w+\.)*(?:Trainer|Fabric)")
_ACCELERATE = re.compile(r"accelerate\.(?:\w+\.)*Accelerator")
# By what a library is told of the other processes, beside a launcher's variables.
_TOLD = re.compile(r"MASTER_ADDR|cluster_environment|ClusterEnvironment|InitProcessGroupKwargs")
# What libraries are told on machines without a GPU, and by what else they may be.
_TELLS_CPU = {"transformers' Trainer": "TrainingArguments(use_cpu=True)", "accelerate": "Accelerator(cpu=True)"}
_SAYS_CPU = re.compile(r"\b(?:use_cpu|no_cuda|cpu)\s*=(?!\s*False)|ACCELERATE_USE_CPU|HfArgumentParser|TrlParser")


def _apart(scripts: Sequence[Script], job: Job) -> Found:
    """Torchrun's "Environment Variables": WORLD_SIZE is a launcher's; without one each library has one process, or one host's."""
    if (job.hosts or 1) == 1 or job.launched is not False:
        return
    program = started(scripts, job.entry_point)
    if program.mentions(SETS) or program.mentions(_TOLD):
        return
    for script, call, library in _libraries(program):
        why = f"{library} joins no processes of other hosts without a launcher, so that each of the {job.hosts} hosts trains"
        how = "launcher=Mpi()" if library == "Horovod" else "launcher=Torchrun()"
        if job.device == "cpu" and library in _TELLS_CPU:
            how += f" and {_TELLS_CPU[library]}"
        yield script, call.lineno, f"{why} a model of its own on all samples: {how}, or one host"
        return


def _use_cpu(scripts: Sequence[Script], job: Job) -> Found:
    """Accelerate's ``PartialState._prepare_backend``: without a GPU, processes join each other with ``cpu=True`` alone."""
    if not job.launched or job.device != "cpu" or (job.processes or 1) == 1:
        return
    program = started(scripts, job.entry_point)
    if program.mentions(_SAYS_CPU):
        return
    for script, call, library in _libraries(program):
        if library in _TELLS_CPU:
            why = f"without a GPU {library} joins no processes, and each of the {job.processes} trains a model of its own on all"
            yield script, call.lineno, f"{why} samples, unless it is told: {_TELLS_CPU[library]}"
            return


def _libraries(program: Program) -> Iterator[tuple[Script, ast.Call, str]]:
    """The calls of the libraries that train on several hosts where a launcher says so, with their names."""
    for script, call in program.calls:
        if library := _library(program, script, call):
            yield script, call, library


def _library(program: Program, script: Script, call: ast.Call) -> str:
    """The library that trains on several hosts where a launcher says so; "" for other calls."""
    whole = script.imported(call.func)
    bases = [
        base
        for one in program.definitions.get(name_of(call), [])
        if isinstance(one, ast.ClassDef)
        for base in one.bases
    ]
    names = [whole, *(one.imported(base) for base in bases for one in program.scripts)]
    if any(name.startswith(TRAINERS) and name.endswith("Trainer") for name in names):
        return "transformers' Trainer"
    if _ACCELERATE.fullmatch(whole):
        return "accelerate"
    if _LIGHTNING.fullmatch(whole):
        return "Lightning"
    return "Horovod" if whole.startswith("horovod.") and name_of(call) == "init" else ""


def _lightning_processes(scripts: Sequence[Script], job: Job) -> Found:
    """Lightning's ``TorchElasticEnvironment``: devices * num_nodes must be the world size, which one device does not ask for."""
    if not job.launched or job.hosts is None or job.processes_per_host is None:
        return
    for script, call in started(scripts, job.entry_point).calls:
        if not _LIGHTNING.fullmatch(script.imported(call.func)) or any(one.arg is None for one in call.keywords):
            continue
        devices, nodes = keyword(call, "devices"), keyword(call, "num_nodes")
        each = job.processes_per_host if devices is None or constant(devices) == "auto" else constant(devices)
        number = 1 if nodes is None else constant(nodes)
        if isinstance(each, int) and isinstance(number, int) and each * number != job.processes:
            alone = each * number == 1 and constant(keyword(call, "strategy")) in (None, "auto")
            why = f"devices={each} and num_nodes={number} are {each * number} of torchrun's {job.processes} processes"
            end = (
                "each of which trains a model of its own on all samples"
                if alone
                else "at which Lightning ends with a ValueError"
            )
            how = f"Trainer(devices={job.processes_per_host}, num_nodes={job.hosts})"
            yield script, call.lineno, f"{why}, {end}: {how}"


def _device_of_rank(scripts: Sequence[Script], job: Job) -> Found:
    """Torchrun's "Environment Variables": RANK is among all hosts, LOCAL_RANK among the processes of one, as devices are."""
    for program in programs(scripts, job.entry_point) if (job.hosts or 1) > 1 and job.device != "cpu" else ():
        for script, call in program.calls:
            for given in _devices(call):
                values = program.assigned(given) or [given]
                if all(_GLOBAL_RANK.search(ast.unparse(one)) for one in values):
                    why = f"{ast.unparse(given)} counts the processes of all hosts, and the second host has no such device"
                    yield script, call.lineno, f"{why}: int(os.environ['LOCAL_RANK'])"
                    return


def _devices(call: ast.Call) -> Iterator[ast.expr]:
    """The numbers of devices that a call is given."""
    name, first = name_of(call), next(iter(call.args), None)
    if name in ("set_device", "cuda", "to") and first is not None:
        yield first
    elif name == "device" and constant(first) == "cuda":
        yield from call.args[1:2]
    elif name in DDP and isinstance(ids := keyword(call, "device_ids"), ast.List):
        yield from ids.elts
    for part in call.args:
        if isinstance(part, ast.JoinedStr) and constant(part.values[0]) == "cuda:":
            yield from (one.value for one in part.values[1:2] if isinstance(one, ast.FormattedValue))


def _one_host_prepares(scripts: Sequence[Script], job: Job) -> Found:
    """Transformers' ``main_process_first``: where "the filesystem is not shared", "the main process of each node" prepares."""
    for program in programs(scripts, job.entry_point) if (job.hosts or 1) > 1 else ():
        for script, call in program.calls:
            if constant(keyword(call, "download")) is not True or side_of(script, call) != "one":
                continue
            tests = [ast.unparse(test) for test, _ in conditions(script, call)]
            again = [
                other
                for other_script, other in program.calls
                if other is not call and name_of(other) == name_of(call) and not side_of(other_script, other)
            ]
            reads = again and all(constant(keyword(other, "download")) is not True for other in again)
            if reads and not any("local" in test.lower() for test in tests):
                why = "rank 0 alone downloads it, and the other hosts have disks of their own"
                yield script, call.lineno, f"{why}: do so where LOCAL_RANK is 0"


HOSTS: Mapping[str, Check] = {
    "apart": _apart,
    "use-cpu": _use_cpu,
    "lightning-processes": _lightning_processes,
    "device-of-rank": _device_of_rank,
    "one-host-prepares": _one_host_prepares,
}
