"""The rules of a model that is wrapped, moved or compiled, where the step trains another than was meant.

A wrapper does its work in the calls of the wrapper itself: DDP averages the gradients of what *its* ``forward`` computed. Nothing
ends with an error where the model in it is called, and each process trains a model of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from training_jobs.lint.distributed import OPTIMIZER, SHARDING, optimizers_before
from training_jobs.lint.program import (
    Program,
    are_opposite,
    are_together,
    function_around,
    is_alone,
    on_xla,
    parameters_of,
    programs,
    side_of,
    together,
)
from training_jobs.lint.script import Check, Found, Function, Job, Script, keyword, name_of

DDP = ("DistributedDataParallel", "DDP")
_COMPILE = "torch.compile"
_PREPARES = re.compile(r"accel\w*\.prepare(?:_\w+)?$", re.IGNORECASE)
# What a model is the same model after.
_SAME = ("to", "cuda", "cpu", "train", "float", "half", "bfloat16", "xpu")
_SPREADS = re.compile(r"broadcast|scatter|sync_module_states|all_gather", re.IGNORECASE)
_TIES = re.compile(r"(?:^|_)tied?(?:_|$)", re.IGNORECASE)
_DEVICE = re.compile(r"device|\bdev\b|xla", re.IGNORECASE)


class _Wrap(NamedTuple):
    """A call that returns another model in place of one.

    Attributes:
        script: The script that has it.
        call: It.
        inner: The model, as it is written.
        outer: What the other is called; "" where nothing keeps it.
    """

    script: Script
    call: ast.Call
    inner: str
    outer: str


def _wraps(program: Program, *names: str) -> Iterator[_Wrap]:
    """The calls of wrappers, by their names, and of the program's functions that return what they wrap."""
    by_functions = dict(_wrapping(program, names))
    for script, call in program.calls:
        if name_of(call) in by_functions:
            function, parameter = by_functions[name_of(call)]
            given = _given(function, call).get(parameter)
        else:
            given = _wrapped(program, script, call, names)
        inner = "" if given is None else _model_in(given)
        statement = next(one for one in script.ancestors(call) if isinstance(one, ast.stmt))
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if inner and isinstance(target, ast.Name | ast.Attribute) and isinstance(statement, ast.Assign | ast.AnnAssign):
            yield _Wrap(script, call, inner, ast.unparse(target))
        elif inner and isinstance(statement, ast.Expr) and statement.value is call and name_of(call) in names:
            yield _Wrap(script, call, inner, "")


def _wrapped(program: Program, script: Script, call: ast.Call, names: Sequence[str]) -> ast.expr | None:
    """What a wrapper is given, by the wrappers' names; None for other calls."""
    name = name_of(call)
    if (
        name not in names
        or name in program.definitions
        or (name == "compile" and script.imported(call.func) != _COMPILE)
    ):
        return None
    return keyword(call, "module") or keyword(call, "model") or next(iter(call.args), None)


def _wrapping(program: Program, names: Sequence[str]) -> Iterator[tuple[str, tuple[Function, str]]]:
    """The names of the functions that return their parameter wrapped, each with the function and the parameter's name."""
    for script, call in program.calls:
        given, function = _wrapped(program, script, call, names), function_around(script, call)
        if given is None or function is None or _model_in(given) not in parameters_of(function):
            continue
        assign = script.parents.get(call)
        made = ast.unparse(assign.targets[0]) if isinstance(assign, ast.Assign) else ""
        returned = [one.value for one in ast.walk(function) if isinstance(one, ast.Return) and one.value is not None]
        if any(call in ast.walk(one) or ast.unparse(one) == made for one in returned):
            yield function.name, (function, _model_in(given))


def _model_in(given: ast.expr) -> str:
    """The name of the model in an expression like ``torch.compile(model.to(device))``; "" where it has none."""
    while isinstance(given, ast.Call):
        if isinstance(given.func, ast.Attribute) and given.func.attr in _SAME:
            given = given.func.value
        elif given.args:
            given = given.args[0]
        else:
            return ""
    return ast.unparse(given) if isinstance(given, ast.Name | ast.Attribute) else ""


def _passed_by(program: Program, wrap: _Wrap) -> Iterator[tuple[Script, ast.Call]]:
    """The calls of each step that compute with a model from before it was wrapped, and those that pass it to such a step."""
    around = function_around(wrap.script, wrap.call)
    is_known = "." in wrap.inner or around is None  # in all functions
    for script in program.scripts:
        for parts in map(script.parts_of, script.step_loops):
            if wrap.outer and any(wrap.outer in ast.unparse(part) for part in parts):
                continue
            for part in parts:
                function = part if isinstance(part, Function) else function_around(script, part)
                is_it = function is around or (is_known and wrap.inner not in parameters_of(function))
                if is_it and script is wrap.script:
                    yield from ((script, call) for call in _computing(script, part, wrap.inner))
                elif function is not None:
                    yield from _passing(program, wrap, script, part, function)


def _passing(
    program: Program, wrap: _Wrap, script: Script, part: ast.AST, function: Function
) -> Iterator[tuple[Script, ast.Call]]:
    """The calls of the wrap's function, after it, that give the steps of another one the model."""
    around = function_around(wrap.script, wrap.call)
    names = [name for name in parameters_of(function) if any(_computing(script, part, name))]
    for call in wrap.script.calls if names else ():
        if name_of(call) == function.name and function_around(wrap.script, call) is around:
            given = {name: ast.unparse(one) for name, one in _given(function, call).items()}
            is_left = wrap.outer and any(wrap.outer in text for text in given.values())
            if call.lineno > wrap.call.lineno and not is_left and wrap.inner in (given.get(name) for name in names):
                yield wrap.script, call


def _given(function: Function, call: ast.Call) -> dict[str, ast.expr]:
    """What a call gives the parameters of a function, by their names."""
    names = [one.arg for one in function.args.args]
    names = names[1:] if names[:1] == ["self"] else names
    return dict(zip(names, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}


def _computing(script: Script, part: ast.AST, model: str) -> Iterator[ast.Call]:
    """The calls of a model in a part of a step whose gradients are computed."""
    for node in (one for one in ast.walk(part) if isinstance(one, ast.Call)):
        if ast.unparse(node.func) in (model, f"{model}.forward") and not _is_without_gradients(script, node):
            yield node


def _is_without_gradients(script: Script, node: ast.AST) -> bool:
    withs = (one for one in script.ancestors(node) if isinstance(one, ast.With))
    texts = (ast.unparse(item.context_expr) for one in withs for item in one.items)
    return any("no_grad" in text or "inference_mode" in text for text in texts)


def _forward(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's notes "Distributed Data Parallel": DDP's own ``forward`` prepares the reducer, which averages nothing else."""
    for program in together(scripts, job):
        how = "nothing averages these gradients, and each process trains a model of its own: call "
        for wrap in _wraps(program, *DDP):
            for script, call in _passed_by(program, wrap):
                new = wrap.outer or "what DistributedDataParallel() returns"
                yield (
                    script,
                    call.lineno,
                    f"{wrap.inner} is the model from before DistributedDataParallel, so that {how}{new}",
                )
        for script, call in _around_wrapper(program) if {*DDP} & program.used else ():
            wrapper = ast.unparse(call.func).partition(".module")[0]
            yield script, call.lineno, f"{ast.unparse(call.func)}() passes the wrapper by, so that {how}{wrapper}()"


def _around_wrapper(program: Program) -> Iterator[tuple[Script, ast.Call]]:
    """The calls of each step by which the wrapped model computes the loss, where nothing calls the wrapper itself."""
    for script in program.scripts:
        for part in script.step_parts:
            for call in (one for one in ast.walk(part) if isinstance(one, ast.Call)):
                wrapper, module, method = ast.unparse(call.func).partition(".module")
                is_own = f"{wrapper}.module" in program.values  # an attribute of a class
                is_its = module and re.fullmatch(r"(?:\.\w+)?", method) and not is_own and _differentiates(script, call)
                if is_its and not any(_computing(script, part, wrapper)):
                    yield script, call


def _differentiates(script: Script, call: ast.Call) -> bool:
    """Whether a call is what a model computes for a loss: its forward, or what is differentiated itself."""
    if _is_without_gradients(script, call):
        return False
    if ast.unparse(call.func).endswith((".module", ".module.forward")):
        return True
    assign = script.parents.get(call)
    return isinstance(assign, ast.Assign) and ast.unparse(assign.targets[0]) in script.differentiated


def _no_sync(scripts: Sequence[Script], job: Job) -> Found:
    """DDP's ``no_sync``: gradients "will later be synchronized in the first forward-backward pass exiting the context"."""
    for program in together(scripts, job):
        for script in program.scripts:
            for part in script.step_parts:
                backwards = [one for one in ast.walk(part) if isinstance(one, ast.Call) and name_of(one) == "backward"]
                held = [(one, _held(script, part, one)) for one in backwards]
                for backward, around in held if all(around for _, around in held) else ():
                    if around is not None and _has_forward(around, backward):
                        why = "nothing averages gradients, since each forward and backward is within no_sync()"
                        yield script, around.lineno, f"{why}: leave the last one before optimizer.step() out of it"


def _held(script: Script, part: ast.AST, backward: ast.Call) -> ast.With | None:
    """The ``with model.no_sync()`` that has a backward; None for none, or one that may be another context."""
    withs = (one for one in up_to(script, backward, part) if isinstance(one, ast.With))
    return next((one for one in withs if any(_is_no_sync(item.context_expr) for item in one.items)), None)


def up_to(script: Script, node: ast.AST, end: ast.AST) -> Iterator[ast.AST]:
    """Yield what is around a node, the innermost first, up to what is around all of it.

    Args:
        script: The script.
        node: The node.
        end: What is around it, which is left out.
    """
    for around in script.ancestors(node):
        if around is end:
            return
        yield around


def _is_no_sync(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and name_of(node) == "no_sync"


def _has_forward(around: ast.With, backward: ast.Call) -> bool:
    """Whether the loss is computed within: a forward before ``no_sync()`` averages in spite of it."""
    loss = {one.id for one in ast.walk(backward.func) if isinstance(one, ast.Name)}
    made = {ast.unparse(target) for one in ast.walk(around) if isinstance(one, ast.Assign) for target in one.targets}
    return bool(loss & made) or any(isinstance(one, ast.Call) for one in ast.walk(backward.func))


def _prepared(scripts: Sequence[Script], job: Job) -> Found:
    """Accelerate's "Migrating your code": "prepare your PyTorch objects [...] for distributed training"; others stay."""
    for program in () if is_alone(scripts, job) else programs(scripts, job.entry_point):
        if not program.trains_by("accelerate"):
            continue
        for script in program.scripts:
            prepares = [call for call in script.calls if _PREPARES.search(ast.unparse(call.func))]
            for function in {function_around(script, call) for call in prepares}:
                here = [call for call in prepares if function_around(script, call) is function]
                given = [one for call in here for one in call.args]
                if all(isinstance(one, ast.Name | ast.Attribute) for one in given):
                    yield from _unprepared(script, function, {ast.unparse(one) for one in given})


def _unprepared(script: Script, function: Function | None, given: set[str]) -> Found:
    """The models and loaders of a function that train there, and are not among what it gives ``prepare``."""
    loops = {
        ast.unparse(name)
        for loop in script.step_loops
        if isinstance(loop, ast.For) and function_around(script, loop) is function
        for name in (loop.iter, *(loop.iter.args[:1] if isinstance(loop.iter, ast.Call) else ()))
    }
    for call in script.calls:
        if function_around(script, call) is not function:
            continue
        assign = script.parents.get(call)
        made = ast.unparse(assign.targets[0]) if isinstance(assign, ast.Assign) else ""
        first = ast.unparse(call.args[0]) if call.args else ""
        model = first.removesuffix(".parameters()")
        if model != first and model not in given and OPTIMIZER.search(ast.unparse(call.func)):
            why = f"{model} is not among what accelerator.prepare() is given, so that nothing averages its gradients"
            yield script, call.lineno, f"{why}: prepare it with its optimizer"
        sampled = any(keyword(call, name) is not None for name in ("sampler", "batch_sampler"))
        if name_of(call) == "DataLoader" and made in loops - given and not sampled:
            why = f"{made} is not among what accelerator.prepare() is given, so that each process has all samples in each epoch"
            yield script, call.lineno, f"{why}: prepare it too"


def _one_rank_loads(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's notes "Distributed Data Parallel", "Construction": rank 0's ``state_dict`` is broadcast then; no later one is."""
    for program in together(scripts, job):
        options = {one.arg for _, call in program.calls for one in call.keywords if one.arg}
        if any(map(_SPREADS.search, program.used | options)):
            continue
        loads = [(script, call) for script, call in program.calls if name_of(call) == "load_state_dict"]
        wraps = list(_wraps(program, *DDP))
        for script, call in loads:
            side = side_of(script, call)
            if side != "one" or any(are_opposite(side, side_of(*other)) for other in loads):
                continue
            target = ast.unparse(call.func).removesuffix(".load_state_dict")
            here = [one for one in wraps if one.script is script and are_together(script, call, one.call)]
            is_later = any(target in (one.inner, one.outer) and one.call.lineno < call.lineno for one in here)
            of_wrapper = target.endswith(".module") and bool({*DDP} & program.used)
            if is_later or of_wrapper or OPTIMIZER.search(target) or {*SHARDING} & program.used:
                why = f"rank 0 alone loads the state of {target}, and the processes train on from different ones"
                yield script, call.lineno, f"{why}: load it on all ranks"


def _compile_unused(scripts: Sequence[Script], job: Job) -> Found:
    """``torch.compile`` returns the compiled model; the one that it is given stays as it is."""
    for program in programs(scripts, job.entry_point):
        for wrap in _wraps(program, "compile"):
            if not wrap.outer:
                why = f"returns a compiled model, which nothing keeps: {wrap.inner} = torch.compile({wrap.inner})"
                yield wrap.script, wrap.call.lineno, f"torch.compile() {why}"
            elif used := next(_passed_by(program, wrap), None):
                script, call = used
                why = f"{wrap.inner} is the model from before torch.compile(), which is compiled for nothing"
                yield script, call.lineno, f"{why}: call {wrap.outer}"


def _xla_optimizer(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch 1.6's torch.optim, "Constructing it": move a model first, whose parameters "will be different objects" after."""
    for script in on_xla(scripts, job):
        moves = [call for call in script.calls if name_of(call) == "to" and _names_device(call)]
        for call, move in optimizers_before(script, moves, _is_moved):
            why = f"has the parameters from before {ast.unparse(move.func)}(...), which PyTorch/XLA replaces, and trains nothing"
            yield script, call.lineno, f"{name_of(call)}() {why}: make it after"


def _names_device(move: ast.Call) -> bool:
    return any(_DEVICE.search(ast.unparse(one)) for one in move.args[:1])


def _is_moved(move: ast.Call, given: Sequence[str]) -> bool:
    model = ast.unparse(move.func).removesuffix(".to")
    return bool({model, f"{model}.parameters()"} & {*given[:1]})


def _xla_tied(scripts: Sequence[Script], job: Job) -> Found:
    """pytorch/xla#7042, Lightning-AI/pytorch-lightning#2705: parameters that are one on the CPU are two on an XLA device."""
    ties = any(_TIES.search(name) for one in scripts for name in one.used_names)
    for script in scripts if on_xla(scripts, job) and not ties else ():
        for node in (one for one in script.nodes if isinstance(one, ast.Assign)):
            function = function_around(script, node)
            sides = [*node.targets, node.value]
            are_weights = all(isinstance(one, ast.Attribute) and one.attr == "weight" for one in sides)
            if are_weights and function is not None and function.name == "__init__":
                one, other = ast.unparse(node.targets[0]), ast.unparse(node.value)
                why = f"{one} is another parameter than {other} after .to(device)"
                yield script, node.lineno, f"{why}: assign it once more, after the model was moved"


WRAPPED: Mapping[str, Check] = {
    "forward": _forward,
    "no-sync": _no_sync,
    "prepared": _prepared,
    "one-rank-loads": _one_rank_loads,
    "compile-unused": _compile_unused,
    "xla-optimizer": _xla_optimizer,
    "xla-tied": _xla_tied,
}
