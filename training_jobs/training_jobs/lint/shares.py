"""The rules of what each host has of a channel, and what its processes read of that.

AWS's reference of ``S3DataSource``: with ``ShardedByS3Key`` "each instance gets approximately 1/n of the number of S3 objects",
and with ``FullyReplicated`` all of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from training_jobs.lint.program import EVALUATES, TRAINERS, Program, function_around, together
from training_jobs.lint.script import Check, Found, Job, Script, constant, keyword, name_of

_CHANNEL = re.compile(r"^SM_CHANNEL_(.+)$|^/opt/ml/input/data/([^/]+)")
# How many there are among which samples are dealt out.
_ALL = re.compile(r"world_?size|num_processes|global_device_count|num_input_pipelines|\bsize\(\)", re.IGNORECASE)
_OF_HOST = re.compile(r"local_?world_?size|\blocal_size\(\)|(?<!_)device_count\(\)|SM_NUM_GPUS", re.IGNORECASE)
_COUNTS = re.compile(r"islice|take|range|zip|cycle|repeat")  # steps of a loop, whatever the loader has
# What an iterable data set reads, and by what it reads a part of it.
_READS = re.compile(r"open\(|read|glob|listdir|scandir|iterdir|parquet|csv", re.IGNORECASE)
_DIVIDES = re.compile(r"worker|rank|shard|split|world_?size|islice|replica|process|random|parti", re.IGNORECASE)
_LIGHTNING = ("lightning", "pytorch_lightning")
Among = Literal["all", "host", ""]


class _Deal(NamedTuple):
    """What deals samples out among processes.

    Attributes:
        script: That which has it.
        call: It.
        data: What it deals out.
        among: The processes of all hosts, or of each host among themselves; "" where that is not known.
        how: Its name.
        is_sampler: Whether it takes the number of processes and the rank.
    """

    script: Script
    call: ast.Call
    data: Sequence[ast.AST]
    among: Among
    how: str
    is_sampler: bool = False


def _deals(program: Program) -> Iterator[_Deal]:
    imports = set().union(*(script.imports for script in program.scripts))
    lightning = [one for one in _LIGHTNING if one in imports]
    whole = not any("auto_shard" in script.text or "AutoShard" in script.text for script in program.scripts)
    tensorflow = whole and any("MultiWorkerMirroredStrategy" in script.text for script in program.scripts)
    for script, call in program.calls:
        name = name_of(call)
        given = [*call.args, *(one.value for one in call.keywords)]
        trains = [one for one in given if not EVALUATES.search(ast.unparse(one))]
        if name == "DistributedSampler" and given and not script.is_within(call, EVALUATES):
            number = keyword(call, "num_replicas") or next(iter(call.args[1:2]), None)
            yield _Deal(script, call, [keyword(call, "dataset") or given[0]], _among(program, number), name, True)
        elif (
            name == "shard" and isinstance(call.func, ast.Attribute) and given and not script.is_within(call, EVALUATES)
        ):
            number = keyword(call, "num_shards") or given[0]
            yield _Deal(script, call, [call.func.value], _among(program, number), "shard()", True)
        elif name.endswith("Trainer") and (data := keyword(call, "train_dataset")) is not None:
            if script.imported(call.func).startswith(TRAINERS) or name in program.definitions:
                yield _Deal(script, call, [data], "all", name)
        elif name == "prepare" and "accelerate" in imports:
            yield _Deal(script, call, trains, "all", "accelerate")
        elif name == "fit" and ((lightning and _samplers_are_replaced(program)) or tensorflow):
            yield _Deal(script, call, trains, "all", "Lightning" if lightning else "the strategy")
        elif name == "experimental_distribute_dataset" and tensorflow:
            yield _Deal(script, call, trains, "all", "the strategy")


def _samplers_are_replaced(program: Program) -> bool:
    names = ("use_distributed_sampler", "replace_sampler_ddp")
    return not any(constant(keyword(call, name)) is False for _, call in program.calls for name in names)


def _among(program: Program, number: ast.expr | None) -> Among:
    """Among which processes samples are dealt out, by how many there are."""
    if number is None:
        return "all"  # DistributedSampler's default
    found = {_named(one) for one in (program.assigned(number) or [number])}
    return found.pop() if len(found) == 1 else ""


def _named(number: ast.expr) -> Among:
    text = ast.unparse(number)
    if not _OF_HOST.search(text):
        return "all" if _ALL.search(text) else ""
    return "all" if any(isinstance(one, ast.Mult) for one in ast.walk(number)) else "host"


def channels_of_data(program: Program, script: Script, data: Sequence[ast.AST]) -> set[str]:
    """Return the channels from which data are read, in lower case; empty where that is not known.

    Args:
        program: The program.
        script: The script that has the data.
        data: The expressions that are them.
    """
    options = _options(program)
    found, seen, left = set[str](), set[str](), list(data)
    functions = {function_around(script, one) for one in data} - {None}
    while left:
        for node in ast.walk(left.pop()):
            if isinstance(text := constant(node), str) and (channel := _CHANNEL.match(text)):
                found.add((channel[1] or channel[2]).lower())
            name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
            if not name or name in seen:
                continue
            seen.add(name)
            for one in (*program.values.get(name, ()), *program.definitions.get(name, ())):
                left.append(one)
            if isinstance(node, ast.Attribute):
                left += options.get(node.attr, ())
            for function in functions:
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    left += _passed(program, function, name)
    return found


def _passed(program: Program, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[ast.AST]:
    """What calls give a parameter of a function."""
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    for _, call in program.calls if name in names else ():
        if name_of(call) == function.name:
            given = keyword(call, name) or next(iter(call.args[names.index(name) :]), None)
            if given is not None:
                yield given


def _options(program: Program) -> Mapping[str, list[ast.AST]]:
    """What the options of argparse and the fields of classes are by default, by their names."""
    found: dict[str, list[ast.AST]] = {}
    for _, call in program.calls:
        first = constant(call.args[0]) if call.args else None
        if name_of(call) == "add_argument" and isinstance(first, str):
            found.setdefault(first.lstrip("-").replace("-", "_"), []).append(call)
    for script in program.scripts:
        for node in script.nodes:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                found.setdefault(node.target.id, []).append(node.value)
    return found


def share_of(program: Program, script: Script, data: Sequence[ast.AST], job: Job) -> str:
    """Return the channel of which each host has a share, and data are read from; "" where each has all, or that is not known.

    Args:
        program: The program.
        script: The script that has the data.
        data: The expressions that are them.
        job: The job.
    """
    shared = {name.lower(): name for name in job.sharded} if (job.hosts or 1) > 1 else {}
    read = channels_of_data(program, script, data) if shared else set()
    if not read and shared and {*(job.channels or shared.values())} == {*shared.values()}:
        return min(shared.values())  # whatever it reads
    return min((shared[name] for name in read & shared.keys()), default="")


def _all_of(scripts: Sequence[Script]) -> Iterator[Program]:
    if scripts:
        yield Program(scripts[0], tuple(scripts))


def _shares(scripts: Sequence[Script], job: Job) -> Found:
    """With ``ShardedByS3Key`` "model training on each machine uses only the subset", which DistributedSampler deals out again."""
    for program in _all_of(scripts) if job.sharded and (job.hosts or 1) > 1 else ():
        for deal in _deals(program):
            channel = share_of(program, deal.script, deal.data, job) if deal.among == "all" else ""
            if not channel:
                continue
            why = f"each host has a share of the channel {channel!r}, which {deal.how} deals out again among all hosts' processes"
            mend = "distribution='FullyReplicated'"
            if deal.is_sampler and job.processes_per_host == 1:
                mend += ", or without it"
            elif deal.is_sampler:
                mend += ", or by LOCAL_WORLD_SIZE and LOCAL_RANK"
            yield deal.script, deal.call.lineno, f"{why}, so that an epoch has 1/{job.hosts} of its samples: {mend}"


def _sampler_of_host(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's DistributedSampler has ``num_replicas``, "by default, world_size": fewer of them are of one host alone."""
    for program in _all_of(scripts) if (job.hosts or 1) > 1 else ():
        for deal in _deals(program):
            if deal.among == "host" and deal.is_sampler and not share_of(program, deal.script, deal.data, job):
                why = (
                    "each host has all samples, and deals them out among its own processes, so that hosts read the same"
                )
                yield deal.script, deal.call.lineno, f"{why}: deal them out by WORLD_SIZE and RANK"


def _uneven_shares(scripts: Sequence[Script], job: Job) -> Found:
    """Shares are "approximately" equal; DDP's ``join`` is "for training with uneven inputs", whose last steps wait without it."""
    for program in together(scripts, job) if job.sharded and (job.hosts or 1) > 1 else ():
        if not program.wraps or program.agrees:
            continue
        for script in program.scripts:
            for loop in script.step_loops:
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
                return share_of(program, script, [loader], job)
    return ""


def iterables(program: Program) -> set[str]:
    """Return the names of its classes that are PyTorch's IterableDataset, read files, and divide them among nothing.

    Args:
        program: The program.
    """
    found = set[str]()
    for script in program.scripts:
        for node in script.nodes:
            if isinstance(node, ast.ClassDef) and any(map(_is_iterable, map(script.imported, node.bases))):
                text = ast.unparse(node)
                if _READS.search(text) and not _DIVIDES.search(text):
                    found.add(node.name)
    return found


def _is_iterable(name: str) -> bool:
    return name.startswith("torch.utils.data") and name.endswith(".IterableDataset")


def _workers_repeat(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's IterableDataset: each worker has a copy, to be configured "to avoid having duplicate data returned"."""
    for program in _all_of(scripts):
        own, options = iterables(program), _options(program)
        for script, call in program.calls if own else ():
            data = keyword(call, "dataset") or next(iter(call.args), None)
            if name_of(call) != "DataLoader" or data is None or keyword(call, "worker_init_fn") is not None:
                continue
            made = {name_of(one) for one in (data, *program.assigned(data)) if isinstance(one, ast.Call)}
            workers = _number(program, keyword(call, "num_workers"), options)
            if (names := made & own) and workers > 1:
                why = (
                    f"each of {workers} workers reads all of {min(names)}, and an epoch has each sample {workers} times"
                )
                mend = "read the share of torch.utils.data.get_worker_info() in __iter__()"
                yield script, call.lineno, f"{why}: {mend}"


def _number(program: Program, node: ast.expr | None, options: Mapping[str, list[ast.AST]]) -> int:
    """The whole number that an expression is, also by the default of an option; 0 where that is not known."""
    if node is None:
        return 0
    given = [node, *program.assigned(node)]
    for one in options.get(node.attr, ()) if isinstance(node, ast.Attribute) else ():
        default = keyword(one, "default") if isinstance(one, ast.Call) else one
        given += [default] if isinstance(default, ast.expr) else []
    numbers = {value for one in given if type(value := constant(one)) is int}
    return int(numbers.pop()) if len(numbers) == 1 else 0


SHARES: Mapping[str, Check] = {
    "workers-repeat": _workers_repeat,
    "shares": _shares,
    "sampler-of-host": _sampler_of_host,
    "uneven-shares": _uneven_shares,
}
