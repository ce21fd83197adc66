"""The rules of how long a gradient is: that of a sum over processes, or of a loss that is divided twice.

Nothing ends with an error, since an optimizer takes a gradient of any length, and Adam hides most of it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from training_jobs.lint.distributed import SHARDING
from training_jobs.lint.program import Program, is_alone, programs, statements_before
from training_jobs.lint.script import Check, Found, Job, Script, constant, keyword, name_of
from training_jobs.lint.wrapped import DDP, up_to

_SIZE = re.compile(r"world_?size|num_processes|num_replicas|\bn(?:um)?_gpus?\b", re.IGNORECASE)
_STEPS = re.compile(r"accum", re.IGNORECASE)
_GRADIENT = re.compile(r"\.grad\b")
_OF_STEP = re.compile(r"grad|\blr\b|rate\b|flat|buf|bucket", re.IGNORECASE)
# By what gradients may be divided elsewhere, or not be divided at all.
_OTHER_DIVISOR = re.compile(r"comm_hook|divide_factor|predivide|paralleli[sz]e_module|distributed\.nn|loss_parallel")


def _all_reduce_sum(scripts: Sequence[Script], job: Job) -> Found:
    """PyTorch's tutorial "Writing Distributed Applications": after all_reduce it has "param.grad.data /= size"."""
    for program in () if is_alone(scripts, job) else programs(scripts, job.entry_point):
        if not program.by_hand or _is_divided(program):
            continue
        for script, call in program.calls:
            is_torchs = script.imported(call.func).startswith("torch.distributed.")
            adds = is_torchs and name_of(call) == "all_reduce" and "AVG" not in ast.unparse(call)
            if adds and any(_GRADIENT.search(ast.unparse(one)) for one in call.args[:1]):
                why = "adds the gradients of all processes, so that a step is as many times too long as there are"
                how = "divide them by dist.get_world_size(), or wrap the model in DistributedDataParallel"
                yield script, call.lineno, f"{why}: {how}"


def _is_divided(program: Program) -> bool:
    """Whether a gradient, a loss or the learning rate may be divided by the number of processes, and not just what is printed."""
    return any(
        _is_by(program, divisor, _SIZE) and _may_scale(script, node)
        for script in program.scripts
        for node in script.nodes
        for divisor in divisors(node)
    )


def _is_by(program: Program, divisor: ast.expr, by: re.Pattern[str]) -> bool:
    return any(by.search(ast.unparse(one)) for one in (divisor, *program.assigned(divisor)))


def _may_scale(script: Script, node: ast.AST) -> bool:
    """Whether what a division is of has to do with the optimizer's step."""
    around = [node, *script.ancestors(node)]
    statement = next(one for one in around if isinstance(one, ast.stmt))
    names = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)}
    loops = [ast.unparse(one.iter) for one in around if isinstance(one, ast.For)]
    return (
        bool(names & script.differentiated)
        or _OF_STEP.search(ast.unparse(statement)) is not None
        or any("param" in text for text in loops)
    )


def divisors(node: ast.AST) -> list[ast.expr]:
    """Return what a node divides by, or multiplies the inverse of.

    Args:
        node: It.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [node.right]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        return [node.value]
    named = isinstance(node, ast.Call) and name_of(node) in ("div", "div_", "mul_", "true_divide", "_foreach_div_")
    return [*node.args] if named and isinstance(node, ast.Call) else []


def _divided_twice(scripts: Sequence[Script], job: Job) -> Found:
    """DDP's reference: gradients "are averaged"; accelerate's ``backward`` divides by ``gradient_accumulation_steps`` too."""
    for program in () if is_alone(scripts, job) else programs(scripts, job.entry_point):
        hooks = program.mentions(_OTHER_DIVISOR)
        if program.by_hand and {*DDP, *SHARDING} & program.used and not hooks:
            for script, line, divisor in _divided(program, _SIZE):
                why = (
                    f"the loss is divided by {divisor}, and DistributedDataParallel or FSDP divides its gradients again"
                )
                yield script, line, f"{why}: leave this one out"
    for program in programs(scripts, job.entry_point):
        if program.trains_by("accelerate") and _accumulates_by_accelerate(program):
            for script, line, divisor in _divided(program, _STEPS):
                why = f"the loss is divided by {divisor}, and accelerator.backward() divides by gradient_accumulation_steps again"
                yield script, line, f"{why}: leave this one out"


def _accumulates_by_accelerate(program: Program) -> bool:
    made = [call for _, call in program.calls if name_of(call) == "Accelerator"]
    return any(
        constant(steps) != 1 for call in made if (steps := keyword(call, "gradient_accumulation_steps")) is not None
    )


def _divided(program: Program, by: re.Pattern[str]) -> Iterator[tuple[Script, int, str]]:
    """Where a loss is divided before it is differentiated, with by what."""
    for script in program.scripts:
        scaled_up = any(_multiplies(node, by) for part in script.step_parts for node in ast.walk(part))
        for part in () if scaled_up else script.step_parts:
            for call in ast.walk(part):
                if isinstance(call, ast.Call) and name_of(call) == "backward":
                    for line, divisor in _divisions(program, script, part, call, by):
                        yield script, line, ast.unparse(divisor)


def _multiplies(node: ast.AST, by: re.Pattern[str]) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and by.search(ast.unparse(node)) is not None


def _divisions(
    program: Program, script: Script, part: ast.AST, backward: ast.Call, by: re.Pattern[str]
) -> Iterator[tuple[int, ast.expr]]:
    """The divisions of what a backward differentiates: in its own expression, and in the statements of the step before it."""
    owner = backward.func.value if isinstance(backward.func, ast.Attribute) else backward
    losses = {one.id for part in (owner, *backward.args) for one in ast.walk(part) if isinstance(one, ast.Name)}
    parts: list[ast.AST] = [owner, *backward.args]
    inner: ast.AST = backward
    for around in (*up_to(script, backward, part), part):
        for before in statements_before(inner, around):
            targets = before.targets if isinstance(before, ast.Assign) else [getattr(before, "target", None)]
            if any(isinstance(one, ast.Name) and one.id in losses for one in targets):
                parts.append(before)
        inner = around
    for node in (one for part in parts for one in ast.walk(part)):
        for divisor in divisors(node):
            if _is_by(program, divisor, by):
                yield node.lineno, divisor  # type: ignore[attr-defined]


def _accelerate_backward(scripts: Sequence[Script], job: Job) -> Found:
    """Accelerate's "Migrating your code": ``accelerator.backward(loss)``, which divides and scales, for ``loss.backward()``."""
    for program in programs(scripts, job.entry_point):
        made = [call for _, call in program.calls if name_of(call) == "Accelerator"]
        scales = any(constant(keyword(call, "mixed_precision")) == "fp16" for call in made)
        scales = scales or _accumulates_by_accelerate(program)
        backwards = [(script, call) for script, call in program.calls if name_of(call) == "backward"]
        if program.trains_by("accelerate") and scales and not any(call.args for _, call in backwards):
            script, call = backwards[0]
            why = "divides by no gradient_accumulation_steps, and scales nothing for fp16, which the optimizer's step undoes"
            yield script, call.lineno, f"{ast.unparse(call)} {why}: accelerator.backward({ast.unparse(call.func)[:-9]})"


SCALES: Mapping[str, Check] = {
    "all-reduce-sum": _all_reduce_sum,
    "divided-twice": _divided_twice,
    "accelerate-backward": _accelerate_backward,
}
