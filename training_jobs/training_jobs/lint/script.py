"""A training script as the rules see it: its calls, what runs at each step, and which names hold tensors of the step."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from training_jobs.lint.trainer_values import Device

_ALLOW = re.compile(r"#\s*training-jobs:\s*allow\s+([\w-]+(?:\s*,\s*[\w-]+)*)")
_OPTIMIZER = re.compile(r"(?:^|[._])(?:optim\w*|opt|adam\w*|sgd|scaler|grad_scaler)(?:\[.*\])?$", re.IGNORECASE)
_PIP = re.compile(r"\bpip3?\b")
# What says how to install something, rather than to do it: transformers' examples have require_version(..., "To fix: pip ...").
_SAYS = re.compile(
    r"require_version|print|warn|warning|error|info|exception|debug|critical|\w*(?:Error|Exception|Warning)"
)
_STEPS = ("optimizer_step", "apply_gradients", "train_on_batch")
_ONE_RANK = re.compile(r"rank\b|is_master|master_process|is_main_process|is_local_main|main_process|master_ordinal")
_MODELS = ("model", "net", "network", "forward", "criterion", "loss_fn", "cross_entropy", "engine")
Loop = ast.For | ast.AsyncFor | ast.While
Function = ast.FunctionDef | ast.AsyncFunctionDef


# The options that rules read: of TrainingArguments, or of a script that gives them to it.
OPTIONS = re.compile(r"accum|^(?:label_smoothing_factor|overwrite_output_dir|save_only_model)$")


@dataclass(frozen=True)
class Job:
    """What is known of the job that runs a script.

    Attributes:
        compiled: Whether a compiler compiles the step. A script that calls one itself is compiled in any case.
        dynamic: Whether the compiler takes batches of any shape.
        xla: Whether the device is XLA's. A script that imports torch_xla has it in any case.
        spot: Whether the job can be interrupted.
        checkpoints: Whether its checkpoints are kept for the job that goes on where it failed.
        groups: Names of its instance groups; empty where there are none, or they are not known.
        channels: Names of its channels; None where they are not known.
        sharded: Those of which each host has a share.
        entry_point: Path of the file that is started; "" where it is not known.
        modules: What it may import beside Python's own modules and the folder's; None where that is not known.
        absent: Modules that are certainly not there, where not all are known.
        versions: The versions that it finds, by ``torch``, ``tensorflow``, ``keras``, ``transformers`` and ``numpy``; others are
            not known.
        device: What computes, of `trainer_values.Device`.
        offline: Whether its hosts have no route to the internet.
        arguments: Of the options that rules read (`OPTIONS`), those that it gives the script; None for a value that is not
            known.
        built: Whether the script is in an image that a Dockerfile builds.
        hosts: The number of machines that start the script; None where that is not known.
        processes_per_host: The number of processes of it on each; None where that is not known.
        devices: The number of accelerators of each machine; None where that is not known.
        launched: Whether torchrun starts them; False where nothing but the toolkit does; None where that is not known.
    """

    compiled: bool = False
    dynamic: bool = False
    xla: bool = False
    spot: bool = False
    checkpoints: bool = False
    groups: tuple[str, ...] = ()
    channels: tuple[str, ...] | None = None
    sharded: tuple[str, ...] = ()
    entry_point: str = ""
    modules: frozenset[str] | None = None
    absent: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    device: Device = ""
    offline: bool = False
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    built: bool = False
    hosts: int | None = None
    processes_per_host: int | None = None
    devices: int | None = None
    launched: bool | None = None

    @property
    def resumes(self) -> bool:
        """Whether it may go on from its checkpoints."""
        return self.spot or self.checkpoints

    @property
    def processes(self) -> int | None:
        """The number of processes on all machines; None where that is not known."""
        if self.hosts is None or self.processes_per_host is None:
            return None
        return self.hosts * self.processes_per_host

    @property
    def shared_channels(self) -> tuple[str, ...]:
        """Those of which several hosts have shares."""
        return self.sharded if (self.hosts or 1) > 1 else ()

    def lacks(self, module: str) -> bool:
        """Return whether a module, which is none of Python's own, is certainly not installed.

        Args:
            module: Its name at the top.
        """
        if self.modules is None:
            return module in self.absent
        return module not in self.modules and module not in sys.stdlib_module_names


@dataclass(frozen=True)
class Script:
    """One parsed file.

    Attributes:
        path: As it is shown.
        text: Its text.
    """

    path: str
    text: str
    tree: ast.Module = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tree", ast.parse(self.text))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes."""
        return list(ast.walk(self.tree))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """All calls, in the order of the file."""
        found = [node for node in self.nodes if isinstance(node, ast.Call)]
        return sorted(found, key=lambda call: (call.lineno, call.col_offset))

    @cached_property
    def used_names(self) -> set[str]:
        """The names that it reads, attributes' too."""
        read = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        return read | {node.attr for node in self.nodes if isinstance(node, ast.Attribute)}

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of each node."""
        return {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def imports(self) -> set[str]:
        """The top-level names of the packages that it imports."""
        names = [node.module or "" for node in self.nodes if isinstance(node, ast.ImportFrom) and not node.level]
        names += [alias.name for node in self.nodes if isinstance(node, ast.Import) for alias in node.names]
        return {name.partition(".")[0] for name in names}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The whole names of what it imports, by those that it gives them."""
        found = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    found[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        return found

    def imported(self, node: ast.expr) -> str:
        """Return the whole name of what an expression names of an import; "" for others."""
        first = node
        while isinstance(first, ast.Attribute):
            first = first.value
        if not isinstance(first, ast.Name) or first.id not in self.aliases:
            return ""
        return self.aliases[first.id] + ast.unparse(node).removeprefix(first.id)

    @cached_property
    def allowed(self) -> dict[int, set[str]]:
        """The rules that comments switch off, by line; those of the whole file by line 0."""
        first = next((node.lineno for node in self.tree.body if not _is_text(node)), 1)
        found: dict[int, set[str]] = {}
        for number, line in enumerate(self.text.splitlines(), start=1):
            if comment := _ALLOW.search(line):
                rules = {name.strip() for name in comment[1].split(",")}
                alone = line.lstrip().startswith("#")
                lines = [0] if alone and number < first else [number, number + 1] if alone else [number]
                for affected in lines:
                    found.setdefault(affected, set()).update(rules)
        return found

    def is_within(self, node: ast.AST, words: re.Pattern[str]) -> bool:
        """Return whether a node, or a function or a variable that has it, is named with one of some words.

        Args:
            node: The node.
            words: The words.
        """
        around = (one for one in self.ancestors(node) if isinstance(one, ast.FunctionDef | ast.Assign))
        names = (one.name if isinstance(one, ast.FunctionDef) else ast.unparse(one.targets[0]) for one in around)
        return any(map(words.search, (ast.unparse(node), *names)))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, the innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    @cached_property
    def installs(self) -> bool:
        """Whether it may install packages itself, which a comment, a docstring or the text of an error does not."""
        return _PIP.search(self.text) is not None and any(
            _PIP.search(_word(node)) and not self._is_said(node) for node in self.nodes
        )

    def _is_said(self, node: ast.AST) -> bool:
        """Whether a text is for who reads it."""
        around = [*self.ancestors(node)]
        return isinstance(next(iter(around), None), ast.Expr) or any(
            isinstance(one, ast.Raise | ast.Assert)
            or (isinstance(one, ast.Call) and _SAYS.fullmatch(name_of(one)) is not None)
            for one in around
        )

    def asks_version(self, node: ast.AST) -> bool:
        """Return whether a node is below a question for a version, or within ``try``, which may be of another version."""
        return any(
            isinstance(one, ast.Try)
            or (isinstance(one, ast.If | ast.IfExp) and "version" in ast.unparse(one.test).lower())
            for one in self.ancestors(node)
        )

    @cached_property
    def functions(self) -> dict[str, Function]:
        """The functions and methods by name."""
        return {node.name: node for node in self.nodes if isinstance(node, Function)}

    def called_here(self, call: ast.Call) -> str | None:
        """Return the name of the function of this file that a call calls, as ``f()`` or ``self.f()``."""
        function = call.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self":
            name = function.attr
        else:
            name = function.id if isinstance(function, ast.Name) else ""
        return name if name in self.functions else None

    @cached_property
    def step_loops(self) -> list[Loop]:
        """The loops of which each pass is a training step: the innermost ones around the optimizer's step."""
        stepping: set[str] = set()
        loops: dict[Loop, None] = {}

        def steps(node: ast.AST) -> bool:
            found = [
                steps(child) for child in ast.iter_child_nodes(node) if not isinstance(child, Function | ast.ClassDef)
            ]
            if isinstance(node, ast.Call) and (_is_step(node) or self.called_here(node) in stepping):
                return True
            if isinstance(node, Loop) and any(found):
                loops[node] = None
                return False
            return any(found)

        while True:
            before = set(stepping)
            steps(self.tree)
            for node in (node for node in self.nodes if isinstance(node, ast.ClassDef)):
                steps(node)
            stepping |= {name for name, function in self.functions.items() if steps(function)}
            if stepping == before:
                return list(loops)

    @cached_property
    def each_step(self) -> list[ast.AST]:
        """The nodes that run in every step: not those below a condition, other than which rank it is or the step's own."""
        found: dict[ast.AST, None] = {}
        visited: set[str] = set()
        # Several loops may be steps, as an epoch's and its batches', of which the inner one is.
        for loop in self.step_loops:
            for node in self._unconditional(loop.body):
                found[node] = None
        pending = [node for node in found if isinstance(node, ast.Call)]
        while pending:
            name = self.called_here(pending.pop())
            if name is None or name in visited or _is_property(self.functions[name]):
                continue
            visited.add(name)
            for node in self._unconditional(self.functions[name].body):
                found[node] = None
                if isinstance(node, ast.Call):
                    pending.append(node)
        return list(found)

    def parts_of(self, loop: Loop) -> list[ast.AST]:
        """Return a loop, and the functions of this file that it calls, or that these call.

        Args:
            loop: The loop.
        """
        found: list[ast.AST] = [loop]
        for part in found:  # which grows
            names = (self.called_here(node) for node in ast.walk(part) if isinstance(node, ast.Call))
            called = (self.functions[name] for name in names if name is not None)
            found += [one for one in dict.fromkeys(called) if one not in found]
        return found

    @cached_property
    def step_parts(self) -> list[ast.AST]:
        """The loops of steps, and the functions of this file that they call, each once."""
        return list(dict.fromkeys(part for loop in self.step_loops for part in self.parts_of(loop)))

    def _unconditional(self, body: list[ast.stmt]) -> Iterator[ast.AST]:
        for number, statement in enumerate(body):
            if isinstance(statement, Function | ast.ClassDef):
                continue
            if isinstance(statement, ast.If):
                inner = statement.body
                if self._holds_step(inner) or (
                    _ONE_RANK.search(ast.unparse(statement.test)) and "%" not in ast.unparse(statement.test)
                ):
                    yield from self._unconditional(inner)
                elif isinstance(inner[-1], ast.Return | ast.Continue) and not self._holds_step(body[number + 1 :]):
                    return  # what follows is conditional
                continue
            blocks = [getattr(statement, name, []) for name in ("body", "finalbody")]
            if not any(blocks):
                yield from _walk(statement)
                continue
            for part in ast.iter_child_nodes(statement):
                if isinstance(part, ast.expr | ast.withitem):
                    yield from _walk(part)
            for block in blocks:
                yield from self._unconditional(block)

    def _holds_step(self, body: list[ast.stmt]) -> bool:
        return any(isinstance(node, ast.Call) and _is_step(node) for one in body for node in ast.walk(one))

    @cached_property
    def tensors(self) -> set[str]:
        """The names of the step's tensors: losses that are differentiated, and what a model returns."""
        found: set[str] = set()
        for call in self.calls:
            if name_of(call) == "backward":
                texts = [call.func.value] if isinstance(call.func, ast.Attribute) else []
                found |= {
                    one.id for part in (*texts, *call.args) for one in ast.walk(part) if isinstance(one, ast.Name)
                }
        for node in self.nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name_of(node.value) in _MODELS:
                targets = [one for target in node.targets for one in ast.walk(target)]
                found |= {one.id for one in targets if isinstance(one, ast.Name)}
        return found - {
            "self",
            "accelerator",
            "scaler",
            "torch",
            "model",
            "engine",
            "model_engine",
            "optimizer",
            "xm",
            "smp",
        }

    @cached_property
    def differentiated(self) -> set[str]:
        """The names on which ``backward()`` is called."""
        return {
            call.func.value.id
            for call in self.calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "backward"
            and isinstance(call.func.value, ast.Name)
        }


def versions_of(scripts: Iterable[Script], job: Job) -> Mapping[str, str]:
    """Return the versions of libraries that scripts find; none where one of them may install others.

    Args:
        scripts: Them.
        job: The job.
    """
    return {} if any(script.installs for script in scripts) else job.versions


def name_of(call: ast.Call) -> str:
    """The last part of what is called, like ``save`` of ``torch.save(...)``."""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def whole_name(call: ast.Call) -> str:
    """What is called, like ``torch.save``."""
    parts, node = list[str](), call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ast.unparse(call.func)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """The value of a keyword argument; None without it."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def variable_read(node: ast.AST | None) -> str:
    """The environment variable that a subscript reads, as in ``os.environ["SM_HOSTS"]``; "" for anything else."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and "environ" in ast.unparse(node.value):
        name = constant(node.slice)
        return name if isinstance(name, str) else ""
    return ""


def _word(node: ast.AST) -> str:
    """What a node itself names or says."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return node.name if isinstance(node, ast.alias) else node.id if isinstance(node, ast.Name) else ""


def constant(node: ast.AST | None) -> object:
    """The value of a literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def _is_step(call: ast.Call) -> bool:
    name = name_of(call)
    if name in _STEPS:
        return True
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return name == "step" and owner is not None and _OPTIMIZER.search(ast.unparse(owner)) is not None


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_property(function: Function) -> bool:
    return any("property" in ast.unparse(one) for one in function.decorator_list)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, but for conditional expressions and functions, which may not run."""
    if not isinstance(node, ast.IfExp | ast.Lambda):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def always_imported(tree: ast.AST, *, tried: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the lines and the first names of modules that are imported whenever a file runs.

    These are none in other functions than `main`, nor under a condition.

    Args:
        tree: The file.
        tried: Whether those within ``try`` are too.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, _needed(alias.name)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.lineno, _needed(node.module)
        elif (
            (isinstance(node, ast.FunctionDef) and node.name == "main")
            or isinstance(node, ast.With)
            or (isinstance(node, ast.Try) and tried)
            or (isinstance(node, ast.If) and "__main__" in ast.unparse(node.test))
        ):
            yield from always_imported(node, tried=tried)


def _needed(module: str) -> str:
    """The first name of a module, or of what it imports that its distribution does not require: PyTorch's is one."""
    return "tensorboard" if module.startswith("torch.utils.tensorboard") else module.partition(".")[0]


def data_of(call: ast.Call) -> ast.expr | None:
    """The data set of PyTorch's DataLoader or sampler; None without it."""
    return keyword(call, "dataset") or next(iter(call.args), None)


Found = Iterator[tuple[Script, int, str]]
Check = Callable[[Sequence[Script], Job], Found]
