"""A script that trains with what it imports and what imports it, as the rules of several processes see it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from training_jobs.lint.script import Function, Job, Loop, Script, constant, keyword, name_of

# Libraries that join processes, average gradients and deal out samples by themselves, or may.
_LIBRARIES = re.compile(
    r"accelerate|bagua|byteps|catalyst|colossalai|composer|deepspeed|detectron2|fairscale|fairseq|fastai|horovod|ignite|jax|keras|"
    r"lightning|megatron\w*|mmengine|mxnet|nemo|neuronx_distributed\w*|optimum|pytorch_lightning|ray|tensorflow|torch_xla|torchtitan|torchtune|unsloth|verl"
)
TRAINERS = ("transformers", "trl", "sentence_transformers")  # where they have a Trainer
LIGHTNING = ("lightning", "pytorch_lightning")
KERAS = {"tensorflow", "keras", "tf_keras"}
_MODULES = ("smdistributed.modelparallel", "torch.distributed.rpc", "torch.distributed.autograd")
_WRAPPERS = {"DistributedDataParallel", "FullyShardedDataParallel", "DDP", "FSDP", "fully_shard"}
_NO_WRAPPERS = ("torch", "torchvision", "torchaudio", "peft", "numpy", "timm", "transformers")
_JOINS = re.compile(r"init_process_group|init_device_mesh")
_AVERAGES = re.compile(
    r"ddp|fsdp|distributed_?data_?parallel|fully_?shard|(?:average|reduce|sync)\w*_grad|replicate$|paralleli[sz]e|^distribute_"
    r"|dtensor|pipeline_?(?:stage|parallel|module)|^schedule|register_comm_hook",
    re.IGNORECASE,
)
_REDUCES = re.compile(r"reduce|all_?gather|broadcast", re.IGNORECASE)
_GRADIENTS = re.compile(r"\bgrads?\b|_grads\b|gradients?\b|\bparameters\(", re.IGNORECASE)
# Which process it is among all, or those of its host; not among those of a smaller group.
_NUMBER = re.compile(
    r"(?:^|\.)(?:global_|world_|local_)?(?:rank|ordinal)$|(?:^|[._])get_(?:global_|world_|local_)?(?:rank|ordinal)\(\)$"
    r"|\.(?:global|local)_ordinal\(\)$"
    r"|environ\W+(?:get\W+)?(?:LOCAL_)?RANK\b.*$",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"(?:^|\.)(?:is_)?(?:main|master|local_main|main_local)(?:_process|_rank)?(?:\(\))?$"
    r"|is_world_process_zero(?:\(\))?$|is_master_ordinal\(\w*\)$"
)
_ITERABLE = re.compile(r"torch\.utils\.data\b.*\.IterableDataset")
# What an iterable data set reads, and by what it reads a part of it.
_READS = re.compile(r"open\(|read|glob|listdir|scandir|iterdir|parquet|csv", re.IGNORECASE)
_DIVIDES = re.compile(r"worker|rank|shard|split|world_?size|islice|replica|process|random|parti", re.IGNORECASE)
# How a script starts processes.
STARTS = ("spawn", "Process", "Popen", "start_processes", "check_call")
# What is of evaluation; a device is not.
EVALUATES = re.compile(r"eval|valid|\bval|_val|test|predict|\bdev(?!ice)|infer", re.IGNORECASE)
# By which processes may agree on a step, but for `join`.
_AGREES = re.compile(r"reduce|gather|broadcast|^Join$")
Side = Literal["one", "others", ""]
_OPPOSITE: dict[Side, Side] = {"one": "others", "others": "one", "": ""}


@dataclass(frozen=True)
class Program:
    """A script that trains, what it imports, and what imports it.

    Attributes:
        script: That which trains: it has a loop of steps that differentiates a loss.
        scripts: All of them.
    """

    script: Script
    scripts: tuple[Script, ...]

    @property
    def line(self) -> int:
        """The line of the loop of steps."""
        return self.script.step_loops[0].lineno

    @cached_property
    def calls(self) -> list[tuple[Script, ast.Call]]:
        """Their calls."""
        return [(script, call) for script in self.scripts for call in script.calls]

    @cached_property
    def called(self) -> set[str]:
        """The last parts of the names of what they call, but for their own functions and classes."""
        return {name_of(call) for _, call in self.calls} - self.definitions.keys()

    @cached_property
    def used(self) -> set[str]:
        """The names that they read."""
        return set().union(*(script.used_names for script in self.scripts))

    def script_of(self, node: ast.AST) -> Script:
        """Return the one that has a node.

        Args:
            node: The node.
        """
        return next(script for script in self.scripts if node in script.parents)

    @cached_property
    def by_hand(self) -> bool:
        """Whether no library trains in their place."""
        return self._by_hand_but("")

    def trains_by(self, package: str) -> bool:
        """Return whether a package of `_LIBRARIES` is the only one that may train in their place.

        Args:
            package: Its name.
        """
        return any(package in script.imports for script in self.scripts) and self._by_hand_but(package)

    def _by_hand_but(self, package: str) -> bool:
        whole = {name for script in self.scripts for name in script.aliases.values()}
        packages = set().union(*(script.imports for script in self.scripts)) - {package}
        return not (
            any(map(_LIBRARIES.fullmatch, packages))
            or any(name.startswith(_MODULES) or (name.startswith(TRAINERS) and "Trainer" in name) for name in whole)
        )

    @cached_property
    def joins(self) -> bool:
        """Whether they join a process group."""
        return any(map(_JOINS.search, self.used))

    @cached_property
    def wraps(self) -> bool:
        """Whether something may wrap the model, or shard it."""
        # A wrapper may be given to a function that calls it.
        return bool(_WRAPPERS & self.used) or any(map(_AVERAGES.search, self.called))

    @cached_property
    def averages(self) -> bool:
        """Whether something may average gradients, or the parameters."""
        return self.wraps or any(
            (_REDUCES.search(name_of(call)) and _is_of_gradients(script, call)) or self._wraps(script, call)
            for script, call in self.calls
        )

    def _wraps(self, script: Script, call: ast.Call) -> bool:
        """Whether another package replaces what it is given, as in ``model = wrap(model)``, which may average its gradients."""
        package, assigns = script.imported(call.func).partition(".")[0], script.parents.get(call)
        if (
            not package
            or package in _NO_WRAPPERS
            or package in sys.stdlib_module_names
            or not isinstance(assigns, ast.Assign)
        ):
            return False
        is_own = any(script.path.split("/")[0].removesuffix(".py") == package for script in self.scripts)
        given = {ast.unparse(one) for one in (*call.args, *(one.value for one in call.keywords))}
        made = {ast.unparse(one) for target in assigns.targets for one in getattr(target, "elts", [target])}
        return not is_own and bool(given & made)

    @cached_property
    def agrees(self) -> bool:
        """Whether processes may agree on a step: by a collective, or within DDP's ``join``, which no path's is."""
        withs = [one for script in self.scripts for one in script.nodes if isinstance(one, ast.With)]
        joins = (one.context_expr for node in withs for one in node.items)
        return any(map(_AGREES.search, self.used)) or any(
            isinstance(one, ast.Call) and name_of(one) == "join" for one in joins
        )

    def mentions(self, text: re.Pattern[str]) -> bool:
        """Return whether one of them has a text.

        Args:
            text: The text.
        """
        return any(text.search(script.text) for script in self.scripts)

    @cached_property
    def values(self) -> Mapping[str, list[ast.expr]]:
        """What is assigned to each variable and attribute, by its name as it is written."""
        found: dict[str, list[ast.expr]] = {}
        for script in self.scripts:
            for node in script.nodes:
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        found.setdefault(ast.unparse(target), []).append(node.value)
        return found

    @cached_property
    def defaults(self) -> Mapping[str, list[ast.expr]]:
        """What the options of argparse and the fields of classes are without a value, by their names."""
        found: dict[str, list[ast.expr]] = {}
        for _, call in self.calls:
            first, default = constant(call.args[0]) if call.args else None, keyword(call, "default")
            if name_of(call) == "add_argument" and isinstance(first, str) and default is not None:
                found.setdefault(first.lstrip("-").replace("-", "_"), []).append(default)
        for script in self.scripts:
            for node in script.nodes:
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                    found.setdefault(node.target.id, []).append(node.value)
        return found

    @cached_property
    def iterables(self) -> set[str]:
        """The names of its classes that are PyTorch's IterableDataset, read files, and divide them among nothing."""
        classes = [(script, node) for script in self.scripts for node in script.nodes if isinstance(node, ast.ClassDef)]
        return {
            node.name
            for script, node in classes
            if any(_ITERABLE.fullmatch(script.imported(base)) for base in node.bases)
            and _READS.search(text := ast.unparse(node))
            and not _DIVIDES.search(text)
        }

    def iterable_of(self, data: ast.expr) -> str:
        """Return the name of the class of `iterables` that makes data; "" for others.

        Args:
            data: Them.
        """
        made = {name_of(one) for one in (data, *self.assigned(data)) if isinstance(one, ast.Call)}
        return min(made & self.iterables, default="")

    def reached(self, data: Iterable[ast.AST], passed: Callable[[str], Iterable[ast.AST]]) -> Iterator[ast.AST]:
        """Yield the nodes of expressions, and of what the variables, functions and classes in them are.

        Args:
            data: The expressions.
            passed: What else a name may be, of a variable or an attribute.
        """
        left, seen = list(data), set[str]()
        while left:
            for node in ast.walk(left.pop()):
                yield node
                name = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
                if name and name not in seen:
                    seen.add(name)
                    left += [*self.values.get(name, ()), *self.definitions.get(name, ()), *passed(name)]

    def assigned(self, node: ast.AST) -> list[ast.expr]:
        """Return what is assigned to a variable or an attribute.

        Args:
            node: It.
        """
        return self.values.get(ast.unparse(node), [])

    @cached_property
    def definitions(self) -> Mapping[str, list[Function | ast.ClassDef]]:
        """Their functions and classes by name."""
        found: dict[str, list[Function | ast.ClassDef]] = {}
        for script in self.scripts:
            for node in script.nodes:
                if isinstance(node, Function | ast.ClassDef):
                    found.setdefault(node.name, []).append(node)
        return found


def programs(scripts: Sequence[Script], entry_point: str = "") -> tuple[Program, ...]:
    """Return the programs of a folder, which are started: one of their scripts does something when it is imported, or is named.

    Args:
        scripts: Those of the folder.
        entry_point: Path of the one that is started; "" where that is not known.
    """
    return _programs(tuple(scripts), entry_point)


def is_alone(scripts: Sequence[Script], job: Job) -> bool:
    """Return whether a job has one process, which starts no other.

    Args:
        scripts: Those of the folder.
        job: The job.
    """
    return job.processes == 1 and not any({*STARTS} & script.used_names for script in scripts)


def together(scripts: Sequence[Script], job: Job) -> Iterator[Program]:
    """Yield the programs of several processes that join a process group themselves.

    Args:
        scripts: Those of the folder.
        job: The job.
    """
    for program in () if is_alone(scripts, job) else programs(scripts, job.entry_point):
        if program.by_hand and program.joins:
            yield program


@lru_cache(maxsize=16)
def whole(scripts: tuple[Script, ...]) -> Program:
    """Return all scripts of a folder together, whichever of them is started.

    Args:
        scripts: Them, at least one.
    """
    return Program(scripts[0], scripts)


def started(scripts: Sequence[Script], entry_point: str) -> Program:
    """Return the scripts that a job starts: its entry point and what that imports; all of them where it is not known.

    Args:
        scripts: Those of the folder, at least one.
        entry_point: Path of the one that is started; "" where that is not known.
    """
    left = [one for one in scripts if one.path == entry_point]
    found = set[Script]()
    while left:
        if (one := left.pop()) not in found:
            found.add(one)
            left += _imports(one, scripts)
    return whole(tuple(one for one in scripts if not found or one in found))


@lru_cache(maxsize=16)
def _programs(scripts: tuple[Script, ...], entry_point: str) -> tuple[Program, ...]:
    return tuple(_found(scripts, entry_point))


def _found(scripts: tuple[Script, ...], entry_point: str) -> Iterator[Program]:
    imports = {script: _imports(script, scripts) for script in scripts}
    known = any(script.path == entry_point for script in scripts)
    for script in scripts:
        if not any(isinstance(node, ast.Call) and name_of(node) == "backward" for node in script.each_step):
            continue
        starts = {script}
        while more := {one for one, imported in imports.items() if imported & starts} - starts:
            starts |= more
        found, left = set[Script](), [one for one in starts if not known or one.path == entry_point]
        if not any(map(_starts, left)):
            continue
        while left:
            if (one := left.pop()) not in found:
                found.add(one)
                left += imports[one]
        yield Program(script, tuple(one for one in scripts if one in found))


def _starts(script: Script) -> bool:
    """Whether a script does something when it is started."""
    done = (node for node in script.tree.body if isinstance(node, Loop | ast.If | ast.With | ast.Expr))
    return any(isinstance(node, ast.Call) for one in done for node in ast.walk(one))


def _imports(script: Script, scripts: Sequence[Script]) -> set[Script]:
    """The scripts that one imports, by the last parts of their names."""
    names = set[str]()
    for node in script.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {part for alias in node.names for part in alias.name.split(".")}
            names |= set((node.module or "").split(".") if isinstance(node, ast.ImportFrom) else ())
    ends = ((one, one.path.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]) for one in scripts)
    return {one for one, name in ends if one is not script and name in names}


def _is_of_gradients(script: Script, call: ast.Call) -> bool:
    """Whether what reduces has gradients or parameters: by its arguments, by its loop, or in a function without a step."""
    around = next((one for one in script.ancestors(call) if isinstance(one, Loop)), None)
    parts: list[ast.AST] = [call]
    if around is not None and around not in script.step_loops and not _differentiates(around):
        parts.append(around)
    function = function_around(script, call)
    if function is not None and not _differentiates(function):
        parts.append(function)
    return any(_GRADIENTS.search(ast.unparse(one)) for one in parts)


def _differentiates(node: ast.AST) -> bool:
    return any(isinstance(one, ast.Call) and name_of(one) == "backward" for one in ast.walk(node))


def function_around(script: Script, node: ast.AST) -> Function | None:
    """Return the function that has a node; None for a node of the file.

    Args:
        script: The script.
        node: The node.
    """
    return next((one for one in script.ancestors(node) if isinstance(one, Function)), None)


def are_together(script: Script, *nodes: ast.AST) -> bool:
    """Return whether nodes are of one function, or none of any.

    Args:
        script: The script.
        nodes: The nodes.
    """
    return len({function_around(script, node) for node in nodes}) == 1


def parameters_of(function: Function | None) -> set[str]:
    """Return the names of a function's parameters.

    Args:
        function: The function; None for what is of none.
    """
    return set() if function is None else {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}


def on_xla(scripts: Sequence[Script], job: Job) -> list[Script]:
    """Return the scripts whose device is XLA's.

    Args:
        scripts: Those of the folder.
        job: The job.
    """
    return [script for script in scripts if job.xla or "torch_xla" in script.imports]


def conditions(script: Script, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the conditions under which a node of a function, or of the file, runs, each with whether it holds.

    Args:
        script: The script.
        node: The node.
    """
    inner = node
    for around in script.ancestors(node):
        if isinstance(around, ast.If | ast.IfExp) and inner is not around.test:
            yield around.test, inner is around.body or (isinstance(around.body, list) and inner in around.body)
        for one in statements_before(inner, around):
            if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Return | ast.Continue | ast.Raise):
                yield one.test, False
        if isinstance(around, Function | ast.Lambda):
            return
        inner = around


def statements_before(node: ast.AST, around: ast.AST) -> list[ast.stmt]:
    """Return the statements before a node in its block.

    Args:
        node: The node.
        around: What has the block.
    """
    blocks = (getattr(around, name, None) for name in ("body", "orelse", "finalbody"))
    return next((block[: block.index(node)] for block in blocks if isinstance(block, list) and node in block), [])


def side_of(script: Script, node: ast.AST) -> Side:
    """Return which processes reach a node of a function: the first alone ("one"), all but it ("others"), or not certainly either.

    Args:
        script: The script.
        node: The node.
    """
    sides = (_side(test) if holds else _OPPOSITE[_side(test)] for test, holds in conditions(script, node))
    return next((side for side in sides if side), "")


def are_opposite(one: Side, other: Side) -> bool:
    """Return whether two nodes are reached by all processes together.

    Args:
        one: Which reach the one.
        other: Which reach the other.
    """
    return one != "" and other == _OPPOSITE[one]


def _side(test: ast.expr) -> Side:
    """Which processes a condition leaves."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return "one" if _NUMBER.search(ast.unparse(test.operand)) else _OPPOSITE[_side(test.operand)]
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return next((side for side in map(_side, test.values) if side), "")
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and _NUMBER.search(ast.unparse(test.left)):
        other, operator = test.comparators[0], test.ops[0]
        if 0 not in [constant(one) for one in getattr(other, "elts", [other])]:
            return ""
        if isinstance(operator, ast.Eq | ast.In | ast.Is | ast.LtE):
            return "one"
        return "others" if isinstance(operator, ast.NotEq | ast.NotIn | ast.Gt | ast.IsNot) else ""
    return "one" if not isinstance(test, ast.BoolOp | ast.Compare) and _FIRST.search(ast.unparse(test)) else ""
