"""What a script that was interrupted goes on with, beside what it would have gone on with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from training_jobs.check.trace import Result, Step, Trace

_SHOWN = 3  # names of parameters in a line


def step_to_interrupt(whole: Trace) -> int | None:
    """Return after how many steps to end the script: between a checkpoint in the middle and the next.

    Args:
        whole: Its run without an interruption.

    Returns:
        The number; None where no checkpoint is written before the last step.
    """
    written = [one for one in whole.checkpoints if one[1] < len(whole.steps)]
    if not written:
        return None
    # Of more than ten the eleventh at least: a script that takes the last of the names is wrong from there, by 9 and 10.
    middle = written[max(len(written) // 2, 10 if len(written) > 10 else 0)][1]
    following = next((begin for begin, _ in whole.checkpoints if begin > middle), len(whole.steps))
    return middle + max(1, (following - middle) // 2)


def trains(whole: Trace) -> Iterator[Result]:
    """Yield that no step changes a parameter, as where the optimizer has others than the model.

    Args:
        whole: A run without an interruption.
    """
    for number, (kind, _) in enumerate(whole.optimizers):
        steps = [step for step in whole.steps if step.optimizer == number]
        last = whole.last[number] if whole.last else steps[-1].parameters[""]
        rates = any(group.get("lr") for step in steps for group in step.groups)
        if rates and steps and all(step.parameters[""] == last for step in steps):
            text = f"none of the {len(steps)} steps of {kind} changes its parameters: it may have others than the model"
            yield Result("training", "wrong", text)


def compare(whole: Trace, first: Trace, second: Trace) -> list[Result]:
    """Return what was found of a process.

    Args:
        whole: Its run without an interruption.
        first: Its run until the interruption.
        second: Its run from there.
    """
    saved = first.checkpoints[-1][0] if first.checkpoints else 0
    if not second.steps:
        return [Result("steps", "wrong", f"none is made after the interruption, {len(whole.steps) - saved} are left")]
    from_step, result = _parameters(first, second, saved)
    count = _count(whole, second, from_step, saved)
    if not from_step:
        return [result, count]
    following = next(iter(whole.steps[from_step:]), None)
    return [
        result,
        _optimizer(first, second, from_step),
        _groups(whole, second, from_step),
        count,
        _batches(following, first.steps[:from_step], second),
        _end(whole, following, second),
    ]


def _parameters(first: Trace, second: Trace, saved: int) -> tuple[int | None, Result]:
    """After which step of the first run the second goes on, by its parameters."""
    begin = second.steps[0]
    names = second.optimizers[begin.optimizer][1]
    candidates = [at for at, step in enumerate(first.steps) if step.optimizer == begin.optimizer]
    for rounding in begin.parameters:
        equal = (
            at for at in candidates if all(_equal(first.steps[at].parameters[rounding], begin.parameters[rounding]))
        )
        if (best := _likeliest([*equal], first)) is not None:
            return best, _loaded(first, best, saved, rounding)
    known = {at: _equal(first.steps[at].parameters[""], begin.parameters[""]) for at in candidates}
    best = max(candidates, key=lambda at: (sum(known[at]), at), default=0)
    if best and sum(known[best]) * 2 >= len(known[best]):
        wrong = [name for name, same in zip(names, known[best], strict=False) if not same]
        return best, Result("parameters", "wrong", f"those after step {best}, but for {_some(wrong)}")
    why = f"those of no step before: the checkpoint of step {saved} is not loaded"
    return None, Result("parameters", "wrong", why)


def _loaded(first: Trace, step: int, saved: int, rounding: str) -> Result:
    """Whether the parameters after a step are those that were saved last."""
    if step == 0:
        return Result("parameters", "wrong", f"those at the begin: the checkpoint of step {saved} is not loaded")
    if rounding:
        return Result("parameters", "wrong", f"those after step {step}, rounded to {rounding}")
    begun = [begin for begin, _ in first.checkpoints]
    # What is written beside the steps is seen after later ones than that which it has.
    if len([begin for begin in begun if begin > step]) > (step not in begun):
        return Result("parameters", "wrong", f"those after step {step}, though step {saved} was saved after it")
    return Result("parameters", "ok", f"those after step {step}, the last that was saved")


def _likeliest(steps: Sequence[int], first: Trace) -> int | None:
    """The step after which a script goes on, of those with equal parameters, as where the rate begins at 0."""
    begun = [begin for begin, _ in first.checkpoints]
    return max((at for at in steps if at in begun), default=min(steps, default=None))


def _equal(one: Sequence[str], other: Sequence[str]) -> list[bool]:
    return [left == right for left, right in zip(one, other, strict=True)] if len(one) == len(other) else [False]


def _optimizer(first: Trace, second: Trace, from_step: int) -> Result:
    expected, found = first.steps[from_step].state, second.steps[0].state
    kind, names = second.optimizers[second.steps[0].optimizer]
    if not any(expected):
        return Result("optimizer", "ok", f"{kind} has no state")
    if not any(found):
        return Result("optimizer", "wrong", f"{kind} begins without its state: save and load that too")
    wrong = [name for name, same in zip(names, _equal(expected, found), strict=False) if not same]
    if wrong:
        return Result("optimizer", "wrong", f"{kind} has another state than after step {from_step}, of {_some(wrong)}")
    return Result("optimizer", "ok", f"the state of {kind}")


def _groups(whole: Trace, second: Trace, from_step: int) -> Result:
    """Learning rates and their like, at each step that both make."""
    for at, (expected, found) in enumerate(zip(whole.steps[from_step:], second.steps, strict=False), from_step + 1):
        for one, other in zip(expected.groups, found.groups, strict=False):
            for name in sorted(one.keys() & other.keys()):
                if not _close(one[name], other[name]):
                    why = ": save and load the scheduler's state too" if name in ("lr", "momentum", "betas") else ""
                    text = f"{name} is {_number(other[name])} at step {at}, and {_number(one[name])} without the interruption"
                    return Result("schedule", "wrong", text + why)
    rates = [group["lr"] for step in second.steps for group in step.groups if "lr" in group]
    return Result(
        "schedule", "ok", f"learning rates from {_number(rates[0])} to {_number(rates[-1])}" if rates else "none"
    )


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(one == other) or (
        isinstance(one, float) and isinstance(other, float) and abs(one - other) <= 1e-6 * max(abs(one), abs(other))
    )


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _count(whole: Trace, second: Trace, from_step: int | None, saved: int) -> Result:
    """Whether both runs together make as many steps as one; a loop may go on though its parameters do not."""
    made, after = len(second.steps), from_step or saved
    left = len(whole.steps) - after
    if made == left:
        return Result("steps", "ok", f"{made} after step {after}, as without the interruption")
    if made == len(whole.steps):
        return Result("steps", "wrong", f"all {made} again, where {left} are left")
    return Result(
        "steps", "wrong", f"{made} after step {after}, where {left} are left: the loop does not go on where it was"
    )


def _batches(following: Step | None, before: Sequence[Step], second: Trace) -> Result:
    """Whether the samples go on; many scripts have them begin again, which repeats some and leaves out others."""
    found = second.steps[0].batch
    if not found:
        return Result("samples", "unknown", "no DataLoader of PyTorch gives them")
    if following is not None and found == following.batch:
        return Result("samples", "ok", "the batch that would have been next")
    seen = next((at for at, step in enumerate(before) if step.batch == found), None)
    if seen is not None:
        return Result("samples", "unknown", f"the batch of step {seen + 1} again, as at the begin of an epoch")
    return Result("samples", "unknown", "another batch than without the interruption, in an order of its own")


def _end(whole: Trace, following: Step | None, second: Trace) -> Result:
    if second.last is None or whole.last is None:
        return Result("model", "unknown", "the script did not end by itself")
    if second.last == whole.last:
        return Result("model", "ok", "the same at the end, bit for bit")
    found = second.steps[0].gradient
    if found and following is not None and found == following.gradient:
        return Result("model", "unknown", "another at the end, from the same first gradient")
    if found:
        return Result("model", "unknown", "another at the end, from other gradients: other samples or random numbers")
    return Result("model", "unknown", "another at the end")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def merged(results: Iterator[list[Result]]) -> list[Result]:
    """Return the worst result of all processes of each subject.

    Args:
        results: Those of each process, by rank.
    """
    order = ("ok", "unknown", "wrong")
    found: dict[str, tuple[int, Result]] = {}
    for rank, of_process in enumerate(results):
        for result in of_process:
            known = found.get(result.subject)
            if known is None or order.index(result.verdict) > order.index(known[1].verdict):
                found[result.subject] = rank, result
    return [
        Result(one.subject, one.verdict, one.text + (f" (rank {rank})" if rank and one.verdict != "ok" else ""))
        for rank, one in found.values()
    ]
