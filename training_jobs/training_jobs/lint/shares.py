"""The rules of what each host has of a channel, and what its processes read of that.

AWS's reference of ``S3DataSource``: with ``ShardedByS3Key`` "each instance gets approximately 1/n of the number of S3 objects",
and with ``FullyReplicated`` all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from training_jobs.lint.program import EVALUATES, LIGHTNING, TRAINERS, Program, function_around, together, whole
from training_jobs.lint.script import Check, Found, Function, Job, Script, constant, data_of, keyword, name_of

_CHANNEL = re.compile(r"^SM_CHANNEL_(.+)$|^/opt/ml/input/data/([^/]+)")
# How many there are among which samples are dealt out.
_ALL = re.compile(r"world_?size|num_processes|global_device_count|num_input_pipelines|\bsize\(\)", re.IGNORECASE)
_OF_HOST = re.compile(r"local_?world_?size|\blocal_size\(\)|(?<!_)device_count\(\)|SM_NUM_GPUS", re.IGNORECASE)
_LOCAL_RANK = re.compile(r"local_?rank|local_process_index", re.IGNORECASE)
_COUNTS = re.compile(r"islice|take|range|zip|cycle|repeat")  # steps of a loop, whatever the loader has
Among = Literal["all", "host", ""]


class _Sampler(NamedTuple):
    """What deals samples out by the number of processes and the rank.

    Attributes:
        script: That which has it.
        call: It.
        data: What it deals out.
        among: The processes of all hosts, or of each host among themselves; "" where that is not known.
        name: Its name.
        local: Whether it deals them out by the rank on its host.
    """

    script: Script
    call: ast.Call
    data: ast.expr
    among: Among
    name: str
    local: bool


def _samplers(program: Program) -> Iterator[_Sampler]:
    for script, call in program.calls:
        name = name_of(call)
        if name not in ("DistributedSampler", "shard") or script.is_within(call, EVALUATES):
            continue
        if name == "DistributedSampler" and (data := data_of(call)) is not None:
            number = keyword(call, "num_replicas") or next(iter(call.args[1:2]), None)
            among = "all" if number is None else _among(program, number)  # by default, world_size
            rank = keyword(call, "rank") or next(iter(call.args[2:3]), None)
            yield _Sampler(script, call, data, among, name, _is_of_host(program, rank))
        elif isinstance(call.func, ast.Attribute):
            number = keyword(call, "num_shards") or next(iter(call.args[:1]), None)
            if number is not None:
                rank = keyword(call, "index") or next(iter(call.args[1:2]), None)
                local = _is_of_host(program, rank)
                yield _Sampler(script, call, call.func.value, _among(program, number), "shard()", local)


def _among(program: Program, number: ast.expr) -> Among:
    """Among which processes samples are dealt out, by how many there are."""
    found = {_named(one) for one in (program.assigned(number) or [number])}
    return found.pop() if len(found) == 1 else ""


def _is_of_host(program: Program, rank: ast.expr | None) -> bool:
    """Whether a rank is certainly one on its host."""
    values = [] if rank is None else (program.assigned(rank) or [rank])
    return bool(values) and all(_LOCAL_RANK.search(ast.unparse(one)) for one in values)


def _named(number: ast.expr) -> Among:
    text = ast.unparse(number)
    if not _OF_HOST.search(text):
        return "all" if _ALL.search(text) else ""
    return "all" if any(isinstance(one, ast.Mult) for one in ast.walk(number)) else "host"


def _by_libraries(program: Program) -> Iterator[tuple[Script, ast.Call, list[ast.expr], str]]:
    """The calls by which libraries deal samples out among all processes, with what they are given to train, and their names."""
    imports = set().union(*(script.imports for script in program.scripts))
    lightning = any(one in imports for one in LIGHTNING) and _replaces_samplers(program)
    tensorflow = any("MultiWorkerMirroredStrategy" in script.text for script in program.scripts) and not any(
        "auto_shard" in script.text or "AutoShard" in script.text for script in program.scripts
    )
    for script, call in program.calls:
        name, trains = name_of(call), keyword(call, "train_dataset")
        own = name in program.definitions
        if name.endswith("Trainer") and trains is not None and (own or script.imported(call.func).startswith(TRAINERS)):
            yield script, call, [trains], name
        elif name == "prepare" and "accelerate" in imports:
            yield script, call, _trained(call), "accelerate"
        elif name == "fit" and lightning:
            yield script, call, _trained(call), "Lightning"
        elif name in ("fit", "experimental_distribute_dataset") and tensorflow:
            yield script, call, _trained(call), "the strategy"


def _replaces_samplers(program: Program) -> bool:
    names = ("use_distributed_sampler", "replace_sampler_ddp")
    return not any(constant(keyword(call, name)) is False for _, call in program.calls for name in names)


def _trained(call: ast.Call) -> list[ast.expr]:
    given = [*call.args, *(one.value for one in call.keywords)]
    return [one for one in given if not EVALUATES.search(ast.unparse(one))]


def share_of(program: Program, job: Job, script: Script, *data: ast.expr | None) -> str:
    """Return the channel of which each host has a share, and data are read from; "" where each has all, or that is not known.

    Args:
        program: The program.
        job: The job.
        script: The script that has the data.
        data: The expressions that are them; None for none.
    """
    if not job.shared_channels:
        return ""
    read = _channels(program, script, [one for one in data if one is not None])
    if not read and {*(job.channels or job.sharded)} == {*job.sharded}:
        return min(job.sharded)  # whatever it reads
    return min((name for name in job.sharded if name.lower() in read), default="")


def _channels(program: Program, script: Script, data: Sequence[ast.expr]) -> set[str]:
    """The channels from which data are read, in lower case; empty where that is not known."""
    functions = [function for one in data if (function := function_around(script, one)) is not None]

    def passed(name: str) -> Iterable[ast.AST]:
        yield from program.defaults.get(name.rpartition(".")[2], ()) if "." in name else ()
        for function in functions:
            yield from _passed(program, function, name)

    texts = (constant(node) for node in program.reached(data, passed))
    found = (_CHANNEL.match(text) for text in texts if isinstance(text, str))
    return {(channel[1] or channel[2]).lower() for channel in found if channel is not None}


def _passed(program: Program, function: Function, name: str) -> Iterator[ast.AST]:
    """What calls give a parameter of a function."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    for _, call in program.calls if name in names else ():
        if name_of(call) == function.name:
            given = keyword(call, name) or next(iter(call.args[names.index(name) :]), None)
            if given is not None:
                yield given


def _shares(scripts: Sequence[Script], job: Job) -> Found:
    """With ``ShardedByS3Key`` "model training on each machine uses only the subset", which DistributedSampler deals out again."""
    if not job.shared_channels:
        return
    program = whole(tuple(scripts))
    by_rank = "without it" if job.processes_per_host == 1 else "by LOCAL_WORLD_SIZE and LOCAL_RANK"
    deals = [
        (one.script, one.call, [one.data], one.name, f", or {by_rank}")
        for one in _samplers(program)
        if one.among == "all"
    ]
    deals += [(*one, "") for one in _by_libraries(program)]
    for script, call, data, name, other in deals:
        if channel := share_of(program, job, script, *data):
            why = f"each host has a share of the channel {channel!r}, which {name} deals out again among all hosts' processes"
            mend = f"distribution='FullyReplicated'{other}"
            yield script, call.lineno, f"{why}, so that an epoch has 1/{job.hosts} of its samples: {mend}"


def _sampler_of_host(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's DistributedSampler has ``num_replicas``, "by default, world_size": fewer of them are of one host alone."""
    if (job.hosts or 1) == 1:
        return
    program = whole(tuple(scripts))
    for one in _samplers(program):
        if one.among == "host" and not share_of(program, job, one.script, one.data):
            why = "each host has all samples, and deals them out among its own processes, so that hosts read the same"
            yield one.script, one.call.lineno, f"{why}: deal them out by WORLD_SIZE and RANK"
        elif one.among == "all" and one.local:
            why = "deals out among the processes of all hosts by a rank on one, so that hosts read the same samples"
            yield one.script, one.call.lineno, f"{why}, and nobody the others: deal them out by RANK"


def _uneven_shares(scripts: Sequence[Script], job: Job) -> Found:
    """Shares are "approximately" equal; DDP's ``join`` is "for training with uneven inputs", whose last steps wait without it."""
    for program in together(scripts, job) if job.shared_channels else ():
        waits = program.wraps and not program.agrees
        loops = ((script, loop) for script in program.scripts for loop in script.step_loops if waits)
        for script, loop in loops:
            if isinstance(loop, ast.For) and (channel := _loaded_share(program, script, loop, job)):
                why = f"hosts' shares of the channel {channel!r} may differ, and a host that makes a step more waits for ever"
                mend = "loop in `with Join([model]):`, or as often on each by all_reduce() and itertools.islice()"
                yield script, loop.lineno, f"{why}: {mend}"


def _loaded_share(program: Program, script: Script, loop: ast.For, job: Job) -> str:
    """The channel of which each host has a share, and a loop reads all by a loader; "" where that is not certain."""
    if any(isinstance(one, ast.Break) for one in ast.walk(loop)) or _COUNTS.search(ast.unparse(loop.iter)):
        return ""
    for name in (one for one in ast.walk(loop.iter) if isinstance(one, ast.Name)):
        for loader in program.assigned(name):
            if isinstance(loader, ast.Call) and name_of(loader) == "DataLoader":
                return share_of(program, job, script, data_of(loader))
    return ""


def _workers_repeat(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's IterableDataset: each worker has a copy, to be configured "to avoid having duplicate data returned"."""
    program = whole(tuple(scripts))
    for script, call in program.calls if program.iterables else ():
        data, divides = data_of(call), keyword(call, "worker_init_fn") is not None
        if name_of(call) != "DataLoader" or data is None or divides:
            continue
        name, workers = program.iterable_of(data), _number(program, keyword(call, "num_workers"))
        if name and workers > 1:
            why = f"each of {workers} workers reads all of {name}, and an epoch has each sample {workers} times"
            yield script, call.lineno, f"{why}: read the share of torch.utils.data.get_worker_info() in __iter__()"


def _number(program: Program, node: ast.expr | None) -> int:
    """The whole number that an expression is, also by the default of an option; 0 where that is not known."""
    if node is None:
        return 0
    defaults = program.defaults.get(node.attr, ()) if isinstance(node, ast.Attribute) else ()
    numbers = {value for one in (node, *program.assigned(node), *defaults) if type(value := constant(one)) is int}
    return int(numbers.pop()) if len(numbers) == 1 else 0


SHARES: Mapping[str, Check] = {
    "workers-repeat": _workers_repeat,
    "shares": _shares,
    "sampler-of-host": _sampler_of_host,
    "uneven-shares": _uneven_shares,
}
