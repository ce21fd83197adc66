"""The commands that replay a story in the local account, so that nobody has to believe the model."""

from __future__ import annotations

from training_jobs.prove.explorer import Step, Violation

_TIMES = {"throttled": 1, "outage": 12}  # more tries than the longest retrier of a read that can stop a job
_NO_FAULT = "# the local account has no fault for this step"


def commands(violation: Violation) -> list[str]:
    """A line a step: a comment that says what happens, or a command before it.

    Args:
        violation: What to replay.
    """
    lines = [f"# {violation.property} of {violation.machine}; start the workflow with `training-jobs start`"]
    lost = sum(step.fact == "lost event" for step in violation.story)
    if lost:  # before the executions end
        lines.append(f"local-account break lost-event --times {lost}")
    for at, step in enumerate(violation.story, 1):
        lines.append(f"# {at}. {step.text}")
        lines += _command(step)
    return lines


def _command(step: Step) -> list[str]:
    if step.fact in _TIMES and step.api.endswith("TrainingJob"):
        operation = step.api[0].upper() + step.api[1:]
        return [f"local-account break throttling {operation} --times {_TIMES[step.fact]}"]
    if step.fact in ("person stops", "in flight"):
        return ['aws stepfunctions stop-execution --execution-arn "$EXECUTION"']
    return (
        [_NO_FAULT]
        if step.fact in ("lost answer", "late", "event twice", "not cancelled", "outage", "throttled")
        else []
    )
