"""The rules of loops that are written by hand: what trains apart, with wrong gradients, or waits for ever.

Each has its source in its docstring. Where a library trains, like accelerate, they say nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from training_jobs.lint.program import (
    EVALUATES,
    STARTS,
    Program,
    are_opposite,
    are_together,
    conditions,
    function_around,
    is_alone,
    parameters_of,
    programs,
    side_of,
    statements_before,
    together,
)
from training_jobs.lint.script import (
    Check,
    Found,
    Job,
    Script,
    constant,
    data_of,
    keyword,
    name_of,
    variable_read,
    versions_of,
    whole_name,
)
from training_jobs.lint.shares import share_of

SHARDING = ("FullyShardedDataParallel", "FSDP", "fully_shard")
_COLLECTIVES = re.compile(
    r"(?:monitored_)?barrier|all_(?:gather|reduce|to_all)\w*|(?:broadcast|gather|reduce|scatter)\w*|new_group"
)
_COLLECTIVES_OF_XLA = ("rendezvous", "mesh_reduce", "collective_broadcast", "optimizer_step")
_OF_SHARDED = ("state_dict", "clip_grad_norm_")
# How many processes a host has, and which one of them it is, by torchrun's variables.
OF_HOST = ("int(os.environ['LOCAL_WORLD_SIZE'])", "int(os.environ['LOCAL_RANK'])")
# What has another value on each process.
OF_PROCESS = re.compile(r"\b\w*rank\b|ordinal|process_index", re.IGNORECASE)
_RANK = re.compile(rf"{OF_PROCESS.pattern}|world_size", re.IGNORECASE)
# What may ask whether it is the one process that writes.
_MAY_BE_ONE = re.compile(
    r"rank|master|is_main|main_(?:process|node)|on_main|primary|chief|coordinator|process_(?:zero|index)|leader|ordinal|gpu"
    r"|\bis_root",
    re.IGNORECASE,
)
_SEEDS = ("manual_seed", "manual_seed_all", "seed", "seed_everything", "set_seed", "default_rng", "Generator")
_DEALS = re.compile(r"shard$|^split_\w*by|webdataset|iterabledataset", re.IGNORECASE)
_DEALT = re.compile(r"shard|split_\w*by|replica|stream|iterable|\bwds\b|rank|ordinal|world_size|sampler", re.IGNORECASE)
_SAMPLER = re.compile(r"\b\w*sampler\b", re.IGNORECASE)
# Samplers that have all samples, on each process.
_OF_ALL = {"randomsampler", "sequentialsampler", "weightedrandomsampler", "subsetrandomsampler"}
_STRATEGIES = re.compile(
    r"multi_?worker|parameter_?server|collective_?all|horovod|^hvd$|smdistributed|dtensor|tpustrategy|distribution|devicemesh|^ray$",
    re.IGNORECASE,
)
OPTIMIZER = re.compile(r"adam|sgd|optim|lion|adafactor|rmsprop|lamb", re.IGNORECASE)
_ZEROES = re.compile(r"zero_?grad|(?:clear|reset)_grad|\.grad\s*=\s*None|\.grad(?:\.data)?\.(?:zero_|fill_|mul_|copy_)")
_OF_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
SETS = re.compile(
    r"""environ\[["']\w*(?:RANK|WORLD_SIZE)["']\]\s*=(?!=)|setdefault\(\s*["']\w*RANK|["']\w*RANK["']\s+(?:not )?in\b"""
    r"|environ\.update|putenv|spawn\(|start_processes|torchrun|torch\.distributed\.(?:run|launch)|subprocess|set_env"
)
_PICKS = re.compile(
    r"local_?rank|set_device|device_id|local_process|current_device|device_mesh|cuda_visible|gpu_id|dev_id|device_count\(",
    re.I,
)
_ON_MAY_BE_ONE = re.compile(r"""\.cuda\(\)|["']cuda(?::0)?["']""")
_OF_HOSTS = re.compile(r"hosts|num_nodes|nnodes|node_rank|host_rank", re.IGNORECASE)


def _collective(scripts: Sequence[Script], job: Job) -> Found:
    """torch.distributed: "Collective communication functions": each process of the group calls them, or the others wait.

    So do ``torch.distributed.checkpoint.save``, the forward and the ``state_dict`` of a sharded model (FSDP).
    """
    for script in () if is_alone(scripts, job) else scripts:
        sharded = _sharded(script)
        waiting = {
            name
            for name, function in script.functions.items()
            if any(
                function_around(script, call) is function and not side_of(script, call)
                for call in ast.walk(function)
                if isinstance(call, ast.Call) and _is_collective(script, call)
            )
        }
        found = [
            (call, side_of(script, call))
            for call in script.calls
            if _is_collective(script, call) or script.called_here(call) in waiting or _gathers(call, sharded)
        ]
        for call, side in found:
            if side and not any(are_opposite(side, other) for _, other in found):
                ranks = "rank 0 alone" if side == "one" else "all ranks but 0"
                why = "the others wait for it, or it for them, until a timeout ends the job: call it on all ranks"
                yield script, call.lineno, f"{whole_name(call)}() on {ranks}: {why}"


def _sharded(script: Script) -> set[str]:
    """The names of models that are sharded."""
    wraps = [call for call in script.calls if name_of(call) in SHARDING and call.args]
    names = {ast.unparse(call.args[0]) for call in wraps if name_of(call) == "fully_shard"}
    return names | {
        ast.unparse(target)
        for node in script.nodes
        if isinstance(node, ast.Assign) and node.value in wraps
        for target in node.targets
    }


def _gathers(call: ast.Call, sharded: set[str]) -> bool:
    """Whether a call gathers the parameters of a sharded model."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _OF_SHARDED:
        function = function.value
    return bool(sharded) and ast.unparse(function) in sharded


def _is_collective(script: Script, call: ast.Call) -> bool:
    """Whether all processes must make a call."""
    name, imported = name_of(call), script.imported(call.func)
    if imported.startswith("torch.distributed.checkpoint."):
        return name in ("save", "load", "async_save")
    if imported.startswith("torch.distributed."):
        return _COLLECTIVES.fullmatch(name) is not None and keyword(call, "group") is None
    if imported.startswith("torch_xla.core.xla_model."):
        return name in _COLLECTIVES_OF_XLA or _COLLECTIVES.fullmatch(name) is not None
    return name == "wait_for_everyone"


def _process_group(scripts: Sequence[Script], job: Job) -> Found:
    """torch.distributed, "Initialization": a process belongs to no group before ``init_process_group``."""
    for program in programs(scripts, job.entry_point) if (job.processes or 1) > 1 else ():
        starts = {*STARTS, "run"} & program.used
        if program.by_hand and not program.joins and not starts and not program.averages:
            how = "call torch.distributed.init_process_group() and wrap the model in DistributedDataParallel"
            why = (
                f"the job's {job.processes} processes join no process group, and each trains a model of its own: {how}"
            )
            yield program.script, program.line, f"{why}, or start one process alone"


def _gradients(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's tutorial "Getting Started with Distributed Data Parallel": DDP averages gradients, a process group does not."""
    for program in together(scripts, job):
        if not program.averages:
            why = "the process group averages no gradients, so that each process trains a model of its own"
            yield program.script, program.line, f"{why}: wrap the model in DistributedDataParallel"


def _samples(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's DistributedSampler: each process "load[s] a subset of the original dataset that is exclusive to it"."""
    for program in together(scripts, job):
        for script, call, channel in loaders_of_all_samples(program, job):
            why = "each process has all samples in each epoch: give it sampler=DistributedSampler(...)"
            if channel:
                why = f"each process of a host has all of the host's share of the channel {channel!r} in each epoch: give it "
                why += "sampler=DistributedSampler(..., num_replicas={}, rank={})".format(*OF_HOST)
            yield script, call.lineno, why


def loaders_of_all_samples(program: Program, job: Job) -> Iterator[tuple[Script, ast.Call, str]]:
    """Yield the loaders by which each process has all samples, with their scripts and the channels of which hosts have shares.

    Args:
        program: The program.
        job: The job.
    """
    seeded = any(name_of(call) in _SEEDS and _RANK.search(ast.unparse(call)) for _, call in program.calls)
    # Those of its own deal out none.
    used = program.used - {"IterableDataset"} if program.iterables else program.used
    if not seeded and not any(map(_DEALS.search, used)):
        for script, call in program.calls:
            if (
                name_of(call) == "DataLoader"
                and not script.is_within(call, EVALUATES)
                and _has_all(program, script, call)
            ):
                channel = share_of(program, job, script, data_of(call))
                if not channel or job.processes_per_host != 1:
                    yield script, call, channel


def _has_all(program: Program, script: Script, loader: ast.Call) -> bool:
    """Whether a loader has no sampler that deals out samples, and a data set that certainly does not either."""
    samplers = [one.value for one in loader.keywords if one.arg in ("sampler", "batch_sampler")]
    for value in (one.value for one in loader.keywords if one.arg is None):
        given = program.assigned(value)
        if not given or any("sampler" in ast.unparse(one) for one in given):
            return False
    for value in samplers:
        given = [value] if isinstance(value, ast.Constant | ast.Call) else program.assigned(value)
        if not given or any({*_SAMPLER.findall(ast.unparse(one).lower())} - _OF_ALL for one in given):
            return False
    data, parameters = data_of(loader), parameters_of(function_around(script, loader))
    if data is None:
        return False
    if program.iterable_of(data):
        return True
    for node in program.reached([data], lambda name: _given(program, script, loader) if name in parameters else ()):
        name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        word = name or getattr(node, "arg", None) or getattr(node, "name", None) or ""
        # The datasets library streams all samples to each process, unless split_dataset_by_node() has its part.
        if word != "streaming" and _DEALT.search(word):
            return False
    return True


def _given(program: Program, script: Script, node: ast.AST) -> list[ast.AST]:
    """What calls give the function that has a node, or give with it to what calls it."""
    function = function_around(script, node)
    assert function is not None
    found: list[ast.AST] = []
    for _, call in program.calls:
        given = [*call.args, *(one.value for one in call.keywords)]
        if function.name in (name_of(call), *(one.id for one in given if isinstance(one, ast.Name))):
            found += given
    return found


def _agree(scripts: Sequence[Script], job: Job) -> Found:
    """DDP's ``join``, "for training with uneven inputs": without it the others wait for a process that makes fewer steps."""
    for program in together(scripts, job):
        for script in () if program.agrees else program.scripts:
            inside = {node for loop in script.step_loops for node in ast.walk(loop) if isinstance(node, ast.If)}
            for node in inside:
                leaves = isinstance(node.body[-1], ast.Break | ast.Continue)
                if leaves and (own := _decides(program, script, node.test)):
                    why = f"each process leaves a step by its own {own}, and the others wait for its gradients"
                    yield script, node.lineno, f"{why}: decide with torch.distributed.all_reduce()"


def _decides(program: Program, script: Script, test: ast.expr) -> str:
    """What of its own a process decides by: "loss" or "clock"; "" for others."""
    names = [one for one in ast.walk(test) if isinstance(one, ast.Name)]
    parts = [test, *(value for name in names for value in program.assigned(name))]
    for part in parts:
        read = [one for one in ast.walk(part) if isinstance(one, ast.Call)]
        if any(script.imported(call.func).startswith("time.") for call in read):
            return "clock"
        if any(
            {one.id for one in ast.walk(call) if isinstance(one, ast.Name)} & script.differentiated for call in read
        ):
            return "loss"
    return "loss" if {name.id for name in names} & script.differentiated else ""


def _writes(scripts: Sequence[Script], job: Job) -> Found:
    """DDP's tutorial, "Save and Load Checkpoints": "save the model in only one process"."""
    # Machines have disks of their own.
    for program in together(scripts, job) if job.processes_per_host != 1 else ():
        for script, call in program.calls:
            if script.imported(call.func) == "torch.save" and not _is_of_one(program, script, call):
                why = "all processes of a host write this file, and each cuts short what another has written"
                yield script, call.lineno, f"{why}: save on rank 0 alone"


def _is_of_one(program: Program, script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Whether one process alone may reach a node, or each has a file of its own."""
    if _RANK.search(ast.unparse(node)):
        return True
    for test, _ in conditions(script, node):
        names = [one for one in ast.walk(test) if isinstance(one, ast.Name | ast.Attribute)]
        values = [value for name in names for value in program.assigned(name)]
        if any(_MAY_BE_ONE.search(ast.unparse(one)) for one in (test, *values)):
            return True
    function = function_around(script, node)
    if function is None or not depth:
        return function is not None
    if any(not ast.unparse(one).endswith("record") for one in function.decorator_list):
        return True
    sites = [(one, call) for one, call in program.calls if name_of(call) == function.name]
    return not sites or any(_is_of_one(program, one, call, depth - 1) for one, call in sites)


def _unscale(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's "Automatic Mixed Precision examples", "Gradient clipping": without unscaling the threshold "would be invalid"."""
    for program in programs(scripts, job.entry_point):
        scales = any("GradScaler" in name for name in program.used) and "unscale_" not in program.used
        for script, call in program.calls if scales and program.by_hand else ():
            if limits_gradients(script, call) and _is_scaled(script, call):
                why = "clips what GradScaler has scaled, by 65536 at first, so that the limit is that much lower"
                yield script, call.lineno, f"{why}: scaler.unscale_(optimizer) before it"


def limits_gradients(script: Script, call: ast.Call) -> bool:
    """Return whether a call is one of PyTorch's that limit gradients.

    Args:
        script: The script.
        call: The call.
    """
    return name_of(call) in ("clip_grad_norm_", "clip_grad_value_") and script.imported(call.func).startswith("torch.")


def _is_scaled(script: Script, clip: ast.Call) -> bool:
    """Whether what is nearest before a call, of what differentiates a loss, scales it."""
    inner: ast.AST = clip
    for around in script.ancestors(clip):
        for before in reversed(statements_before(inner, around)):
            if "backward(" in (text := ast.unparse(before)):
                return ".scale(" in text
        inner = around
    return False


def _zero_grad(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's examples, "PyTorch: optim": gradients are "accumulated in buffers [...] whenever .backward() is called"."""
    for program in programs(scripts, job.entry_point):
        if program.by_hand and not program.mentions(_ZEROES):
            why = "nothing sets the gradients to zero, so that each step adds those of all before it"
            yield program.script, program.line, f"{why}: optimizer.zero_grad() in each step"


def _sharded_later(scripts: Sequence[Script], job: Job) -> Found:
    """FSDP's reference: "initialize your optimizer after. This is required since FSDP changes the parameter variables"."""
    for script in scripts:
        wraps = [call for call in script.calls if name_of(call) in SHARDING and call.args]
        for call, wrap in optimizers_before(script, wraps, _has_parameters):
            if "param_groups" not in script.used_names:
                why = f"has the parameters from before {whole_name(wrap)}(), which replaces them, and trains nothing"
                yield script, call.lineno, f"{whole_name(call)}() {why}: make it after"


def _has_parameters(wrap: ast.Call, given: Sequence[str]) -> bool:
    return any(text.startswith(f"{ast.unparse(wrap.args[0])}.parameters()") for text in given)


def optimizers_before(
    script: Script, replacing: Sequence[ast.Call], of_model: Callable[[ast.Call, Sequence[str]], bool]
) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Yield the calls that make optimizers before the parameters are replaced, each with the first call that replaces them.

    Args:
        script: The script.
        replacing: The calls that replace the parameters of a model.
        of_model: Whether such a call's model is that of an optimizer, by what that is given as it is written.
    """
    for call in script.calls if replacing else ():
        if OPTIMIZER.search(ast.unparse(call.func)):
            given = [ast.unparse(one) for one in (*call.args, *(one.value for one in call.keywords))]
            later = (one for one in replacing if one.lineno > call.lineno and are_together(script, call, one))
            if replaced := next((one for one in later if of_model(one, given)), None):
                yield call, replaced


def _clip_shards(scripts: Sequence[Script], job: Job) -> Found:
    """FSDP's ``clip_grad_norm_``: "use this method instead of torch.nn.utils.clip_grad_norm_", where gradients are sharded."""
    for program in () if is_alone(scripts, job) else programs(scripts, job.entry_point):
        if {"FSDP", "FullyShardedDataParallel"} & program.called and not {"fully_shard", "NO_SHARD"} & program.used:
            clips = [(one, call) for one, call in program.calls if name_of(call) == "clip_grad_norm_"]
            if all(script.imported(call.func).startswith("torch.nn.utils") for script, call in clips):
                for script, call in clips:
                    why = "clips by the norm of each process's own shards, another on each"
                    yield script, call.lineno, f"{why}: model.clip_grad_norm_(...)"


def _launcher(scripts: Sequence[Script], job: Job) -> Found:
    """torch.distributed, "Environment variable initialization": RANK and WORLD_SIZE are required, which torchrun sets."""
    for program in programs(scripts, job.entry_point) if job.launched is False else ():
        if program.mentions(SETS):
            continue
        for script in program.scripts:
            for node in script.nodes:
                name = _needed(script, node)
                if name and _is_certain(program, script, node):
                    why = f"{name} is not set without a launcher, and the script ends with an error"
                    yield script, node.lineno, f"{why}: launcher=Torchrun()"  # type: ignore[attr-defined]
                    return


def _needed(script: Script, node: ast.AST) -> str:
    """The variable of a launcher without which a node fails; "" for others."""
    if (name := variable_read(node)) in _OF_LAUNCHER:
        return name
    if isinstance(node, ast.Call) and name_of(node) == "init_process_group" and len(node.args) < 2:
        given = {one.arg for one in node.keywords}
        of_environment = constant(keyword(node, "init_method")) in (None, "env://")
        return "RANK" if not given & {"rank", "world_size", "store", None} and of_environment else ""
    return ""


def _is_certain(program: Program, script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Whether a node runs on no condition."""
    tests = [test for test, _ in conditions(script, node) if "__name__" not in ast.unparse(test)]
    if tests or any(isinstance(one, ast.Try | ast.Lambda) for one in script.ancestors(node)) or not depth:
        return False
    function = function_around(script, node)
    if function is None:
        return True
    sites = [(one, call) for one, call in program.calls if name_of(call) == function.name]
    return bool(sites) and all(_is_certain(program, one, call, depth - 1) for one, call in sites)


def _one_device(scripts: Sequence[Script], job: Job) -> Found:
    """NCCL takes one process for each device ("Duplicate GPU detected"); DDP's tutorial: "one process per device"."""
    several = (job.processes_per_host or 1) > 1 and job.launched and job.device != "cpu"
    for program in together(scripts, job) if several else ():
        for script in () if program.mentions(_PICKS) else program.scripts:
            for number, text in enumerate(script.text.splitlines(), start=1):
                if _ON_MAY_BE_ONE.search(text.partition("#")[0]):
                    why = f"all {job.processes_per_host} processes of a host use its first GPU"
                    yield script, number, f"{why}: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) first"
                    return


def _rank_of_host(scripts: Sequence[Script], job: Job) -> Found:
    """Torchrun's "Environment Variables": it sets RANK and WORLD_SIZE for each process; hosts are fewer."""
    several = (job.processes_per_host or 1) > 1 and job.launched
    for program in programs(scripts, job.entry_point) if several else ():
        for script in program.scripts:
            for node in script.nodes:
                value = _sets_size(node)
                values = [] if value is None else [value, *program.assigned(value)]
                if any(_OF_HOSTS.search(ast.unparse(one)) for one in values):
                    why = f"the number of hosts in place of processes, of which torchrun starts {job.processes_per_host} on each"
                    how = "leave RANK and WORLD_SIZE as torchrun sets them"
                    yield script, node.lineno, f"{why}: {how}"  # type: ignore[attr-defined]


def _sets_size(node: ast.AST) -> ast.expr | None:
    """What a node sets the number of processes to; None for others."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        is_size = constant(target.slice) == "WORLD_SIZE" and "environ" in ast.unparse(target.value)
        return node.value if is_size else None
    is_joined = isinstance(node, ast.Call) and name_of(node) == "init_process_group"
    return keyword(node, "world_size") if is_joined and isinstance(node, ast.Call) else None


def _strategy(scripts: Sequence[Script], job: Job) -> Found:
    """TensorFlow's guide "Distributed training": MirroredStrategy is for "multiple GPUs on one machine"."""
    if (job.processes or 1) < 2:
        return
    used = set().union(*(script.used_names | script.imports for script in scripts))
    if any(map(_STRATEGIES.search, used)):
        return
    for script in scripts:
        for call in script.calls if script.imports & {"tensorflow", "keras"} else ():
            if name_of(call) in ("fit", "train_on_batch", "apply_gradients"):
                is_keras_3 = versions_of(scripts, job).get("keras", "").startswith("3")  # whose fit ends there
                step = "by strategy.run() of" if is_keras_3 else "in"
                how = f"train {step} tf.distribute.MultiWorkerMirroredStrategy(), with launcher=MultiWorkerMirrored()"
                yield (
                    script,
                    call.lineno,
                    f"each of the job's {job.processes} processes trains a model of its own: {how}",
                )
                return


def _accumulates(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's "Automatic Mixed Precision examples", "Gradient accumulation": "loss = loss / iters_to_accumulate"."""
    for program in programs(scripts, job.entry_point):
        for script in program.scripts if program.by_hand else ():
            for loop in script.step_loops:
                number = _steps_each(script, loop)
                if number and not _divides_by(program, number):
                    why = f"gradients of {number} batches are added, and each step has their sum in place of their mean"
                    yield script, loop.lineno, f"{why}: (loss / {number}).backward()"


def _steps_each(script: Script, loop: ast.AST) -> str:
    """After how many batches a loop makes a step of the optimizer, where each adds its gradients; "" where it is each one."""
    for node in (one for one in ast.walk(loop) if isinstance(one, ast.If)):
        inside = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
        steps = any(name_of(one) == "step" and OPTIMIZER.search(ast.unparse(one.func)) for one in inside)
        if not steps or any(name_of(one) == "backward" for one in inside):
            continue
        for part in ast.walk(node.test):
            if (
                isinstance(part, ast.BinOp)
                and isinstance(part.op, ast.Mod)
                and isinstance(part.right, ast.Name | ast.Attribute)
            ):
                return ast.unparse(part.right)
    return ""


def _divides_by(program: Program, number: str) -> bool:
    """Whether something may be divided by a number, by its name: also by what is called with it, but for what prints."""
    last = number.rpartition(".")[2]
    for script in program.scripts:
        for node in script.nodes:
            parts: list[ast.AST] = []
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
                parts = [node.right if isinstance(node, ast.BinOp) else node.value]
            elif isinstance(node, ast.Call) and name_of(node) not in ("range", "print", "info", "log", "debug", "len"):
                parts = [*node.args, *(one.value for one in node.keywords)]
            for part in (one for some in parts for one in ast.walk(some)):
                if isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part).rpartition(".")[2] == last:
                    return True
    return False


DISTRIBUTED: Mapping[str, Check] = {
    "accumulates": _accumulates,
    "strategy": _strategy,
    "collective": _collective,
    "process-group": _process_group,
    "gradients": _gradients,
    "samples": _samples,
    "agree": _agree,
    "writes": _writes,
    "unscale": _unscale,
    "zero-grad": _zero_grad,
    "sharded-later": _sharded_later,
    "clip-shards": _clip_shards,
    "launcher": _launcher,
    "one-device": _one_device,
    "rank-of-host": _rank_of_host,
}
