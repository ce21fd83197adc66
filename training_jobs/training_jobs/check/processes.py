"""What the processes of a script do beside each other, of which none is to train apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training_jobs.check.trace import Result, Trace

_MOST = 0.5  # of a process's samples in an epoch, that others have too: samplers repeat a few where they do not come out even


def compare_processes(traces: Sequence[Trace]) -> Iterator[Result]:
    """Yield what was found of several processes.

    Args:
        traces: The steps of each, by rank.
    """
    first = traces[0]
    if len(traces) < 2:
        return
    for rank, other in enumerate(traces[1:], 1):
        if len(other.steps) != len(first.steps):
            text = f"rank {rank} makes {len(other.steps)} steps, and rank 0 {len(first.steps)}"
            yield Result("processes", "wrong", text)
            return
    yield _parameters(traces)
    yield _samples(traces)


def _parameters(traces: Sequence[Trace]) -> Result:
    """Whether all have the same parameters at each step, as gradients that are averaged keep them."""
    first, count = traces[0], len(traces)
    if any(step.sharded for trace in traces for step in trace.steps):
        return Result("processes", "unknown", "each has shards of the parameters")
    if any(trace.optimizers != first.optimizers for trace in traces):
        return Result("processes", "unknown", "each has other parameters, as stages of a pipeline have")
    for at, steps in enumerate(zip(*(trace.steps for trace in traces), strict=True)):
        for rank, step in enumerate(steps):
            if step.parameters[""] != steps[0].parameters[""]:
                why = "they begin with others" if at == 0 else "their gradients are not averaged"
                text = f"rank {rank} has other parameters than rank 0 at step {at + 1}"
                if all(trace.last == first.last for trace in traces) and first.last:
                    return Result("processes", "unknown", f"{text}, and the same at the end")
                return Result("processes", "wrong", f"{text}: {why}")
            if step.groups != steps[0].groups:
                return Result(
                    "processes", "wrong", f"rank {rank} has other learning rates than rank 0 at step {at + 1}"
                )
    if any(trace.last != first.last for trace in traces):
        return Result("processes", "wrong", "they end with other parameters: their gradients are not averaged")
    return Result("processes", "ok", f"the same parameters on all {count} at each step")


def _samples(traces: Sequence[Trace]) -> Result:
    """Whether each has samples of its own in the first epoch, which ends where one has a sample again."""
    if not all(step.rows for trace in traces for step in trace.steps):
        return Result("shares", "unknown", "no DataLoader of PyTorch gives the samples")
    epoch = min(_until_again(trace) for trace in traces)
    own = [[row for step in trace.steps[:epoch] for row in step.rows] for trace in traces]
    for rank, rows in enumerate(own[1:], 1):
        common = len({*rows} & {*own[0]})
        if common > _MOST * len({*rows}):
            text = f"{common} of the {len({*rows})} samples of rank {rank} are rank 0's too"
            if any(step.sharded for trace in traces for step in trace.steps):
                return Result("shares", "unknown", f"{text}, as of ranks that share a layer")
            return Result("shares", "wrong", f"{text}: DistributedSampler deals them out")
    return Result("shares", "ok", f"each has {len(own[0])} samples of its own in {epoch} steps")


def _until_again(trace: Trace) -> int:
    """How many steps a process makes before one has a sample that it had."""
    seen = set[str]()
    for at, step in enumerate(trace.steps):
        if seen & {*step.rows}:
            return at
        seen |= {*step.rows}
    return len(trace.steps)
